# SPDX-License-Identifier: Apache-2.0
"""Collective operations on NumPy arrays: hvd's functions without TensorFlow.

    import hopyard.collective as hvd

    hvd.init()
    mean = hvd.allreduce(numpy.array([1.0, 2.0]) * hvd.rank())

started by `hopyard train -np 4 python program.py`. Each function has an asynchronous form, for example
`allreduce_async`, which returns a handle for `synchronize`. A request without a name is identified by its kind and a
counter: then all ranks must make the same calls in the same order.
"""

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import _hopyard
from .hvd._basics import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)  # fmt: skip
from .hvd._sets import ProcessSet, add_process_set, generation, global_process_set, needs_init, remove_process_set

__all__ = [
    "Adasum", "Average", "Handle", "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set", "allgather",
    "allgather_async", "allreduce", "allreduce_async", "alltoall", "alltoall_async", "barrier", "broadcast",
    "broadcast_async", "cross_rank", "cross_size", "global_process_set", "grouped_allgather", "grouped_allreduce",
    "grouped_allreduce_async", "grouped_reducescatter", "init", "is_homogeneous", "is_initialized", "join",
    "local_rank", "local_size", "poll", "rank", "reducescatter", "reducescatter_async", "remove_process_set",
    "shutdown", "size", "start_timeline", "stop_timeline", "synchronize",
]  # fmt: skip

Sum, Average, Min, Max, Product, Adasum = range(6)

_KINDS = {name: number for number, name in enumerate(
    ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "join"))}  # fmt: skip
_TYPES = {name: number for number, name in enumerate(
    ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
     "float64", "bool"))}  # fmt: skip


class Handle:
    """A pending request; `synchronize(handle)` waits for it and returns its result."""

    def __init__(self, ticket: object, result: Callable[[int, list[Any]], Any]) -> None:
        self._ticket = ticket
        self._result = result

    def done(self) -> bool:
        return _hopyard.group_poll(self._ticket)

    def wait(self) -> Any:
        return self._result(*_hopyard.group_wait(self._ticket))


