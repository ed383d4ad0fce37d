# SPDX-License-Identifier: Apache-2.0
"""Between the columns of records (src/record/columns.h), Arrow's and Spark's types.

Values go to Arrow as they are, and offsets become 32 bits wide, as Spark has them; nothing is done row by row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType, BinaryType, DataType, FloatType, LongType, StringType, StructField, StructType,
)  # fmt: skip

from .. import _hopyard
from .._errors import Error

BARE = "byteArray"
KINDS = {"example": "Example", "sequenceexample": "SequenceExample", "bytearray": "ByteArray"}
BYTES, FLOAT, INT64 = 1, 2, 3
_PLACES = {
    BYTES: ("string", "char", "varchar", "binary"), FLOAT: ("float", "double", "decimal"),
    INT64: ("byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "boolean"),
}  # fmt: skip
_FITS = {
    "example": "it takes numbers, strings and binary values, and arrays of them (arrays of arrays as SequenceExample)",
    "sequenceexample": "it takes numbers, strings and binary values, arrays of them, and arrays of arrays",
    "bytearray": "it is one column of the type binary",
}
_GIVE = "give a schema: .schema(…)"
_ROWS = 4096
_LOOK = 64 << 20  # bytes that are looked at for a schema, at most: records may be images
_PIECE = 32 << 20  # of what is written at a time
_MOST = (1 << 31) - 1  # of a batch's bytes and values: Spark's offsets have 32 bits


def kind_of(name: str) -> str:
    if name.lower() not in KINDS:
        raise Error(f"recordType is Example, SequenceExample or ByteArray, not {name!r}")
    return name.lower()


def number_of(name: str, text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise Error(f"{name} is a number from 1 on, not {text!r}")
    return int(text)


# ---- Spark's types


def place_of(name: str, type: DataType, kind: str) -> tuple[int, int]:
    """The kind of a column's values, and how many lists are around them."""
    depth, inner = 0, type
    while isinstance(inner, ArrayType):
        depth, inner = depth + 1, inner.elementType
    values = next((k for k, names in _PLACES.items() if inner.typeName().partition("(")[0] in names), 0)
    most = {"example": 1, "sequenceexample": 2, "bytearray": 0}[kind]
    if not values or depth > most or (kind == "bytearray" and inner.typeName() != "binary"):
        named = f"the column '{name}' is {type.simpleString()}"
        raise Error(f"{named}, which has no place in a record of the type {KINDS[kind]}: {_FITS[kind]}")
    return values, depth


def check(schema: StructType, kind: str) -> None:
    """Before anything is done."""
    for field in schema.fields:
        place_of(field.name, field.dataType, kind)
    if kind == "bytearray" and len(schema.fields) != 1:
        raise Error(f"a record of the type ByteArray has one column, and here are {len(schema.fields)}: {_FITS[kind]}")


# ---- a schema, from what is there


@dataclass
class Feature:
    """What was seen of it."""

    kind: int
    has_steps: bool
    is_list: bool = False  # some row has several values
    is_text: bool = True  # as far as it is bytes


def look(files: list[str], kind: str, rows: int = 10000) -> dict[str, Feature]:
    """The features of the first records, by name."""
    seen: dict[str, Feature] = {}
    left, bytes_left = rows, _LOOK
    for url, count, columns in _first(files, kind, rows):
        for column in columns:
            _note(seen, column, url)
            bytes_left -= len(column[3])
        left -= count
        if left <= 0 or bytes_left <= 0:
            break
    if left == rows:
        where = f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else files[0] if files else "that path"
        raise Error(f"there is no record in {where} to take a schema from; {_GIVE}")
    return seen


def _first(files: list[str], kind: str, rows: int) -> Iterator[tuple[str, int, Any]]:
    for url in files:
        reader = _hopyard.Examples(url, min(rows, _ROWS), kind == "sequenceexample")
        while (batch := reader.next()) is not None:
            yield url, *batch
        reader.close()


