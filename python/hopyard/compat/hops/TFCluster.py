# SPDX-License-Identifier: Apache-2.0
from .tensorflowonspark.TFCluster import InputMode as InputMode
from .tensorflowonspark.TFCluster import TFCluster as TFCluster
from .tensorflowonspark.TFCluster import run as run
