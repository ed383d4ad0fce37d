# SPDX-License-Identifier: Apache-2.0
"""Spark tasks that feed a cluster. They are pickled by value, and load hopyard on the executor."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .executor import ensure_package

PackageRef = tuple[str, str, str]


def _count(outcome: int, timeouts: Any) -> int:
    """Counts timeouts in an accumulator of the driver."""
    from hopyard._feed import feeders as _feeders

    if outcome == _feeders.TIMED_OUT:
        timeouts.add(1)
    return outcome


def feeding(
    package: PackageRef, names: list[str], queue: str, timeout: float, timeouts: Any
) -> Callable[[int, Iterable[Any]], Iterator[int]]:
    """Feeds a partition to a node on its machine; yields the outcome."""

    def feed(index: int, rows: Iterable[Any]) -> Iterator[int]:
        ensure_package(*package)
        from hopyard._feed import feeders as _feeders

        return iter([_count(_feeders.feed_partition(names, index, queue, rows, timeout), timeouts)])

    return feed


def feeding_pickles(
    package: PackageRef, names: list[str], queue: str, timeout: float, timeouts: Any
) -> Callable[[int, Iterable[bytes]], Iterator[int]]:
    """The same for rows that Spark has pickled."""

    def feed(index: int, pickles: Iterable[bytes]) -> Iterator[int]:
        ensure_package(*package)
        from hopyard._feed import feeders as _feeders

        return iter([_count(_feeders.feed_pickles(names, index, queue, pickles, timeout), timeouts)])

    return feed


def inferring(
    package: PackageRef, names: list[str], queue: str, timeout: float
) -> Callable[[int, Iterable[Any]], Iterator[Any]]:
    """A result for each row of a partition, in order."""

    def infer(index: int, rows: Iterable[Any]) -> Iterator[Any]:
        ensure_package(*package)
        from hopyard._feed import feeders as _feeders

        return _feeders.infer_here(names, index, queue, rows, timeout)

    return infer


def feeding_batches(
    package: PackageRef, names: list[str], queue: str, timeout: float, timeouts: Any
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The same for Arrow batches of a DataFrame."""

    def feed(batches: Iterable[Any]) -> Iterator[Any]:
        ensure_package(*package)
        import pyarrow
        from pyspark import TaskContext

        from hopyard._feed import feeders as _feeders

        partition = TaskContext.get().partitionId()
        outcome = _count(_feeders.feed_batches(names, partition, queue, batches, timeout), timeouts)
        return iter([pyarrow.RecordBatch.from_pydict({"outcome": pyarrow.array([outcome], pyarrow.int32())})])

    return feed


def inferring_batches(package: PackageRef, model: tuple[Any, ...]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Inference of a SavedModel on Arrow batches."""

    def infer(batches: Iterable[Any]) -> Iterator[Any]:
        ensure_package(*package)
        from hopyard._tensorflow import saved_model as _saved_model

        return _saved_model.infer(_saved_model.Description(*model), batches)

    return infer
