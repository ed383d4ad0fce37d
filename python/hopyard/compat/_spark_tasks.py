# SPDX-License-Identifier: Apache-2.0
"""Functions that run in Spark tasks and need hopyard.compat there. They are pickled by value, and fetch hopyard first."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import cloudpickle

from .._spark.executor import package
from .._spark.feed_tasks import Luggage

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def calling_batches(luggage: Luggage, pickled: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Calls a function, which may be of modules that come with hopyard, with its arguments and an iterator of batches."""

    def call(batches: Iterable[Any]) -> Iterator[Any]:
        package(*luggage)

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

        import hopyard.compat  # noqa: F401

        function, argument = cloudpickle.loads(pickled)
        function(argument)

    return call
