# SPDX-License-Identifier: Apache-2.0
"""Collectives on tensors: eagerly, in a tf.function, in a TensorFlow 1 graph."""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from .._tensorflow import ops as _tfops
from .._tensorflow.ops import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, JOIN, REDUCESCATTER
from . import _basics, _names
from ._sets import ProcessSet, global_process_set, members, needs_init
from ._tf import is_plain, is_recording
from .compression import Compression, Compressor

__all__ = [
    "Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather", "allreduce", "alltoall", "barrier",
    "broadcast", "broadcast_", "check_num_rank_power_of_2", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "handle_average_backwards_compatibility", "join", "local_rank_op",
    "local_size_op", "process_set_included_op", "rank_op", "reducescatter", "size_op",
]  # fmt: skip

Average, Sum, Adasum, Min, Max, Product = range(6)
"""With Horovod's numbers."""

_REDUCE = {Sum: 0, Average: 1, Min: 2, Max: 3, Product: 4, Adasum: 5}

Dense: TypeAlias = tf.Tensor
Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
Compressors = type[Compressor]


def reduction(op: int) -> int:
    """The number of a reduction in the C enum."""
    if op not in _REDUCE:
        raise ValueError(f"invalid reduction {op!r}; use hvd.Average, Sum, Adasum, Min, Max or Product")
    return _REDUCE[op]


def on(device: str) -> contextlib.AbstractContextManager[Any]:
    """The user's device, or else TensorFlow's choice."""
    return tf.device(device) if device else contextlib.nullcontext()


