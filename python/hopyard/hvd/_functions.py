# SPDX-License-Identifier: Apache-2.0
"""Broadcasts variables and objects, and gathers objects."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from . import _group, _names
from ._buckets import Entry, same_everywhere
from ._ops import _broadcast, on
from ._sets import ProcessSet, global_process_set, needs_init
from ._tf import title

__all__ = [
    "BroadcastGlobalVariablesHook", "allgather_object", "broadcast_global_variables", "broadcast_object",
    "broadcast_object_fn", "broadcast_variables",
]  # fmt: skip


@tf.autograph.experimental.do_not_convert
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Assigns the values of `root_rank` to the variables; in a graph: returns the op that does so.

    `inplace` is Horovod's way to spare memory; here one variable after the other is written anyway.
    """
    needs_init()
    variables = list(variables)
    if not variables:
        return None if tf.executing_eagerly() else tf.no_op()
    values = [tf.convert_to_tensor(variable) for variable in variables]
    if tf.executing_eagerly():
        _same_variables(variables, values, process_set)
    written = [
        variable.assign(value)
        for variable, value in zip(variables, _broadcast(values, root_rank, None, False, process_set))
    ]
    return None if tf.executing_eagerly() else tf.group(*written)


def _same_variables(variables: list[Any], values: list[tf.Tensor], process_set: ProcessSet) -> None:
    """Raises an error that names the difference if a rank has a different model."""
    texts = [Entry.of(value, "").text for value in values]
    rows = [(title(variable, i), text, text) for i, (variable, text) in enumerate(zip(variables, texts))]
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()
    same_everywhere(_names.counted("variables", process_set.number), digest, rows, process_set, "variable")


def broadcast_global_variables(root_rank: int) -> Any:
    """The op that assigns the values of `root_rank` to all variables of a TensorFlow 1 graph."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. "
            "Please use `hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Broadcasts global variables at the start of a TensorFlow 1 session."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        if self.bcast_op is None or self.bcast_op.graph != tf.compat.v1.get_default_graph():
            with on(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.bcast_op)


# ---- objects: without TensorFlow, so that no session is needed -----------------------------------


def broadcast_object(
    obj: Any, root_rank: int = 0, session: Any = None, name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:  # fmt: skip
    """The object of `root_rank`, pickled by cloudpickle."""
    needs_init()
    number = process_set.number
    called = f"broadcast_object.{name}" if name else _names.counted("broadcast_object", number)
    return _group.broadcast_object(obj, root_rank, called, number)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """broadcast_object as a function of the object only."""

    def broadcast(obj: Any) -> Any:
        return broadcast_object(obj, root_rank, session, name, process_set)

    return broadcast


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in order."""
    needs_init()
    number = process_set.number
    called = f"allgather_object.{name}" if name else _names.counted("allgather_object", number)
    return _group.gather_objects(obj, called, number)
