# SPDX-License-Identifier: Apache-2.0
"""hopyard.report: intermediate values of a trial, reported by the function."""

import enum
import os
from collections.abc import Mapping
from typing import Any

from .. import _hopyard
from .._base.metrics import describe, number


def is_trial() -> bool:
    """Whether this process belongs to a trial, so that an agent receives its reports."""
    return "HOPYARD_SOCKET" in os.environ and "HOPYARD_TAG" in os.environ


class Decision(enum.StrEnum):
    """What a trial is to do next, as `hopyard.report` returns it."""

    CONTINUE = "continue"
    STOP = "stop"
    """End: the trial is pruned. Its value is the last one that it has reported."""
    PAUSE = "pause"
    """Save a checkpoint to $HOPYARD_CHECKPOINT and end: the trial may be started again, to continue from there."""

    @property
    def should_end(self) -> bool:
        """Whether the trial is to end now. It is killed if it has not ended after the grace time, by default 30 s."""
        return self is not Decision.CONTINUE


_reported: dict[str, float] = {}


def reported() -> Mapping[str, float]:
    """The last value of each name that this process has reported."""
    return _reported


def report(step: int | None = None, **values: Any) -> Decision:
    """Report values of this trial while it trains: `hopyard.report(step=epoch, accuracy=0.91)`.

    They appear in the live table and in TensorBoard, and are stored with the run. If the function returns no value for
    the run's metric, its last reported value is used. Outside of a trial this does nothing, so that a training function
    can be called directly.

    Returns the newest decision of early stopping (the setting `stop`), without waiting for the one about these values:

        if hopyard.report(step=epoch, accuracy=accuracy).should_end:
            break

    step: the epoch or batch that the values belong to, from 0 on; None: not specified, and the next one for early
        stopping
    values: numbers by name: Python's, NumPy's, or tensors with one element

    Raises hopyard.Error for a value that is not a number.
    """
    if not values:
        raise _hopyard.Error("nothing to report; try hopyard.report(step=3, accuracy=0.91)")
    return send(step, values)


def send(step: int | None, values: Mapping[str, Any]) -> Decision:
    """Like `report`, for names that may not be identifiers, or may be `step`."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        as_number = number(value)
        if as_number is None:
            raise _hopyard.Error(f"'{name}' is {describe(value)}, which is not a number")
        numbers[name] = as_number
    decision = _hopyard.report(numbers, step, None, None)
    _reported.update(numbers)
    return Decision(decision)
