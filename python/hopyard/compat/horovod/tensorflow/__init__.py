# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow on hopyard."""

from hopyard.hvd import (  # noqa: F401
    Adasum,
    Average,
    BroadcastGlobalVariablesHook,
    Compression,
    DistributedGradientTape,
    DistributedOptimizer,
    Max,
    Min,
    PartialDistributedGradientTape,
    ProcessSet,
    Product,
    Sum,
    SyncBatchNormalization,
    add_process_set,
    allgather,
    allgather_object,
    allreduce,
    alltoall,
    broadcast,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    ccl_built,
    check_num_rank_power_of_2,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    handle_average_backwards_compatibility,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank,
    rank_op,
    reducescatter,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    size_op,
    start_timeline,
    stop_timeline,
)  # fmt: skip
from hopyard.hvd import barrier as barrier

from horovod.common.util import check_extension as check_extension
from horovod.common.util import gpu_available as gpu_available
from horovod.common.util import split_list as split_list

from . import compression as compression
from . import elastic as elastic
from . import functions as functions
from . import gradient_aggregation_eager as gradient_aggregation_eager
from . import mpi_ops as mpi_ops
from . import sync_batch_norm as sync_batch_norm
from . import util as util
from .gradient_aggregation import LocalGradientAggregationHelper as LocalGradientAggregationHelper
from .util import refs_to_vars as refs_to_vars
from .util import vars_to_refs as vars_to_refs
