# SPDX-License-Identifier: Apache-2.0
"""tf.data's service, run as a separate training: docs/horovod.md has the commands."""
