# SPDX-License-Identifier: Apache-2.0
"""What a request is called: on all ranks the same, or they never meet.

In a graph the name comes from the graph's own names, which depend on nothing but what is in it: ranks
may trace at different times, and one may trace again. Eagerly it is counted, per kind and process set,
from the moment the group began.
"""

import re
import weakref
from collections import Counter

import tensorflow as tf

from ._sets import generation

NAMES = 32
"""Counted names come again: TensorFlow keeps a kernel for each one it has seen."""

_counted: Counter[tuple[int, str, int]] = Counter()


def counted(kind: str, number: int) -> str:
    """The next name of a kind in process set `number`; who is new in a group has counted nothing yet."""
    key = (generation(), kind, number)
    _counted[key] += 1
    return f"{kind}.{_counted[key] % NAMES}"


def count_anew() -> None:
    """After a join: some ranks have asked more often than others."""
    _counted.clear()


def request(
    kind: str, name: str | None, tensor: tf.Tensor, number: int, ignore_name_scope: bool = False
) -> str:
    """The name of one request, as the user gave it or made up."""
    if tf.executing_eagerly():
        return f"{kind}.{name}" if name else counted(kind, number)
    name = re.sub("[^a-zA-Z0-9_./-]", "_", name or str(getattr(tensor, "name", "tensor")))
    if ignore_name_scope:
        return f"{kind}.{name}"
    return f"{kind}.{tf.compat.v1.get_default_graph().unique_name(name)}"


_in_graphs: weakref.WeakKeyDictionary[tf.Graph, Counter[str]] = weakref.WeakKeyDictionary()


def in_graph(name: str) -> str:
    """A name that says all by itself, but may come several times in one graph, where two may run at once."""
    if tf.executing_eagerly():
        return name
    times = _in_graphs.setdefault(tf.compat.v1.get_default_graph(), Counter())
    times[name] += 1
    return name if times[name] == 1 else f"{name}.again{times[name] - 1}"
