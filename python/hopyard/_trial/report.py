# SPDX-License-Identifier: Apache-2.0
"""hopyard.report: intermediate values of a trial, reported by the function."""

import os
from collections.abc import Mapping
from typing import Any

from .. import _hopyard
from .._base.metrics import describe, number


def is_trial() -> bool:
    """Whether this process belongs to a trial, so that an agent receives its reports."""
    return "HOPYARD_SOCKET" in os.environ and "HOPYARD_TAG" in os.environ


_reported: dict[str, float] = {}


def reported() -> Mapping[str, float]:
    """The last value of each name that this process has reported."""
    return _reported


def report(step: int | None = None, **values: Any) -> None:
    """Report values of this trial while it trains: `hopyard.report(step=epoch, accuracy=0.91)`.

    They appear in the live table and in TensorBoard, and are stored with the run. If the function returns no value for
    the run's metric, its last reported value is used. Outside of a trial this does nothing, so that a training function
    can be called directly.

    step: the epoch or batch that the values belong to, from 0 on; None: not specified
    values: numbers by name: Python's, NumPy's, or tensors with one element

    Raises hopyard.Error for a value that is not a number.
    """
    if not values:
        raise _hopyard.Error("nothing to report; try hopyard.report(step=3, accuracy=0.91)")
    send(step, values)


def send(step: int | None, values: Mapping[str, Any]) -> None:
    """Like `report`, for names that may not be identifiers, or may be `step`."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        as_number = number(value)
        if as_number is None:
            raise _hopyard.Error(f"'{name}' is {describe(value)}, which is not a number")
        numbers[name] = as_number
    _hopyard.report(numbers, step, None, None)
    _reported.update(numbers)
