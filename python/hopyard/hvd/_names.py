# SPDX-License-Identifier: Apache-2.0
"""Names of requests, which must be the same on all ranks.

In a graph the name is derived from the graph's names, which depend only on its contents: ranks may trace at different
times, and may retrace. Eagerly it is a counter per kind and process set, which starts with the group.
"""

import re
import weakref
from collections import Counter

import tensorflow as tf

from ._sets import generation

NAMES = 32
"""Counted names are reused, because TensorFlow keeps a kernel for each name."""

_counted: Counter[tuple[int, str, int]] = Counter()


def counted(kind: str, number: int) -> str:
    """The next name of a kind in process set `number`; new ranks of a group start at 0."""
    key = (generation(), kind, number)
    _counted[key] += 1
    return f"{kind}.{_counted[key] % NAMES}"


def count_anew() -> None:
    """Restarts after a join, because ranks have made different numbers of requests."""
    _counted.clear()


def request(
    kind: str, name: str | None, tensor: tf.Tensor, number: int, ignore_name_scope: bool = False
) -> str:
    """The name of a request, given by the user or generated."""
    if tf.executing_eagerly():
        return f"{kind}.{name}" if name else counted(kind, number)
    name = re.sub("[^a-zA-Z0-9_./-]", "_", name or str(getattr(tensor, "name", "tensor")))
    if ignore_name_scope:
        return f"{kind}.{name}"
    return f"{kind}.{tf.compat.v1.get_default_graph().unique_name(name)}"


_in_graphs: weakref.WeakKeyDictionary[tf.Graph, Counter[str]] = weakref.WeakKeyDictionary()


def in_graph(name: str) -> str:
    """A descriptive name, made unique because it may occur several times in one graph and run concurrently."""
    if tf.executing_eagerly():
        return name
    times = _in_graphs.setdefault(tf.compat.v1.get_default_graph(), Counter())
    times[name] += 1
    return name if times[name] == 1 else f"{name}.again{times[name] - 1}"
