# SPDX-License-Identifier: Apache-2.0
from hopyard.hvd.elastic import ObjectState as ObjectState
from hopyard.hvd.elastic import TensorFlowKerasState, TensorFlowState, run
from hopyard.hvd.exceptions import HorovodInternalError as HorovodInternalError

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
