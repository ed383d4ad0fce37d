# SPDX-License-Identifier: Apache-2.0
raise ImportError(
    "'horovod.tensorflow.data' is not served: start tf.data's service with tf.data.experimental.service, whose "
    "datasets work in every rank; see docs/horovod.md",
    name=__name__,
)
