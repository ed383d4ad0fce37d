# SPDX-License-Identifier: Apache-2.0
"""Plots of a result, with matplotlib or Plotly."""

import importlib
import importlib.util
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .._base.errors import Error
from . import plot_data
from .result import Result

_BACKENDS = ("matplotlib", "plotly")
_KINDS = ("history", "importance", "parallel", "scatter")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # sys.modules has None for it
        return False


def _backend(name: str | None) -> ModuleType:
    if name is not None and name not in _BACKENDS:
        raise Error(f"backend= takes 'matplotlib' or 'plotly', not {name!r}")
    found = [b for b in _BACKENDS if name in (None, b) and _is_installed(b)]
    if not found:
        needed = name or "matplotlib or plotly"
        raise Error(f"plot needs {needed}, which is not installed; try: pip install {name or 'matplotlib'}")
    return importlib.import_module(f".plot_{found[0]}", __package__)


def plot(result: Result, kind: str, params: Sequence[str] | None, backend: str | None) -> Any:
    if kind not in _KINDS:
        raise Error(f"kind= takes {', '.join(map(repr, _KINDS[:-1]))} or {_KINDS[-1]!r}, not {kind!r}")
    if isinstance(params, str):
        raise Error(f"params= takes a list of names, such as [{params!r}]")
    if kind == "history" and params is not None:
        raise Error("params= has no meaning for a history, which shows no hyperparameters")
    draw = getattr(_backend(backend), kind)
    if kind == "history":
        return draw(plot_data.history(result))
    return draw(getattr(plot_data, kind)(result, params))
