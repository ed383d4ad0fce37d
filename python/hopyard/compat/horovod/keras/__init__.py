# SPDX-License-Identifier: Apache-2.0
"""horovod.keras on hopyard: for the package keras."""

from typing import Any

from hopyard.hvd import keras as _flavoured
from hopyard.hvd.keras import *  # noqa: F403
from hopyard.hvd.keras import __all__ as __all__

from . import callbacks as callbacks  # type: ignore[no-redef]
from . import elastic as elastic  # type: ignore[no-redef]


def load_model(*args: Any, **given: Any) -> Any:  # type: ignore[no-redef]
    """As horovod.tensorflow.keras has it, by the package keras."""
    import keras

    return _flavoured.load_model(*args, **{"keras": keras, **given})
