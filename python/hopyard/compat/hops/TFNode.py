# SPDX-License-Identifier: Apache-2.0
from .tensorflowonspark.TFNode import *  # noqa: F403
