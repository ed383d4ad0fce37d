# SPDX-License-Identifier: Apache-2.0
"""Reports a rank's examples per second after each epoch; `hopyard train --scaling` adds them up."""

import os
import sys
import time
from typing import Any

from .._base.errors import Error
from .._base.metrics import number
from .._trial.report import report


def _examples(model: Any) -> float | None:
    """The number of examples in the epoch so far: Keras counts them to average the loss."""
    loss = next((metric for metric in getattr(model, "metrics", ()) if metric.name == "loss"), None)
    return number(getattr(loss, "count", None))


class Rate:
    """The rate of each epoch, without validation."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.began = self.ended = time.perf_counter()
        self.batches = 0
        self.examples: float | None = None

    def batch(self) -> None:
        self.batches += 1
        self.ended = time.perf_counter()

    def count(self, model: Any) -> None:
        """Called before a validation resets the count, or at the end of the epoch, whichever is first."""
        if self.examples is None and self.batches:
            self.examples = _examples(model)

    def value(self) -> float | None:
        """None if it is unknown: a custom loss is counted once per batch."""
        if not self.examples or self.examples == self.batches or self.ended <= self.began:
            return None
        return self.examples / (self.ended - self.began)

    def tell(self, epoch: int) -> None:
        value = self.value()
        if value is None or "HOPYARD_GROUP" not in os.environ:
            return
        try:
            report(step=epoch, examples_per_second=value)
        except Error as error:  # does not end a training
            print(f"hopyard: {error}", file=sys.stderr)
