# SPDX-License-Identifier: Apache-2.0
"""Metrics: what counts as a number, what a metric is called, and values in messages."""

import re
import reprlib
from typing import Any

DEFAULT_METRIC = "metric"  # the name of a returned number
NO_METRIC = "so the trial has no metric"  # part of every remark about it: Result looks for this text

_COST = re.compile(r"loss|error|(?:^|_)(?:r?mse|mae|mape|msle)(?:$|_)", re.IGNORECASE)

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def describe(value: Any) -> str:
    """A value for a message: `[0.3, 0.91] (list)`."""
    return f"{' '.join(_short.repr(value).split())} ({type(value).__name__})"


def number(value: Any) -> float | None:
    """The value as a float; None if it is not a number. Strings and booleans are not numbers."""
    dtype = getattr(value, "dtype", None)
    if isinstance(value, (bool, str, bytes, bytearray)) or getattr(dtype, "name", "") == "bool":
        return None
    try:
        return float(value)
    except Exception:  # __float__ may raise anything
        return None


def is_cost(name: str) -> bool:
    """Whether lower is usually better: a loss, an error."""
    return _COST.search(name) is not None
