# SPDX-License-Identifier: Apache-2.0
"""A feed as a tf.data.Dataset: an op of src/tensorflow copies batches from shared memory into tensors, without Python.

The op waits at most a tenth of a second and then returns NOTHING, so that dropping an iterator does not wait for rows.
The pipeline here filters those out, and ends the dataset at the end of the feed.
"""

from __future__ import annotations

import select
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from .. import _hopyard
from .._tensorflow import ops as _tfops
from .columns import nest_arrays

if TYPE_CHECKING:
    from .data_feed import DataFeed

NOTHING, ROWS, END = range(3)  # the op's states
FOREVER = (1 << 63) - 1
POLL_MS = 200
PICKLED = "rows without columns arrived, which are pickled; read such rows with next_batch or columns"
_TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64")  # fmt: skip
_Leaf = tuple[str, str, tuple[int, ...] | None, bool]  # name, dtype, shape of a row or item, is it ragged


def make(feed: DataFeed, batch_size: int, signature: Any, drop_remainder: bool) -> tf.data.Dataset:
    """The dataset of DataFeed.dataset."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    if drop_remainder and not feed.train_mode:
        raise ValueError("drop_remainder would drop rows that need a result; leave it out, or use train_mode=True")
    _tfops.ensure_loaded()
    if signature is None:
        signature = _signature_of_next_rows(feed)
    if signature is None:  # the feed ended before its first row
        return tf.data.Dataset.range(0)
    parts, has_mapping = signature, feed.input_tensors is not None
    if feed.input_tensors is not None:
        signature = {name: _of_tensor(signature, name) for name in feed.input_tensors}
        parts = tuple(signature.values())
    text, leaves, specs = _described(parts, batch_size if drop_remainder else None)
    stops = not feed.train_mode
    number = feed.mgr.hub.batches(feed.qname_in, batch_size, stops, drop_remainder, text, has_mapping, leaves)
    feed.datasets.append(number)
    _poll_manager(feed, number)
    return _pipeline(number, specs, signature)


# ---- signatures ----------------------------------------------------------------------------------


def _signature_of_next_rows(feed: DataFeed) -> Any:
    """The specs of the next rows, which stay in the feed; None if the feed has ended."""
    shape: str = ""
    columns: list[tuple[str, tuple[int, ...], bool]] = []
    while not shape and not feed.done_feeding:
        shape, columns, why = feed.mgr.hub.next_shape(1, **feed._options())
        feed._handle(why)
    if not shape:
        return None
    if shape == "*":
        raise tf.errors.InvalidArgumentError(None, None, PICKLED)
    found = nest_arrays(shape, [_spec(*column) for column in columns])
    if feed.input_tensors is None:
        return found
    parts = list(found.values()) if isinstance(found, dict) else found
    return {tensor: parts[i] for i, tensor in enumerate(feed.input_tensors)}


def _spec(dtype: str, shape: tuple[int, ...], is_ragged: bool) -> Any:
    kind = tf.string if dtype in ("str", "bytes") else tf.as_dtype(dtype)
    if is_ragged:
        return tf.RaggedTensorSpec([None, None, *shape], kind, ragged_rank=1)
    return tf.TensorSpec([None, *shape], kind)


def _of_tensor(signature: Any, name: str) -> Any:
    if not isinstance(signature, dict) or name not in signature:
        raise ValueError(f"the signature has no '{name}', which is in the input mapping")
    return signature[name]


def _described(parts: Any, batch: int | None) -> tuple[str, list[_Leaf], list[Any]]:
    """The shape of a row in the format of src/feed/feed.h, and its leaves: for the hub, and as TensorFlow's specs."""
    leaves: list[_Leaf] = []
    specs: list[Any] = []

    def text_of(part: Any, path: str) -> str:
        if isinstance(part, dict):
            keys = [f"{len(key.encode())}:{key}{text_of(v, _below(path, key))}" for key, v in part.items()]
            return "".join(["{", *keys, "}"])
        if isinstance(part, (tuple, list)):
            return "(" + "".join(text_of(v, _below(path, str(i))) for i, v in enumerate(part)) + ")"
        leaves.append(_leaf(part, path, batch))
        specs.append(part if batch is None else _with_batch(part, batch))
        return "a"

    return text_of(parts, ""), leaves, specs


def _below(path: str, key: str) -> str:
    return f"{path}/{key}" if path else key


