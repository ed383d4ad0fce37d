# SPDX-License-Identifier: Apache-2.0
"""Packages of other names that hopyard serves, from folders of its own."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

COMPAT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "compat")


class Finder:
    """Stands first in sys.meta_path and serves its packages (name and folder), and nothing else.

    `absent` are modules that are not in a folder, and what loads them; `passes_over` is told of a package
    of that name that is installed, before ours is imported.
    """

    def __init__(
        self,
        packages: Mapping[str, str],
        absent: Mapping[str, Loader] | None = None,
        passes_over: Callable[[str, str], None] | None = None,
    ) -> None:
        self.packages = packages
        self.absent = absent or {}
        self.passes_over = passes_over

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, *rest = name.split(".")
        if top not in self.packages:
            return None
        if name in self.absent:
            return ModuleSpec(name, self.absent[name])
        if self.passes_over and not rest:
            self._look_for_another(name)
        return _spec(name, os.path.join(self.packages[top], *rest))

    def _look_for_another(self, name: str) -> None:
        other = PathFinder.find_spec(name)
        if self.passes_over and other is not None and other.origin:
            self.passes_over(name, os.path.dirname(other.origin))


def _spec(name: str, place: str) -> ModuleSpec | None:
    if os.path.isfile(os.path.join(place, "__init__.py")):
        file, inside = os.path.join(place, "__init__.py"), [place]
    else:
        file, inside = f"{place}.py", None
    if not os.path.isfile(file):
        return None
    return importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)


# ---- in the ranks of a training ----------------------------------------------------------------


def _say(name: str, folder: str) -> None:
    said = f"hopyard: '{name}' is hopyard's in the ranks of a training; the one in {folder} is passed over"
    print(said, file=sys.stderr)


def serve_ranks() -> None:
    """From here on `import horovod` finds hopyard's: in a rank that `hopyard train` started no other one can work.

    In a rank that mpirun or srun started one that is installed can, and counts. hopyard.pth calls this where the
    environment says that this process is a rank, so that programs need not.
    """
    if any(isinstance(finder, Finder) and "horovod" in finder.packages for finder in sys.meta_path):
        return
    ours = {"horovod": os.path.join(COMPAT, "horovod")}
    if os.environ.get("HOPYARD_GROUP"):
        sys.meta_path.insert(0, Finder(ours, passes_over=_say))
    else:
        sys.meta_path.append(Finder(ours))


# ---- hopyard.compat ------------------------------------------------------------------------------


def is_compat_imported() -> bool:
    """Whether the user's program has imported hopyard.compat: then its trials need it too."""
    return "hopyard.compat" in sys.modules


def import_compat() -> None:
    """Imports it by name: hopyard does not depend on compat, only a program that uses compat does."""
    importlib.import_module("hopyard.compat")
