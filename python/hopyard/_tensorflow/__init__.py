# SPDX-License-Identifier: Apache-2.0
"""What needs TensorFlow itself: hopyard's ops and SavedModels."""