def _leaf(spec: Any, path: str, batch: int | None) -> _Leaf:
    is_ragged = isinstance(spec, tf.RaggedTensorSpec)
    if not is_ragged and not isinstance(spec, tf.TensorSpec):
        raise ValueError(f"column '{path}': a signature must have tf.TensorSpec or tf.RaggedTensorSpec, not {spec!r}")
    dtype, shape = ("bytes" if spec.dtype == tf.string else spec.dtype.name), spec.shape
    if dtype != "bytes" and dtype not in _TYPES:
        raise ValueError(f"column '{path}': type {dtype} is not supported; supported: {', '.join(_TYPES)}, string")
    if is_ragged and spec.ragged_rank != 1:
        raise ValueError(f"column '{path}': ragged_rank must be 1, not {spec.ragged_rank}")
    if shape.rank is None:
        return path, dtype, None, is_ragged
    if shape.rank < 1 + is_ragged:
        raise ValueError(f"column '{path}': shape {shape} has no batch dimension")
    if shape[0] not in (None, batch):
        raise ValueError(f"column '{path}': shape {shape} needs batch_size={shape[0]} and drop_remainder=True")
    return path, dtype, tuple(-1 if n is None else n for n in shape[1 + is_ragged :]), is_ragged


def _with_batch(spec: Any, batch: int) -> Any:
    if isinstance(spec, tf.RaggedTensorSpec) or spec.shape.rank is None:
        return spec
    return tf.TensorSpec([batch, *spec.shape[1:]], spec.dtype)


# ---- the dataset -----------------------------------------------------------------------------------


def _pipeline(number: int, specs: Sequence[Any], nest: Any) -> tf.data.Dataset:
    types = [kind for spec in specs for kind in (spec.dtype, tf.int64)[: _outputs(spec)]]

    @tf.autograph.experimental.do_not_convert
    def step(_: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        state, *outputs = _tfops._node("HopyardFeed", None, ("feed", number, "Tout", types)).outputs
        state.set_shape([])
        return state, tuple(outputs)

    @tf.autograph.experimental.do_not_convert
    def is_not_over(state: tf.Tensor, *_: Any) -> tf.Tensor:
        return tf.not_equal(state, END)

    @tf.autograph.experimental.do_not_convert
    def has_rows(state: tf.Tensor, *_: Any) -> tf.Tensor:
        return tf.equal(state, ROWS)

    @tf.autograph.experimental.do_not_convert
    def made(_: tf.Tensor, outputs: tuple[tf.Tensor, ...]) -> Any:
        return _packed(nest, map(_tensor, specs, _grouped(specs, iter(outputs))))

    options = tf.data.Options()  # the rows are for this process only: sharding would lose some
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # A read-ahead thread would wait for rows that are not needed, and take(n) would wait for that thread.
    options.experimental_optimization.map_parallelization = False
    batches = tf.data.Dataset.range(FOREVER).map(step).take_while(is_not_over).filter(has_rows)
    return batches.map(made).with_options(options)


def _outputs(spec: Any) -> int:
    """The op's outputs for a column: a ragged one has values and row splits."""
    return 2 if isinstance(spec, tf.RaggedTensorSpec) else 1


def _grouped(specs: Sequence[Any], outputs: Iterator[tf.Tensor]) -> Iterator[list[tf.Tensor]]:
    for spec in specs:
        yield [next(outputs) for _ in range(_outputs(spec))]


def _tensor(spec: Any, outputs: list[tf.Tensor]) -> Any:
    if not isinstance(spec, tf.RaggedTensorSpec):
        outputs[0].set_shape(spec.shape)
        return outputs[0]
    values, splits = outputs
    if spec.shape.rank is not None:
        values.set_shape([None, *spec.shape[2:]])
    splits.set_shape([None])
    return tf.RaggedTensor.from_row_splits(values, tf.cast(splits, spec.row_splits_dtype), validate=False)


def _packed(nest: Any, leaves: Iterator[Any]) -> Any:
    """Nested like rows; lists become tuples, as in tf.data."""
    if isinstance(nest, dict):
        return {key: _packed(part, leaves) for key, part in nest.items()}
    if isinstance(nest, (tuple, list)):
        parts = [_packed(part, leaves) for part in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else tuple(parts)
    return next(leaves)


# ---- messages to the manager -----------------------------------------------------------------------


def _poll_manager(feed: DataFeed, number: int) -> None:
    """While TensorFlow waits for rows, no Python code runs: a thread handles the manager's messages."""
    if getattr(feed.mgr, "fileno", None) is not None:
        threading.Thread(target=_poll_loop, args=(weakref.ref(feed), number), name="hopyard-poll", daemon=True).start()


def _poll_loop(found: weakref.ref[DataFeed], number: int) -> None:
    while (feed := found()) is not None and not feed.mgr.hub.is_over(number):
        descriptor = select.poll()
        descriptor.register(feed.mgr.fileno(), select.POLLIN)
        del feed  # this thread must not keep the feed alive
        ready = descriptor.poll(POLL_MS)
        feed = found()
        if ready and feed is not None:
            _handle_message(feed)


def _handle_message(feed: DataFeed) -> None:
    try:
        feed.mgr.handle_message()
    except _hopyard.Error:
        feed.terminate()  # the end of the feed will not be announced
        raise
