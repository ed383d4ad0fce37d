# SPDX-License-Identifier: Apache-2.0
"""What a Keras model gives for rows, in Spark's Python workers."""

import contextlib
import functools
import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy
import pandas
from pyspark import cloudpickle

import tensorflow as tf
from hopyard import Error

from horovod.spark.common._rows import missing

from . import _models

BATCH = 1024  # rows that the model computes at a time


class Description(NamedTuple):
    """A model; `key` identifies it."""

    key: str
    package: str
    floatx: str
    custom_objects: Mapping[str, Any]
    columns: list[str]
    shapes: list[list[int]]
    types: list[str]
    outputs: int


_loaded: list[Any] = []  # the key and the model that this worker used last: it need not load it for each partition


def predict(data: bytes, pickled: bytes, frames: Iterable[Any]) -> Iterator[Any]:
    """For each DataFrame of inputs, in columns i0, i1, ..., one of outputs, in columns o0, o1, ..., as flat rows."""
    described = cloudpickle.loads(pickled)
    model = _model(data, described)
    for frame in frames:
        inputs = [_input(described, number, frame[f"i{number}"]) for number in range(len(described.columns))]
        found = (
            model.predict(inputs if len(inputs) > 1 else inputs[0], batch_size=BATCH, verbose=0) if len(frame) else []
        )
        outputs = found if isinstance(found, list | tuple) else [found]
        rows = [numpy.asarray(output, numpy.float64).reshape(len(frame), -1) for output in outputs]
        yield pandas.DataFrame(
            {f"o{number}": list(rows[number]) if rows else [] for number in range(described.outputs)}
        )


def _model(data: bytes, described: Description) -> Any:
    if not _loaded or _loaded[0] != described.key:
        # Tasks on the same machine would all allocate the GPU. A worker that has used TensorFlow keeps its devices.
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices([], "GPU")
        keras = importlib.import_module(described.package)
        keras.backend.set_floatx(described.floatx)
        load = functools.partial(keras.models.load_model, compile=False, safe_mode=False)
        _loaded[:] = described.key, _models.load(data, described.package, described.custom_objects, load_model=load)
    return _loaded[1]


def _input(described: Description, number: int, column: Any) -> Any:
    """A tensor of a column's values, as the model takes it."""
    name, shape, dtype = described.columns[number], described.shapes[number], described.types[number]
    if column.isna().any():
        raise Error(missing(name))
    known = [len(column), *shape[1:]]
    if dtype == "string":
        return tf.reshape(tf.constant(list(column)), known)
    values = numpy.array(list(column)).astype(dtype)
    return values.reshape(known) if known.count(-1) < 2 else values
