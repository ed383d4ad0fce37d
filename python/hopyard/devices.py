# SPDX-License-Identifier: Apache-2.0
"""The devices of a trial."""

import math
import os
import sys

__all__ = ["get_num_gpus"]


def get_num_gpus() -> int:
    """The number of GPUs that this trial has leased; a share of a GPU counts as one.

    If none were requested (`gpus=None`, or outside of a trial), no GPU is hidden from the process, and the result is
    the number that TensorFlow sees if it is imported already, or else 0: importing it only to count would take seconds,
    and memory on a GPU that may be in use.
    """
    leased = os.environ.get("HOPYARD_GPUS")
    if leased:
        return math.ceil(float(leased))
    tensorflow = sys.modules.get("tensorflow")
    return len(tensorflow.config.list_physical_devices("GPU")) if tensorflow else 0
