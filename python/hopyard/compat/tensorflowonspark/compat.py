# SPDX-License-Identifier: Apache-2.0
"""Functions that hide differences between TensorFlow versions."""

import os
import tempfile
from typing import Any

from hopyard import Error

__all__ = ["disable_auto_shard", "export_saved_model", "is_gpu_available"]


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Writes a SavedModel of Keras 3, tf_keras or a tf.Module to any file system of TensorFlow, including HDFS.

    Nodes other than the chief write to a temporary directory: under a strategy all must take part.
    """
    with tempfile.TemporaryDirectory(prefix="hopyard-model-") as elsewhere:
        _save(model, export_dir if is_chief else os.path.join(elsewhere, "model"))


def _save(model: Any, folder: str) -> None:
    import tensorflow as tf

    if _is_of("keras", model):
        model.export(folder, verbose=False)
    elif _is_of("tf_keras", model):
        model.save(folder, save_format="tf")
    elif isinstance(model, tf.Module):
        tf.saved_model.save(model, folder)
    else:
        raise Error(f"a {type(model).__name__} is not a model; a Keras model or a tf.Module is required")


def _is_of(package: str, model: Any) -> bool:
    return any(cls.__module__.startswith(f"{package}.") for cls in type(model).__mro__)


def disable_auto_shard(options: Any) -> None:
    """Disables auto-sharding in tf.data.Options: nodes have separate shards already."""
    import tensorflow as tf

    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF


def is_gpu_available() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
