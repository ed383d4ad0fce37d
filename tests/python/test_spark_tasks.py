# SPDX-License-Identifier: Apache-2.0
"""Spark tasks that feed nodes and call functions, in this process: what a worker of Spark would run."""
from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark import cloudpickle

import hopyard
from feeding import LIMIT_S, Manager, hub, name  # noqa: F401
from hopyard import _hopyard
from hopyard._feed import data_feed as _data_feed
from hopyard._feed import feeders as _feeders
from hopyard._spark import feed_tasks as _feed_tasks
from hopyard.compat import _spark_tasks

PACKAGE = ("unused", "unused", hopyard.__version__)  # hopyard is installed here
OTHER = ("unused", "unused", "0.0.1")


class Timeouts:
    """An accumulator of the driver."""

    value = 0

    def add(self, count: int) -> None:
        self.value += count


@pytest.fixture
def timeouts() -> Timeouts:
    return Timeouts()


@pytest.fixture
def take(hub: _hopyard.Hub) -> Iterator[Callable[[int], Any]]:  # noqa: F811
    """Starts to take so many rows, in a thread; what it returns waits for them."""
    threads = []

    def start(count: int) -> Callable[[], list[Any]]:
        found: list[Any] = []

        def run() -> None:
            while len(found) < count:
                found.extend(hub.next_rows(count - len(found), LIMIT_S)[0])

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()

        def rows() -> list[Any]:
            threads[-1].join(LIMIT_S)
            return found

        return rows

    yield start
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def test_partition_is_fed_to_a_node_of_its_machine(
    name: str, take: Callable[[int], Any], timeouts: Timeouts  # noqa: F811
) -> None:
    rows = take(5)
    feed = _feed_tasks.feeding(PACKAGE, [f"{name}/elsewhere", name], "input", LIMIT_S, timeouts)
    assert list(feed(0, iter(range(5)))) == [_feeders.FED] and rows() == [0, 1, 2, 3, 4]


def test_machine_without_a_node_is_an_outcome(name: str, timeouts: Timeouts) -> None:  # noqa: F811
    feed = _feed_tasks.feeding(PACKAGE, [f"{name}/elsewhere"], "input", LIMIT_S, timeouts)
    assert list(feed(0, iter([1]))) == [_feeders.NO_NODE] and timeouts.value == 0


def test_node_that_takes_nothing_is_counted_once(
    name: str, hub: _hopyard.Hub, timeouts: Timeouts  # noqa: F811
) -> None:
    feed = _feed_tasks.feeding(PACKAGE, [name], "input", 0.05, timeouts)
    assert list(feed(0, iter([1]))) == [_feeders.TIMED_OUT] and timeouts.value == 1


def test_pickled_partition_is_fed(name: str, take: Callable[[int], Any], timeouts: Timeouts) -> None:  # noqa: F811
    rows = take(4)
    feed = _feed_tasks.feeding_pickles(PACKAGE, [name], "input", LIMIT_S, timeouts)
    assert list(feed(0, iter([pickle.dumps(["a", "b"]), pickle.dumps(["c", "d"])]))) == [_feeders.FED]
    assert rows() == ["a", "b", "c", "d"]


def test_arrow_batches_are_fed_and_the_outcome_is_a_batch(
    name: str, take: Callable[[int], Any], timeouts: Timeouts, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    rows = take(4)
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 3))
    batches = [pa.RecordBatch.from_pydict({"x": [1.0, 2.0], "y": [i, i]}) for i in range(2)]
    [outcome] = _feed_tasks.feeding_batches(PACKAGE, [name], "input", LIMIT_S, timeouts)(iter(batches))
    assert outcome.schema == pa.schema([("outcome", pa.int32())]) and outcome.to_pydict() == {"outcome": [_feeders.FED]}
    assert [tuple(row) for row in rows()] == [(1.0, 0), (2.0, 0), (1.0, 1), (2.0, 1)]


def test_results_are_those_of_the_partition(name: str, hub: _hopyard.Hub) -> None:  # noqa: F811
    def double() -> None:
        feed = _data_feed.DataFeed(Manager(hub), train_mode=False)
        rows = feed.next_batch(3)
        feed.batch_results([2 * row for row in rows])

    node = threading.Thread(target=double, daemon=True)
    node.start()
    assert list(_feed_tasks.inferring(PACKAGE, [name], "input", LIMIT_S)(0, iter([1, 2, 3]))) == [2, 4, 6]
    node.join(LIMIT_S)
    with pytest.raises(hopyard.Error, match="there is no node of the cluster on .*, or it has ended"):
        _feed_tasks.inferring(PACKAGE, [f"{name}/elsewhere"], "input", LIMIT_S)(0, iter([1]))


def test_task_refuses_another_version_of_hopyard(timeouts: Timeouts) -> None:
    """An installed one would read messages of the session's version."""
    for task in (
        lambda: _feed_tasks.feeding(OTHER, [], "input", 1, timeouts)(0, iter([])),
        lambda: _feed_tasks.feeding_pickles(OTHER, [], "input", 1, timeouts)(0, iter([])),
        lambda: _feed_tasks.feeding_batches(OTHER, [], "input", 1, timeouts)(iter([])),
        lambda: _feed_tasks.inferring(OTHER, [], "input", 1)(0, iter([])),
        lambda: _feed_tasks.inferring_batches(OTHER, ())(iter([])),
        lambda: _spark_tasks.calling(OTHER, b"")([]),
        lambda: _spark_tasks.calling_batches(OTHER, b"")(iter([])),
        lambda: _spark_tasks.predicting(OTHER, None, b"")(iter([])),
    ):
        with pytest.raises(RuntimeError, match="but the session has 0.0.1; install that version there, or remove it"):
            task()


def test_pickled_function_is_called_with_hopyards_packages(tmp_path: Path) -> None:
    def note(path: Path) -> None:
        import hops

        path.write_text(str(hops.__file__))

    def multiplied(factor: int, batches: Iterator[int]) -> Iterator[int]:
        return (factor * batch for batch in batches)

    _spark_tasks.calling(PACKAGE, cloudpickle.dumps((note, tmp_path / "note")))([0])
    assert (tmp_path / "note").read_text().startswith(hopyard.__path__[0])
    assert list(_spark_tasks.calling_batches(PACKAGE, cloudpickle.dumps((multiplied, (2,))))(iter([1, 2]))) == [2, 4]
