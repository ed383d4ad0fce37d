# SPDX-License-Identifier: Apache-2.0
"""Between the columns of records (src/record/record.h), Arrow's and Spark's types.

Values go to Arrow as they are, and offsets become 32 bits wide, as Spark has them; nothing is done row by row.
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


def check(schema: StructType, kind: str, in_folders: Collection[str] = ()) -> None:
    """Before anything is done. `in_folders` are columns that records do not have."""
    fields = [field for field in schema.fields if field.name not in in_folders]
    for field in fields:
        place_of(field.name, field.dataType, kind)
    if kind == "bytearray" and len(fields) != 1:
        raise Error(f"a record of the type ByteArray has one column, and here are {len(fields)}: {_FITS[kind]}")


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
        while (batch := _next(reader)) is not None:
            yield url, *batch
        reader.close()


def _next(reader: Any) -> Any:
    """The next batch, or None."""
    try:
        return reader.next()
    except Error as error:
        if "tf.SequenceExample, and not" in str(error):
            raise Error(f"{error}; read it with the option recordType='SequenceExample'") from None
        raise


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


def schema_of(files: list[tuple[str, dict[str, str | None]]], kind: str, rows: int) -> StructType:
    """Sorted by name; then what is in the names of folders."""
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
    """Of a column in folders' names, as Spark tells it: int, bigint or double where all are, else string."""
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
    """A file's batches. `folder`: the values of columns that are in the names of its folders (p=0)."""
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
    """A folder's value, for each row."""
    try:
        scalar = pa.scalar(value, pa.string()).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise Error(
            f"{url}: '{value}' in '{field.name}={value}' does not fit into a column of the type {field.type}"
        ) from None
    return pa.repeat(scalar, rows)


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


def in_folders(schema: StructType, names: list[str]) -> list[str]:
    """The columns that are to be folders, all of which have to be there; some have to be left for the records."""
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise Error(f"there is no column '{missing[0]}' to make directories of; there are {', '.join(schema.names)}")
    if names and len(set(names)) == len(schema.names):
        raise Error("all columns are directories, and none is left for the records")
    return names


def split(batches: Iterator[pa.RecordBatch], names: list[str]) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
    """Batches by the folder they go to ("p=0/"), without the columns that it names. Rows of a folder are together where they
    come so (tfrecord.save sorts them); what comes later for the same folder is another file."""
    if not names:
        yield "", batches
        return
    pieces = (piece for batch in batches for piece in _by_folder(batch, names))
    for folder, group in itertools.groupby(pieces, key=lambda piece: piece[0]):
        yield folder, (piece for _, piece in group)


def _by_folder(batch: pa.RecordBatch, names: list[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows with the same values; in the order in which these come first."""
    keys = zip(*(batch.column(name).cast(pa.string()).to_pylist() for name in names))
    found: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    rest = batch.select([name for name in batch.schema.names if name not in names])
    for key, rows in found.items():
        folder = "".join(_files.folder_name(name, value) + "/" for name, value in zip(names, key))
        yield folder, rest.take(pa.array(rows))


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
    _, values, ends = _parts(piece.schema.names[0], array)
    return values, ends


def _column(name: str, array: pa.Array) -> Any:
    """As write_examples takes it; what is null is not there."""
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
        raise Error(f"the column '{name}' has a null in it, and {why}")


def _lengths(array: pa.Array) -> Any:
    """Of lists; of one that is null, 0."""
    return array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)


def _ends(counts: Any) -> Any:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _floats(name: str, array: pa.Array) -> Any:
    """With 32 bits, which is what a feature has."""
    wide = _numbers(array.cast(pa.float64()), np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    lost = np.isinf(narrow) & np.isfinite(wide)
    if lost.any():
        raise Error(
            f"the column '{name}' has {wide[lost][0]:g} in it, and the floats of a feature end at 3.4e38; cast it to string, "
            "or leave it out"
        )
    return narrow


def _parts(name: str, array: pa.Array) -> tuple[int, Any, Any]:
    """The kind of its values, the values, and where those that are bytes end."""
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
