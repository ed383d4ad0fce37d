# SPDX-License-Identifier: Apache-2.0
"""Spark tasks that need hopyard.compat. They are pickled by value, and load hopyard first."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import cloudpickle

from .._spark.executor import ensure_package
from .._spark.feed_tasks import PackageRef

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def calling_batches(package: PackageRef, pickled: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Calls a function, possibly of a served package, with its arguments and an iterator of batches."""

    def call(batches: Iterable[Any]) -> Iterator[Any]:
        ensure_package(*package)

        import hopyard.compat  # noqa: F401

        function, arguments = cloudpickle.loads(pickled)
        return function(*arguments, batches)

    return call


def predicting(package: PackageRef, model: Any, pickled: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A Keras model's predictions for pandas DataFrames; `model` is a broadcast variable."""

    def predict(batches: Iterable[Any]) -> Iterator[Any]:
        ensure_package(*package)
        import hopyard.compat  # noqa: F401

        from horovod.spark.keras import _prediction

        return _prediction.predict(model.value, pickled, batches)

    return predict


def calling(package: PackageRef, pickled: bytes) -> Callable[[Iterable[Any]], None]:
    """Calls a function, possibly of a served package, with its argument."""

    def call(_: Iterable[Any]) -> None:
        ensure_package(*package)

        import hopyard.compat  # noqa: F401

        function, argument = cloudpickle.loads(pickled)
        function(argument)

    return call
