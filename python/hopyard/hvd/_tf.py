# SPDX-License-Identifier: Apache-2.0
"""Parts of TensorFlow without a public name, or with one that depends on the version."""

from typing import Any

from tensorflow.python.eager.context import executing_eagerly
from tensorflow.python.framework.ops import EagerTensor

try:
    from tensorflow.python.eager.record import could_possibly_record
except ImportError:  # before 2.13
    from tensorflow.python.eager.tape import could_possibly_record

__all__ = ["Variables", "is_plain", "is_recording", "native", "title"]


def is_recording() -> bool:
    """Whether a gradient tape may record the current operations."""
    return bool(could_possibly_record())


def is_plain(value: Any) -> bool:
    """An eager tensor whose operations are not recorded: the fast path can be used."""
    return type(value) is EagerTensor and executing_eagerly() and not could_possibly_record()


class Variables(list[Any]):
    """The variables of an optimizer: Keras has `optimizer.variables` or `optimizer.variables()`; this supports both."""

    def __init__(self, given: Any) -> None:
        super().__init__(given() if callable(given) else given)

    def __call__(self) -> "Variables":
        return self


def native(variable: Any) -> Any:
    """The tf.Variable of a Keras 3 variable; anything else unchanged."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def title(variable: Any, index: int) -> str:
    """The name of a variable or tensor, for messages."""
    path = getattr(variable, "path", None)  # Keras 3's
    name = path if isinstance(path, str) else getattr(variable, "name", None)  # eager tensors have none
    return name.removesuffix(":0") if isinstance(name, str) else f"number {index}"
