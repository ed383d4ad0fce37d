# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.keras: Keras models that are trained on Spark's DataFrames."""

from .estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
