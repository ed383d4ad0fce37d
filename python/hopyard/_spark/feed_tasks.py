# SPDX-License-Identifier: Apache-2.0
"""What runs in Spark's tasks to feed a cluster. It goes there by value, and fetches hopyard when it is there."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .executor import package

Luggage = tuple[str, str, str]


def _count(became: int, unread: Any) -> int:
    """In an accumulator of the driver's, that a node takes no rows."""
    from hopyard._feed import feeders as _feeders

    if became == _feeders.TIMED_OUT:
        unread.add(1)
    return became


def feeding(
    luggage: Luggage, names: list[str], queue: str, timeout: float, unread: Any
) -> Callable[[int, Iterable[Any]], Iterator[int]]:
    """Feeds a partition to a node of its machine; gives what became of it."""

    def feed(index: int, rows: Iterable[Any]) -> Iterator[int]:
        package(*luggage)
        from hopyard._feed import feeders as _feeders

        return iter([_count(_feeders.feed_partition(names, index, queue, rows, timeout), unread)])

    return feed


def feeding_pickles(
    luggage: Luggage, names: list[str], queue: str, timeout: float, unread: Any
) -> Callable[[int, Iterable[bytes]], Iterator[int]]:
    """The same for rows as Spark has pickled them."""

    def feed(index: int, pickles: Iterable[bytes]) -> Iterator[int]:
        package(*luggage)
        from hopyard._feed import feeders as _feeders

        return iter([_count(_feeders.feed_pickles(names, index, queue, pickles, timeout), unread)])

    return feed


def inferring(
    luggage: Luggage, names: list[str], queue: str, timeout: float
) -> Callable[[int, Iterable[Any]], Iterator[Any]]:
    """A result for each row of a partition, in their order."""

    def infer(index: int, rows: Iterable[Any]) -> Iterator[Any]:
        package(*luggage)
        from hopyard._feed import feeders as _feeders

        return _feeders.infer_here(names, index, queue, rows, timeout)

    return infer


def feeding_batches(
    luggage: Luggage, names: list[str], queue: str, timeout: float, unread: Any
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The same for Arrow's batches of a DataFrame."""

    def feed(batches: Iterable[Any]) -> Iterator[Any]:
        package(*luggage)
        import pyarrow
        from pyspark import TaskContext

        from hopyard._feed import feeders as _feeders

        became = _count(_feeders.feed_batches(names, TaskContext.get().partitionId(), queue, batches, timeout), unread)
        return iter([pyarrow.RecordBatch.from_pydict({"became": pyarrow.array([became], pyarrow.int32())})])

    return feed


def inferring_batches(luggage: Luggage, model: tuple[Any, ...]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a SavedModel gives for Arrow's batches."""

    def infer(batches: Iterable[Any]) -> Iterator[Any]:
        package(*luggage)
        from hopyard._tensorflow import saved_model as _saved_model

        return _saved_model.infer(_saved_model.Description(*model), batches)

    return infer
