# SPDX-License-Identifier: Apache-2.0
"""What programs call where versions of TensorFlow differ."""

import os
import tempfile
from typing import Any

from hopyard import Error

__all__ = ["disable_auto_shard", "export_saved_model", "is_gpu_available"]


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Writes a SavedModel: of Keras 3, tf_keras or a tf.Module, to wherever TensorFlow can write, HDFS too.

    Who is not the chief writes to a folder of its own, which is removed: under a strategy all have to take part.
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
        raise Error(f"a {type(model).__name__} is no model; a Keras model or a tf.Module is needed")


def _is_of(package: str, model: Any) -> bool:
    return any(cls.__module__.startswith(f"{package}.") for cls in type(model).__mro__)


def disable_auto_shard(options: Any) -> None:
    """Of tf.data.Options: nodes have shards of their own already."""
    import tensorflow as tf

    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF


def is_gpu_available() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