def _note(seen: dict[str, Feature], column: Any, url: str) -> None:
    name, kind, has_steps, values, value_ends, _, row_ends = column
    if not name.isprintable():
        raise Error(f"{url}: a feature has the name {name!r}, which no column of Spark can have; {_GIVE}")
    feature = seen.setdefault(name, Feature(kind, has_steps))
    if feature.has_steps != has_steps:
        raise Error(f"{url}: the feature '{name}' is in the context and in the feature lists; {_GIVE}")
    if kind and feature.kind and kind != feature.kind:
        raise Error(f"{url}: the feature '{name}' has another type than in the files before; {_GIVE}")
    feature.kind = kind or feature.kind
    feature.is_list |= bool((np.diff(np.frombuffer(row_ends, np.int64)) > 1).any())
    feature.is_text &= kind != BYTES or _is_text(values, value_ends)


def _is_text(values: bytes, ends: bytes) -> bool:
    try:
        _strings(pa.large_string(), values, ends).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _type_of(feature: Feature) -> DataType:
    """One that never had a value is a string."""
    text = StringType() if feature.is_text else BinaryType()
    inner: DataType = {FLOAT: FloatType(), INT64: LongType()}.get(feature.kind, text)
    if feature.has_steps:
        return ArrayType(ArrayType(inner))
    return ArrayType(inner) if feature.is_list else inner


def schema_of(files: list[str], kind: str, rows: int) -> StructType:
    """Sorted by name."""
    if kind == "bytearray":
        return StructType([StructField(BARE, BinaryType())])
    features = sorted(look(files, kind, rows).items())
    return StructType([StructField(name, _type_of(feature)) for name, feature in features])


# ---- records to Arrow


def read(url: str, schema: StructType, kind: str) -> Iterator[pa.RecordBatch]:
    """A file's batches."""
    reader = _hopyard.Examples(url, _ROWS, kind == "sequenceexample", True, kind == "bytearray")
    places = [place_of(field.name, field.dataType, kind) for field in schema.fields]
    if kind != "bytearray":
        for field, (values, depth) in zip(schema.fields, places):
            reader.want(field.name, values, depth == 2)
    arrow, before = to_arrow_schema(schema), 0
    try:
        while (batch := reader.next()) is not None:
            where = f"{url}, records {before + 1} to {before + batch[0]}"
            columns = zip(batch[1], arrow, places)
            arrays = [_array(column, field, depth, where) for column, field, (_, depth) in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow)
            before += batch[0]
    finally:
        reader.close()


def _array(column: Any, field: pa.Field, depth: int, where: str) -> pa.Array:
    """One column as Arrow's array of that field."""
    name, kind, _, values, value_ends, step_ends, row_ends, there = column
    inner = field.type
    for _ in range(depth):
        inner = inner.value_type
    try:
        made = _values(kind, values, value_ends, inner)
        if depth == 0:
            made = _scalars(made, row_ends)
        if depth == 2:
            made = _list(field.type.value_type, step_ends, made, None)
        if depth > 0:
            made = _list(field.type, row_ends, made, there)
    except (pa.ArrowInvalid, ValueError) as error:
        why = f"does not fit into a column of the type {field.type}: {error}"
        raise Error(f"{where}: the feature '{name}' {why}") from None
    if not field.nullable and made.null_count:
        raise Error(f"{where}: the feature '{name}' is missing, and its column may not be null")
    return made


def _narrow(ends: bytes) -> pa.Buffer:
    """Offsets of 32 bits."""
    wide = np.frombuffer(ends, np.int64)
    if wide[-1] > _MOST:
        raise ValueError("there is more than 2 GB of it in a batch")
    return pa.py_buffer(wide.astype(np.int32))