class _Names:
    """The next name of a kind and process set; counting restarts with each group, since new ranks start at 0."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = -1
        self._counters: defaultdict[tuple[str, int], Iterator[int]] = defaultdict(itertools.count)

    def next(self, kind: str, number: int) -> str:
        with self._lock:
            if self._generation != generation():
                self._generation = generation()
                self._counters.clear()
            return f"numpy.{kind}.{next(self._counters[kind, number])}"

    def restart(self) -> None:
        with self._lock:
            self._counters.clear()


_names = _Names()


def _type_of(arrays: Sequence[np.ndarray]) -> int:
    kinds = {array.dtype.name for array in arrays}
    if len(kinds) > 1:
        raise ValueError(f"grouped arrays must have one type, not {', '.join(sorted(kinds))}")
    [name] = kinds or {"uint8"}
    if name not in _TYPES:
        raise ValueError(f"arrays of {name} are not supported (supported types: {', '.join(_TYPES)})")
    return _TYPES[name]


def _bytes(array: np.ndarray) -> np.ndarray:
    """As the extension expects it: bfloat16 and empty arrays do not export a buffer."""
    return array.reshape(-1).view(np.uint8)


def _start(
    kind: str, arrays: Sequence[Any], name: str | None, result: Callable[[int, list[Any]], Any], *, op: int = Sum,
    root: int = 0, prescale: float = 1.0, postscale: float = 1.0, outs: Sequence[np.ndarray] | None = None,
    splits: Sequence[int] | None = None, process_set: ProcessSet = global_process_set,
) -> Handle:  # fmt: skip
    needs_init()
    ticket = _hopyard.group_start(
        _KINDS[kind], name or _names.next(kind, process_set.number), _type_of(arrays), op, process_set.number, root,
        prescale, postscale,
        [_bytes(array) for array in arrays], None if outs is None else [_bytes(out) for out in outs],
        [array.shape for array in arrays], splits,
    )  # fmt: skip
    return Handle(ticket, result)


def _given(arrays: Sequence[Any]) -> list[np.ndarray]:
    given = [np.asarray(array, order="C") for array in arrays]
    return [array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")) for array in given]


def _taken(arrays: Sequence[np.ndarray]) -> Callable[[int, list[Any]], list[np.ndarray]]:
    """Results whose size was not known before."""
    return lambda _, outputs: [
        np.frombuffer(data, array.dtype).reshape(shape) for array, (shape, data) in zip(arrays, outputs)
    ]


def synchronize(handle: Handle) -> Any:
    """Waits for a request, and returns its result."""
    return handle.wait()


def poll(handle: Handle) -> bool:
    """Whether the request is done."""
    return handle.done()


def grouped_allreduce_async(
    arrays: Sequence[Any], name: str | None = None, op: int = Average, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> Handle:  # fmt: skip
    given = _given(arrays)
    outs = [np.empty_like(array) for array in given]
    return _start("allreduce", given, name, lambda *_: outs, op=op, prescale=prescale_factor,
                  postscale=postscale_factor, outs=outs, process_set=process_set)  # fmt: skip


def grouped_allreduce(arrays: Sequence[Any], *args: Any, **kwargs: Any) -> list[np.ndarray]:
    """Several arrays of one type, in one request."""
    return synchronize(grouped_allreduce_async(arrays, *args, **kwargs))


def allreduce_async(array: Any, *args: Any, **kwargs: Any) -> Handle:
    return _only(grouped_allreduce_async([array], *args, **kwargs))


def allreduce(array: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """Average (the default), Sum, Min, Max, Product or Adasum over all ranks.

    Arguments: name, op, prescale_factor, postscale_factor, process_set.
    """
    return synchronize(allreduce_async(array, *args, **kwargs))


def _only(handle: Handle) -> Handle:
    """The single result of a grouped request."""
    of_all = handle._result
    handle._result = lambda result, outputs: of_all(result, outputs)[0]
    return handle


def _grouped_allgather_async(
    arrays: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    given = _given(arrays)
    return _start("allgather", given, name, _taken(given), process_set=process_set)


def grouped_allgather(arrays: Sequence[Any], *args: Any, **kwargs: Any) -> list[np.ndarray]:
    return synchronize(_grouped_allgather_async(arrays, *args, **kwargs))


def allgather_async(array: Any, *args: Any, **kwargs: Any) -> Handle:
    return _only(_grouped_allgather_async([array], *args, **kwargs))


def allgather(array: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """The rows of all ranks, concatenated; their numbers may differ. Arguments: name, process_set."""
    return synchronize(allgather_async(array, *args, **kwargs))


def broadcast_async(
    array: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    [given] = _given([array])
    out = np.empty_like(given)
    return _start("broadcast", [given], name, lambda *_: out, root=root_rank, outs=[out], process_set=process_set)


def broadcast(array: Any, root_rank: int, *args: Any, **kwargs: Any) -> np.ndarray:
    """The array of rank `root_rank`, on all ranks. Arguments: name, process_set."""
    return synchronize(broadcast_async(array, root_rank, *args, **kwargs))


def alltoall_async(
    array: Any, splits: Sequence[int] | None = None, name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:  # fmt: skip
    given = _given([array])

    def result(_: int, outputs: list[Any]) -> Any:
        [rows] = _taken(given)(0, outputs[:1])
        return rows if splits is None else (rows, np.frombuffer(outputs[1][1], np.int32))

    return _start("alltoall", given, name, result, process_set=process_set,
                  splits=None if splits is None else [int(each) for each in splits])  # fmt: skip


def alltoall(array: Any, *args: Any, **kwargs: Any) -> Any:
    """Sends `splits` rows to each rank (default: equal numbers); returns the received rows.

    With splits: those, and how many came from each rank. Arguments: splits, name, process_set.
    """
    return synchronize(alltoall_async(array, *args, **kwargs))


def _grouped_reducescatter_async(
    arrays: Sequence[Any], name: str | None = None, op: int = Average, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> Handle:  # fmt: skip
    given = _given(arrays)
    return _start("reducescatter", given, name, _taken(given), op=op, prescale=prescale_factor,
                  postscale=postscale_factor, process_set=process_set)  # fmt: skip


def grouped_reducescatter(arrays: Sequence[Any], *args: Any, **kwargs: Any) -> list[np.ndarray]:
    return synchronize(_grouped_reducescatter_async(arrays, *args, **kwargs))


def reducescatter_async(array: Any, *args: Any, **kwargs: Any) -> Handle:
    return _only(_grouped_reducescatter_async([array], *args, **kwargs))


def reducescatter(array: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """This rank's share of the rows of the reduction. Arguments as for allreduce."""
    return synchronize(reducescatter_async(array, *args, **kwargs))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until all ranks have called this."""
    synchronize(_start("barrier", [], None, lambda *_: None, process_set=process_set))


def join() -> int:
    """Contributes zeros to the other ranks' allreduces until all ranks have joined; returns the last one that did."""
    last = synchronize(_start("join", [], "join", lambda last, _: last))
    _names.restart()  # ranks have called different numbers of operations
    return last
