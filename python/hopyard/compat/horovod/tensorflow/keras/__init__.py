# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow.keras on hopyard: for tf.keras, whichever Keras that is."""

from hopyard.hvd.keras import *  # noqa: F403
from hopyard.hvd.keras import __all__ as __all__

from horovod.common.util import is_version_greater_equal_than as is_version_greater_equal_than

from . import callbacks as callbacks  # type: ignore[no-redef]
from . import elastic as elastic  # type: ignore[no-redef]
