# SPDX-License-Identifier: Apache-2.0
"""Gathers and broadcasts bytes and objects, without TensorFlow."""

from typing import Any

import cloudpickle
import numpy as np

from .. import _hopyard

ALLGATHER, BROADCAST = 1, 2
UINT8, INT64 = 0, 7


def _start(kind: int, name: str, array: np.ndarray, out: np.ndarray | None, number: int, root: int) -> object:
    type_ = {np.dtype(np.uint8): UINT8, np.dtype(np.int64): INT64}[array.dtype]
    outs = None if out is None else [out]
    return _hopyard.group_start(
        kind, name, type_, 0, number, root, 1.0, 1.0, [array], outs, [array.shape], None
    )


def _gathered(array: np.ndarray, name: str, number: int) -> np.ndarray:
    [(shape, data)] = _hopyard.group_wait(_start(ALLGATHER, name, array, None, number, 0))[1]
    return np.frombuffer(data, array.dtype).reshape(shape)


def _broadcast(array: np.ndarray, root: int, name: str, number: int) -> np.ndarray:
    out = np.empty_like(array)
    _hopyard.group_wait(_start(BROADCAST, name, array, out, number, root))
    return out


def gather(data: bytes, name: str, number: int) -> list[bytes]:
    """The bytes of every member of process set `number`, in order."""
    lengths = _gathered(np.array([len(data)], np.int64), f"{name}.length", number)
    everything = _gathered(np.frombuffer(data, np.uint8), name, number).tobytes()
    ends = np.cumsum(lengths)
    return [everything[end - length : end] for end, length in zip(ends, lengths)]


def broadcast(data: bytes, root: int, name: str, number: int) -> bytes:
    """The bytes of rank `root`; those of the others are ignored."""
    length = int(_broadcast(np.array([len(data)], np.int64), root, f"{name}.length", number)[0])
    mine = np.frombuffer(data, np.uint8) if _hopyard.group_query(0) == root else np.zeros(length, np.uint8)
    return _broadcast(mine, root, name, number).tobytes()


def gather_objects(value: Any, name: str, number: int) -> list[Any]:
    return [cloudpickle.loads(each) for each in gather(cloudpickle.dumps(value), name, number)]


def broadcast_object(value: Any, root: int, name: str, number: int) -> Any:
    if _hopyard.group_query(0) == root:
        broadcast(cloudpickle.dumps(value), root, name, number)
        return value
    return cloudpickle.loads(broadcast(b"", root, name, number))
