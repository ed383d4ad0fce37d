# SPDX-License-Identifier: Apache-2.0
"""A feed as a tf.data.Dataset: batches go from shared memory into tensors by an op of src/tensorflow, without Python.

The op waits for a tenth of a second at most and then says that there is nothing yet, so that whoever drops an iterator
does not wait for rows. Here those answers are left out, and the end of the feed becomes the dataset's.
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

NOTHING, ROWS, END = range(3)  # what the op says
FOREVER = (1 << 63) - 1
HEAR_MS = 200
PICKLED = "rows came that have no columns, and were pickled; take such rows by next_batch or columns"
_TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64")  # fmt: skip
_Leaf = tuple[str, str, tuple[int, ...] | None, bool]  # name, dtype, shape of a row or item, is it ragged


def make(feed: DataFeed, batch_size: int, signature: Any, drop_remainder: bool) -> tf.data.Dataset:
    """What DataFeed.dataset gives."""
    if batch_size < 1:
        raise ValueError(f"a batch has at least one row, and not {batch_size}")
    if drop_remainder and not feed.train_mode:
        raise ValueError("drop_remainder would leave rows without a result; leave it out, or use train_mode=True")
    _tfops.ensure_loaded()
    if signature is None:
        signature = _awaited(feed)
    if signature is None:  # it has ended before its first row
        return tf.data.Dataset.range(0)
    parts, has_mapping = signature, feed.input_tensors is not None
    if feed.input_tensors is not None:
        signature = {name: _of_tensor(signature, name) for name in feed.input_tensors}
        parts = tuple(signature.values())
    text, leaves, specs = _described(parts, batch_size if drop_remainder else None)
    stops = not feed.train_mode
    number = feed.mgr.hub.batches(feed.qname_in, batch_size, stops, drop_remainder, text, has_mapping, leaves)
    feed.datasets.append(number)
    _hear(feed, number)
    return _pipeline(number, specs, signature)


# ---- what comes ----------------------------------------------------------------------------------


def _awaited(feed: DataFeed) -> Any:
    """The specs of the rows that come next, which are not taken; None where the feed has ended."""
    shape: str = ""
    columns: list[tuple[str, tuple[int, ...], bool]] = []
    while not shape and not feed.done_feeding:
        shape, columns, why = feed.mgr.hub.next_shape(1, **feed._options())
        feed._heed(why)
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
        raise ValueError(f"the signature has no '{name}', which the input mapping has")
    return signature[name]


def _described(parts: Any, batch: int | None) -> tuple[str, list[_Leaf], list[Any]]:
    """The shape of a row as src/feed/feed.h has it, and its leaves: for the hub, and as TensorFlow's specs."""
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
        raise ValueError(f"column '{path}': a signature has tf.TensorSpec and tf.RaggedTensorSpec, and not {spec!r}")
    dtype, shape = ("bytes" if spec.dtype == tf.string else spec.dtype.name), spec.shape
    if dtype != "bytes" and dtype not in _TYPES:
        raise ValueError(f"column '{path}': a feed has no {dtype}; it has {', '.join(_TYPES)} and string")
    if is_ragged and spec.ragged_rank != 1:
        raise ValueError(f"column '{path}': what is ragged has ragged_rank=1, and not {spec.ragged_rank}")
    if shape.rank is None:
        return path, dtype, None, is_ragged
    if shape.rank < 1 + is_ragged:
        raise ValueError(f"column '{path}': the first dimension is the batch's, and {shape} has none")
    if shape[0] not in (None, batch):
        raise ValueError(f"column '{path}': {shape} wants batches of {shape[0]}; pass batch_size and drop_remainder so")
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

    options = tf.data.Options()  # rows are this process's own: there is nothing to be shared out
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # A thread that reads ahead here would wait for rows that nobody wants, and take(n) for that thread.
    options.experimental_optimization.map_parallelization = False
    batches = tf.data.Dataset.range(FOREVER).map(step).take_while(is_not_over).filter(has_rows)
    return batches.map(made).with_options(options)


def _outputs(spec: Any) -> int:
    """What is ragged is values, and where rows end."""
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
    """As rows are; lists become tuples, which is what tf.data has."""
    if isinstance(nest, dict):
        return {key: _packed(part, leaves) for key, part in nest.items()}
    if isinstance(nest, (tuple, list)):
        parts = [_packed(part, leaves) for part in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else tuple(parts)
    return next(leaves)


# ---- what else comes meanwhile -----------------------------------------------------------------------


def _hear(feed: DataFeed, number: int) -> None:
    """While TensorFlow waits for rows nobody calls into Python: a thread hears what comes for the manager."""
    if getattr(feed.mgr, "fileno", None) is not None:
        threading.Thread(target=_hears, args=(weakref.ref(feed), number), name="hopyard-hears", daemon=True).start()


def _hears(found: weakref.ref[DataFeed], number: int) -> None:
    while (feed := found()) is not None and not feed.mgr.hub.is_over(number):
        descriptor = select.poll()
        descriptor.register(feed.mgr.fileno(), select.POLLIN)
        del feed  # whoever drops it is not held up by this
        ready = descriptor.poll(HEAR_MS)
        feed = found()
        if ready and feed is not None:
            _hear_once(feed)


def _hear_once(feed: DataFeed) -> None:
    try:
        feed.mgr.hear()
    except _hopyard.Error:
        feed.terminate()  # nobody will say that it is over
        raise
