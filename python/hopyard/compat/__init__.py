# SPDX-License-Identifier: Apache-2.0
"""`import hopyard.compat`: from here on `import hops`, `import horovod` and
`import tensorflowonspark` find hopyard's, not those installed.

Trials of a process that has imported this have it too. `python -m hopyard.compat script.py` runs a
script that does not say so itself.
"""

import os
import sys
import warnings

from .._code.package_aliases import COMPAT, Finder
from ._absent import ABSENT, AbsentLoader

__all__: list[str] = []

NAMES = ("hops", "horovod", "tensorflowonspark", "tensorflowonspark_gpu10p", "tensorflowonspark_gpu20p")
PACKAGES = {name: os.path.join(COMPAT, name) for name in NAMES}
"""The names that are served, and the folders they are served from."""


def _forget_others() -> None:
    """What was imported under our names before is somebody else's; names bound to it stay bound to it."""
    for top, folder in PACKAGES.items():
        before = sys.modules.get(top)
        if before is None or folder in getattr(before, "__path__", ()):
            continue
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]
        warnings.warn(
            f"'{top}' was imported before hopyard.compat; from here on it is hopyard's, but what was "
            "imported from the other one stays: put 'import hopyard.compat' first",
            stacklevel=3,
        )


_forget_others()
sys.meta_path.insert(0, Finder(PACKAGES, dict.fromkeys(ABSENT, AbsentLoader())))
