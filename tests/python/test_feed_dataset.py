# SPDX-License-Identifier: Apache-2.0
"""Rows as a tf.data.Dataset: each arrives once and unchanged, and no thread waits forever."""
from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from typing import Any

import numpy as np
import pytest

import tensorflow as tf
from feeding import LIMIT_S, Manager, hub, name, python, wait_for  # noqa: F401
from hopyard import _hopyard
from hopyard._feed import data_feed as _data_feed
from hopyard._feed import feeders as _feeders


@pytest.fixture
def feed(hub: _hopyard.Hub) -> _data_feed.DataFeed:
    return _data_feed.DataFeed(Manager(hub))


def feeding(name: str, rows: list[Any], size: int = 0) -> threading.Thread:
    thread = threading.Thread(target=_feeders.feeder(name, size=size), args=(rows,))
    thread.start()
    return thread


def all_of(feed: _data_feed.DataFeed, batch_size: int, **how: Any) -> list[Any]:
    """All batches of feeders that have been started."""
    dataset = feed.dataset(batch_size, **how)
    feed.mgr.hub.end()
    return list(dataset)


# ---- rows --------------------------------------------------------------------------------------


def test_rows_arrive_once_and_unchanged(name: str, feed: _data_feed.DataFeed) -> None:
    rows = [([i / 7, 2.0], i, f"t{i}", i % 3 == 0, b"\0" + bytes([i % 256]) * 40) for i in range(1000)]
    thread = feeding(name, rows, 1 << 16)  # a small ring: batches and messages end at different rows
    batches = all_of(feed, 64)
    thread.join()
    assert [len(b[1]) for b in batches] == [64] * 15 + [40]
    x, y, text, truth, raw = (np.concatenate([b[k] for b in batches]) for k in range(5))
    assert x.dtype == np.float64 and x.shape == (1000, 2) and x.tolist() == [row[0] for row in rows]
    assert y.dtype == np.int64 and y.tolist() == list(range(1000))
    assert [t.decode() for t in text] == [row[2] for row in rows] and raw.tolist() == [row[4] for row in rows]
    assert truth.dtype == bool and truth.tolist() == [row[3] for row in rows]
    assert feed.should_stop() and list(feed.dataset(5, signature=tf.TensorSpec([None], tf.int64))) == []


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                                   "float16", "float32", "float64"])  # fmt: skip
def test_arrays_keep_their_types(dtype: str, name: str, feed: _data_feed.DataFeed) -> None:
    values = (np.arange(60) % 2 if dtype == "bool" else np.arange(60)).astype(dtype).reshape(10, 2, 3)
    thread = feeding(name, list(values))
    (batch,) = all_of(feed, 10)
    thread.join()
    assert batch.dtype == tf.as_dtype(dtype) and batch.shape == (10, 2, 3) and (batch.numpy() == values).all()


def test_elements_have_the_structure_of_rows(name: str, feed: _data_feed.DataFeed) -> None:
    with _hopyard.Source(name) as source:
        source.put([{"b": 1.0, "a": (i, ["x", [1, 2]])} for i in range(4)])
        dataset = feed.dataset(4)
        batch = next(iter(dataset))
        source.put(list(range(4)))  # of another schema
        single = next(iter(feed.dataset(4)))
    assert list(batch) == ["b", "a"] and isinstance(batch["a"], tuple) and isinstance(batch["a"][1], tuple)
    assert batch["a"][0].numpy().tolist() == [0, 1, 2, 3] and batch["a"][1][0].numpy().tolist() == [b"x"] * 4
    assert batch["a"][1][1].shape == (4, 2) and batch["b"].dtype == tf.float64
    assert single.numpy().tolist() == [0, 1, 2, 3]


def test_input_mapping_gives_a_dict_by_tensor_name(name: str, hub: _hopyard.Hub) -> None:
    feed = _data_feed.DataFeed(Manager(hub), input_mapping={"image": "x", "label": "y"})
    wanted = {"y": tf.TensorSpec([None], tf.int32), "x": tf.TensorSpec([None], tf.float32)}
    for row, how in (((0.5, 7, "more"), {}), ({"p": 0.5, "q": 7}, {}), ((0.5, 7, 1), {"signature": wanted})):
        with _hopyard.Source(name) as source:
            source.put([row] * 8)
            batch = next(iter(feed.dataset(8, **how)))
        assert set(batch) == {"x", "y"} and batch["x"].numpy().tolist() == [0.5] * 8
        assert batch["y"].numpy().tolist() == [7] * 8
        assert (batch["y"].dtype == tf.int32) == bool(how)


