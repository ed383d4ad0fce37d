# SPDX-License-Identifier: Apache-2.0
"""tf.data's own service, run as a training of its own: docs/horovod.md has the commands."""
