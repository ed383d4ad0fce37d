# SPDX-License-Identifier: Apache-2.0
"""Reduces gradients over ranks, for optimizers and tapes."""

import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .._tensorflow import ops as _tfops
from .._tensorflow.ops import ALLGATHER, ALLREDUCE
from . import _basics, _buckets, _names
from ._ops import Average, Compressors, Gradient, Sum, divided_by_size, on, reduction
from ._sets import ProcessSet, needs_init
from ._tf import native

Groups = int | list[list[Any]] | None


def checked_groups(num_groups: int, groups: Groups) -> Groups:
    """`groups`, or its equivalent of the older argument."""
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=3
        )
        groups = num_groups if groups is None else groups
    if groups is not None and not (isinstance(groups, list) or groups > 0):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    return groups


def checked_predivide(factor: float, op: int) -> float:
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    return factor


class Reducer:
    """Reduces gradients over the ranks of a process set, in the buckets of a plan."""

    def __init__(
        self, name: str, device_dense: str, device_sparse: str, compression: Compressors,
        sparse_as_dense: bool, op: int, predivide: float, groups: Groups, process_set: ProcessSet,
        scale_local: bool, agreement: _buckets.Agreement,
    ) -> None:  # fmt: skip
        self.name = name
        self._agreement = agreement
        self.process_set = process_set
        self.sparse_as_dense = sparse_as_dense
        self._device_dense, self._device_sparse = device_dense, device_sparse
        self._compression = compression
        self._op, self._predivide = op, predivide
        self._groups = groups
        self._scale_local = scale_local
        self._local: set[Any] = set()

    def keep_local(self, variable: Any) -> None:
        """Excludes a variable's gradient from reduction."""
        self._local.add(native(variable).ref())

    def is_local(self, variable: Any) -> bool:
        return bool(self._local) and native(variable).ref() in self._local

    def __call__(
        self, gradients: Sequence[Gradient | None], variables: Sequence[Any]
    ) -> list[Gradient | None]:
        gradients, variables = list(gradients), list(variables)
        if self.sparse_as_dense:
            gradients = [dense(gradient) for gradient in gradients]
        if is_reduced(gradients):
            return gradients
        needs_init()
        shared = [i for i, variable in enumerate(variables) if not self.is_local(variable)]
        results = [self._scaled(gradient) for gradient in gradients] if self._local else list(gradients)
        reduced = self._shared([gradients[i] for i in shared], [variables[i] for i in shared])
        for i, gradient in zip(shared, reduced):
            results[i] = gradient
        return results if self._alone() else mark_reduced(results)

    def _scaled(self, gradient: Gradient | None) -> Gradient | None:
        """Scales a local gradient like averages: as if the other ranks' gradients were zero."""
        if gradient is None or not self._scale_local:
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            values = divided_by_size(gradient.values, self.process_set)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return divided_by_size(gradient, self.process_set)

    def _alone(self) -> bool:
        if self.process_set.number and not self.process_set.included():  # not registered: an error on all ranks
            return True
        return self.process_set.size() == 1 and not _basics.is_elastic()

    def _shared(self, gradients: list[Gradient | None], variables: list[Any]) -> list[Gradient | None]:
        if self._alone() or all(gradient is None for gradient in gradients):
            return gradients
        small, contexts = self._compressed(gradients)
        plan = _buckets.make(small, variables, self._places(variables))
        if plan.sparse and self._op not in (Sum, Average):
            raise NotImplementedError(
                "only Sum and Average reduce sparse gradients; pass sparse_as_dense=True"
            )
        self._agreement.check(plan, self.name, self.process_set)
        with tf.name_scope(f"{self.name}_Allreduce"):
            results = self._travelled(plan, small)
        return [
            self._compression.decompress(result, context) if entry.kind == "dense" else result
            for result, context, entry in zip(results, contexts, plan.entries)
        ]

    def _compressed(self, gradients: list[Gradient | None]) -> tuple[list[Gradient | None], list[Any]]:
        pairs = [
            self._compression.compress(gradient) if isinstance(gradient, tf.Tensor) else (gradient, None)
            for gradient in gradients
        ]
        return [small for small, _ in pairs], [context for _, context in pairs]

    def _places(self, variables: list[Any]) -> int | list[list[int]] | None:
        """The groups, as indices into the list of variables."""
        if not isinstance(self._groups, list):
            return self._groups
        places = {native(variable).ref(): i for i, variable in enumerate(variables)}
        refs = [[native(variable).ref() for variable in group] for group in self._groups]
        return [[places[ref] for ref in group if ref in places] for group in refs]

    def _travelled(self, plan: _buckets.Plan, gradients: list[Gradient | None]) -> list[Gradient | None]:
        """Starts every bucket as soon as its gradients are available; one op waits for all."""
        called = _names.in_graph(f"gradients.{self.name}.{plan.digest}")
        handles: list[tf.Tensor] = []
        expected: tuple[list[Any], list[Any]] = ([], [])  # dtypes, shapes

        last = len(plan.buckets) + 2 * len(plan.sparse)

        def start(kind: int, tensors: list[tf.Tensor], name: str, **how: Any) -> None:
            how |= {"set": self.process_set.number, "waits_next": len(handles) + 1 == last}
            handles.append(_tfops.start(kind, tensors, name=f"{called}.{name}", **how))
            for known, more in zip(expected, _tfops.results(kind, tensors)):
                known.extend(more)

        pre, post = (1.0 / self._predivide, self._predivide) if self._op == Average else (1.0, 1.0)
        how = {"op": reduction(self._op), "prescale": pre, "postscale": post}
        with on(self._device_dense):
            for n, bucket in enumerate(plan.buckets):
                start(ALLREDUCE, [gradients[i] for i in bucket], str(n), **how)
        with on(self._device_sparse):
            for i in plan.sparse:
                sparse: Any = gradients[i]
                start(ALLGATHER, [sparse.values], f"values.{i}")
                start(ALLGATHER, [sparse.indices], f"indices.{i}")
        arrived = iter(_tfops.wait(handles, *expected))
        results = list(gradients)
        for i in (i for bucket in plan.buckets for i in bucket):
            results[i] = next(arrived)
        for i in plan.sparse:
            results[i] = self._slices(next(arrived), next(arrived), gradients[i])
        return results

    def _slices(self, values: tf.Tensor, indices: tf.Tensor, like: tf.IndexedSlices) -> tf.IndexedSlices:
        values = divided_by_size(values, self.process_set) if self._op == Average else values
        return tf.IndexedSlices(values, indices, like.dense_shape)


def dense(gradient: Gradient | None) -> Gradient | None:
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


# ---- reduce only once --------------------------------------------------------------------------
# A program may pass the gradients of a DistributedGradientTape to a DistributedOptimizer.

_MARK = "_hopyard_reduced"


def mark_reduced(gradients: list[Gradient | None]) -> list[Gradient | None]:
    for gradient in gradients:
        if gradient is not None:
            setattr(gradient, _MARK, True)
    return gradients


def is_reduced(gradients: list[Gradient | None]) -> bool:
    there = [gradient for gradient in gradients if gradient is not None]
    return bool(there) and all(getattr(gradient, _MARK, False) for gradient in there)
