# SPDX-License-Identifier: Apache-2.0
"""Inference with SavedModels on Arrow batches: the output schema on the driver, inference on executors."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .._base.errors import Error


class Description(NamedTuple):
    """A model, and the mapping between its tensors and columns."""

    directory: str
    tags: str
    signature: str
    inputs: dict[str, str]  # column -> tensor
    outputs: dict[str, str]  # tensor -> column
    batch_size: int


_loaded: dict[tuple[str, str, str], Any] = {}  # cached by a worker for its next tasks


def _signature(model: Description) -> Any:
    import tensorflow as tf

    key = model.directory, model.tags, model.signature
    if key not in _loaded:
        loaded = tf.saved_model.load(model.directory, tags=model.tags.split(","))
        if model.signature not in loaded.signatures:
            known = ", ".join(loaded.signatures)
            raise Error(f"{model.directory} has no signature '{model.signature}' (signatures: {known})")
        _loaded[key] = loaded, loaded.signatures[model.signature]  # a signature does not keep its model alive
    return _loaded[key][1]


def schema(model: Description) -> str:
    """The Spark schema of the model's outputs, from their types and shapes."""
    names = {"float32": "float", "float64": "double", "float16": "float", "int64": "bigint", "int32": "int",
             "int16": "smallint", "int8": "tinyint", "uint8": "smallint", "bool": "boolean",
             "string": "binary"}  # fmt: skip
    outputs = _signature(model).structured_outputs
    columns = []
    for tensor, column in model.outputs.items():
        if tensor not in outputs:
            known = ", ".join(sorted(outputs))
            raise Error(f"signature '{model.signature}' has no output '{tensor}' (outputs: {known})")
        kind, rank = outputs[tensor].dtype.name, outputs[tensor].shape.rank
        if kind not in names or rank is None or rank < 1:
            raise Error(f"'{tensor}' is a {kind} of shape {outputs[tensor].shape}, which cannot become a column")
        columns.append(f"`{column}` {'array<' * (rank - 1)}{names[kind]}{'>' * (rank - 1)}")
    return ", ".join(columns)


def infer(model: Description, batches: Iterable[Any]) -> Iterator[Any]:
    """Arrow batches of outputs for Arrow batches of inputs."""
    signature = _signature(model)
    inputs = signature.structured_input_signature[1]
    for batch in batches:
        for at in range(0, batch.num_rows, model.batch_size):
            yield _infer(model, signature, inputs, batch.slice(at, model.batch_size))


def _infer(model: Description, signature: Any, inputs: dict[str, Any], batch: Any) -> Any:
    import pyarrow

    import tensorflow as tf

    arguments = {}
    for i, tensor in enumerate(model.inputs.values()):
        if tensor not in inputs:
            raise Error(f"signature '{model.signature}' has no input '{tensor}' (inputs: {', '.join(sorted(inputs))})")
        kind, shape = inputs[tensor].dtype, [-1 if n is None else n for n in inputs[tensor].shape]
        values = batch.column(i).to_pylist() if kind == tf.string else _numbers(batch.column(i))
        arguments[tensor] = tf.reshape(tf.cast(tf.constant(values), kind), [batch.num_rows, *shape[1:]])
    found = signature(**arguments)
    arrays = {column: found[tensor].numpy() for tensor, column in model.outputs.items()}
    for column, array in arrays.items():
        if len(array) != batch.num_rows:
            raise Error(f"column '{column}' has {len(array)} results for {batch.num_rows} rows")
    columns = {
        name: pyarrow.array(list(a) if a.ndim == 2 else a.tolist() if a.ndim != 1 else a) for name, a in arrays.items()
    }
    return pyarrow.RecordBatch.from_pydict(columns)


def _numbers(column: Any) -> Any:
    """The numbers of an Arrow column: lists of equal length become a matrix."""
    import numpy

    if hasattr(column, "flatten") and hasattr(column, "offsets"):
        flat = column.flatten().to_numpy(zero_copy_only=False)
        width = len(flat) // len(column) if len(column) else 0
        if width * len(column) == len(flat) and len(set(numpy.diff(column.offsets.to_numpy()).tolist())) <= 1:
            return flat.reshape(len(column), width)
        return column.to_pylist()
    return column.to_numpy(zero_copy_only=False)
