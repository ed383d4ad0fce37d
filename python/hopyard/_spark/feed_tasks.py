# SPDX-License-Identifier: Apache-2.0
"""What runs in Spark's tasks to feed a cluster. It goes there by value, and fetches hopyard when it is there."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .executor import package

Luggage = tuple[str, str, str]


def _count(became: int, unread: Any) -> int:
    """In an accumulator of the driver's, that a node takes no rows."""
    from hopyard._feed import data_feed as _data_feed

    if became == _data_feed.UNREAD:
        unread.add(1)
    return became


def feeding(
    luggage: Luggage, names: list[str], queue: str, timeout: float, unread: Any
) -> Callable[[int, Iterable[Any]], Iterator[int]]:
    """Feeds a partition to a node of its machine; gives what became of it."""

    def feed(index: int, rows: Iterable[Any]) -> Iterator[int]:
        package(*luggage)
        from hopyard._feed import data_feed as _data_feed

        return iter([_count(_data_feed.feed_partition(names, index, queue, rows, timeout), unread)])

    return feed


def feeding_pickles(
    luggage: Luggage, names: list[str], queue: str, timeout: float, unread: Any
) -> Callable[[int, Iterable[bytes]], Iterator[int]]:
    """The same for rows as Spark has pickled them."""

    def feed(index: int, pickles: Iterable[bytes]) -> Iterator[int]:
        package(*luggage)
        from hopyard._feed import data_feed as _data_feed

        return iter([_count(_data_feed.feed_pickles(names, index, queue, pickles, timeout), unread)])

    return feed


def inferring(luggage: Luggage, names: list[str], queue: str, timeout: float) -> Callable[[int, Iterable[Any]], Iterator[Any]]:
    """A result for each row of a partition, in their order."""

    def infer(index: int, rows: Iterable[Any]) -> Iterator[Any]:
        package(*luggage)
        from hopyard._feed import data_feed as _data_feed

        return _data_feed.infer_here(names, index, queue, rows, timeout)

    return infer


def feeding_batches(
    luggage: Luggage, names: list[str], queue: str, timeout: float, unread: Any
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The same for Arrow's batches of a DataFrame."""

    def feed(batches: Iterable[Any]) -> Iterator[Any]:
        package(*luggage)
        import pyarrow
        from pyspark import TaskContext

        from hopyard._feed import data_feed as _data_feed

        became = _count(_data_feed.feed_batches(names, TaskContext.get().partitionId(), queue, batches, timeout), unread)
        return iter([pyarrow.RecordBatch.from_pydict({"became": pyarrow.array([became], pyarrow.int32())})])

    return feed


def inferring_batches(luggage: Luggage, model: tuple[Any, ...]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a SavedModel gives for Arrow's batches."""

    def infer(batches: Iterable[Any]) -> Iterator[Any]:
        package(*luggage)
        from hopyard._tensorflow import saved_model as _saved_model

        return _saved_model.infer(_saved_model.Description(*model), batches)

    return infer


def calling_batches(luggage: Luggage, pickled: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Calls a function, which may be of modules that come with hopyard, with its arguments and an iterator of batches."""

    def call(batches: Iterable[Any]) -> Iterator[Any]:
        package(*luggage)
        from pyspark import cloudpickle

        import hopyard.compat  # noqa: F401

        function, arguments = cloudpickle.loads(pickled)
        return function(*arguments, batches)

    return call


def predicting(luggage: Luggage, model: Any, pickled: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a Keras model gives for pandas' DataFrames; `model` is a broadcast variable."""

    def predict(batches: Iterable[Any]) -> Iterator[Any]:
        package(*luggage)
        import hopyard.compat  # noqa: F401

        from horovod.spark.keras import _prediction

        return _prediction.predict(model.value, pickled, batches)

    return predict


def calling(luggage: Luggage, pickled: bytes) -> Callable[[Iterable[Any]], None]:
    """Calls a function with its argument, which may be of modules that come with hopyard."""

    def call(_: Iterable[Any]) -> None:
        package(*luggage)
        from pyspark import cloudpickle

        import hopyard.compat  # noqa: F401

        function, argument = cloudpickle.loads(pickled)
        function(argument)

    return call
