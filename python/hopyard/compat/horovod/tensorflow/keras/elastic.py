# SPDX-License-Identifier: Apache-2.0
from hopyard.hvd.elastic import CommitStateCallback, KerasState, UpdateBatchStateCallback, UpdateEpochStateCallback, run
from hopyard.hvd.elastic import TensorFlowKerasState as TensorFlowKerasState

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