def _strings(type: pa.DataType, values: bytes, ends: bytes) -> pa.Array:
    offsets = pa.py_buffer(ends) if type in (pa.large_string(), pa.large_binary()) else _narrow(ends)
    return pa.Array.from_buffers(type, len(ends) // 8 - 1, [None, offsets, pa.py_buffer(values)])


def _values(kind: int, values: bytes, ends: bytes, type: pa.DataType) -> pa.Array:
    if kind == BYTES:
        made = _strings(type, values, ends)
        made.validate(full=True)  # whether a string is UTF-8
        return made
    own, width = (pa.float32(), 4) if kind == FLOAT else (pa.int64(), 8)
    made = pa.Array.from_buffers(own, len(values) // width, [None, pa.py_buffer(values)])
    if pa.types.is_decimal(type):
        made = made.cast(pa.float64())
    return made if type == own else made.cast(type)


def _scalars(values: pa.Array, row_ends: bytes) -> pa.Array:
    """One value for each row, or null where it has none."""
    ends = np.frombuffer(row_ends, np.int64)
    counts = np.diff(ends)
    if (counts > 1).any():
        raise ValueError("a record has several values; its column is to be an array: .schema(…)")
    if len(values) == len(counts):
        return values
    return values.take(pa.array(ends[:-1], mask=counts == 0))


def _list(type: pa.DataType, ends: bytes, values: pa.Array, there: bytes | None) -> pa.Array:
    mask = None
    if there is not None and b"\0" in there:
        mask = pa.py_buffer(np.packbits(np.frombuffer(there, np.uint8), bitorder="little"))
    return pa.Array.from_buffers(type, len(ends) // 8 - 1, [mask, _narrow(ends)], children=[values])


# ---- Arrow to records


def records(batch: pa.RecordBatch, kind: str) -> Iterator[bytes]:
    """A batch as what a file of it holds, in pieces."""
    rows = max(1, batch.num_rows * _PIECE // max(batch.nbytes, 1))
    for at in range(0, batch.num_rows, rows):
        piece = batch.slice(at, rows)
        if kind == "bytearray":
            yield _hopyard.write_records(*_bare(piece))
        else:
            columns = [_column(name, array) for name, array in zip(piece.schema.names, piece.columns)]
            yield _hopyard.write_examples(piece.num_rows, columns, kind == "sequenceexample")


def _bare(piece: pa.RecordBatch) -> tuple[Any, Any]:
    [array] = piece.columns
    _refuse_nulls(piece.schema.names[0], array, "a record is made of bytes")
    _, values, ends = _parts(array)
    return values, ends


def _column(name: str, array: pa.Array) -> Any:
    """As write_examples takes it; what is null is not there."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    there, step_ends, has_steps = valid.astype(np.uint8), b"", False
    if not _is_list(array):
        kind, values, value_ends = _parts(array.drop_null())
        return name, kind, False, values, value_ends, b"", _ends(there), there
    row_ends, inner = _ends(_lengths(array)), array.flatten()
    _refuse_nulls(name, inner, "a feature cannot have one among its values")
    if _is_list(inner):
        has_steps, step_ends, inner = True, _ends(_lengths(inner)), inner.flatten()
        _refuse_nulls(name, inner, "a feature cannot have one among its values")
    kind, values, value_ends = _parts(inner)
    return name, kind, has_steps, values, value_ends, step_ends, row_ends, there


def _is_list(array: pa.Array) -> bool:
    return bool(pa.types.is_list(array.type) or pa.types.is_large_list(array.type))


def _refuse_nulls(name: str, array: pa.Array, why: str) -> None:
    if array.null_count:
        raise Error(f"the column '{name}' has a null in it, and {why}")


def _lengths(array: pa.Array) -> Any:
    """Of lists; of one that is null, 0."""
    return array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)


def _ends(counts: Any) -> Any:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _parts(array: pa.Array) -> tuple[int, Any, Any]:
    """The kind of its values, the values, and where those that are bytes end."""
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        return INT64, _numbers(array.cast(pa.int64()), np.int64), b""
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        wide = array.cast(pa.float64()) if pa.types.is_decimal(array.type) else array
        return FLOAT, _numbers(wide.cast(pa.float32()), np.float32), b""
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    if not offsets:
        return BYTES, b"", np.zeros(1, np.int64)
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return BYTES, data[ends[0] : ends[-1]] if data is not None else b"", ends - ends[0]


def _numbers(array: pa.Array, type: Any) -> Any:
    return np.frombuffer(array.buffers()[1] or b"", type)[array.offset : array.offset + len(array)]
