# SPDX-License-Identifier: Apache-2.0
"""The common part of distributed optimizers of Keras 2 and Keras 3."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ._aggregate import Aggregation
from ._ops import Gradient
from ._reduce import Reducer
from ._tf import Variables


class Wrapped:
    """A mix-in that precedes the optimizer's class."""

    _hvd_reducer: Reducer
    _hvd_aggregation: Aggregation | None
    iterations: Any

    @property
    def variables(self) -> Variables:
        return Variables(super().variables)  # type: ignore[misc]

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable's gradient from reduction."""
        self._hvd_reducer.keep_local(var)

    @tf.autograph.experimental.do_not_convert
    def _hvd_reduced(
        self, gradients: Sequence[Gradient | None], variables: Sequence[Any]
    ) -> list[Gradient | None]:
        reduce = self._hvd_aggregation.reduced if self._hvd_aggregation else self._hvd_reducer
        return reduce(gradients, variables)


def wrapped(ours: type[Wrapped], optimizer: Any, reducer: Reducer, aggregation: Aggregation | None) -> Any:
    """A new optimizer with the same settings.

    Its class has the name and module of the original, so that a saved model loads without hopyard.
    """
    kind = type(optimizer)
    metaclass: Any = type(kind)
    made = metaclass(kind.__name__, (ours, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    result = made.from_config(optimizer.get_config())
    result._hvd_reducer, result._hvd_aggregation = reducer, aggregation
    return result
