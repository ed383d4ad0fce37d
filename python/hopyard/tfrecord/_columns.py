# SPDX-License-Identifier: Apache-2.0
"""Converts between the columns of records (src/record/record.h), Arrow and Spark types.

Values are passed to Arrow unchanged, and offsets are converted to 32 bits for Spark; nothing is done row by row.
"""

import contextlib
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)  # fmt: skip

from .. import _hopyard
from .._base.errors import Error
from . import _files

BARE = "byteArray"
KINDS = {"example": "Example", "sequenceexample": "SequenceExample", "bytearray": "ByteArray"}
BYTES, FLOAT, INT64 = 1, 2, 3
_PLACES = {
    BYTES: ("string", "char", "varchar", "binary"), FLOAT: ("float", "double", "decimal"),
    INT64: ("byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "boolean"),
}  # fmt: skip
_FITS = {
    "example": "it supports numbers, strings and binary values, and arrays of them (arrays of arrays: SequenceExample)",
    "sequenceexample": "it supports numbers, strings and binary values, arrays of them, and arrays of arrays",
    "bytearray": "it has one column of type binary",
}
_GIVE = "give a schema: .schema(…)"
_ROWS = 4096
_LOOK = 64 << 20  # the maximum number of bytes read to infer a schema: records may be images
_PIECE = 32 << 20  # bytes written at a time
_MOST = (1 << 31) - 1  # bytes and values of a batch: Spark's offsets have 32 bits


def kind_of(name: str) -> str:
    if name.lower() not in KINDS:
        raise Error(f"invalid recordType {name!r}: it must be Example, SequenceExample or ByteArray")
    return name.lower()


def number_of(name: str, text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise Error(f"{name} must be a number, 1 or more, not {text!r}")
    return int(text)


# ---- Spark's types


def place_of(name: str, type: DataType, kind: str) -> tuple[int, int]:
    """The kind of a column's values, and the depth of its lists."""
    depth, inner = 0, type
    while isinstance(inner, ArrayType):
        depth, inner = depth + 1, inner.elementType
    values = next((k for k, names in _PLACES.items() if inner.typeName().partition("(")[0] in names), 0)
    most = {"example": 1, "sequenceexample": 2, "bytearray": 0}[kind]
    if not values or depth > most or (kind == "bytearray" and inner.typeName() != "binary"):
        named = f"the column '{name}' is {type.simpleString()}"
        raise Error(f"{named}, which a record of type {KINDS[kind]} does not support: {_FITS[kind]}")
    return values, depth


def check(schema: StructType, kind: str, in_folders: Collection[str] = ()) -> None:
    """Checks a schema before anything is written. `in_folders` are columns that become directories."""
    fields = [field for field in schema.fields if field.name not in in_folders]
    for field in fields:
        place_of(field.name, field.dataType, kind)
    if kind == "bytearray" and len(fields) != 1:
        raise Error(f"a record of type ByteArray has one column, not {len(fields)}: {_FITS[kind]}")


# ---- schema inference


@dataclass
class Feature:
    """What the records show about a feature."""

    kind: int
    has_steps: bool
    is_list: bool = False  # some row has several values
    is_text: bool = True  # for bytes: all values are UTF-8


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
        raise Error(f"there is no record in {where} to infer a schema from; {_GIVE}")
    return seen


def _first(files: list[str], kind: str, rows: int) -> Iterator[tuple[str, int, Any]]:
    for url in files:
        reader = _hopyard.Examples(url, min(rows, _ROWS), kind == "sequenceexample")
        while (batch := _next(reader)) is not None:
            yield url, *batch
        reader.close()


def _next(reader: Any) -> Any:
    """The next batch, or None."""
    try:
        return reader.next()
    except Error as error:
        if "tf.SequenceExample, not" in str(error):
            raise Error(f"{error}; read it with the option recordType='SequenceExample'") from None
        raise


def _note(seen: dict[str, Feature], column: Any, url: str) -> None:
    name, kind, has_steps, values, value_ends, _, row_ends = column
    if not name.isprintable():
        raise Error(f"{url}: a feature has the name {name!r}, which is not valid for a Spark column; {_GIVE}")
    feature = seen.setdefault(name, Feature(kind, has_steps))
    if feature.has_steps != has_steps:
        raise Error(f"{url}: the feature '{name}' is in the context and in the feature lists; {_GIVE}")
    if kind and feature.kind and kind != feature.kind:
        raise Error(f"{url}: the feature '{name}' has a different type in earlier files; {_GIVE}")
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
    """The Spark type of a feature; string if it never had a value."""
    text = StringType() if feature.is_text else BinaryType()
    inner: DataType = {FLOAT: FloatType(), INT64: LongType()}.get(feature.kind, text)
    if feature.has_steps:
        return ArrayType(ArrayType(inner))
    return ArrayType(inner) if feature.is_list else inner


def schema_of(files: list[tuple[str, dict[str, str | None]]], kind: str, rows: int) -> StructType:
    """Columns sorted by name, followed by those of directory names."""
    folders = [values for _, values in files]
    last = [
        StructField(name, type_of_values([values[name] for values in folders]))
        for name in (folders[0] if folders else ())
    ]
    if kind == "bytearray":
        return StructType([StructField(BARE, BinaryType()), *last])
    features = sorted(look([url for url, _ in files], kind, rows).items())
    named = {field.name for field in last}
    return StructType(
        [*(StructField(name, _type_of(feature)) for name, feature in features if name not in named), *last]
    )


def type_of_values(values: list[str | None]) -> DataType:
    """The type of a column in directory names, as Spark infers it: int, bigint or double if all values are, else
    string."""
    given = pa.array({value for value in values if value is not None}, pa.string())
    if len(given):
        for arrow, type in ((pa.int32(), IntegerType()), (pa.int64(), LongType()), (pa.float64(), DoubleType())):
            with contextlib.suppress(pa.ArrowInvalid):
                given.cast(arrow)
                return type
    return StringType()


# ---- records to Arrow


def read(
    url: str, schema: StructType, kind: str, folder: dict[str, str | None] | None = None
) -> Iterator[pa.RecordBatch]:
    """The batches of a file. `folder`: the values of columns in the names of its directories (p=0)."""
    folder = folder or {}
    reader = _hopyard.Examples(url, _ROWS, kind == "sequenceexample", True, kind == "bytearray")
    fields = [field for field in schema.fields if field.name not in folder]
    places = [place_of(field.name, field.dataType, kind) for field in fields]
    if kind != "bytearray":
        for field, (values, depth) in zip(fields, places):
            reader.want(field.name, values, depth == 2)
    arrow, before = to_arrow_schema(schema), 0
    own = [arrow.field(field.name) for field in fields]
    try:
        while (batch := _next(reader)) is not None:
            where = f"{url}, records {before + 1} to {before + batch[0]}"
            columns = zip(batch[1], own, places)
            arrays = {field.name: _array(column, field, depth, where) for column, field, (_, depth) in columns}
            arrays |= {
                name: _repeated(url, arrow.field(name), value, batch[0])
                for name, value in folder.items()
                if name in arrow.names
            }
            yield pa.RecordBatch.from_arrays([arrays[name] for name in arrow.names], schema=arrow)
            before += batch[0]
    finally:
        reader.close()


def _repeated(url: str, field: pa.Field, value: str | None, rows: int) -> pa.Array:
    """The value of a directory name, repeated for each row."""
    try:
        scalar = pa.scalar(value, pa.string()).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise Error(
            f"{url}: '{value}' in '{field.name}={value}' is not valid for a column of type {field.type}"
        ) from None
    return pa.repeat(scalar, rows)


def _array(column: Any, field: pa.Field, depth: int, where: str) -> pa.Array:
    """A column as an Arrow array for that field."""
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
        why = f"is not valid for a column of type {field.type}: {error}"
        raise Error(f"{where}: the feature '{name}' {why}") from None
    if not field.nullable and made.null_count:
        raise Error(f"{where}: the feature '{name}' is missing, but its column is not nullable")
    return made


def _narrow(ends: bytes) -> pa.Buffer:
    """Converts to 32-bit offsets."""
    wide = np.frombuffer(ends, np.int64)
    if wide[-1] > _MOST:
        raise ValueError("it has more than 2 GB in a batch")
    return pa.py_buffer(wide.astype(np.int32))


def _strings(type: pa.DataType, values: bytes, ends: bytes) -> pa.Array:
    offsets = pa.py_buffer(ends) if type in (pa.large_string(), pa.large_binary()) else _narrow(ends)
    return pa.Array.from_buffers(type, len(ends) // 8 - 1, [None, offsets, pa.py_buffer(values)])


def _values(kind: int, values: bytes, ends: bytes, type: pa.DataType) -> pa.Array:
    if kind == BYTES:
        made = _strings(type, values, ends)
        made.validate(full=True)  # checks that strings are UTF-8
        return made
    own, width = (pa.float32(), 4) if kind == FLOAT else (pa.int64(), 8)
    made = pa.Array.from_buffers(own, len(values) // width, [None, pa.py_buffer(values)])
    if pa.types.is_decimal(type):
        made = made.cast(pa.float64())
    return made if type == own else made.cast(type)


def _scalars(values: pa.Array, row_ends: bytes) -> pa.Array:
    """One value for each row; null without a value."""
    ends = np.frombuffer(row_ends, np.int64)
    counts = np.diff(ends)
    if (counts > 1).any():
        raise ValueError("it has several values in a record; declare its column as an array: .schema(…)")
    if len(values) == len(counts):
        return values
    return values.take(pa.array(ends[:-1], mask=counts == 0))


def _list(type: pa.DataType, ends: bytes, values: pa.Array, there: bytes | None) -> pa.Array:
    mask = None
    if there is not None and b"\0" in there:
        mask = pa.py_buffer(np.packbits(np.frombuffer(there, np.uint8), bitorder="little"))
    return pa.Array.from_buffers(type, len(ends) // 8 - 1, [mask, _narrow(ends)], children=[values])


# ---- Arrow to records


def in_folders(schema: StructType, names: list[str]) -> list[str]:
    """Checks the columns that become directories: they must exist, and others must remain for the records."""
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise Error(f"there is no column '{missing[0]}' to partition by (columns: {', '.join(schema.names)})")
    if names and len(set(names)) == len(schema.names):
        raise Error("cannot partition by all columns: none is left for the records")
    return names


def split(batches: Iterator[pa.RecordBatch], names: list[str]) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
    """Batches by target directory ("p=0/"), without the columns in its name. Consecutive rows of a directory are
    grouped (tfrecord.save sorts them); later rows of the same directory go to another file."""
    if not names:
        yield "", batches
        return
    pieces = (piece for batch in batches for piece in _by_folder(batch, names))
    for folder, group in itertools.groupby(pieces, key=lambda piece: piece[0]):
        yield folder, (piece for _, piece in group)


def _by_folder(batch: pa.RecordBatch, names: list[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Groups of rows with the same values, in order of first appearance."""
    keys = zip(*(batch.column(name).cast(pa.string()).to_pylist() for name in names))
    found: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    rest = batch.select([name for name in batch.schema.names if name not in names])
    for key, rows in found.items():
        folder = "".join(_files.folder_name(name, value) + "/" for name, value in zip(names, key))
        yield folder, rest.take(pa.array(rows))


def records(batch: pa.RecordBatch, kind: str) -> Iterator[bytes]:
    """The bytes of a file with the batch's records, in pieces."""
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
    _, values, ends = _parts(piece.schema.names[0], array)
    return values, ends


def _column(name: str, array: pa.Array) -> Any:
    """A column in the format of write_examples; nulls are left out."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    there, step_ends, has_steps = valid.astype(np.uint8), b"", False
    if not _is_list(array):
        kind, values, value_ends = _parts(name, array.drop_null())
        return name, kind, False, values, value_ends, b"", _ends(there), there
    row_ends, inner = _ends(_lengths(array)), array.flatten()
    _refuse_nulls(name, inner, "a feature cannot have one among its values")
    if _is_list(inner):
        has_steps, step_ends, inner = True, _ends(_lengths(inner)), inner.flatten()
        _refuse_nulls(name, inner, "a feature cannot have one among its values")
    kind, values, value_ends = _parts(name, inner)
    return name, kind, has_steps, values, value_ends, step_ends, row_ends, there


def _is_list(array: pa.Array) -> bool:
    return bool(pa.types.is_list(array.type) or pa.types.is_large_list(array.type))


def _refuse_nulls(name: str, array: pa.Array, why: str) -> None:
    if array.null_count:
        raise Error(f"the column '{name}' contains a null, but {why}")


def _lengths(array: pa.Array) -> Any:
    """The lengths of lists; 0 for a null."""
    return array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)


def _ends(counts: Any) -> Any:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _floats(name: str, array: pa.Array) -> Any:
    """Values as 32-bit floats, the type of features."""
    wide = _numbers(array.cast(pa.float64()), np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    lost = np.isinf(narrow) & np.isfinite(wide)
    if lost.any():
        raise Error(
            f"the column '{name}' contains {wide[lost][0]:g}, but the floats of a feature end at 3.4e38; cast it to "
            "string, or leave it out"
        )
    return narrow


def _parts(name: str, array: pa.Array) -> tuple[int, Any, Any]:
    """The kind of a column's values, the values, and the end offsets of bytes."""
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        return INT64, _numbers(array.cast(pa.int64()), np.int64), b""
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        is_narrow = array.type == pa.float32()
        return FLOAT, _numbers(array, np.float32) if is_narrow else _floats(name, array), b""
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    if not offsets:
        return BYTES, b"", np.zeros(1, np.int64)
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return BYTES, data[ends[0] : ends[-1]] if data is not None else b"", ends - ends[0]


def _numbers(array: pa.Array, type: Any) -> Any:
    return np.frombuffer(array.buffers()[1] or b"", type)[array.offset : array.offset + len(array)]
