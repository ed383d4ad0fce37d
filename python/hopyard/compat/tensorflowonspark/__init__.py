# SPDX-License-Identifier: Apache-2.0
"""The API of TensorFlowOnSpark, on hopyard."""
