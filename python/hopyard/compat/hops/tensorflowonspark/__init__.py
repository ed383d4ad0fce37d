# SPDX-License-Identifier: Apache-2.0
"""TensorFlowOnSpark as hops had it: its modules are those of hopyard.compat.tensorflowonspark."""

import os

from hopyard._code.package_aliases import COMPAT

__path__ = [os.path.join(COMPAT, "tensorflowonspark")]
