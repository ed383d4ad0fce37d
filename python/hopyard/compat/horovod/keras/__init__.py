# SPDX-License-Identifier: Apache-2.0
"""horovod.keras on hopyard: for the package keras."""

from typing import Any

from hopyard.hvd import keras as _flavoured
from hopyard.hvd.keras import *  # noqa: F403
from hopyard.hvd.keras import __all__ as __all__

from . import callbacks as callbacks
from . import elastic as elastic


def load_model(*args: Any, **given: Any) -> Any:
    """As horovod.tensorflow.keras has it, by the package keras."""
    import keras

    return _flavoured.load_model(*args, **{"keras": keras, **given})
