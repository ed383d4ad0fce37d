# SPDX-License-Identifier: Apache-2.0
"""hopyard.report: how a trial is doing, from inside the function that is run."""

import os
from collections.abc import Mapping
from typing import Any

from .. import _hopyard
from .._base.metrics import describe, number


def is_trial() -> bool:
    """Whether this process belongs to a trial: an agent takes what it reports."""
    return "HOPYARD_SOCKET" in os.environ and "HOPYARD_TAG" in os.environ


_reported: dict[str, float] = {}


def reported() -> Mapping[str, float]:
    """What this process has reported: the last value of each name."""
    return _reported


def report(step: int | None = None, **values: Any) -> None:
    """Report values of this trial while it trains: `hopyard.report(step=epoch, accuracy=0.91)`.

    They are in the live table at once, in TensorBoard, and kept with the run. The last value of the run's
    metric counts where the function returns none. Outside of a trial this does nothing, so that a training
    function can be called by hand.

    step: the epoch or batch that the values belong to, from 0 on; None: none in particular
    values: numbers by name: Python's, NumPy's, or tensors with one element

    Raises hopyard.Error for a value that is not a number.
    """
    if not values:
        raise _hopyard.Error("nothing to report; try hopyard.report(step=3, accuracy=0.91)")
    send(step, values)


def send(step: int | None, values: Mapping[str, Any]) -> None:
    """`report` for names that may be anything, `step` too."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        as_number = number(value)
        if as_number is None:
            raise _hopyard.Error(f"'{name}' is {describe(value)}, which is not a number")
        numbers[name] = as_number
    _hopyard.report(numbers, step, None, None)
    _reported.update(numbers)
