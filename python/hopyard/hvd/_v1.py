# SPDX-License-Identifier: Apache-2.0
"""Optimizers of tf.compat.v1.train."""

from typing import Any, TypeAlias

import tensorflow as tf

from ._aggregate import Aggregation
from ._reduce import Reducer

V1: TypeAlias = tf.compat.v1.train.Optimizer


class _Forwarding(V1):
    """Delegates to the underlying optimizer."""

    def __init__(self, optimizer: V1, name: str, use_locking: bool, reducer: Reducer) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._reducer = reducer

    def get_slot(self, *args: Any, **given: Any) -> Any:
        return self._optimizer.get_slot(*args, **given)

    def get_slot_names(self, *args: Any, **given: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **given)

    def variables(self, *args: Any, **given: Any) -> Any:
        return self._optimizer.variables(*args, **given)

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable's gradient from reduction."""
        self._reducer.keep_local(var)


class V1Optimizer(_Forwarding):
    """Reduces gradients where they are computed."""

    def __init__(
        self, optimizer: V1, name: str, use_locking: bool, reducer: Reducer, aggregation: Aggregation | None
    ) -> None:
        super().__init__(optimizer, name, use_locking, reducer)
        self._aggregation = aggregation
        if aggregation and tf.executing_eagerly():
            raise ValueError(
                "backward_passes_per_step > 1 needs a graph for an optimizer of tf.compat.v1; "
                "use a Keras optimizer"
            )

    def compute_gradients(self, *args: Any, **given: Any) -> list[tuple[Any, Any]]:
        """Like the underlying optimizer's, reduced over all ranks."""
        pairs = self._optimizer.compute_gradients(*args, **given)
        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        reduce = self._aggregation.reduced if self._aggregation else self._reducer
        return list(zip(reduce(gradients, variables), variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        pairs = list(grads_and_vars)
        if self._aggregation is None:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies([gradient for gradient, _ in pairs if gradient is not None]):
            return self._aggregation.when_due(
                lambda: self._optimizer.apply_gradients(pairs, global_step=global_step, name=name),
                lambda: tf.no_op() if global_step is None else global_step.assign_add(1),
            ).op


class DeltaOptimizer(_Forwarding):
    """Adasum: every rank applies its gradients, and the changes of the variables are combined."""

    def __init__(self, optimizer: V1, name: str, use_locking: bool, reducer: Reducer, passes: int) -> None:
        super().__init__(optimizer, name, use_locking, reducer)
        self._passes = passes

    def compute_gradients(self, *args: Any, **given: Any) -> list[tuple[Any, Any]]:
        return self._optimizer.compute_gradients(*args, **given)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        local = {"trainable": False, "collections": [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]}
        starts = [
            tf.compat.v1.Variable(tf.zeros(v.shape, v.dtype), name="delta_start", **local) for v in variables
        ]
        steps = tf.compat.v1.Variable(tf.zeros([], tf.int64), name="step_count", **local)
        first = tf.cond(tf.equal(steps, 0), lambda: _assigned(starts, variables), tf.no_op)
        with tf.control_dependencies([first]):
            applied = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies([applied]):
            count = steps.assign_add(1)
        with tf.control_dependencies([count]):
            is_due = tf.equal(tf.math.floormod(steps.read_value(), self._passes), 0)
            return tf.cond(is_due, lambda: self._combined(starts, variables), tf.no_op)

    def _combined(self, starts: list[Any], variables: list[Any]) -> Any:
        deltas = [variable.read_value() - start.read_value() for variable, start in zip(variables, starts)]
        ends = [start.read_value() + delta for start, delta in zip(starts, self._reducer(deltas, variables))]
        return tf.group(_assigned(starts, ends), _assigned(variables, ends))


def _assigned(variables: list[Any], values: list[Any]) -> Any:
    return tf.group(*[variable.assign(value) for variable, value in zip(variables, values)])
