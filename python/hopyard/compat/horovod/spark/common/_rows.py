# SPDX-License-Identifier: Apache-2.0
"""The rows of a fit, from a DataFrame to the ranks: TFRecords in the store.

One Spark job writes them, so that the DataFrame is evaluated once: a row is in the training or in the validation, never
in both or in neither, however the DataFrame comes about. Its tasks return what they have written; the ranks find their
rows by these counts (Part.window).
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.mllib.linalg import VectorUDT as OldVectorUDT
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType

from hopyard import Error, FileError
from hopyard._spark import package_archive as _package_archive
from hopyard.compat import _spark_tasks
from hopyard.tfrecord import _columns, _files

FLAG = "__hopyard_validation"
_SAID = "name string, rows long, bytes long, widths string, error string"  # by a task, of each file


class Part(NamedTuple):
    """The files of the training or the validation, in reading order, with the number of rows in each."""

    files: list[tuple[str, int]]
    bytes: int

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.files)

    def window(self, rank: int, size: int) -> tuple[list[str], int, int]:
        """A rank's rows: the files that have them, how many rows to skip there, and how many to take.

        All ranks take the same number, rows / size rounded up, so all take the same steps. Together they take every
        row; where size does not divide rows, fewer than size rows are taken by two ranks.
        """
        first, count = rank * self.rows // size, -(-self.rows // size)
        names: list[str] = []
        skip = end = 0
        for name, rows in self.files:
            begin, end = end, end + rows
            if end > first and begin < first + count:
                skip = skip if names else first - begin
                names.append(name)
        return names, skip, count


class Stored(NamedTuple):
    """What write() has written. `kinds` and `widths`: of a column, the type and the number of its values in a row."""

    train: Part
    validation: Part | None
    kinds: dict[str, int]
    widths: dict[str, int]


# ---- the driver


def column(field: Any) -> Any:
    """A column of a schema; of a vector, as an array."""
    found = F.col(f"`{field.name.replace('`', '``')}`")
    if isinstance(field.dataType, VectorUDT | OldVectorUDT):
        found = vector_to_array(found)
    return found.alias(field.name)


def check_validation(validation: Any) -> None:
    if validation is not None and not isinstance(validation, str) and not 0 <= validation < 1:
        raise ValueError(f"validation must be a column, or a fraction from 0 to below 1, not {validation!r}")


def flagged(df: Any, names: list[str], validation: float | str | None, seed: int | None) -> Any:
    """These columns, and FLAG, which marks the rows of the validation."""
    for name in [*names, *([validation] if isinstance(validation, str) else [])]:
        if name not in df.columns:
            raise ValueError(f"the DataFrame has no column '{name}' (columns: {', '.join(df.columns)})")
    if isinstance(validation, str):
        field = df.schema[validation]
        flag = column(field) if isinstance(field.dataType, BooleanType) else column(field) > 0
    else:
        flag = F.rand(seed) < validation if validation else F.lit(False)
    return df.select(*(column(df.schema[name]) for name in dict.fromkeys(names)), flag.alias(FLAG))


def write(df: Any, folder: str, files: int, in_order: bool, validates: bool) -> Stored:
    """Writes what flagged() has made to a new directory."""
    plain = df.drop(FLAG)
    _columns.check(plain.schema, "example")
    df = df.coalesce(files) if in_order else df.repartition(files)
    df = df.sortWithinPartitions(FLAG) if validates else df.drop(FLAG)
    job = uuid.uuid4().hex
    _files.begin(folder, job)
    written: list[Any] = []
    try:
        pickled = cloudpickle.dumps((_write, (folder, job, [FLAG] if validates else [])))
        call = _spark_tasks.calling_batches(_package_archive.prepare(df.sparkSession.sparkContext), pickled)
        written = df.mapInArrow(call, _SAID).collect()
        widths = _agreed(written)
        _files.commit(folder, job, [row.name for row in written], False)
    except BaseException:
        _files.abort(folder, job, [row.name for row in written if not row.error])
        raise
    kinds = {field.name: _columns.place_of(field.name, field.dataType, "example")[0] for field in plain.schema.fields}
    train, validation = (_part(folder, written, f"{FLAG}={value}/" if validates else "") for value in ("false", "true"))
    return Stored(train, validation if validates else None, kinds, widths)


def _agreed(written: list[Any]) -> dict[str, int]:
    """The widths of columns, which must be the same in all tasks."""
    widths: dict[str, int] = {}
    for row in written:
        if row.error:
            raise ValueError(row.error)
        for name, width in json.loads(row.widths).items():
            if widths.setdefault(name, width) != width:
                raise ValueError(_uneven(name, widths[name], width))
    return widths


def _part(folder: str, written: list[Any], prefix: str) -> Part:
    rows = sorted((row for row in written if row.name.startswith(prefix)), key=lambda row: row.name)
    return Part([(f"{folder}/{_files.final(row.name)}", row.rows) for row in rows], sum(row.bytes for row in rows))


def missing(name: str) -> str:
    named = "the validation column" if name == FLAG else f"column '{name}'"
    return f"{named} has rows without a value; fill them (fillna) or drop them (dropna) first"


def _uneven(name: str, one: int, other: int) -> str:
    return f"column '{name}' has rows of {one} and of {other} values; all must have the same number"


# ---- a Spark task


def _write(folder: str, job: str, partition_by: list[str], batches: Iterable[Any]) -> Iterator[Any]:
    """Writes a partition: a file for the training and one for the validation. An error is returned, so that users see
    it without Spark's traceback."""
    try:
        said = list(_write_files(folder, job, partition_by, batches))
    except FileError:  # Spark retries the task
        raise
    except Error as error:
        said = [{"name": "", "rows": 0, "bytes": 0, "widths": "", "error": str(error)}]
    types = {"rows": pa.int64(), "bytes": pa.int64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in ("name", "rows", "bytes", "widths", "error")])
    yield pa.RecordBatch.from_pylist(said, schema=schema)


def _write_files(folder: str, job: str, partition_by: list[str], batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    task, widths = TaskContext.get(), dict[str, int]()
    for number, (part, pieces) in enumerate(_columns.split(_checked(batches, widths), partition_by)):
        count = _Count()
        name = f"{part}part-{task.partitionId():05}-{number}"
        for file in _files.write(folder, job, name, task.taskAttemptId(), "", map(count.records, pieces)):
            yield {"name": file, "rows": count.rows, "bytes": count.size, "widths": json.dumps(widths), "error": ""}


class _Count:
    rows = size = 0

    def records(self, batch: Any) -> Iterator[bytes]:
        self.rows += batch.num_rows
        for piece in _columns.records(batch, "example"):
            self.size += len(piece)
            yield piece


def _checked(batches: Iterable[Any], widths: dict[str, int]) -> Iterator[Any]:
    """Every row has a value in every column, and every value of a column has the same width."""
    for batch in batches:
        if not batch.num_rows:
            continue
        for name, array in zip(batch.schema.names, batch.columns):
            if array.null_count:
                raise Error(missing(name))
            lengths = array.value_lengths().unique().to_pylist() if hasattr(array, "value_lengths") else [1]
            for width in (lengths if name != FLAG else ()):
                if widths.setdefault(name, width) != width:
                    raise Error(_uneven(name, widths[name], width))
        yield batch
