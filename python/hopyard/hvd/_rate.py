# SPDX-License-Identifier: Apache-2.0
"""How many examples a rank trains on in a second, told once for each epoch: `hopyard train --scaling` adds them up."""

import os
import sys
import time
from typing import Any

from .._base.errors import Error
from .._base.metrics import number
from .._trial.report import report


def _examples(model: Any) -> float | None:
    """Those of the epoch so far: Keras averages the loss over examples, and so has counted them."""
    loss = next((metric for metric in getattr(model, "metrics", ()) if metric.name == "loss"), None)
    return number(getattr(loss, "count", None))


class Rate:
    """Of one epoch after the other. Validation is not in it."""

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
        """Before a validation begins to count, or at the epoch's end, whichever comes first."""
        if self.examples is None and self.batches:
            self.examples = _examples(model)

    def value(self) -> float | None:
        """None where it cannot be known: a loss of the user's own is counted once for each batch."""
        if not self.examples or self.examples == self.batches or self.ended <= self.began:
            return None
        return self.examples / (self.ended - self.began)

    def tell(self, epoch: int) -> None:
        value = self.value()
        if value is None or "HOPYARD_GROUP" not in os.environ:
            return
        try:
            report(step=epoch, examples_per_second=value)
        except Error as error:  # no reason to end a training
            print(f"hopyard: {error}", file=sys.stderr)
