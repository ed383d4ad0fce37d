# SPDX-License-Identifier: Apache-2.0
"""Steps to take with a module as soon as it is there: now, or when the function imports it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Step = Callable[[Any], None]


def _add_step(loader: Any, step: Step) -> None:
    """The loader is its module's own, so that it can be changed; it stays the module's `__loader__`."""
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        load(module)
        step(module)

    loader.exec_module = exec_module


class _Finder:
    """Finds what the finders behind it find, and adds the steps."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self.steps = dict(steps)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        step = self.steps.pop(name, None)
        if step is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                _add_step(spec.loader, step)
                return spec
        return None


def take_steps(steps: Mapping[str, Step]) -> None:
    """Each with its module, where that is imported."""
    for name, step in steps.items():
        if name in sys.modules:
            step(sys.modules[name])


def take_steps_later(steps: Mapping[str, Step]) -> None:
    """Each right after its module is imported; none, where it has been."""
    waiting = {name: step for name, step in steps.items() if name not in sys.modules}
    sys.meta_path.insert(0, _Finder(waiting))
