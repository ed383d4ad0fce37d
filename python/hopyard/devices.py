# SPDX-License-Identifier: Apache-2.0
"""The devices that a trial may use."""

import math
import os
import sys

__all__ = ["get_num_gpus"]


def get_num_gpus() -> int:
    """How many GPUs this trial has leased; a share of one counts as one.

    Where none were asked for (`gpus=None`, or no trial at all) nothing is hidden from the process, and
    the answer is what TensorFlow sees, if it is imported already, or else 0: to import it only to count
    would take seconds and memory on a GPU that may be somebody else's.
    """
    leased = os.environ.get("HOPYARD_GPUS")
    if leased:
        return math.ceil(float(leased))
    tensorflow = sys.modules.get("tensorflow")
    return len(tensorflow.config.list_physical_devices("GPU")) if tensorflow else 0
