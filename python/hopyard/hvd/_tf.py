# SPDX-License-Identifier: Apache-2.0
"""The few things of TensorFlow that have no public name, or one that depends on its version."""

from typing import Any

from tensorflow.python.eager.context import executing_eagerly
from tensorflow.python.framework.ops import EagerTensor

try:
    from tensorflow.python.eager.record import could_possibly_record
except ImportError:  # before 2.13
    from tensorflow.python.eager.tape import could_possibly_record

__all__ = ["Variables", "is_plain", "is_recording", "native", "title"]


def is_recording() -> bool:
    """Whether a gradient tape may see what is done now."""
    return bool(could_possibly_record())


def is_plain(value: Any) -> bool:
    """A tensor that is there, and nobody records what is done with it: the shortest way is good enough."""
    return type(value) is EagerTensor and executing_eagerly() and not could_possibly_record()


class Variables(list[Any]):
    """An optimizer's: some Keras have `optimizer.variables`, some `optimizer.variables()`; here both do."""

    def __init__(self, given: Any) -> None:
        super().__init__(given() if callable(given) else given)

    def __call__(self) -> "Variables":
        return self


def native(variable: Any) -> Any:
    """The tf.Variable of a Keras 3 variable; anything else as it is."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def title(variable: Any, index: int) -> str:
    """What to call a variable, or a tensor, in a sentence."""
    path = getattr(variable, "path", None)  # Keras 3's
    name = path if isinstance(path, str) else getattr(variable, "name", None)  # a tensor has none eagerly
    return name.removesuffix(":0") if isinstance(name, str) else f"number {index}"
