# SPDX-License-Identifier: Apache-2.0
"""Gradients summed over several passes before they are reduced (backward_passes_per_step)."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ._ops import Gradient
from ._reduce import Reducer, dense, mark_reduced


class Aggregation:
    """Sums of gradients, and a count of passes.

    Works eagerly, in a tf.function and in a TensorFlow 1 graph, where only the control dependencies below define an
    order.
    """

    def __init__(self, passes: int, average: bool, reducer: Reducer) -> None:
        self._passes = passes
        self._average = average
        self._reduce = reducer
        self._count: Any = None
        self._sums: list[Any] = []

    def reduced(
        self, gradients: Sequence[Gradient | None], variables: Sequence[Any]
    ) -> list[Gradient | None]:
        """Adds the gradients. In the last pass of a step it returns the reduced sums.

        Other passes return zeros, which are finite on every rank: a loss scale that checks them changes on all ranks
        or on none.
        """
        is_sparse = any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients)
        if is_sparse and not self._reduce.sparse_as_dense:
            raise ValueError(
                "IndexedSlices are not supported when `backward_passes_per_step` > 1 and "
                "`sparse_as_dense` is False."
            )
        there = [i for i, gradient in enumerate(gradients) if gradient is not None]
        now = [dense(gradients[i]) for i in there]
        self._prepare(now)
        if len(now) != len(self._sums):
            raise ValueError(f"got {len(now)} gradients, but {len(self._sums)} were summed before")
        with _after([total.assign_add(gradient) for total, gradient in zip(self._sums, now)]):
            count = self._count.assign_add(1)
        with _after([count]):
            is_last = tf.equal(self._count.read_value(), self._passes)
            last = lambda: self._step([variables[i] for i in there])  # noqa: E731
            outputs = tf.cond(is_last, last, lambda: [tf.zeros_like(total) for total in self._sums])
        results: list[Gradient | None] = [None] * len(gradients)
        for i, output in zip(there, outputs if isinstance(outputs, (list, tuple)) else [outputs]):
            results[i] = output
        return mark_reduced(results)

    def when_due(self, apply: Callable[[], Any], skip: Callable[[], Any]) -> Any:
        """Applies the gradients that the last pass reduced; calls `skip` in every other pass."""
        if self._count is None:  # the gradients were not aggregated here
            return apply()
        return tf.cond(tf.equal(self._count.read_value(), 0), lambda: _done(apply()), lambda: _done(skip()))

    def _step(self, variables: list[Any]) -> list[tf.Tensor]:
        reduced: list[Any] = self._reduce([total.read_value() for total in self._sums], variables)
        if self._average:
            reduced = [gradient / tf.cast(self._passes, gradient.dtype) for gradient in reduced]
        with _after(reduced):
            cleared = [total.assign(tf.zeros_like(total)) for total in self._sums]
            cleared.append(self._count.assign(0))
        with _after(cleared):
            return [tf.identity(gradient) for gradient in reduced]

    def _prepare(self, gradients: list[tf.Tensor]) -> None:
        if self._count is not None:
            return
        if tf.compat.v1.executing_eagerly_outside_functions():
            with tf.init_scope():
                self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
                self._sums = [tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False) for g in gradients]
            return
        local = {"trainable": False, "collections": [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]}
        self._count = tf.compat.v1.Variable(tf.zeros([], tf.int64), **local)
        self._sums = [tf.compat.v1.Variable(tf.zeros(g.shape, g.dtype), **local) for g in gradients]


def _after(those: Sequence[Any]) -> Any:
    return tf.control_dependencies([] if tf.executing_eagerly() else list(those))


def _done(result: Any) -> tf.Tensor:
    """A value that both branches of a condition can return."""
    result = getattr(result, "op", result)  # for an assigned variable
    with _after([result] if isinstance(result, (tf.Tensor, tf.Operation)) else []):
        return tf.constant(True)