def test_ragged_columns_are_ragged_tensors(name: str, feed: _data_feed.DataFeed) -> None:
    rows = [([float(i)] * (i % 4 + 1), ["a"] * (i % 3 + 1), np.ones((i % 2, 3), np.int16)) for i in range(300)]
    rows[1:1] = [([9.0] * 7, ["b"], np.zeros((4, 3), np.int16))]
    thread = feeding(name, rows, 1 << 16)
    batches = all_of(feed, 7)
    thread.join()
    assert all(isinstance(part, tf.RaggedTensor) for part in batches[0])
    numbers, texts, arrays = ([row for b in batches for row in b[k]] for k in range(3))
    assert [n.numpy().tolist() for n in numbers] == [row[0] for row in rows] and numbers[0].dtype == tf.float64
    assert [[t.decode() for t in row.numpy()] for row in texts] == [row[1] for row in rows]
    assert all((a.numpy() == row[2]).all() and a.shape == row[2].shape for a, row in zip(arrays, rows))


def test_pending_pickles_are_converted_to_tensors(name: str, feed: _data_feed.DataFeed) -> None:
    with _hopyard.Source(name) as source:
        source.put([([0.0] * 3, 0)])
        assert feed.next_batch(1) == [([0.0] * 3, 0)]
        for i in range(10):
            source.put_pickle(pickle.dumps([([float(k)] * 3, k) for k in range(1 + 10 * i, 11 + 10 * i)]))
        assert [row[1] for row in feed.next_batch(4)] == [1, 2, 3, 4]
        dataset = feed.dataset(8)
        feed.mgr.hub.end()
        threading.Thread(target=source.wait_until_taken).start()
        batches = [next(iterator) for iterator in [iter(dataset)] for _ in range(12)]
        assert not source.takes_pickles
    assert [len(b[1]) for b in batches] == [8] * 12 == [len(b[0]) for b in batches]
    assert sorted(np.concatenate([b[1] for b in batches]).tolist()) == list(range(5, 101))
    assert all((b[0][:, 2].numpy() == b[1].numpy()).all() for b in batches)
    assert not list(dataset)


@pytest.mark.parametrize("nonsense, error", [(b"nonsense", pickle.UnpicklingError), (pickle.dumps(7), ValueError)])
def test_invalid_pickle_drops_its_feeder(
    name: str, feed: _data_feed.DataFeed, monkeypatch: pytest.MonkeyPatch, nonsense: bytes, error: type[Exception]
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: raised.append(what.exc_type))
    with _hopyard.Source(name) as source:
        source.put([(1.0,)])
        assert feed.next_batch(1) == [(1.0,)]
        source.put_pickle(nonsense)
        dataset = feed.dataset(1, (tf.TensorSpec([None], tf.float64),))
        thread = feeding(name, [(2.0,)])
        assert [float(b[0][0]) for b in dataset.take(1)] == [2.0]
        thread.join()
        with pytest.raises(_hopyard.Error, match="is gone"):
            source.wait_until_taken()
    assert raised == [error]


def test_arrow_columns_arrive_unchanged(name: str, feed: _data_feed.DataFeed) -> None:
    import pyarrow as pa

    values = np.arange(5000, dtype=np.float32).reshape(1000, 5)
    offsets = pa.array(np.arange(1001) * 5, pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array(values.ravel()))
    table = pa.table({"x": lists, "t": [f"{i}" for i in range(1000)]})
    with _hopyard.Source(name) as source:
        assert all(_feeders.put_arrow(source, batch) for batch in table.to_batches())
        source.end_partition()
        batches = all_of(feed, 300)  # ragged by type, but all of one length
    assert [x.shape for x, _ in batches] == [(300, 5)] * 3 + [(100, 5)]
    assert (np.concatenate([x for x, _ in batches]) == values).all() and batches[3][1][99].numpy() == b"999"


def test_several_feeders_lose_and_duplicate_nothing(name: str, feed: _data_feed.DataFeed) -> None:
    code = "n = int(sys.argv[2])\n_feeders.feeder(name, size=1 << 16)(([float(i)] * 50, i) for i in range(n, n + 5000))"
    feeders = [python(code, name, str(i * 5000)) for i in range(3)]
    dataset = feed.dataset(128, drop_remainder=True).map(lambda x, y: (x[:, 3], y)).prefetch(4)
    assert dataset.element_spec[1].shape == (128,)
    found: list[int] = []
    for x, y in dataset:
        assert (x.numpy() == y.numpy()).all() and len(y) == 128
        found += y.numpy().tolist()
        if len(found) >= 15000 // 128 * 128:
            feed.mgr.hub.end()
    assert [f.wait(LIMIT_S) for f in feeders] == [0, 0, 0]
    assert len(found) == len(set(found)) == 15000 // 128 * 128 and feed.should_stop()


