# SPDX-License-Identifier: Apache-2.0
"""hopyard.report: how a trial is doing, from inside the function that is run."""

import reprlib
from typing import Any

from . import _hopyard

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def described(value: Any) -> str:
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


def report(step: int | None = None, **values: Any) -> None:
    """Values of this trial so far: `hopyard.report(step=epoch, accuracy=0.91)`.

    They appear in the live table at once, are kept with the run, and in TensorBoard. Returns when the
    agent has taken them; raises hopyard.Error outside of a trial.
    """
    if not values:
        raise _hopyard.Error("nothing to report; try hopyard.report(step=3, accuracy=0.91)")
    numbers = {name: number(value) for name, value in values.items()}
    for name, value in numbers.items():
        if value is None:
            raise _hopyard.Error(f"'{name}' is {described(values[name])}, which is no number")
    _hopyard.report(numbers, step, None, None)
