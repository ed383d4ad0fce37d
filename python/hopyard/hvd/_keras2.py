# SPDX-License-Identifier: Apache-2.0
"""Optimizers of Keras 2: tf_keras, and tf.keras before TensorFlow 2.16; new ones and `legacy` ones."""

import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from . import _tape
from ._aggregate import Aggregation
from ._ops import Gradient
from ._reduce import Reducer
from ._wrapped import Wrapped, wrapped


class _Keras2(Wrapped):
    """Reduces gradients where they are computed, like Horovod.

    That is in `minimize`, which `fit` calls, and in `compute_gradients`; not in `apply_gradients`, whose
    gradients are those of a DistributedGradientTape.
    """

    _hvd_has_reduced = False

    @tf.autograph.experimental.do_not_convert
    def _hvd_reduced(
        self, gradients: Sequence[Gradient | None], variables: Sequence[Any]
    ) -> list[Gradient | None]:
        self._hvd_has_reduced = True
        return super()._hvd_reduced(gradients, variables)

    def _hvd_pairs(self, pairs: Sequence[tuple[Gradient | None, Any]]) -> list[tuple[Gradient | None, Any]]:
        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        return list(zip(self._hvd_reduced(gradients, variables), variables))

    def get_gradients(self, loss: Any, params: Any) -> list[Gradient | None]:
        return self._hvd_reduced(super().get_gradients(loss, params), params)  # type: ignore[misc]

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(self, grads_and_vars: Any, *args: Any, **given: Any) -> Any:
        apply = super().apply_gradients  # type: ignore[misc]
        pairs = list(grads_and_vars)
        if not self._hvd_has_reduced and not _tape.made and self._hvd_reducer.process_set.size() != 1:
            warnings.warn(
                "a Keras 2 optimizer does not reduce in apply_gradients: take the gradients from a "
                "hvd.DistributedGradientTape, or call minimize", stacklevel=2,
            )  # fmt: skip
        if self._hvd_aggregation is None:
            return apply(pairs, *args, **given)
        skip = lambda: self.iterations.assign_add(1)  # noqa: E731
        self._hvd_aggregation.when_due(lambda: apply(pairs, *args, **given), skip)
        return self.iterations


class _Current(_Keras2):
    @tf.autograph.experimental.do_not_convert
    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        tape = tf.GradientTape() if tape is None else tape
        return self._hvd_pairs(super().compute_gradients(loss, var_list, tape=tape))  # type: ignore[misc]


class _Legacy(_Keras2):
    @tf.autograph.experimental.do_not_convert
    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Any:
        tape = tf.GradientTape() if tape is None else tape
        compute = super()._compute_gradients  # type: ignore[misc]
        return self._hvd_pairs(compute(loss, var_list, grad_loss, tape=tape))

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        return self._compute_gradients(loss, var_list, None, tape)


def wrapped_keras2(optimizer: Any, reducer: Reducer, aggregation: Aggregation | None) -> Any:
    kind = type(optimizer)
    if not hasattr(kind, "from_config"):
        raise ValueError(
            f"hvd.DistributedOptimizer needs an optimizer of Keras or TensorFlow, not {optimizer!r}"
        )
    ours = _Legacy if hasattr(kind, "_compute_gradients") else _Current
    return wrapped(ours, optimizer, reducer, aggregation)