def test_the_next_reader_continues_where_the_last_one_stopped(name: str, feed: _data_feed.DataFeed) -> None:
    with _hopyard.Source(name) as source:
        source.put(list(range(100)))
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False  # or TensorFlow takes some in advance
        options.experimental_optimization.map_parallelization = False
        taken = [b.numpy().tolist() for b in feed.dataset(10).take(2).with_options(options)]
        assert taken == [list(range(10)), list(range(10, 20))]
        assert feed.next_batch(5) == list(range(20, 25)) and feed.columns(5).tolist() == list(range(25, 30))
        assert next(iter(feed.dataset(70))).numpy().tolist() == list(range(30, 100))


# ---- signatures --------------------------------------------------------------------------------


def test_signature_casts_safely(name: str, feed: _data_feed.DataFeed) -> None:
    kinds = (tf.float32, tf.int32, tf.float16, tf.uint8, tf.float64, tf.int64)
    rows = [(i / 4, i, i / 2, i % 200, i, True) for i in range(500)]
    thread = feeding(name, rows)
    batches = all_of(feed, 500, signature=tuple(tf.TensorSpec([None], kind) for kind in kinds))
    thread.join()
    assert tuple(part.dtype for part in batches[0]) == kinds
    for k, part in enumerate(batches[0]):
        assert part.numpy().tolist() == [np.array(row[k]).astype(part.dtype.as_numpy_dtype).item() for row in rows]


@pytest.mark.parametrize(("rows", "spec", "match"), [
    ([(1.5, 2)] * 3, (("f", []), ("i", [])), "column 0: received float64, which cannot be cast to int32 safely"),
    ([("a", 2)] * 3, (("d", []), ("i", [])), "column 0: received str, which cannot be cast to float32"),
    ([([1.0, 2.0], 2)] * 3, (("d", [3]), ("i", [])), r"column 0: received rows of shape \(2,\), but expected \(3,\)"),
    ([(1.0, 2**40)] * 3, (("d", []), ("i", [])), "column 1: received a number that int32 cannot hold"),
    ([(1.0, 2, 3)] * 3, (("d", []), ("i", [])), r"received rows of the form \(fii\), but expected \(aa\).*next_batch"),
    ([(1.0, None)] * 3, (("d", []), ("i", [])), "received pickled rows, which have no columns.*next_batch or columns"),
    ([([1.0], 1), ([1.0, 2.0], 2)], (("d", [1]), ("i", [])), "column 0: rows differ in length.*RaggedTensorSpec"),
])  # fmt: skip
def test_rows_that_do_not_match_are_an_error(
    rows: list[Any], spec: Any, match: str, name: str, feed: _data_feed.DataFeed
) -> None:
    kinds = {"f": tf.int32, "d": tf.float32, "i": tf.int32}
    signature = tuple(tf.TensorSpec([None, *shape], kinds[kind]) for kind, shape in spec)
    with _hopyard.Source(name) as source:
        source.put(rows)
        with pytest.raises(tf.errors.InvalidArgumentError, match=match):
            next(iter(feed.dataset(2, signature=signature)))
        assert feed.next_batch(len(rows)) == rows  # they are still in the queue


def test_changed_rows_are_an_error_after_the_rows_before_them(name: str, feed: _data_feed.DataFeed) -> None:
    with _hopyard.Source(name) as source:
        source.put([1.0] * 50 + ["x"] * 3)
        batches = iter(feed.dataset(30))
        assert [len(next(batches)), len(next(batches))] == [30, 20]
        with pytest.raises(tf.errors.InvalidArgumentError, match="received str, which cannot be cast to float64"):
            next(batches)
        assert feed.next_batch(3) == ["x"] * 3
        source.put([None] * 3)
        with pytest.raises(tf.errors.InvalidArgumentError, match="pickled; read such rows with next_batch or columns"):
            feed.dataset(3)


