# SPDX-License-Identifier: Apache-2.0
"""Callbacks that run when a module is imported, or at once if it is already."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Hook = Callable[[Any], None]


def _add_hook(loader: Any, hook: Hook) -> None:
    """Patches the module's loader, which stays its `__loader__`."""
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        load(module)
        hook(module)

    loader.exec_module = exec_module


class _Finder:
    """Delegates to the finders after it, and adds the hooks to the loader that they return."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self.hooks = dict(hooks)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hook = self.hooks.pop(name, None)
        if hook is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                _add_hook(spec.loader, hook)
                return spec
        return None


def run_for_imported(hooks: Mapping[str, Hook]) -> None:
    """Calls the hooks of modules that are imported already."""
    for name, hook in hooks.items():
        if name in sys.modules:
            hook(sys.modules[name])


def run_after_import(hooks: Mapping[str, Hook]) -> None:
    """Calls each hook right after its module is imported; not those of modules that are imported already."""
    waiting = {name: hook for name, hook in hooks.items() if name not in sys.modules}
    sys.meta_path.insert(0, _Finder(waiting))