def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
    """`op`, or its equivalent of the old argument `average`; Average if neither is given."""
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if average is not None:
        warnings.warn("Parameter `average` has been replaced with `op`", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    return Average if op is None else op


def check_num_rank_power_of_2(num_rank: int) -> bool:
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


# ---- one request, differentiable -------------------------------------------------------------

Forward = Callable[[list[Dense]], list[Dense]]
Backward = Callable[[list[Dense], list[Dense], list[Dense]], list[Dense]]


def _differentiable(forward: Forward, backward: Backward, tensors: list[Dense]) -> list[Dense]:
    """`forward(tensors)`, with gradients `backward(tensors, outputs, upstream)` of the inputs."""
    if tf.executing_eagerly() and not is_recording():
        return forward(tensors)  # custom_gradient costs several times as much as a small request

    @tf.custom_gradient
    def call(*inputs: Dense) -> Any:
        outputs = forward(list(inputs))

        def gradient(*upstream: Dense) -> list[Dense]:
            return backward(list(inputs), outputs, list(upstream))

        return outputs, gradient

    return list(call(*tensors))


def _request(kind: int, tensors: list[Dense], **how: Any) -> list[Dense]:
    needs_init()
    return _tfops.run(kind, tensors, **how)


def _by_type(kind: int, tensors: list[Dense], name: str, **how: Any) -> list[Dense]:
    """One request per type, since a request has tensors of one type; all are started before the first wait."""
    types = list(dict.fromkeys(tensor.dtype for tensor in tensors))
    if len(types) == 1:
        return _request(kind, tensors, name=name, **how)
    needs_init()
    places = [[i for i, tensor in enumerate(tensors) if tensor.dtype == dtype] for dtype in types]
    handles = [
        _tfops.start(kind, [tensors[i] for i in some], name=f"{name}.{dtype.name}", **how)
        for some, dtype in zip(places, types)
    ]
    order = [i for some in places for i in some]
    outputs = _tfops.wait(handles, *_tfops.results(kind, [tensors[i] for i in order]))
    return [output for _, output in sorted(zip(order, outputs), key=lambda pair: pair[0])]


def _tensor(value: Any) -> Dense:
    return tf.convert_to_tensor(value)


# ---- allreduce -------------------------------------------------------------------------------


def _allreduce(
    tensors: list[Dense], op: int, name: str | None, pre: float, post: float, process_set: ProcessSet,
    unscoped: bool, kind: str = "allreduce",
) -> list[Dense]:  # fmt: skip
    how: dict[str, Any] = {"op": reduction(op), "set": process_set.number, "prescale": pre, "postscale": post}

    def forward(inputs: list[Dense]) -> list[Dense]:
        return _by_type(ALLREDUCE, inputs, _names.request(kind, name, inputs[0], how["set"], unscoped), **how)

    def backward(inputs: list[Dense], outputs: list[Dense], upstream: list[Dense]) -> list[Dense]:
        return _allreduce(
            upstream, op, name and f"{name}_grad", pre, post, process_set, unscoped, f"{kind}_grad"
        )

    return _differentiable(forward, backward, tensors)


def _sparse(op: int, prescale: float, postscale: float) -> None:
    if op == Adasum:
        raise NotImplementedError(
            "The Adasum reduction does not support sparse tensors; "
            "pass sparse_as_dense=True to DistributedOptimizer"
        )
    if op not in (Sum, Average):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")
    if prescale != 1.0 or postscale != 1.0:
        raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")


def divided_by_size(tensor: Dense, process_set: ProcessSet) -> Dense:
    """Divides by the size at run time: in an elastic training it may change after tracing."""
    needs_init()
    number = process_set.number
    count = size_op(number) if _basics.is_elastic() else process_set.size()
    return tensor / tf.cast(count, tensor.dtype)


@tf.autograph.experimental.do_not_convert
def allreduce(
    tensor: Any, average: bool | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Compressors = Compression.none, op: int | None = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, name: str | None = None, process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:  # fmt: skip
    """The tensor reduced over all ranks (`op`: Average by default).

    For tf.IndexedSlices, values and indices are gathered, which is equivalent.
    """
    op = handle_average_backwards_compatibility(op, average)
    if is_plain(tensor) and compression is Compression.none and not device_dense:
        number = process_set.number
        how = {"op": reduction(op), "set": number, "prescale": prescale_factor, "postscale": postscale_factor}
        return _request(ALLREDUCE, [tensor], name=_names.request("allreduce", name, tensor, number), **how)[0]
    return _reduced(
        [tensor], device_dense, device_sparse, compression, op, prescale_factor, postscale_factor,
        process_set, ignore_name_scope, name,
    )[0]  # fmt: skip


@tf.autograph.experimental.do_not_convert
def grouped_allreduce(
    tensors: Sequence[Any], average: bool | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Compressors = Compression.none, op: int | None = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False, name: str | None = None,
) -> list[Any]:  # fmt: skip
    """All tensors, reduced together."""
    op = handle_average_backwards_compatibility(op, average)
    return _reduced(
        tensors, device_dense, device_sparse, compression, op, prescale_factor, postscale_factor, process_set,
        ignore_name_scope, name,
    )  # fmt: skip


def _reduced(
    tensors: Sequence[Any], device_dense: str, device_sparse: str, compression: Compressors, op: int,
    pre: float, post: float, process_set: ProcessSet, unscoped: bool, name: str | None,
) -> list[Any]:  # fmt: skip
    results: list[Any] = [None] * len(tensors)
    sparse = [i for i, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
    if sparse:
        _sparse(op, pre, post)
        with on(device_sparse):
            gathered = _gather_slices([tensors[i] for i in sparse], op, name, process_set, unscoped)
        for i, slices in zip(sparse, gathered):
            results[i] = slices
    dense = [i for i in range(len(tensors)) if i not in sparse]
    if dense:
        with on(device_dense):
            small, contexts = zip(*(compression.compress(_tensor(tensors[i])) for i in dense))
            reduced = _allreduce(list(small), op, name, pre, post, process_set, unscoped)
            for i, tensor, context in zip(dense, reduced, contexts):
                results[i] = compression.decompress(tensor, context)
    return results


def _gather_slices(
    slices: list[tf.IndexedSlices], op: int, name: str | None, process_set: ProcessSet, unscoped: bool
) -> list[tf.IndexedSlices]:
    values = grouped_allgather(
        [each.values for each in slices], name and f"{name}_values", unscoped, process_set
    )
    indices = grouped_allgather(
        [each.indices for each in slices], name and f"{name}_indices", unscoped, process_set
    )
    if op == Average:
        values = [divided_by_size(each, process_set) for each in values]
    return [tf.IndexedSlices(v, i, each.dense_shape) for v, i, each in zip(values, indices, slices)]


# ---- allgather, broadcast, alltoall ----------------------------------------------------------


@tf.autograph.experimental.do_not_convert
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Dense:
    """The tensors of all ranks, concatenated; their first dimensions may differ."""
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


@tf.autograph.experimental.do_not_convert
def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Dense]:  # fmt: skip
    """All tensors, gathered together."""
    number = process_set.number

    def forward(inputs: list[Dense]) -> list[Dense]:
        called = _names.request("allgather", name, inputs[0], number, ignore_name_scope)
        return _by_type(ALLGATHER, inputs, called, set=number)

    def backward(inputs: list[Dense], outputs: list[Dense], upstream: list[Dense]) -> list[Dense]:
        reduced = _allreduce(
            upstream, Average, None, 1.0, 1.0, process_set, ignore_name_scope, "allgather_grad"
        )
        rows = allgather(tf.stack([[tf.shape(x)[0] for x in inputs]]), None, ignore_name_scope, process_set)
        rank = process_set.rank()
        first = tf.reduce_sum(rows[:rank], axis=0)
        return [each[first[i] : first[i] + rows[rank, i]] for i, each in enumerate(reduced)]

    return _differentiable(forward, backward, [_tensor(tensor) for tensor in tensors])


@tf.autograph.experimental.do_not_convert
def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Dense:  # fmt: skip
    """The tensor of `root_rank` (the global rank, in a process set too)."""
    return _broadcast([_tensor(tensor)], root_rank, name, ignore_name_scope, process_set)[0]


def _broadcast(
    tensors: list[Dense], root_rank: int, name: str | None, unscoped: bool, process_set: ProcessSet
) -> list[Dense]:
    number = process_set.number

    def forward(inputs: list[Dense]) -> list[Dense]:
        called = _names.request("broadcast", name, inputs[0], number, unscoped)
        return _by_type(BROADCAST, inputs, called, set=number, root=root_rank)

    def backward(inputs: list[Dense], outputs: list[Dense], upstream: list[Dense]) -> list[Dense]:
        reduced = _allreduce(upstream, Average, None, 1.0, 1.0, process_set, unscoped, "broadcast_grad")
        if _basics.rank() == root_rank:
            return reduced
        # zeros of a known shape are a constant: without the dependency a graph of TensorFlow 1 would leave the
        # reduction out, and the root would wait for this rank forever
        with tf.control_dependencies(reduced):
            return [tf.zeros_like(each) for each in upstream]

    return _differentiable(forward, backward, tensors)


@tf.autograph.experimental.do_not_convert
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Dense]:
    """Assigns the values of `root_rank` to the variables, and returns them."""
    values = _broadcast([_tensor(variable) for variable in variables], root_rank, name, False, process_set)
    written = [variable.assign(value) for variable, value in zip(variables, values)]
    with tf.control_dependencies(written if not tf.executing_eagerly() else []):
        return [tf.identity(value) for value in values]


@tf.autograph.experimental.do_not_convert
def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:  # fmt: skip
    """Sends `splits` rows of the tensor to each rank; equal numbers by default.

    Returns the received rows, in the order of ranks; with `splits` also the number of rows from each rank.
    """
    parts = None if splits is None else _tensor(splits)
    output, received = _alltoall(_tensor(tensor), parts, name, ignore_name_scope, process_set)
    return output if splits is None else (output, received)


def _alltoall(
    tensor: Dense, parts: Dense | None, name: str | None, unscoped: bool, process_set: ProcessSet
) -> list[Dense]:
    number = process_set.number

    def forward(inputs: list[Dense]) -> list[Dense]:
        called = _names.request("alltoall", name, inputs[0], number, unscoped)
        return _request(ALLTOALL, inputs, name=called, set=number, splits=parts)

    def backward(inputs: list[Dense], outputs: list[Dense], upstream: list[Dense]) -> list[Dense]:
        return _alltoall(upstream[0], outputs[1], None, unscoped, process_set)[:1]

    return _differentiable(forward, backward, [tensor])


# ---- reducescatter ---------------------------------------------------------------------------


@tf.autograph.experimental.do_not_convert
def reducescatter(
    tensor: Any, device_dense: str = "", compression: Compressors = Compression.none, op: int = Average,
    name: str | None = None, process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Dense:  # fmt: skip
    """This rank's rows of the tensor, reduced over all ranks."""
    with on(device_dense):
        small, context = compression.compress(_tensor(tensor))
        reduced = _reducescatter(
            [small], op, name, ignore_name_scope, process_set, prescale_factor, postscale_factor
        )
        return compression.decompress(reduced[0], context)


@tf.autograph.experimental.do_not_convert
def grouped_reducescatter(
    tensors: Sequence[Any], device_dense: str = "", compression: Compressors = Compression.none,
    op: int = Average, process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Dense]:  # fmt: skip
    """All tensors, reduced and scattered together."""
    if not tensors:
        return list(tensors)
    with on(device_dense):
        small, contexts = zip(*(compression.compress(_tensor(tensor)) for tensor in tensors))
        reduced = _reducescatter(list(small), op, None, False, process_set, prescale_factor, postscale_factor)
        return [compression.decompress(each, context) for each, context in zip(reduced, contexts)]


def _reducescatter(
    tensors: list[Dense],
    op: int,
    name: str | None,
    unscoped: bool,
    process_set: ProcessSet,
    pre: float,
    post: float,
) -> list[Dense]:
    how: dict[str, Any] = {"op": reduction(op), "set": process_set.number, "prescale": pre, "postscale": post}

    def forward(inputs: list[Dense]) -> list[Dense]:
        called = _names.request("reducescatter", name, inputs[0], how["set"], unscoped)
        return _by_type(REDUCESCATTER, inputs, called, **how)

    def backward(inputs: list[Dense], outputs: list[Dense], upstream: list[Dense]) -> list[Dense]:
        factor = pre * post * (process_set.size() or 1 if op == Sum else 1)
        scaled = [each * tf.cast(factor, each.dtype) for each in upstream]
        return grouped_allgather(scaled, None, unscoped, process_set)

    return _differentiable(forward, backward, tensors)


# ---- without a tensor ------------------------------------------------------------------------


@tf.autograph.experimental.do_not_convert
def join() -> Dense:
    """This rank has no more data. Until all have joined, it contributes zeros to the others' allreduces.

    Returns the rank that joined last.
    """
    last = _request(JOIN, [], name="join")[0]
    if tf.executing_eagerly():
        _names.count_anew()
    return last


@tf.autograph.experimental.do_not_convert
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks have called this."""
    number = process_set.number
    name = _names.counted("barrier", number) if tf.executing_eagerly() else f"barrier.{number}"
    _request(BARRIER, [], name=name, set=number)


def rank_op(name: str | None = None) -> Dense:
    """hvd.rank(), evaluated when the graph runs."""
    return tf.identity(_tfops.query(_basics.RANK), name=name)


def local_rank_op(name: str | None = None) -> Dense:
    return tf.identity(_tfops.query(_basics.LOCAL_RANK), name=name)


def local_size_op(name: str | None = None) -> Dense:
    return tf.identity(_tfops.query(_basics.LOCAL_SIZE), name=name)


def _asked_when_run(ask: Callable[[], int], name: str | None) -> Dense:
    if tf.executing_eagerly():
        return tf.constant(ask(), tf.int32, name=name)
    answer = tf.numpy_function(lambda: tf.int32.as_numpy_dtype(ask()), [], tf.int32)
    return tf.identity(tf.ensure_shape(answer, []), name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Dense:
    """hvd.size(), evaluated when the graph runs."""
    if process_set_id == 0:
        return tf.identity(_tfops.query(_basics.SIZE), name=name)
    return _asked_when_run(lambda: _registered(process_set_id).size() or 0, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Dense:
    """1 if this rank is in the set, else 0, evaluated when the graph runs."""
    if process_set_id == 0:
        return tf.identity(tf.ones([], tf.int32), name=name)

    def included() -> int:
        return int(_basics.rank() in (_registered(process_set_id).ranks or []))

    return _asked_when_run(included, name)


def _registered(process_set_id: int) -> ProcessSet:
    each = ProcessSet(members(process_set_id))
    each.process_set_id = process_set_id
    return each
