# SPDX-License-Identifier: Apache-2.0
"""What Horovod's estimators share: stores, backends and parameters."""
