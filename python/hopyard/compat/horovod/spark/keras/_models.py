# SPDX-License-Identifier: Apache-2.0
"""Models of Keras 3 and of tf_keras: as files, and what they take and give."""

import importlib
import os
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple

from hopyard import _hopyard
from hopyard._base.files import open_url
from hopyard.hvd._variables import build

PACKAGES = ("keras", "tf_keras")


def package_of(model: Any) -> str:
    """The Keras that a model belongs to."""
    modules = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    found = next((name for name in PACKAGES if name in modules), None)
    if found is None or not hasattr(model, "fit"):
        raise ValueError(f"model must be a model of Keras or tf_keras, not {type(model).__name__}")
    return found


# ---- files


def save(model: Any, url: str) -> None:
    """With its optimizer, to any file system."""
    with tempfile.TemporaryDirectory(prefix="hopyard-model-") as folder:
        path = os.path.join(folder, os.path.basename(url))
        # Otherwise the optimizer's variables are not in the file, and Keras warns.
        build(model.optimizer, model.trainable_variables)
        model.save(path)
        _hopyard.copy(path, url, True)


def to_bytes(model: Any) -> bytes:
    with tempfile.TemporaryDirectory(prefix="hopyard-model-") as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def load(
    data: bytes, package: str, custom_objects: Mapping[str, Any], name: str = "model.keras", load_model: Any = None
) -> Any:
    """The model in a file's bytes; `load_model` is Keras's by default. Lambda layers are loaded, too: the model is the
    user's."""
    keras = importlib.import_module(package)
    with tempfile.TemporaryDirectory(prefix="hopyard-model-") as folder:
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(data)
        with keras.utils.custom_object_scope(dict(custom_objects)):
            return load_model(path) if load_model else keras.models.load_model(path, safe_mode=False)


def copy_unless_built(optimizer: Any) -> Any:
    """An optimizer with state is used as it is; others are copied, since an optimizer can be used for one model
    only."""
    is_built = (
        getattr(optimizer, "built", False)
        or getattr(optimizer, "_built", False)
        or getattr(optimizer, "_weights", None)
    )
    return optimizer if isinstance(optimizer, str) or is_built else type(optimizer).from_config(optimizer.get_config())


def read(url: str) -> bytes:
    with open_url(url, "r") as file:
        return bytes(file.read())


def optimizer_to_config(optimizer: Any) -> tuple[str, Any]:
    """Without its state."""
    package = next(
        name for name in PACKAGES if any(c.__module__.startswith(f"{name}.") for c in type(optimizer).__mro__)
    )
    return package, importlib.import_module(package).optimizers.serialize(optimizer)


def optimizer_from_config(package: str, config: Any) -> Any:
    return importlib.import_module(package).optimizers.deserialize(config)


def floatx(package: str) -> str:
    return str(importlib.import_module(package).backend.floatx())


# ---- columns and tensors


class Tensor(NamedTuple):
    """A column and its tensor. `shape` begins with -1 for the batch; None: the shape of the rows."""

    column: str
    kind: int
    width: int
    shape: list[int] | None
    dtype: str


def _shapes(tensors: Any, what: str) -> list[list[int]]:
    if not tensors:
        raise ValueError(f"the model has no {what} yet; give it an Input layer, or build it")
    return [[-1 if n is None else int(n) for n in tensor.shape] for tensor in tensors]


def _attribute(model: Any, name: str) -> Any:
    try:
        return getattr(model, name)
    except (AttributeError, ValueError):  # a Sequential model that is not built
        return None


def input_shapes(model: Any) -> list[list[int]]:
    return _shapes(_attribute(model, "inputs"), "inputs")


def output_shapes(model: Any) -> list[list[int]]:
    return _shapes(_attribute(model, "outputs"), "outputs")


def input_types(model: Any) -> list[str]:
    return [getattr(tensor.dtype, "name", None) or str(tensor.dtype) for tensor in model.inputs]


def size_of(shape: list[int]) -> int | None:
    """The number of values in a row; None if it is not fixed."""
    size = 1
    for n in shape[1:]:
        if n < 0:
            return None
        size *= n
    return size
