# SPDX-License-Identifier: Apache-2.0
"""tensorflowonspark, with 0.2 GPU per node by default."""

import os

__path__ = [*__path__, os.path.join(os.path.dirname(os.path.dirname(__file__)), "tensorflowonspark")]
