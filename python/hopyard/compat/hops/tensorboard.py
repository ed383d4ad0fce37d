# SPDX-License-Identifier: Apache-2.0
import os
from typing import Any, NoReturn

from hopyard import Error, tensorboard
from hopyard.tensorboard import logdir as logdir


def visualize(spark: Any, path: str | os.PathLike[str] | None = None) -> str:
    """visualize(spark, path), or visualize(path) as in later versions; returns the address at once."""
    return tensorboard.visualize(spark if path is None else path)


def interactive_debugger() -> NoReturn:
    raise Error(
        "TensorBoard's debugger was removed with TensorFlow 1; call tf.debugging.experimental."
        "enable_dump_debug_info(tensorboard.logdir()) and open TensorBoard's Debugger V2"
    )


non_interactive_debugger = interactive_debugger
