# SPDX-License-Identifier: Apache-2.0
"""Rows from feeders into a training process: rows arrive unchanged, and no process waits for one that is gone."""
from __future__ import annotations

import os
import pickle
import signal
import subprocess
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hopyard
from feeding import LIMIT_S, Manager, hub, name, python, wait_for  # noqa: F401
from hopyard import _hopyard
from hopyard._feed import data_feed as _data_feed
from hopyard._feed import feeders as _feeders

Point = namedtuple("Point", "x y")


def same(a: Any, b: Any) -> bool:
    """The same values of the same types, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b or (a != a and b != b))


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, (out + err).decode()


# ---- rows --------------------------------------------------------------------------------------

ROWS: dict[str, list[Any]] = {
    "mnist": [([i / 7.0 + k for k in range(784)], i) for i in range(50)],
    "floats": [float(i) for i in range(100)] + [float("nan"), float("inf")],
    "ints": [0, 1, -1, 2**63 - 1, -(2**63)] * 3,
    "large ints": [2**63, 2**200, -(2**63) - 1],
    "bools": [True, False] * 10,
    "text": ["", "a", "ä€😀", "\0", "x" * 1000] * 3,
    "lone surrogate": ["\ud800", "a"],
    "bytes": [b"", b"\0\xff", b"x" * 1000] * 5,
    "dicts": [{"a": i, "b": [1.0, 2.0], "": "x"} for i in range(20)],
    "dicts in another order": [{"a": 1, "b": 2}, {"b": 2, "a": 1}] * 20,
    "dicts of ints": [{1: 2}] * 3,
    "nested": [((i, float(i)), {"x": ["a", "b"], "y": (b"z",)}) for i in range(20)],
    "lists of lists": [[[1.0, 2.0], [3.0, float(i)]] for i in range(20)],
    "lists of different lengths": [[1.0] * (i % 4) for i in range(1, 30)],
    "lists of text": [[["a", "bc"][: i % 2 + 1]] for i in range(20)],
    "lists of all kinds": [[1, 2.0, "x", [True]]] * 10,
    "mixed lists": [[1, 2.0, 3]] * 10,
    "empty": [[], (), {}] * 5,
    "empty tuples": [()] * 10,
    "lists that are empty later": [[1], [], [2, 3]] * 5,
    "None": [None] * 10,
    "sometimes None": [(1.0, None) if i % 3 else (1.0, 2) for i in range(300)],
    "changing types": [1.0] * 20 + [1] * 20 + ["x"] * 20 + [None] * 20 + [1.0] * 20,
    "functions": [len, Point(1, 2), Point(3, 4)],
    "objects of many kinds": [{1, 2}, range(3), 1j, Ellipsis],
    "arrays": [(np.arange(6, dtype=np.float32).reshape(2, 3) + i, i) for i in range(20)],
    "arrays of different lengths": [np.arange(i % 5, dtype=np.int16) for i in range(20)],
    "two-dimensional arrays of different lengths": [np.ones((i % 3, 4), np.float16) for i in range(20)],
    "arrays of no dimension": [np.array(1.0)] * 5,
    "empty arrays": [np.empty((0, 7), np.uint8), np.empty((2, 0), np.int64)] * 10,
    "scalars": [np.float32(i) for i in range(20)] + [np.float64(1.5)] * 20,
    "not contiguous": [np.arange(20).reshape(4, 5)[:, ::2]] * 10 + [np.arange(20).reshape(4, 5).T] * 10,
    "dates": [np.datetime64("2026-01-01"), np.array(["a", "b"]), np.array([None])],
    "other byte order": [np.arange(3, dtype=">i4")] * 10,
    **{dtype: [np.arange(3).astype(dtype), np.arange(3).astype(dtype)] * 10 for dtype in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "complex64", "longdouble",
    )},
}  # fmt: skip


@pytest.mark.parametrize("kind", ROWS)
def test_rows_arrive_unchanged(kind: str, name: str, hub: _hopyard.Hub) -> None:
    rows = ROWS[kind]
    with _hopyard.Source(name) as source:
        for size in (1, 7, len(rows)):
            assert source.put(rows)
            found = []
            while len(found) < len(rows):
                more, why = hub.next_rows(min(size, len(rows) - len(found)), LIMIT_S)
                assert why == ""
                found += more
            if kind == "functions":
                assert found == rows
            else:
                assert same(found, rows)
    assert hub.dropped == 0


def test_spark_rows_arrive_unchanged(name: str, hub: _hopyard.Hub) -> None:
    from pyspark.sql import Row

    rows = [Row(x=float(i), name=f"row {i}", v=[1.0, 2.0]) for i in range(20)] + [Row(1, 2), Row("a", "b")(1, 2)]
    with _hopyard.Source(name) as source:
        source.put(rows)
        found, _ = hub.next_rows(len(rows), LIMIT_S)
    assert same(found, rows) and found[3].name == "row 3" and found[3].asDict() == rows[3].asDict()
    assert [hasattr(row, "__fields__") for row in found] == [hasattr(row, "__fields__") for row in rows]


def test_many_rows_pass_a_small_ring(name: str, hub: _hopyard.Hub) -> None:
    rows = [(f"{i}" * (i % 50), [float(i)] * 100, {"n": i}) for i in range(5000)]
    feed = threading.Thread(target=_feeders.feeder(name, size=1 << 16), args=(rows,))
    feed.start()
    found: list[Any] = []
    while len(found) < len(rows):
        found += hub.next_rows(min(333, len(rows) - len(found)), LIMIT_S)[0]
    assert same(found, rows)
    feed.join(LIMIT_S)
    assert not feed.is_alive(), "the feeder only waits until its rows are taken"


def test_row_larger_than_a_message_is_an_error(name: str, hub: _hopyard.Hub) -> None:
    with _hopyard.Source(name, size=1 << 16) as source:
        for row in ("x" * 100000, {1, "x" * 100000}):
            with pytest.raises(ValueError, match="a row is larger than a message of 32760 bytes"):
                source.put([row])
        assert source.put([1]) and hub.next_rows(1, LIMIT_S) == ([1], "")


# ---- columns -----------------------------------------------------------------------------------


def test_columns_are_numpy_arrays(name: str, hub: _hopyard.Hub) -> None:
    feed = _data_feed.DataFeed(Manager(hub))
    with _hopyard.Source(name) as source:
        for _ in range(2):
            source.put([([float(i), 2.0], i, f"t{i}", np.ones(i % 3, np.float32)) for i in range(50)])
        x, label, text, ragged = feed.columns(80)
        assert x.shape == (80, 2) and x.dtype == np.float64 and x[70, 0] == 20.0
        assert label.tolist() == [*range(50), *range(30)] and text[51] == "t1" and text.dtype == object
        assert [len(r) for r in ragged[:4]] == [0, 1, 2, 0] and ragged[2].dtype == np.float32
        assert len(feed.columns(20)[0]) == 20
        source.put([{"a": 1.0, "b": (True, b"x")}] * 10 + [5] * 10 + [None] * 10)
        found = feed.columns(30)
        assert found["a"].tolist() == [1.0] * 10 and found["b"][0].all() and found["b"][1][0] == b"x"
        assert feed.columns(30).tolist() == [5] * 10
        assert feed.columns(30).tolist() == [None] * 10


def test_columns_are_sent_without_conversion_to_rows(name: str, hub: _hopyard.Hub) -> None:
    import pyarrow as pa

    x, y = np.random.rand(5000, 100).astype(np.float32), np.arange(5000)
    with _hopyard.Source(name, size=32 << 20) as source:
        batch = pa.record_batch([pa.FixedSizeListArray.from_arrays(x.ravel(), 100), y], ["x", "y"])
        assert _feeders.put_arrow(source, batch)
        feed = _data_feed.DataFeed(Manager(hub))
        found = feed.columns(5000)
        assert (found[0] == x).all() and (found[1] == y).all()
        table = pa.table({
            "n": pa.array([1, 2, 3], pa.int32()), "t": ["a", "", "ccc"], "b": [b"x", b"yy", b""],
            "l": [[1.0], [], [2.0, 3.0]],
            "f": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)), "z": [True, False, True],
        })  # fmt: skip
        assert all(_feeders.put_arrow(source, batch) for batch in table.slice(1).to_batches())
        n, t, b, lists, f, z = feed.columns(2)
        assert n.dtype == np.int32 and n.tolist() == [2, 3] and t.tolist() == ["", "ccc"]
        assert b.tolist() == [b"yy", b""] and [list(v) for v in lists] == [[], [2.0, 3.0]]
        assert f.tolist() == [[3, 4], [5, 6]] and z.tolist() == [False, True]
        assert _feeders.put_arrow(source, pa.record_batch({"n": [1, None]}))
        assert hub.next_rows(2, LIMIT_S)[0] == [(1,), (None,)]


def test_arrow_batches_are_split_and_arrive_unchanged(name: str, hub: _hopyard.Hub) -> None:
    import datetime

    import pyarrow as pa

    count = 3000
    batch = pa.record_batch({
        "x": pa.array(np.random.rand(count, 200).tolist(), pa.list_(pa.float32())), "y": np.arange(count),
        "t": [f"t{i}" for i in range(count)],
    })  # fmt: skip
    odd = pa.record_batch({
        "late": pa.array([*range(count), None]), "day": [datetime.date(2026, 1, 1)] * (count + 1),
        "deep": [[["a"]]] * (count + 1),
    })  # fmt: skip
    rows = list(zip(batch["x"].to_pylist(), range(count), batch["t"].to_pylist()))
    taken: list[Any] = []

    def take() -> None:
        while (missing := 3 * count - 11 + len(odd) - len(taken)) > 0:
            taken.extend(hub.next_rows(missing, LIMIT_S)[0])

    with _hopyard.Source(name) as source:
        thread = threading.Thread(target=take)
        thread.start()
        assert _feeders.put_arrow(source, batch) and _feeders.put_arrow(source, batch.slice(11))
        assert _feeders.put_arrow(source, odd) and _feeders.put_arrow(source, batch)
        assert _feeders.put_arrow(source, batch.slice(0, 0))
        thread.join()
    found = [(x.tolist(), int(y), t) for x, y, t in taken[: 2 * count - 11]]
    assert found == rows + rows[11:]
    assert taken[2 * count - 11 : -count] == list(zip(*(column.to_pylist() for column in odd.columns)))
    assert [(x.tolist(), int(y), t) for x, y, t in taken[-count:]] == rows
    with _hopyard.Source(name) as source, pytest.raises(AttributeError, match="__arrow_c_array__"):
        source.put_arrow([1])


def test_pickles_are_accepted_while_rows_are_taken(name: str, hub: _hopyard.Hub) -> None:
    rows = [([i / 7] * 20, i, None if i % 2 else "x") for i in range(30)]
    with _hopyard.Source(name) as source:
        assert source.put(rows[:1]) and not source.takes_pickles
        assert hub.next_rows(1, LIMIT_S)[0] == rows[:1] and source.takes_pickles
        assert source.put_pickle(pickle.dumps(tuple(rows[:10]))) and source.put_pickle(pickle.dumps([]))
        assert source.put_pickle(pickle.dumps(rows[10:], 2)) and source.put(rows)
        found = [row for n in (4, 1, 10, 45) for row in hub.next_rows(n, LIMIT_S)[0]]
        assert found == rows + rows and hub.next_rows(1, 0) == ([], "timeout")
        for nonsense in (b"nonsense", pickle.dumps(7)):
            assert source.put_pickle(nonsense) and source.put(rows[:1])
            with pytest.raises((pickle.UnpicklingError, ValueError)):
                hub.next_rows(1, LIMIT_S)
            assert hub.next_rows(1, LIMIT_S)[0] == rows[:1]
        with pytest.raises(TypeError):
            source.put_pickle("text")


def test_pending_pickles_are_converted_to_columns(name: str, hub: _hopyard.Hub) -> None:
    with _hopyard.Source(name) as source:
        source.put([([0.0] * 3, 0)])
        feed = _data_feed.DataFeed(Manager(hub))
        assert feed.next_batch(1) == [([0.0] * 3, 0)]
        for i in range(3):
            assert source.takes_pickles
            source.put_pickle(pickle.dumps([([float(k)] * 3, k) for k in range(1 + 10 * i, 11 + 10 * i)]))
        assert [row[1] for row in feed.next_batch(4)] == [1, 2, 3, 4]
        batches = []
        while sum(len(batch[1]) for batch in batches) < 26:
            batches.append(feed.columns(26 - sum(len(batch[1]) for batch in batches)))
        assert not source.takes_pickles
    assert sorted(np.concatenate([batch[1] for batch in batches]).tolist()) == list(range(5, 31))
    assert all(batch[0].shape == (len(batch[1]), 3) and (batch[0][:, 0] == batch[1]).all() for batch in batches)


def rings() -> set[str]:
    """The mappings of rings in this process."""
    with open("/proc/self/maps") as maps:
        return {line.split()[0] for line in maps if "hopyard-ring" in line}


def tamper(rings: set[str], before: bytes, after: bytes) -> None:
    """Changes a pending message, as a malicious feeder can, since both processes share the memory."""
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for begin, end in ((int(address, 16) for address in ring.split("-")) for ring in rings):
            memory.seek(begin)
            at = memory.read(end - begin).find(before)
            if at >= 0:
                memory.seek(begin + at)
                assert memory.write(after) == len(before)
                return
    raise AssertionError(f"{before!r} is not pending")


def test_corrupt_columns_drop_their_feeder(name: str, hub: _hopyard.Hub) -> None:
    ends = lambda *of: np.array(of, np.int64).tobytes()  # noqa: E731
    for rows, before, after in ((["a", "bc"], ends(0, 1, 3), ends(0, 9, 3)), (["tampered"], b"tampered", b"\xff" * 8),
                                ([[1.0], [2.0, 3.0]], ends(0, 1, 3), ends(0, -1, 3))):  # fmt: skip
        others, dropped = rings(), hub.dropped
        with _hopyard.Source(name) as source:
            assert source.put(rows)
            tamper(rings() - others, before, after)
            wait_for(lambda: hub.next_rows(2, 0.1) == ([], "timeout") and hub.dropped == dropped + 1)
            with pytest.raises(hopyard.Error, match="is gone"):
                source.put([1])


# ---- DataFeed ------------------------------------------------------------------------------------


def test_training_batches_span_partitions(name: str, hub: _hopyard.Hub) -> None:
    feed = _data_feed.DataFeed(Manager(hub), input_mapping={"image": "x", "label": "y", "a": "z"})
    threads = [threading.Thread(target=_feeders.feeder(name), args=([(i, i + 0.5, "t")] * 10,)) for i in range(3)]
    for thread in threads:
        thread.start()
    batch = feed.next_batch(25)
    assert list(batch) == ["z", "x", "y"] and [len(v) for v in batch.values()] == [25] * 3
    assert not feed.should_stop()
    hub.end()
    assert [len(v) for v in feed.next_batch(25).values()] == [5] * 3 and feed.should_stop()
    assert feed.next_batch(25) == {"z": [], "x": [], "y": []}
    for thread in threads:
        thread.join()


def test_queues_are_separate(name: str, hub: _hopyard.Hub) -> None:
    with _hopyard.Source(name, "other") as other, _hopyard.Source(name) as source:
        other.put([1, 2])
        source.put([3])
        assert _data_feed.DataFeed(Manager(hub)).next_batch(1) == [3]
        assert _data_feed.DataFeed(Manager(hub), qname_in="other").next_batch(2) == [1, 2]


def test_descriptor_of_the_manager_is_polled(name: str, hub: _hopyard.Hub) -> None:
    class PolledManager(Manager):
        def fileno(self) -> int:
            return reads

        def handle_message(self) -> None:
            assert os.read(reads, 1) == b"x"
            self.hub.end()

    reads, writes = os.pipe()
    os.write(writes, b"x")
    feed = _data_feed.DataFeed(PolledManager(hub))
    assert feed.next_batch(5) == [] and feed.should_stop()
    os.close(reads)
    os.close(writes)


@pytest.mark.parametrize("size", [1 << 16, 0])
def test_inference_is_one_to_one_across_partitions(size: int, name: str, hub: _hopyard.Hub) -> None:
    partitions = [[(f"row {i}", [float(i)] * 50) for i in range(begin, begin + 3000 + begin)] for begin in (0, 1, 2)]
    results: dict[int, list[Any]] = {}

    def feed(number: int) -> None:
        results[number] = list(_feeders.infer(name, partitions[number], size=size))

    threads = [threading.Thread(target=feed, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    data = _data_feed.DataFeed(Manager(hub), train_mode=False)
    taken, sizes = 0, []
    while taken < sum(map(len, partitions)):
        batch = data.next_batch(128)
        taken += len(batch)
        sizes.append(len(batch))
        data.batch_results([(text, sum(values), [0.5] * 60) for text, values in batch])
    for thread in threads:
        thread.join()
    for number, rows in enumerate(partitions):
        assert results[number] == [(text, sum(values), [0.5] * 60) for text, values in rows]
    assert max(sizes) == 128 and all(sizes)


def test_inference_batch_ends_with_its_partition(name: str, hub: _hopyard.Hub) -> None:
    data = _data_feed.DataFeed(Manager(hub), train_mode=False)
    with _hopyard.Source(name, "input", True) as source:
        source.end_partition()
        source.put([1, 2, 3])
        source.end_partition()
        source.put([4])
        assert data.next_batch(10) == [1, 2, 3]
        with pytest.raises(ValueError, match="there are 1 more results than rows that need one"):
            data.batch_results([1, 2, 3, 4])
        assert source.results() == [1, 2, 3]


# ---- ends ----------------------------------------------------------------------------------------


def test_terminate_stops_a_feeder_that_waits_for_space(name: str, hub: _hopyard.Hub) -> None:
    feeder = python("print(_feeders.feeder(name)(([0.5] * 1000) for _ in iter(int, 1)))", name)
    manager = Manager(hub)
    data = _data_feed.DataFeed(manager)
    assert len(data.next_batch(10)) == 10
    data.terminate()
    assert ended(feeder) == (0, "False\n")
    assert manager.state == {"state": "terminating"} and data.should_stop() and data.next_batch(5) == []
    assert _feeders.feeder(name)([1, 2, 3]) is False  # a later feeder
    with pytest.raises(hopyard.Error, match="takes no more rows, and has returned 0 results for 3"):
        list(_feeders.infer(name, [1, 2, 3]))


def test_terminate_interrupts_another_thread(hub: _hopyard.Hub) -> None:
    data = _data_feed.DataFeed(Manager(hub))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(data.next_batch(5)))
    thread.start()
    data.terminate()
    thread.join(LIMIT_S)
    assert found == [[]]


def test_signal_handler_may_terminate(name: str, hub: _hopyard.Hub) -> None:
    with _hopyard.Source(name) as source:
        before = signal.signal(signal.SIGALRM, lambda *_: hub.terminate())
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            assert hub.next_rows(10, LIMIT_S) == ([], "end")
        finally:
            signal.signal(signal.SIGALRM, before)
        assert source.put([1]) is False


def test_killed_feeder_leaves_its_rows(name: str, hub: _hopyard.Hub) -> None:
    feeder = python("s = _hopyard.Source(name)\ni = 0\nwhile s.put(list(range(i, i + 100))): i += 100", name)
    first, _ = hub.next_rows(1000, LIMIT_S)
    feeder.send_signal(signal.SIGKILL)
    assert ended(feeder)[0] == -signal.SIGKILL
    thread = threading.Thread(target=_feeders.feeder(name), args=([-1] * 50,))
    thread.start()
    hub_rows: list[Any] = []
    while hub_rows.count(-1) < 50:
        hub_rows += hub.next_rows(1000, 0.5)[0]
    hub.end()
    while (answer := hub.next_rows(1000, LIMIT_S))[1] != "end":
        hub_rows += answer[0]
    hub_rows += answer[0]
    thread.join()
    numbers = first + [n for n in hub_rows if n != -1]
    assert numbers == list(range(len(numbers))) and len(numbers) % 100 == 0


def test_feeder_gets_an_error_when_the_consumer_is_killed(name: str) -> None:
    takes = "print(flush=True)\nh.next_rows(100)\nprint(flush=True)\n"
    consumer = python(f"h = _hopyard.Hub(name)\n{takes}time.sleep(1000)", name)
    assert consumer.stdout and consumer.stdout.readline()
    errors: list[Exception] = []

    def feed() -> None:
        try:
            _feeders.feeder(name)([0.5] * 1000 for _ in iter(int, 1))
        except hopyard.Error as error:
            errors.append(error)

    thread = threading.Thread(target=feed)
    thread.start()
    assert consumer.stdout.readline()
    consumer.kill()
    thread.join(LIMIT_S)
    consumer.communicate()
    assert [str(e) for e in errors] == [f"the process that takes the rows, at '{name}', is gone"]
    with pytest.raises(ConnectionRefusedError, match="cannot reach the hub"):
        _hopyard.Source(name)


@pytest.mark.parametrize("code", [
    "h = _hopyard.Hub(name)\nprint(flush=True)\nh.next_rows(100)",
    "h = _hopyard.Hub(name)\nprint(flush=True)\nh.next_columns(100)",
    "h = _hopyard.Hub(name)\ns = _hopyard.Source(name)\nprint(flush=True)\nwhile True: s.put([[0.5] * 1000] * 100)",
    "h = _hopyard.Hub(name)\ns = _hopyard.Source(name, results=True)\nprint(flush=True)\ns.results()",
    "h = _hopyard.Hub(name)\ns = _hopyard.Source(name)\ns.put([1])\nprint(flush=True)\ns.wait_until_taken()",
])  # fmt: skip
def test_ctrl_c_interrupts_every_wait(code: str, name: str) -> None:
    process = python(code, name)
    assert process.stdout and process.stdout.readline()
    wait_for(lambda: open(f"/proc/{process.pid}/wchan").read() not in ("", "0") or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    status, output = ended(process)
    assert status != 0 and "KeyboardInterrupt" in output


def test_interrupt_loses_no_rows(name: str, hub: _hopyard.Hub) -> None:
    def raise_it(*_: object) -> None:
        raise KeyboardInterrupt

    with _hopyard.Source(name) as source:
        source.put([1, 2, 3])
        before = signal.signal(signal.SIGALRM, raise_it)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with pytest.raises(KeyboardInterrupt):
                hub.next_rows(10)
        finally:
            signal.signal(signal.SIGALRM, before)
        assert hub.next_rows(2, LIMIT_S) == ([1, 2], "") and hub.next_rows(1, LIMIT_S) == ([3], "")


def test_use_after_close_is_an_error(name: str, hub: _hopyard.Hub) -> None:
    source = _hopyard.Source(name)
    source.close()
    with pytest.raises(ValueError, match="the source is closed"):
        source.put([1])
    hub.close()
    with pytest.raises(ValueError, match="the hub is closed"):
        hub.next_rows(1)
    with pytest.raises(hopyard.Error, match="cannot listen at"):
        _hopyard.Hub("x" * 200)


@pytest.mark.parametrize("wait", [
    lambda source: [source.put([[0.5] * 1000] * 100) for _ in range(100)],
    lambda source: source.put([1]) and source.end_partition() and source.wait_until_taken(),
    lambda source: source.put([1]) and source.results(),
])  # fmt: skip
def test_feeder_times_out(name: str, hub: _hopyard.Hub, wait: Callable[[_hopyard.Source], object]) -> None:
    with _hopyard.Source(name, results=True, patience=0.2) as source:
        error = f"the process at '{name}' has taken no rows, .* for 0.2 s; raise feed_timeout"
        with pytest.raises(hopyard.Error, match=error):
            wait(source)
        assert source.results(0) == []
