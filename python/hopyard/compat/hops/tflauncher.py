# SPDX-License-Identifier: Apache-2.0
"""The first name of experiment.launch."""

from .experiment import launch as launch
