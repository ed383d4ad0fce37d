# SPDX-License-Identifier: Apache-2.0
"""Inference with SavedModels on Arrow batches, in this process: what a worker of Spark would run."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import hopyard
import tensorflow as tf
from hopyard._spark import feed_tasks as _feed_tasks
from hopyard._tensorflow import saved_model as _saved_model


class Model(tf.Module):
    @tf.function(input_signature=[
        tf.TensorSpec([None, 2], tf.float32, name="x"), tf.TensorSpec([None], tf.int32, name="n"),
        tf.TensorSpec([None], tf.string, name="s"),
    ])  # fmt: skip
    def outputs(self, x: Any, n: Any, s: Any) -> dict[str, Any]:
        return {
            "sum": tf.reduce_sum(x, 1),
            "pair": tf.stack([n, -n], 1),
            "grid": tf.reshape(x, [-1, 1, 2]),
            "text": tf.strings.join([s, "!"]),
            "rows": tf.shape(x)[:1],
            "scalar": tf.reduce_sum(x),
            "complex": tf.complex(x, x),
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    model, folder = Model(), str(tmp_path_factory.mktemp("model"))
    tf.saved_model.save(model, folder, signatures={"serving_default": model.outputs})
    return folder


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    _saved_model._loaded.clear()


INPUTS = {"a": "x", "b": "n", "c": "s"}


def described(folder: str, outputs: dict[str, str], **other: Any) -> _saved_model.Description:
    given = {"tags": "serve", "signature": "serving_default", "inputs": INPUTS, "batch_size": 2, **other}
    return _saved_model.Description(directory=folder, outputs=outputs, **given)


def batch(rows: int) -> pa.RecordBatch:
    columns = [[float(i), 1.0] for i in range(rows)], range(rows), [f"row {i}" for i in range(rows)]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["a", "b", "c"])


def test_outputs_become_columns_in_the_order_of_rows(folder: str) -> None:
    model = described(folder, {"sum": "total", "pair": "pair", "grid": "grid", "text": "text"})
    assert _saved_model.schema(model) == (
        "`total` float, `pair` array<int>, `grid` array<array<float>>, `text` binary")  # fmt: skip
    infer = _feed_tasks.inferring_batches(("unused", "unused", hopyard.__version__), tuple(model))
    batches = list(infer(iter([batch(3), batch(1)])))
    assert [found.num_rows for found in batches] == [2, 1, 1], "at most batch_size rows at a time"
    rows = [row for found in batches for row in found.to_pylist()]
    assert rows == [{"total": i + 1.0, "pair": [i, -i], "grid": [[i, 1.0]], "text": b"row %d!" % i}
                    for i in (0, 1, 2, 0)]  # fmt: skip


def test_model_is_loaded_once_by_a_worker(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = described(folder, {"sum": "total"})
    list(_saved_model.infer(model, [batch(1)]))
    monkeypatch.setattr(tf.saved_model, "load", lambda *args, **given: pytest.fail("loaded again"))
    assert [found.num_rows for found in _saved_model.infer(model, [batch(1)])] == [1]


def test_names_that_the_model_does_not_have_are_an_error(folder: str) -> None:
    with pytest.raises(hopyard.Error, match=r"has no signature 'other' \(signatures: serving_default\)"):
        _saved_model.schema(described(folder, {}, signature="other"))
    with pytest.raises(hopyard.Error, match=r"has no output 'y' \(outputs: complex, grid, pair, rows, scalar, sum"):
        _saved_model.schema(described(folder, {"y": "y"}))
    with pytest.raises(hopyard.Error, match=r"has no input 'y' \(inputs: n, s, x\)"):
        list(_saved_model.infer(described(folder, {"sum": "y"}, inputs={"a": "y"}), [batch(1)]))


@pytest.mark.parametrize(("output", "what"), [("scalar", r"a float32 of shape \(\)"), ("complex", "a complex64 of")])
def test_output_that_cannot_be_a_column_is_an_error(folder: str, output: str, what: str) -> None:
    with pytest.raises(hopyard.Error, match=f"'{output}' is {what}.*, which cannot become a column"):
        _saved_model.schema(described(folder, {output: "y"}))


def test_output_with_another_number_of_rows_is_an_error(folder: str) -> None:
    with pytest.raises(hopyard.Error, match="column 'y' has 1 results for 2 rows"):
        list(_saved_model.infer(described(folder, {"rows": "y"}), [batch(2)]))


def test_columns_of_lists_become_matrices() -> None:
    assert _saved_model._numbers(pa.array([[1, 2], [3, 4]])).tolist() == [[1, 2], [3, 4]]
    assert _saved_model._numbers(pa.array([[0], [1, 2], [3, 4]]).slice(1)).tolist() == [[1, 2], [3, 4]]
    assert _saved_model._numbers(pa.array([[1], [2, 3]])) == [[1], [2, 3]], "lists of different lengths stay lists"
    assert _saved_model._numbers(pa.array([1.5, 2.5])).tolist() == [1.5, 2.5]
