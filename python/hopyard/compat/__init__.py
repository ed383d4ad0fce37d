# SPDX-License-Identifier: Apache-2.0
"""`import hopyard.compat` makes `import hops`, `import horovod` and `import tensorflowonspark` find hopyard's packages
instead of installed ones.

Trials of a process that has imported this import it too. `python -m hopyard.compat script.py` runs a script that does
not import it.
"""

import os
import sys
import warnings

from .._code.package_aliases import COMPAT, Finder
from ._absent import ABSENT, AbsentLoader

__all__: list[str] = []

NAMES = ("hops", "horovod", "tensorflowonspark", "tensorflowonspark_gpu10p", "tensorflowonspark_gpu20p")
PACKAGES = {name: os.path.join(COMPAT, name) for name in NAMES}
"""The served packages, and their directories."""


def _remove_imported() -> None:
    """Removes packages of the same names from sys.modules; existing references to them stay."""
    for top, folder in PACKAGES.items():
        before = sys.modules.get(top)
        if before is None or folder in getattr(before, "__path__", ()):
            continue
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]
        warnings.warn(
            f"'{top}' was imported before hopyard.compat; new imports find hopyard's, but existing references stay: "
            "put 'import hopyard.compat' first",
            stacklevel=3,
        )


_remove_imported()
sys.meta_path.insert(0, Finder(PACKAGES, dict.fromkeys(ABSENT, AbsentLoader())))
