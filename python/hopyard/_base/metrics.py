# SPDX-License-Identifier: Apache-2.0
"""Metrics: what counts as a number, what a metric is called, and values in messages."""

import re
import reprlib
from typing import Any

DEFAULT_METRIC = "metric"  # what a returned number is called
NO_METRIC = "so the trial has no metric"  # in each remark that says so: a Result finds it by this

_COST = re.compile(r"loss|error|(?:^|_)(?:r?mse|mae|mape|msle)(?:$|_)", re.IGNORECASE)

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def describe(value: Any) -> str:
    """A value in a sentence: `[0.3, 0.91] (list)`."""
    return f"{' '.join(_short.repr(value).split())} ({type(value).__name__})"


def number(value: Any) -> float | None:
    """What float() makes of it; None when it is no number. Texts are none, and neither is True."""
    dtype = getattr(value, "dtype", None)
    if isinstance(value, (bool, str, bytes, bytearray)) or getattr(dtype, "name", "") == "bool":
        return None
    try:
        return float(value)
    except Exception:  # a class may raise what it likes
        return None


def is_cost(name: str) -> bool:
    """Whether less of it is usually better: a loss, an error."""
    return _COST.search(name) is not None
