# SPDX-License-Identifier: Apache-2.0
"""Horovod's API: the equivalent of horovod.tensorflow, for TensorFlow 2.12 and later.

    import hopyard.hvd as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size()))
    model.compile(optimizer, loss=...)
    model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

started by `hopyard train -np 4 python train.py`. docs/horovod.md lists all names.

TensorFlow is imported by the first name that needs it; init, rank, size and similar functions do not.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)  # fmt: skip
from ._sets import ProcessSet, add_process_set, global_process_set, remove_process_set

if TYPE_CHECKING:
    from . import callbacks, compression, elastic, keras, sync_batch_norm
    from ._functions import (
        BroadcastGlobalVariablesHook,
        allgather_object,
        broadcast_global_variables,
        broadcast_object,
        broadcast_object_fn,
        broadcast_variables,
    )  # fmt: skip
    from ._ops import (
        Adasum,
        Average,
        Max,
        Min,
        Product,
        Sum,
        allgather,
        allreduce,
        alltoall,
        barrier,
        broadcast,
        broadcast_,
        check_num_rank_power_of_2,
        grouped_allgather,
        grouped_allreduce,
        grouped_reducescatter,
        handle_average_backwards_compatibility,
        join,
        local_rank_op,
        local_size_op,
        process_set_included_op,
        rank_op,
        reducescatter,
        size_op,
    )  # fmt: skip
    from ._optimizer import DistributedOptimizer, PartialDistributedOptimizer
    from ._tape import DistributedGradientTape, PartialDistributedGradientTape
    from .compression import Compression
    from .sync_batch_norm import SyncBatchNormalization

__all__ = [
    "Adasum", "Average", "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape",
    "DistributedOptimizer", "Max", "Min", "PartialDistributedGradientTape", "PartialDistributedOptimizer",
    "ProcessSet", "Product", "Sum", "SyncBatchNormalization", "add_process_set", "allgather",
    "allgather_object", "allreduce", "alltoall", "barrier", "broadcast", "broadcast_",
    "broadcast_global_variables", "broadcast_object", "broadcast_object_fn", "broadcast_variables",
    "callbacks", "ccl_built", "check_num_rank_power_of_2", "compression", "cross_rank", "cross_size",
    "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled",
    "grouped_allgather", "grouped_allreduce", "grouped_reducescatter",
    "handle_average_backwards_compatibility", "init", "is_homogeneous", "is_initialized", "join", "keras",
    "local_rank", "local_rank_op", "local_size", "local_size_op", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "process_set_included_op", "rank", "rank_op", "reducescatter",
    "remove_process_set", "rocm_built", "shutdown", "size", "size_op", "start_timeline", "stop_timeline",
    "sync_batch_norm",
]  # fmt: skip

_MODULES = ("callbacks", "compression", "elastic", "keras", "sync_batch_norm")
_PLACES = {
    "BroadcastGlobalVariablesHook": "_functions", "Compression": "compression",
    "DistributedGradientTape": "_tape", "DistributedOptimizer": "_optimizer",
    "PartialDistributedGradientTape": "_tape", "PartialDistributedOptimizer": "_optimizer",
    "SyncBatchNormalization": "sync_batch_norm", "allgather_object": "_functions",
    "broadcast_global_variables": "_functions", "broadcast_object": "_functions",
    "broadcast_object_fn": "_functions", "broadcast_variables": "_functions",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(importlib.import_module(f".{_PLACES.get(name, '_ops')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
