# SPDX-License-Identifier: Apache-2.0
"""hvd for Keras: the arguments of horovod.tensorflow.keras and horovod.keras where they differ, and loading models."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from .. import hvd
from . import (
    Adasum,
    Average,
    Compression,
    PartialDistributedOptimizer,
    ProcessSet,
    Sum,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)  # fmt: skip
from . import callbacks as callbacks
from . import elastic as elastic
from ._reduce import Groups
from ._variables import build, of_optimizer

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "PartialDistributedOptimizer", "ProcessSet", "Sum",
    "add_process_set", "allgather", "allreduce", "broadcast", "broadcast_global_variables", "callbacks", "ccl_built",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built",
    "gloo_enabled", "init", "is_initialized", "load_model", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rank", "reducescatter", "remove_process_set", "rocm_built", "shutdown",
    "size", "start_timeline", "stop_timeline",
]  # fmt: skip

# ---- optimizers -------------------------------------------------------------------------------


def DistributedOptimizer(
    optimizer: Any, name: str | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0,
    op: int = Average, backward_passes_per_step: int = 1, average_aggregated_gradients: bool = False,
    num_groups: int = 0, groups: Groups = None, process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """A Keras optimizer that reduces gradients over all ranks before it applies them."""
    return hvd.DistributedOptimizer(
        optimizer, name=name, device_dense=device_dense, device_sparse=device_sparse, compression=compression,
        sparse_as_dense=sparse_as_dense, gradient_predivide_factor=gradient_predivide_factor, op=op,
        backward_passes_per_step=backward_passes_per_step, average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups, groups=groups, process_set=process_set, scale_local_gradients=scale_local_gradients,
    )  # fmt: skip


# ---- values -----------------------------------------------------------------------------------


def _evaluated(tensor: Any) -> Any:
    """The value of a tensor in a TensorFlow 1 graph, by Keras's session."""
    return tensor if tf.executing_eagerly() else tf.compat.v1.keras.backend.get_session().run(tensor)


def broadcast_global_variables(root_rank: int) -> Any:
    """Broadcasts the global variables of one rank; only a TensorFlow 1 graph has some."""
    return _evaluated(hvd.broadcast_global_variables(root_rank))


def allreduce(
    value: Any, name: str | None = None, average: bool | None = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, op: int | None = None, compression: Any = Compression.none,
) -> Any:  # fmt: skip
    """A value reduced over all ranks: averaged by default."""
    return _evaluated(
        hvd.allreduce(
            tf.constant(value), name=name, average=average, prescale_factor=prescale_factor,
            postscale_factor=postscale_factor, op=op, compression=compression,
        )  # fmt: skip
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """The values of all ranks, concatenated along the first dimension."""
    return _evaluated(hvd.allgather(tf.constant(value), name=name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The value of rank `root_rank`."""
    return _evaluated(hvd.broadcast(tf.constant(value), root_rank, name=name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """This rank's part of a value reduced over all ranks."""
    return _evaluated(hvd.reducescatter(tf.constant(value), name=name, op=op))


# ---- models -----------------------------------------------------------------------------------


def load_model(
    filepath: Any, custom_optimizers: Collection[type] | None = None, custom_objects: Mapping[str, Any] | None = None,
    compression: Any = Compression.none, legacy_opts: bool = False, keras: Any = None,
) -> Any:  # fmt: skip
    """Loads a model that was saved with its optimizer, which becomes a DistributedOptimizer with the same state.

    `legacy_opts` is taken and changes nothing: the file says which optimizer it has.
    """
    known = {cls.__name__: cls for cls in custom_optimizers or ()}
    model = (keras or tf.keras).models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    saved = getattr(model, "optimizer", None)
    if saved is not None:
        model.optimizer = DistributedOptimizer(saved, compression=compression)
        _copy(saved, model.optimizer, model.trainable_variables)
    return model


def _copy(saved: Any, wrapped: Any, variables: Sequence[Any]) -> None:
    if wrapped is saved:
        return
    build(saved, variables)  # without variables there is nothing to restore
    build(wrapped, variables)
    for theirs, ours in zip(of_optimizer(saved), of_optimizer(wrapped), strict=True):
        ours.assign(theirs)
