# SPDX-License-Identifier: Apache-2.0
"""tensorflowonspark's TFCluster, with a share of a GPU."""

import functools

from hopyard.compat.tensorflowonspark import TFCluster as _whole
from hopyard.compat.tensorflowonspark.TFCluster import InputMode, TFCluster, default_fs

__all__ = ["InputMode", "TFCluster", "default_fs", "run"]

run = functools.partial(_whole.run, gpus=0.2)
