# SPDX-License-Identifier: Apache-2.0
"""tf.Examples by columns, and back: what TensorFlow wrote is read, and what is written TensorFlow reads."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hopyard
import tensorflow as tf
from hopyard import _hopyard

KINDS = {1: None, 2: np.float32, 3: np.int64}


def feature(values: list[Any]) -> Any:
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(row: dict[str, list[Any]]) -> bytes:
    return tf.train.Example(
        features=tf.train.Features(feature={k: feature(v) for k, v in row.items()})
    ).SerializeToString()


ROWS: list[dict[str, list[Any]]] = [
    {
        "x": [n / 4, -float(n)],
        "label": [n],
        "name": [b"row %d" % n, bytes([0, 255])],
        **({"rare": [1 << n, -n]} if n % 5 == 0 else {}),
    }
    for n in range(50)
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    with tf.io.TFRecordWriter(str(tmp_path / "rows.tfrecords")) as file:
        for row in ROWS:
            file.write(example(row))
    return str(tmp_path / "rows.tfrecords")


def cells(column: Any) -> list[list[Any]]:
    """The values of each row."""
    _, kind, has_steps, values, value_ends, _, row_ends = column
    assert not has_steps
    if kind == 1:
        ends = np.frombuffer(value_ends, np.int64)
        every: Any = [values[a:b] for a, b in zip(ends, ends[1:])]
    else:
        every = np.frombuffer(values, KINDS[kind]).tolist()
    ends = np.frombuffer(row_ends, np.int64)
    return [list(every[a:b]) for a, b in zip(ends, ends[1:])]


def batches(reader: Any) -> list[Any]:
    found = []
    while (batch := reader.next()) is not None:
        found.append(batch)
    return found


def test_examples_written_by_tensorflow_are_read_by_columns(path: str) -> None:
    found = batches(_hopyard.Examples(path, rows=20))
    assert [rows for rows, _ in found] == [20, 20, 10]
    for name in ("x", "label", "name", "rare"):
        column = [cell for _, columns in found for cell in cells(next(c for c in columns if c[0] == name))]
        assert column == [row.get(name, []) for row in ROWS]


def test_only_requested_columns_are_read(path: str) -> None:
    reader = _hopyard.Examples(path, rows=100)
    reader.want("label", 3)
    reader.want("absent", 2)
    [(rows, columns)] = batches(reader)
    assert rows == 50 and [c[0] for c in columns] == ["label", "absent"]
    assert cells(columns[0]) == [[n] for n in range(50)] and cells(columns[1]) == [[]] * 50
    reader = _hopyard.Examples(path)
    reader.want("label", 2)
    with pytest.raises(
        hopyard.Error, match="the record at byte 0: the feature 'label' is int64 here, but float in earlier rows"
    ):
        reader.next()


def test_tensorflow_reads_written_examples(path: str, tmp_path: Path) -> None:
    [(rows, columns)] = batches(_hopyard.Examples(path, rows=100))
    (tmp_path / "again").write_bytes(_hopyard.write_examples(rows, columns))
    found = [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(tmp_path / "again"))]
    wanted = [tf.train.Example.FromString(example({"rare": [], **row})) for row in ROWS]
    assert found == wanted


def test_missing_values_are_reported_and_not_written(path: str, tmp_path: Path) -> None:
    [(rows, columns)] = batches(_hopyard.Examples(path, rows=100, there=True))
    rare = next(c for c in columns if c[0] == "rare")
    assert list(rare[7]) == [n % 5 == 0 for n in range(50)]
    (tmp_path / "again").write_bytes(_hopyard.write_examples(rows, columns))
    found = [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(tmp_path / "again"))]
    assert found == [tf.train.Example.FromString(example(row)) for row in ROWS]
    with pytest.raises(ValueError, match="the column 'rare' is inconsistent"):
        _hopyard.write_examples(rows, [(*rare[:7], rare[7][1:])])


def test_raw_records_are_unchanged(path: str) -> None:
    [(rows, [column])] = batches(_hopyard.Examples(path, rows=100, bare=True))
    assert column[0] == "byteArray" and cells(column) == [[example(row)] for row in ROWS]
    assert _hopyard.write_records(column[3], column[4]) == Path(path).read_bytes()
    assert _hopyard.write_records(b"", np.zeros(1, np.int64)) == b""
    for ends in ([], [1], [0, 2], [0, 3, 2], [0, -1]):
        with pytest.raises(ValueError, match="offsets must start at 0"):
            _hopyard.write_records(b"abc", np.array(ends, np.int64))


def test_a_batch_ends_where_records_are_large(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "large")) as file:
        for _ in range(5):
            file.write(bytes(600 << 10))
    assert [rows for rows, _ in batches(_hopyard.Examples(str(tmp_path / "large"), bare=True))] == [2, 2, 1]


def test_columns_of_different_lengths_are_an_error() -> None:
    good = ("a", 3, False, b"\0" * 16, b"", b"", np.array([0, 1, 2]).tobytes())
    assert len(_hopyard.write_examples(2, [good])) > 0
    for rows, part, bad in (
        (1, 6, good[6]),
        (2, 3, b"\0" * 15),
        (2, 3, b"\0" * 24),
        (2, 6, np.array([0, 2, 1]).tobytes()),
        (2, 6, np.array([1, 1, 2]).tobytes()),
        (2, 6, np.array([0, -1, 2]).tobytes()),
        (2, 1, 1),
        (2, 1, 9),
        (2, 2, True),
        (1 << 62, 6, good[6]),
    ):
        column = (*good[:part], bad, *good[part + 1 :])
        with pytest.raises(ValueError, match="the column 'a' is inconsistent"):
            _hopyard.write_examples(rows, [column])


def test_closed_reader_is_an_error(path: str) -> None:
    reader = _hopyard.Examples(path)
    reader.close()
    with pytest.raises(ValueError, match="the file is closed"):
        reader.next()
