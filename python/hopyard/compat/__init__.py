# SPDX-License-Identifier: Apache-2.0
"""`import hopyard.compat`: from here on `import hops` finds hopyard's, an installed one notwithstanding.

Trials of a process that has imported this have it too. `python -m hopyard.compat script.py` runs a
script that does not say so itself.
"""

import importlib.machinery
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

from ._absent import ABSENT, AbsentLoader

__all__: list[str] = []

_HERE = os.path.dirname(os.path.abspath(__file__))

PACKAGES = {"hops": os.path.join(_HERE, "hops")}
"""The names that are served, and the folders they are served from."""


class Finder:
    """Stands first in sys.meta_path and serves PACKAGES, and nothing else."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top, *rest = name.split(".")
        if top not in PACKAGES:
            return None
        if name in ABSENT:
            return importlib.machinery.ModuleSpec(name, AbsentLoader())
        place = os.path.join(PACKAGES[top], *rest)
        if os.path.isfile(os.path.join(place, "__init__.py")):
            file, inside = os.path.join(place, "__init__.py"), [place]
        else:
            file, inside = f"{place}.py", None
        if not os.path.isfile(file):
            return None
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)


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
sys.meta_path.insert(0, Finder)
