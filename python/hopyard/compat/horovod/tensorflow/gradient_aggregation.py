# SPDX-License-Identifier: Apache-2.0
"""Gradient aggregation for backward_passes_per_step as separate classes."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from hopyard.hvd import ProcessSet, global_process_set
from hopyard.hvd._aggregate import Aggregation
from hopyard.hvd._ops import divided_by_size

Reduce = Callable[[list[Any], list[Any]], list[Any]]


def apply_op_to_not_none_tensors(tensor_op: Callable[..., Any], tensors: Sequence[Any], *args: Any) -> list[Any]:
    return [None if tensor is None else tensor_op(tensor, *args) for tensor in tensors]


def get_not_none_from_list(tensor_list: Sequence[Any]) -> list[Any]:
    return [tensor for tensor in tensor_list if tensor is not None]


class LocalGradientAggregationHelperEager:
    """Sums gradients, and reduces them with `allreduce_func(gradients, variables)` in the last pass of each step."""

    def __init__(
        self, backward_passes_per_step: int, allreduce_func: Reduce, sparse_as_dense: bool,
        average_aggregated_gradients: bool, process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:  # fmt: skip
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.allreduce_grads = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self._local: set[Any] = set()
        self._sums = Aggregation(backward_passes_per_step, average_aggregated_gradients, self)  # type: ignore[arg-type]

    def register_local_var(self, var: tf.Variable) -> None:
        """Excludes a variable's gradient from reduction."""
        self._local.add(var.ref())

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The reduction function of an Aggregation."""
        shared = [i for i, variable in enumerate(variables) if variable.ref() not in self._local]
        results = list(gradients)
        if self.scale_local_gradients:
            results = [divided_by_size(gradient, self.process_set) for gradient in gradients]
        reduced = self.allreduce_grads([gradients[i] for i in shared], [variables[i] for i in shared])
        for i, gradient in zip(shared, reduced):
            results[i] = gradient
        return results

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        return self._sums.reduced(grads, vars)

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the closure after the last pass of a step; in other passes only the iteration is counted."""
        return self._sums.when_due(apply_grads_closure, lambda: optimizer.iterations.assign_add(1))


class LocalGradientAggregationHelper(LocalGradientAggregationHelperEager):
    """The same, with the arguments for graphs."""

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self, backward_passes_per_step: int, allreduce_func: Reduce, sparse_as_dense: bool,
        average_aggregated_gradients: bool, rank: int, optimizer_type: str,
        process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True, name: str = "",
    ) -> None:  # fmt: skip
        super().__init__(
            backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients, process_set,
            scale_local_gradients,
        )  # fmt: skip
        self.rank = rank
        self.optimizer_type = optimizer_type
        self.name = name
