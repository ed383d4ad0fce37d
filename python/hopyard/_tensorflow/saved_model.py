# SPDX-License-Identifier: Apache-2.0
"""SavedModels that infer: on the driver what they give, on executors the giving."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .._base.errors import Error


class Description(NamedTuple):
    """A model, and which of its tensors are which columns."""

    folder: str
    tags: str
    signature: str
    inputs: dict[str, str]  # column -> tensor
    outputs: dict[str, str]  # tensor -> column
    batch_size: int


_known: dict[tuple[str, str, str], Any] = {}  # what a worker has read it need not read again


def _signature(model: Description) -> Any:
    import tensorflow as tf

    key = model.folder, model.tags, model.signature
    if key not in _known:
        loaded = tf.saved_model.load(model.folder, tags=model.tags.split(","))
        if model.signature not in loaded.signatures:
            raise Error(f"{model.folder} has no signature '{model.signature}'; it has {', '.join(loaded.signatures)}")
        _known[key] = loaded, loaded.signatures[model.signature]  # a signature does not keep its model alive
    return _known[key][1]


def schema(model: Description) -> str:
    """Of what it gives, in Spark's words: as TensorFlow's types and shapes have it."""
    names = {"float32": "float", "float64": "double", "float16": "float", "int64": "bigint", "int32": "int", "int16": "smallint",
             "int8": "tinyint", "uint8": "smallint", "bool": "boolean", "string": "binary"}  # fmt: skip
    gives = _signature(model).structured_outputs
    columns = []
    for tensor, column in model.outputs.items():
        if tensor not in gives:
            raise Error(f"signature '{model.signature}' gives no '{tensor}'; it gives {', '.join(sorted(gives))}")
        kind, rank = gives[tensor].dtype.name, gives[tensor].shape.rank
        if kind not in names or rank is None or rank < 1:
            raise Error(f"'{tensor}' is a {kind} of shape {gives[tensor].shape}, of which no column can be made")
        columns.append(f"`{column}` {'array<' * (rank - 1)}{names[kind]}{'>' * (rank - 1)}")
    return ", ".join(columns)


def infer(model: Description, batches: Iterable[Any]) -> Iterator[Any]:
    """Arrow's batches, for Arrow's batches."""
    signature = _signature(model)
    takes = signature.structured_input_signature[1]
    for batch in batches:
        for at in range(0, batch.num_rows, model.batch_size):
            yield _infer(model, signature, takes, batch.slice(at, model.batch_size))


def _infer(model: Description, signature: Any, takes: dict[str, Any], batch: Any) -> Any:
    import pyarrow
    import tensorflow as tf

    given = {}
    for i, tensor in enumerate(model.inputs.values()):
        if tensor not in takes:
            raise Error(f"signature '{model.signature}' takes no '{tensor}'; it takes {', '.join(sorted(takes))}")
        kind, shape = takes[tensor].dtype, [-1 if n is None else n for n in takes[tensor].shape]
        values = batch.column(i).to_pylist() if kind == tf.string else _numbers(batch.column(i))
        given[tensor] = tf.reshape(tf.cast(tf.constant(values), kind), [batch.num_rows, *shape[1:]])
    found = signature(**given)
    arrays = {column: found[tensor].numpy() for tensor, column in model.outputs.items()}
    for column, array in arrays.items():
        if len(array) != batch.num_rows:
            raise Error(f"{len(array)} results came for {batch.num_rows} rows in column '{column}'")
    columns = {
        name: pyarrow.array(list(a) if a.ndim == 2 else a.tolist() if a.ndim != 1 else a) for name, a in arrays.items()
    }
    return pyarrow.RecordBatch.from_pydict(columns)


def _numbers(column: Any) -> Any:
    """Of an Arrow column: rows of lists become a matrix, where they are of one length."""
    import numpy

    if hasattr(column, "flatten") and hasattr(column, "offsets"):
        flat = column.flatten().to_numpy(zero_copy_only=False)
        width = len(flat) // len(column) if len(column) else 0
        if width * len(column) == len(flat) and len(set(numpy.diff(column.offsets.to_numpy()).tolist())) <= 1:
            return flat.reshape(len(column), width)
        return column.to_pylist()
    return column.to_numpy(zero_copy_only=False)
