# SPDX-License-Identifier: Apache-2.0
"""The data source `tfrecord` in this process: what Spark's workers would call. Spark: tests/e2e/test_tfrecord_spark.py.
"""
from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import hopyard
import hopyard.tfrecord
from hopyard.tfrecord import _columns, _files, _source

Rows = list[dict[str, Any]]


class Source(_source.Records):
    """As register() would make it."""

    package = ("unused", "unused", hopyard.__version__)
    home = ""


def schema_of(**types: str) -> StructType:
    """A schema, from Spark's names of types."""
    from pyspark.sql import types as t

    simple = {"int": t.IntegerType, "bigint": t.LongType, "float": t.FloatType, "double": t.DoubleType,
              "string": t.StringType, "binary": t.BinaryType, "boolean": t.BooleanType,
              "date": t.DateType}  # fmt: skip

    def parse(name: str) -> Any:
        if name.startswith("array<"):
            return t.ArrayType(parse(name[6:-1]))
        return t.DecimalType(10, 2) if name == "decimal" else simple[name]()

    return t.StructType([t.StructField(name, parse(type)) for name, type in types.items()])


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes rows as a job of two tasks, and commits it."""

    def run(rows: Rows, schema: StructType, overwrite: bool = False, **options: str) -> Path:
        folder = tmp_path / "out"
        writer = Source({"path": str(folder), **options}).writer(schema, overwrite)
        said = []
        for task, part in enumerate((rows[::2], rows[1::2])):
            context = SimpleNamespace(partitionId=lambda: task, taskAttemptId=lambda: 10 + task)
            monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)
            batch = pa.RecordBatch.from_pylist(part, schema=to_arrow_schema(schema))
            said.append(writer.write(iter([batch.slice(0, 1), batch.slice(1)])))
        writer.commit(said)
        return folder

    return run


def read(path: Path | str, schema: StructType | None = None, **options: str) -> Rows:
    """The rows, in the order of files."""
    source = Source({"path": str(path), **options})
    reader = source.reader(schema or source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def by(rows: Rows, name: str) -> Rows:
    return sorted(rows, key=lambda row: row[name])


# ---- rows --------------------------------------------------------------------------------------


def test_examples_are_written_and_read_unchanged(write: Callable[..., Path]) -> None:
    schema = schema_of(n="bigint", x="float", s="string", b="binary", l="array<bigint>", w="array<string>")
    rows = [{"n": n, "x": n / 2, "s": f"row {n}", "b": bytes([255, n]), "l": [n, -n], "w": ["a", "ü"]}
            for n in range(7)]  # fmt: skip
    folder = write(rows, schema)
    assert by(read(folder, schema), "n") == rows
    inferred = Source({"path": str(folder)}).schema()
    assert {f.name: f.dataType.simpleString() for f in inferred} == {
        "b": "binary", "l": "array<bigint>", "n": "bigint", "s": "string", "w": "array<string>", "x": "float",
    }  # fmt: skip
    assert by(read(folder), "n") == [dict(sorted(row.items())) for row in rows], "by an inferred schema"
    assert len(os.listdir(folder)) == 3 and (folder / "_SUCCESS").exists(), "a file for each task"


def test_missing_values_are_null_again(write: Callable[..., Path]) -> None:
    schema = schema_of(n="bigint", x="double", s="string", l="array<float>", b="array<binary>")
    rows = [
        {"n": 0, "x": None, "s": "a", "l": None, "b": [b"x"]},
        {"n": 1, "x": 1.5, "s": None, "l": [0.5, 1.5], "b": None},
        {"n": 2, "x": None, "s": None, "l": [], "b": [b"", b"y"]},
    ]
    assert by(read(write(rows, schema), schema), "n") == rows


def test_columns_without_any_value_are_written(write: Callable[..., Path]) -> None:
    schema = schema_of(n="bigint", s="string", b="array<binary>")
    rows = [{"n": n, "s": None, "b": None} for n in range(2)]
    assert by(read(write(rows, schema), schema), "n") == rows


def test_empty_column_of_java_has_no_offsets() -> None:
    empty = pa.Array.from_buffers(pa.large_binary(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    kind, values, ends = _columns._parts("b", empty)
    assert (kind, bytes(values), ends.tolist()) == (_columns.BYTES, b"", [0])


def test_numbers_are_converted_to_the_columns_types(write: Callable[..., Path]) -> None:
    schema = schema_of(n="int", t="boolean", d="decimal", x="double")
    rows = [{"n": n, "t": n % 2 == 1, "d": Decimal("1.25") * n, "x": n / 4} for n in range(4)]
    folder = write(rows, schema)
    assert by(read(folder, schema), "n") == rows
    wider = schema_of(n="bigint", t="bigint", d="float", x="float")
    assert by(read(folder, wider), "n")[3] == {"n": 3, "t": 1, "d": 3.75, "x": 0.75}


def test_sequences_of_lists_are_written_and_read_unchanged(write: Callable[..., Path]) -> None:
    schema = schema_of(n="bigint", steps="array<array<float>>", words="array<array<string>>")
    rows = [{"n": n, "steps": [[1.0, 2.0], [], [float(n)]], "words": [["a"], ["b", "c"]]} for n in range(3)]
    folder = write(rows, schema, recordType="SequenceExample")
    assert by(read(folder, schema, recordType="SequenceExample"), "n") == rows
    assert by(read(folder, recordType="sequenceexample"), "n") == rows
    with pytest.raises(hopyard.Error, match="read it with the option recordType='SequenceExample'"):
        read(folder)


def test_raw_records_are_written_and_read_unchanged(write: Callable[..., Path]) -> None:
    rows = [{"byteArray": bytes([n]) * n} for n in range(5)]
    folder = write(rows, schema_of(byteArray="binary"), recordType="ByteArray")
    assert sorted(row["byteArray"] for row in read(folder, recordType="ByteArray")) == [r["byteArray"] for r in rows]


@pytest.mark.parametrize(("codec", "suffix"), [("gzip", ".gz"), ("zlib", ".zlib")])
def test_compressed_files_are_detected(write: Callable[..., Path], codec: str, suffix: str) -> None:
    schema = schema_of(n="bigint")
    rows = [{"n": n} for n in range(100)]
    folder = write(rows, schema, codec=codec)
    files = [path for path in folder.iterdir() if path.name.startswith("part-")]
    assert len(files) == 2 and all(path.name.endswith(f".tfrecord{suffix}") for path in files)
    if codec == "gzip":
        assert len(gzip.decompress(files[0].read_bytes())) > files[0].stat().st_size
    assert by(read(folder, schema), "n") == rows


def test_many_records_are_written_in_pieces(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_columns, "_PIECE", 64)
    schema = schema_of(n="bigint", s="string")
    rows = [{"n": n, "s": "x" * n} for n in range(50)]
    assert by(read(write(rows, schema), schema), "n") == rows


def test_partition_without_files_has_no_rows(tmp_path: Path) -> None:
    """Spark passes None if there is no file."""
    reader = Source({"path": str(tmp_path)}).reader(schema_of(n="bigint"))
    assert reader.partitions() == [] and list(reader.read(_source.InputPartition(None))) == []


def test_paths_of_a_list_are_all_read(write: Callable[..., Path]) -> None:
    rows = [{"n": n} for n in range(4)]
    files = sorted(str(path) for path in write(rows, schema_of(n="bigint")).glob("part-*"))
    reader = Source({"paths": json.dumps(files)}).reader(schema_of(n="bigint"))
    assert [part.value[0] for part in reader.partitions()] == files
    assert by(read(str(Path(files[0]).parent / "part-*")), "n") == rows, "and those of a pattern"


def test_aborted_job_leaves_the_files_before_it(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(n="bigint")
    folder = write([{"n": 1}, {"n": 2}], schema)
    writer = Source({"path": str(folder)}).writer(schema, True)
    context = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 0)
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)
    said = writer.write(iter([pa.RecordBatch.from_pylist([{"n": 3}])]))
    writer.abort([said, None])  # the second task has failed
    assert by(read(folder, schema), "n") == [{"n": 1}, {"n": 2}] and not (folder / "_temporary").exists()


# ---- directories that are columns ------------------------------------------------------------------


def test_columns_become_directories_and_columns_again(write: Callable[..., Path]) -> None:
    schema = schema_of(n="bigint", p="int", q="string")
    rows = [{"n": n, "p": n % 2, "q": None if n == 3 else "a/b"} for n in range(6)]
    folder = write(rows, schema, partitionBy="p, q")
    assert (folder / "p=0" / "q=a%2Fb").is_dir() and (folder / "p=1" / "q=__HIVE_DEFAULT_PARTITION__").is_dir()
    assert by(read(folder), "n") == rows
    assert by(read(folder, schema_of(q="string", n="int")), "n")[3] == {"q": None, "n": 3}
    with pytest.raises(hopyard.Error, match="'a/b' in 'q=a/b' is not valid for a column of type int32"):
        read(folder, schema_of(n="bigint", q="int"))


@pytest.mark.parametrize(
    ("values", "type"),
    [
        (["1", "2", None], "int"),
        (["1", str(1 << 40)], "bigint"),
        (["1", "2.5"], "double"),
        (["1", "a"], "string"),
        ([None], "string"),
    ],
)
def test_directory_values_get_the_narrowest_type(values: list[str | None], type: str) -> None:
    assert _columns.type_of_values(values).simpleString() == type


def test_columns_that_cannot_become_directories_are_an_error(tmp_path: Path) -> None:
    schema = schema_of(n="bigint", p="int")
    for names, sentence in (("x", r"there is no column 'x' to partition by \(columns: n, p\)"),
                            ("n,p", "cannot partition by all columns")):  # fmt: skip
        with pytest.raises(hopyard.Error, match=sentence):
            Source({"path": str(tmp_path / "out"), "partitionBy": names}).writer(schema, False)
    assert _files.names_of('["a,b", "c"]') == ["a,b", "c"], "a name may have a comma"


# ---- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"recordType": "Row"}, "invalid recordType 'Row': it must be Example, SequenceExample or ByteArray"),
        ({"inferRows": "0"}, "inferRows must be a number, 1 or more, not '0'"),
        ({"inferRows": "all"}, "inferRows must be a number, 1 or more, not 'all'"),
        ({"compression": "snappy"}, "invalid codec 'snappy'"),
    ],
)
def test_invalid_option_is_an_error(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(hopyard.Error, match=sentence):
        Source(options)


@pytest.mark.parametrize(
    ("kind", "types", "sentence"),
    [
        ("Example", {"d": "date"}, "the column 'd' is date, which a record of type Example does not support"),
        ("Example", {"a": "array<array<int>>"}, "'a' is array<array<int>>, .*arrays of arrays: SequenceExample"),
        ("SequenceExample", {"a": "array<array<array<int>>>"}, "a record of type SequenceExample does not support"),
        ("ByteArray", {"s": "string"}, "'s' is string, which .* it has one column of type binary"),
        ("ByteArray", {"a": "binary", "b": "binary"}, "a record of type ByteArray has one column, not 2"),
    ],
)
def test_schema_that_records_cannot_have_is_an_error(
    tmp_path: Path, kind: str, types: dict[str, str], sentence: str
) -> None:
    source = Source({"path": str(tmp_path / "out"), "recordType": kind})
    with pytest.raises(hopyard.Error, match=sentence):
        source.writer(schema_of(**types), False)
    assert not (tmp_path / "out").exists(), "nothing is written"


@pytest.mark.parametrize(
    ("rows", "types", "options", "sentence"),
    [
        ([{"l": [1, None]}], {"l": "array<int>"}, {}, "the column 'l' contains a null, but a feature cannot have one"),
        ([{"l": [[1], [None]]}], {"l": "array<array<int>>"}, {"recordType": "SequenceExample"}, "'l' contains a null"),
        ([{"b": None}], {"b": "binary"}, {"recordType": "ByteArray"}, "'b' contains a null, but a record is made of"),
        ([{"x": 1e300}], {"x": "double"}, {}, r"'x' contains 1e\+300, but the floats of a feature end at 3.4e38"),
    ],
)
def test_value_that_records_cannot_have_is_an_error(
    write: Callable[..., Path], rows: Rows, types: dict[str, str], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(hopyard.Error, match=sentence):
        write(rows, schema_of(**types), **options)


def test_infinite_doubles_stay_infinite(write: Callable[..., Path]) -> None:
    schema = schema_of(x="double")
    assert read(write([{"x": math.inf}], schema), schema) == [{"x": math.inf}]


def test_records_that_do_not_fit_the_schema_are_an_error(write: Callable[..., Path]) -> None:
    rows = [{"n": 1 << 40, "l": [1, 2], "b": b"\xff", "s": None}] * 2
    folder = write(rows, schema_of(n="bigint", l="array<bigint>", b="binary", s="string"))
    for types, sentence in (
        ({"n": "int"}, "records 1 to 1: the feature 'n' is not valid for a column of type int32"),
        ({"l": "bigint"}, "the feature 'l' .* it has several values in a record; declare its column as an array"),
        ({"b": "string"}, "the feature 'b' is not valid for a column of type string"),
    ):
        with pytest.raises(hopyard.Error, match=sentence):
            read(folder, schema_of(**types))
    required = schema_of(s="string")
    required.fields[0].nullable = False
    with pytest.raises(hopyard.Error, match="the feature 's' is missing, but its column is not nullable"):
        read(folder, required)


def test_batch_beyond_the_offsets_of_spark_is_an_error() -> None:
    with pytest.raises(ValueError, match="it has more than 2 GB in a batch"):
        _columns._narrow(np.array([0, 1 << 31], np.int64).tobytes())


def test_nothing_to_infer_a_schema_from_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(hopyard.Error, match="there is no record in that path to infer a schema from; give a schema"):
        Source({"path": str(tmp_path)}).schema()
    with pytest.raises(hopyard.Error, match=r"no path to read records from is given: .load\(path\)"):
        Source({}).schema()
    with pytest.raises(hopyard.Error, match=r"records must be written to one directory: .save\(path\)"):
        Source({}).writer(schema_of(n="bigint"), False)
    with pytest.raises(hopyard.FileNotFound, match="matches no files"):
        Source({"path": str(tmp_path / "*.tfrecord")}).schema()


def test_features_that_differ_between_files_are_an_error(write: Callable[..., Path], tmp_path: Path) -> None:
    folder = write([{"x": 1}, {"x": 2}], schema_of(x="bigint"))
    files = [str(path) for path in folder.glob("part-*")]
    write([{"x": 1.0}], schema_of(x="float"), overwrite=True)
    others = [str(path) for path in folder.glob("part-*")]
    assert not {*files} & {*others}, "an overwrite replaces the files"
    rows = write([{"x": 1}], schema_of(x="bigint"))
    assert len(list(rows.glob("part-*"))) == 2, "without, files are added"
    with pytest.raises(hopyard.Error, match="the feature 'x' has a different type in earlier files; give a schema"):
        Source({"path": str(folder)}).schema()


def test_feature_that_has_steps_in_some_files_only_is_an_error(write: Callable[..., Path]) -> None:
    sequences = {"recordType": "SequenceExample"}
    write([{"x": 1}], schema_of(x="bigint"), **sequences)
    folder = write([{"x": [[1], [2, 3]]}], schema_of(x="array<array<bigint>>"), **sequences)
    with pytest.raises(hopyard.Error, match="the feature 'x' is in the context and in the feature lists; give a sch"):
        Source({"path": str(folder), **sequences}).schema()


def test_record_that_is_not_an_example_is_an_error(write: Callable[..., Path]) -> None:
    folder = write([{"r": b"\xff\xff\xff"}], schema_of(r="binary"), recordType="ByteArray")
    with pytest.raises(hopyard.Error, match=f"{folder}/part-.*: the record at byte 0: the record is not a tf.Exam"):
        Source({"path": str(folder)}).schema()


def test_feature_whose_name_cannot_be_a_column_is_an_error(write: Callable[..., Path]) -> None:
    folder = write([{"a\nb": 1}], schema_of(**{"a\nb": "bigint"}))
    with pytest.raises(hopyard.Error, match=r"a feature has the name 'a\\nb', which is not valid for a Spark column"):
        Source({"path": str(folder)}).schema()


def test_only_the_first_records_are_read_to_infer_a_schema(write: Callable[..., Path]) -> None:
    """A list that comes later is an error when it is read, which names the schema as the remedy."""
    rows: Rows = [{"l": [n]} for n in range(4)] + [{"l": [1, 2]}] * 2
    folder = write(rows, schema_of(l="array<bigint>"))
    assert Source({"path": str(folder), "inferRows": "1"}).schema()["l"].dataType.simpleString() == "bigint"
    assert Source({"path": str(folder)}).schema()["l"].dataType.simpleString() == "array<bigint>"


# ---- load and save -----------------------------------------------------------------------------------


class Recorder:
    """A reader or writer of Spark: it notes the calls."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._answers = answers

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            self.calls.append((name, given or (args[0] if len(args) == 1 else args)))
            return self._answers.get(name, self)

        return call


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session in which the format is registered, on the local file system."""
    loaded = SimpleNamespace(schema=schema_of(n="bigint", p="int"))
    made = SimpleNamespace(read=Recorder(load=loaded), sparkContext=None)
    monkeypatch.setattr(hopyard.tfrecord, "_registered", lambda spark: made)
    monkeypatch.setattr(hopyard.tfrecord, "_home", lambda context: "")
    return made


def test_only_the_wanted_columns_are_loaded(session: Any, tmp_path: Path) -> None:
    hopyard.tfrecord.load(session, [tmp_path, "/b"], columns=["p"], recordType="Example")
    paths = [str(tmp_path), "/b"]
    assert session.read.calls == [
        ("format", "tfrecord"), ("options", {"recordType": "Example"}), ("load", paths), ("schema", schema_of(p="int")),
        ("load", paths),
    ]  # fmt: skip
    with pytest.raises(hopyard.Error, match=r"there is no column 'x' \(columns: n, p\)"):
        hopyard.tfrecord.load(session, tmp_path, columns=["n", "x"])


def test_given_schema_is_used(session: Any) -> None:
    hopyard.tfrecord.load(session, "/a", schema="n int")
    assert session.read.calls[2:] == [("schema", "n int"), ("load", "/a")]


def frame(session: Any) -> Any:
    """A DataFrame; the rows of its partitions are sorted in place."""
    df = SimpleNamespace(sparkSession=session, schema=schema_of(n="bigint", p="int"), write=Recorder(), order=())

    def sort(*names: str) -> Any:
        df.order = names
        return df

    df.sortWithinPartitions = sort
    return df


def test_rows_are_sorted_by_the_columns_of_directories(session: Any, tmp_path: Path) -> None:
    """So each task writes one file per directory."""
    df = frame(session)
    hopyard.tfrecord.save(df, tmp_path / "out", partition_by="p", codec="gzip")
    assert df.order == ("p",) and df.write.calls == [
        ("format", "tfrecord"), ("mode", "append"), ("options", {"codec": "gzip", "partitionBy": '["p"]'}),
        ("save", str(tmp_path / "out")),
    ]  # fmt: skip
    with pytest.raises(hopyard.Error, match="there is no column 'x' to partition by"):
        hopyard.tfrecord.save(df, tmp_path / "out", partition_by=["x"])


def test_existing_directory_is_replaced_only_if_wanted(session: Any, tmp_path: Path) -> None:
    df = frame(session)
    hopyard.tfrecord.save(df, tmp_path, mode="ignore")
    with pytest.raises(hopyard.FileExists, match="already exists; mode='overwrite' replaces it, mode='append' adds"):
        hopyard.tfrecord.save(df, tmp_path)
    with pytest.raises(hopyard.Error, match="invalid mode 'replace': it must be 'append', 'overwrite', 'error'"):
        hopyard.tfrecord.save(df, tmp_path, mode="replace")
    assert df.write.calls == []
    hopyard.tfrecord.save(df, tmp_path, mode="overwrite")
    assert df.write.calls[1] == ("mode", "overwrite") and df.order == ()
