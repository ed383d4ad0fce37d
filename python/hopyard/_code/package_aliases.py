# SPDX-License-Identifier: Apache-2.0
"""Import hooks that serve packages of other names (horovod, hops, tensorflowonspark) from hopyard's directories."""

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
    """A meta path finder that serves its packages (name and directory), and nothing else.

    `absent` maps modules that are not in a directory to their loaders. `on_shadow` is called with the name and
    directory of an installed package of the same name before ours is imported.
    """

    def __init__(
        self,
        packages: Mapping[str, str],
        absent: Mapping[str, Loader] | None = None,
        on_shadow: Callable[[str, str], None] | None = None,
    ) -> None:
        self.packages = packages
        self.absent = absent or {}
        self.on_shadow = on_shadow

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, *rest = name.split(".")
        if top not in self.packages:
            return None
        if name in self.absent:
            return ModuleSpec(name, self.absent[name])
        if self.on_shadow and not rest:
            self._report_shadowed(name)
        return _spec(name, os.path.join(self.packages[top], *rest))

    def _report_shadowed(self, name: str) -> None:
        other = PathFinder.find_spec(name)
        if self.on_shadow and other is not None and other.origin:
            self.on_shadow(name, os.path.dirname(other.origin))


def _spec(name: str, place: str) -> ModuleSpec | None:
    if os.path.isfile(os.path.join(place, "__init__.py")):
        file, inside = os.path.join(place, "__init__.py"), [place]
    else:
        file, inside = f"{place}.py", None
    if not os.path.isfile(file):
        return None
    return importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)


# ---- in the ranks of a training ----------------------------------------------------------------


def _warn_shadowed(name: str, directory: str) -> None:
    text = f"hopyard: in the ranks of a training, '{name}' is hopyard's; the package in {directory} is ignored"
    print(text, file=sys.stderr)


def serve_ranks() -> None:
    """Makes `import horovod` find hopyard's: in a rank that `hopyard train` started no other can work.

    In a rank that mpirun or srun started, an installed Horovod can work and takes precedence. hopyard.pth calls this
    if the environment shows that this process is a rank, so that programs need not.
    """
    if any(isinstance(finder, Finder) and "horovod" in finder.packages for finder in sys.meta_path):
        return
    ours = {"horovod": os.path.join(COMPAT, "horovod")}
    if os.environ.get("HOPYARD_GROUP"):
        sys.meta_path.insert(0, Finder(ours, on_shadow=_warn_shadowed))
    else:
        sys.meta_path.append(Finder(ours))


# ---- hopyard.compat ------------------------------------------------------------------------------


def is_compat_imported() -> bool:
    """Whether the user's program has imported hopyard.compat: then its trials need it too."""
    return "hopyard.compat" in sys.modules


def import_compat() -> None:
    """Imports it by name: hopyard does not depend on compat, only a program that uses compat does."""
    importlib.import_module("hopyard.compat")
