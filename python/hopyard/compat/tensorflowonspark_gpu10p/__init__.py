# SPDX-License-Identifier: Apache-2.0
"""tensorflowonspark, with nodes that have 0.1 of a GPU each unless they say otherwise."""

import os

__path__ = [*__path__, os.path.join(os.path.dirname(os.path.dirname(__file__)), "tensorflowonspark")]
