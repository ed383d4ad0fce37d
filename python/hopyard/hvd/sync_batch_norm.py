# SPDX-License-Identifier: Apache-2.0
"""Batch normalization over the batches of all ranks."""

import functools
from typing import Any

import tensorflow as tf

from . import _basics
from ._ops import Average, allreduce

__all__ = ["SyncBatchNormalization", "layer_class"]  # noqa: F822  # by __getattr__


def _over_all(mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of all ranks' batches, which are of the same size."""
    if _basics.size() == 1 and not _basics.is_elastic():
        return mean, variance
    square = variance + tf.square(mean)  # Var[X] = E[X^2] - E[X]^2
    mean, square = tf.unstack(allreduce(tf.stack([mean, square]), op=Average))
    return mean, square - tf.square(mean)


@functools.cache
def layer_class(keras: Any) -> Any:
    """The layer for one Keras: `keras` (3), `tf_keras`, or TensorFlow's own."""
    base = keras.layers.BatchNormalization
    is_keras3 = not hasattr(base, "_calculate_mean_and_var") and not hasattr(base, "_fused_batch_norm")

    class SyncBatchNormalization(base):  # type: ignore[valid-type,misc]
        """Synchronous batch normalization: in training, mean and variance are those of all ranks."""

        def __init__(self, fused: bool = False, **kwargs: Any) -> None:
            if fused in (True, None):
                raise ValueError("SyncBatchNormalization does not support fused=True.")
            kwargs["name"] = kwargs.get("name") or "sync_batch_normalization"
            super().__init__(**kwargs, **({} if is_keras3 else {"fused": False}))

        @tf.autograph.experimental.do_not_convert
        def _moments(self, *args: Any, **kwargs: Any) -> tuple[tf.Tensor, tf.Tensor]:
            return _over_all(*super()._moments(*args, **kwargs))

    return SyncBatchNormalization


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # created on first use: importing Keras is slow
        return layer_class(tf.keras)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