def test_signature_may_be_ragged_or_leave_the_shape_open(name: str, feed: _data_feed.DataFeed) -> None:
    with _hopyard.Source(name) as source:
        source.put([([1.0, 2.0], [[1, 2], [3, 4]])] * 4)
        source.put([([3.0] * (i + 1), [[5, 6], [7, 8]]) for i in range(4)])
        ragged = tf.RaggedTensorSpec([None, None], tf.float32, ragged_rank=1)
        batch = next(iter(feed.dataset(8, signature=(ragged, tf.TensorSpec([None, None, 2], tf.int64)))))
    assert batch[0].to_list() == [[1.0, 2.0]] * 4 + [[3.0] * (i + 1) for i in range(4)] and batch[1].shape == (8, 2, 2)


def test_invalid_signatures_are_refused(feed: _data_feed.DataFeed, hub: _hopyard.Hub) -> None:
    for signature, match in ((tf.TensorSpec([], tf.int64), "has no batch dimension"), (3, "a signature must have"),
                             (tf.TensorSpec([None], tf.complex64), "type complex64 is not supported"),
                             (tf.TensorSpec([7], tf.int64), "needs batch_size=7")):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            feed.dataset(4, signature=signature)
    with pytest.raises(ValueError, match="must be at least 1"):
        feed.dataset(0)
    with pytest.raises(ValueError, match="would drop rows that need a result"):
        _data_feed.DataFeed(Manager(hub), train_mode=False).dataset(4, drop_remainder=True)
    hub.end()
    assert list(feed.dataset(4)) == [] and feed.should_stop()


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [0, 8])
def test_inference_is_one_to_one_across_partitions(ahead: int, name: str, hub: _hopyard.Hub) -> None:
    partitions = [[(i, [float(i)] * 50) for i in range(begin, begin + 3000 + begin)] for begin in (0, 1, 2)]
    results: dict[int, list[Any]] = {}

    def give(number: int) -> None:
        results[number] = list(_feeders.infer(name, partitions[number], size=1 << 16))

    threads = [threading.Thread(target=give, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    feed, taken, sizes = _data_feed.DataFeed(Manager(hub), train_mode=False), 0, []
    for number, values in feed.dataset(128).prefetch(ahead) if ahead else feed.dataset(128):
        feed.batch_results(list(zip(number.numpy().tolist(), values.numpy().sum(1).tolist())))
        sizes.append(len(number))
        taken += len(number)
        if taken == sum(map(len, partitions)):
            hub.end()
    for thread in threads:
        thread.join()
    for number, rows in enumerate(partitions):
        assert results[number] == [(i, sum(values)) for i, values in rows]
    assert max(sizes) == 128 and all(sizes)


def test_inference_batch_ends_with_its_partition(name: str, hub: _hopyard.Hub) -> None:
    feed = _data_feed.DataFeed(Manager(hub), train_mode=False)
    with _hopyard.Source(name, "input", True) as source:
        source.end_partition()
        source.put([1, 2, 3])
        source.end_partition()
        source.put([4])
        batches = iter(feed.dataset(10))
        assert next(batches).numpy().tolist() == [1, 2, 3]
        feed.batch_results([-1, -2, -3])
        assert source.results() == [-1, -2, -3]


# ---- ends --------------------------------------------------------------------------------------


def test_terminate_ends_a_waiting_dataset(name: str, feed: _data_feed.DataFeed) -> None:
    feeder = python("print(_feeders.feeder(name)(([0.5] * 1000) for _ in iter(int, 1)))", name)
    batches = iter(feed.dataset(16).prefetch(2))
    assert len(next(batches)) == 16
    feed.terminate()
    assert len(list(batches)) <= 4 and feed.should_stop()
    assert feeder.communicate(timeout=LIMIT_S)[0] == b"False\n"


def test_taking_rows_from_two_threads_is_an_error(name: str, feed: _data_feed.DataFeed, hub: _hopyard.Hub) -> None:
    found: list[Any] = []
    dataset = feed.dataset(4, signature=tf.TensorSpec([None], tf.int64))
    thread = threading.Thread(target=lambda: found.extend(dataset))
    thread.start()

    def is_refused() -> bool:
        try:
            return hub.next_rows(1, 0) != ([], "timeout")
        except ValueError as error:
            return str(error) == "another thread takes rows"

    wait_for(is_refused)
    feed.terminate()
    thread.join(LIMIT_S)
    assert found == [] and feed.should_stop() and not thread.is_alive()


def test_killed_feeder_leaves_its_rows(name: str, feed: _data_feed.DataFeed, hub: _hopyard.Hub) -> None:
    feeder = python("s = _hopyard.Source(name)\ni = 0\nwhile s.put(list(range(i, i + 100))): i += 100", name)
    batches = iter(feed.dataset(70))
    found = np.concatenate([next(batches) for _ in range(10)]).tolist()
    feeder.send_signal(signal.SIGKILL)
    assert feeder.wait(LIMIT_S) == -signal.SIGKILL
    feeder.communicate()
    hub.end()
    found += [n for batch in batches for n in batch.numpy().tolist()]
    assert found == list(range(len(found))) and len(found) % 100 == 0


def test_descriptor_of_the_manager_is_polled(name: str, hub: _hopyard.Hub) -> None:
    class PolledManager(Manager):
        def fileno(self) -> int:
            return reads

        def handle_message(self) -> None:
            assert os.read(reads, 1) == b"x"
            self.hub.end()

    reads, writes = os.pipe()
    feed = _data_feed.DataFeed(PolledManager(hub))
    batches = iter(feed.dataset(5, signature=tf.TensorSpec([None], tf.int64)))
    threading.Timer(0.3, os.write, (writes, b"x")).start()
    assert list(batches) == [] and feed.should_stop()
    wait_for(lambda: all(thread.name != "hopyard-poll" for thread in threading.enumerate()))
    os.close(reads)
    os.close(writes)


def test_waiting_iterator_may_be_deleted(name: str, feed: _data_feed.DataFeed) -> None:
    with _hopyard.Source(name) as source:
        source.put(list(range(25)))
        batches = iter(feed.dataset(10).prefetch(4))
        assert next(batches).numpy().tolist() == list(range(10))
        ticks = threading.Event()
        ticks.wait(0.3)  # it holds 5 rows of a third batch, and waits
        del batches  # must not hang
        source.put(list(range(25, 30)))
        assert next(iter(feed.dataset(5))).numpy()[-1] <= 29


@pytest.mark.parametrize("ahead", [0, 2])
def test_take_ends_while_the_feed_continues(ahead: int, name: str, feed: _data_feed.DataFeed) -> None:
    """No thread of tf.data may wait for rows after the last one that is used."""
    with _hopyard.Source(name) as source:
        source.put([(i, float(i)) for i in range(20)])
        batches = feed.dataset(10).take(2)
        batches = batches.prefetch(ahead) if ahead else batches

        @tf.function
        def count() -> tf.Tensor:  # with autotuning, as in the loop of Keras
            return batches.reduce(0, lambda n, batch: n + tf.size(batch[0]))

        assert int(count()) == 20


def test_process_may_exit_while_a_dataset_waits(name: str) -> None:
    code = """
import tensorflow as tf
from hopyard._feed.data_feed import DataFeed
hub = _hopyard.Hub(name)
feed = DataFeed(type("M", (), {"hub": hub}))
source = _hopyard.Source(name)
source.put([1] * 25)
batches = iter(feed.dataset(10).prefetch(4))
next(batches)
time.sleep(0.3)
print("waits", flush=True)
"""
    ends = ["", "sys.exit(3)", "hub.close()", "del hub, feed, batches"]
    processes = [python(code + end, f"{name}/{i}") for i, end in enumerate(ends)]
    for end, process in zip(ends, processes):
        out, err = process.communicate(timeout=2 * LIMIT_S)
        assert (process.returncode, out) == (3 if "exit" in end else 0, b"waits\n"), err.decode()


# ---- training ----------------------------------------------------------------------------------


def test_keras_learns_from_a_feed(name: str, feed: _data_feed.DataFeed) -> None:
    import keras

    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4000, 4))
    rows = [(v.tolist(), float(v @ [1.0, -2.0, 3.0, 0.5])) for v in x]
    signature = (tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None], tf.float32))
    thread = feeding(name, rows)
    dataset = feed.dataset(32, signature=signature)
    feed.mgr.hub.end()
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    model.fit(dataset, verbose=0)
    thread.join()
    assert np.allclose(model.get_weights()[0].ravel(), [1.0, -2.0, 3.0, 0.5], atol=0.05) and feed.should_stop()


def test_strategy_distributes_a_feed(name: str, feed: _data_feed.DataFeed) -> None:
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    thread = feeding(name, [float(i) for i in range(100)])
    feed.mgr.hub.end()
    dataset = strategy.distribute_datasets_from_function(lambda context: feed.dataset(16))
    sums = [strategy.run(lambda batch: tf.reduce_sum(batch), (batch,)) for batch in dataset]
    thread.join()
    assert sum(float(strategy.reduce("SUM", one, None)) for one in sums) == sum(range(100))
