# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer that reduces gradients over all ranks.

There is one for each kind of optimizer: Keras 3 (reduces where gradients are applied, since it has no other place),
Keras 2 of tf_keras and of TensorFlow before 2.16 (reduces where they are computed, like Horovod), and
tf.compat.v1.train.Optimizer.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ._aggregate import Aggregation
from ._buckets import Agreement
from ._keras2 import wrapped_keras2
from ._keras3 import is_keras3, wrapped_keras3
from ._ops import Adasum, Average, Compressors, Sum
from ._reduce import Groups, Reducer, checked_groups, checked_predivide
from ._sets import ProcessSet, global_process_set
from ._v1 import DeltaOptimizer, V1Optimizer
from ._wrapped import Wrapped
from .compression import Compression

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer"]


def DistributedOptimizer(
    optimizer: Any, name: str | None = None, use_locking: bool = False, device_dense: str = "",
    device_sparse: str = "", compression: Compressors = Compression.none, sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1, op: int = Average, gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Groups = None,
    process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """A copy of the optimizer that reduces gradients over all ranks before it applies them.

    name                          the name of its requests, in errors and timelines
    device_dense, device_sparse   the devices of the requests' ops
    compression                   hvd.Compression.fp16: half the bytes
    sparse_as_dense               tf.IndexedSlices become dense gradients
    backward_passes_per_step      the number of batches whose gradients are summed before they are reduced
    average_aggregated_gradients  divide by that number
    op                            hvd.Average, hvd.Sum; of a tf.compat.v1 optimizer also hvd.Adasum
    gradient_predivide_factor     splits the average: divide by it before the sum, by the rest after
    groups                        instead of buckets by size: their number, or lists of variables
    process_set                   reduce over these ranks only
    scale_local_gradients         divide gradients of local variables (register_local_var) by hvd.size()
    """
    if isinstance(optimizer, (Wrapped, V1Optimizer, DeltaOptimizer)):
        raise ValueError("this optimizer is already a DistributedOptimizer; wrap the original optimizer")
    checked_predivide(gradient_predivide_factor, op)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    groups = checked_groups(num_groups, groups)
    is_v1 = isinstance(optimizer, tf.compat.v1.train.Optimizer)
    name = name or f"Distributed{type(optimizer).__name__}"
    reducer = Reducer(
        name, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor,
        groups, process_set, scale_local_gradients, Agreement(),
    )  # fmt: skip
    aggregation = None
    if backward_passes_per_step > 1:
        aggregation = Aggregation(backward_passes_per_step, average_aggregated_gradients, reducer)
    if is_v1 and op == Adasum:
        return DeltaOptimizer(optimizer, name, use_locking, reducer, backward_passes_per_step)
    if is_v1:
        return V1Optimizer(optimizer, name, use_locking, reducer, aggregation)
    if op not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
    return (wrapped_keras3 if is_keras3(optimizer) else wrapped_keras2)(optimizer, reducer, aggregation)


def PartialDistributedOptimizer(
    optimizer: Any, name: str | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Compressors = Compression.none, sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0, op: int = Average, backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Groups = None,
    process_set: ProcessSet = global_process_set, local_layers: Any = None, scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """A DistributedOptimizer that does not reduce the gradients of `local_layers`."""
    wrapped = DistributedOptimizer(
        optimizer, name=name, device_dense=device_dense, device_sparse=device_sparse, compression=compression,
        sparse_as_dense=sparse_as_dense, gradient_predivide_factor=gradient_predivide_factor, op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients, num_groups=num_groups, groups=groups,
        process_set=process_set, scale_local_gradients=scale_local_gradients,
    )  # fmt: skip
    for variable in variables_of(local_layers):
        wrapped.register_local_var(variable)
    return wrapped


def variables_of(layers: Any) -> list[Any]:
    """The trainable variables of one or several layers."""
    if layers is None:
        return []
    several: Sequence[Any] = list(layers) if isinstance(layers, (list, tuple, set)) else [layers]
    if not all(hasattr(layer, "trainable_weights") for layer in several):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return [variable for layer in several for variable in layer.trainable_weights]
