# SPDX-License-Identifier: Apache-2.0
"""Collectives on TensorFlow's tensors: the ops of src/tensorflow, eagerly, in a tf.function and in a v1 graph.

`start` submits tensors to the group and returns a handle at once, `wait` returns the results of many handles. Numbers
of kinds, reductions and queries are those of the C enums.

- Within a tf.function TensorFlow keeps the order of starts and waits. So start tensors in the order in which they
  become available, and wait once, after all starts: then nothing blocks. A v1 graph orders only ops that depend on each
  other: there a wait polls, and other ops run in between.
- Wait for a handle once, in the step that started it. A handle that is dropped is released.
- A name is part of its node: eagerly, TensorFlow keeps a kernel for each name. Use few names.
"""

import ctypes
import os
import re
import struct
import sys
from collections.abc import Sequence
from typing import Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, core
from tensorflow.python.framework import op_def_library, op_def_registry, ops
from tensorflow.python.ops import control_flow_util

import tensorflow as tf

from .. import _hopyard
from .._base.errors import Error

ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, BARRIER, JOIN = range(7)
LIBRARY = "hopyard_ops.so"
XLA = "hopyard's collectives cannot be compiled by XLA: pass jit_compile=False to compile() (or to tf.function)"
_execute = pywrap_tfe.TFE_Py_FastPathExecute
_is_attached = False


def ensure_loaded() -> None:
    """Loads the ops into TensorFlow if necessary, and connects them to the group of this process."""
    global _is_attached
    if op_def_registry.get("HopyardStart") is None:
        _load(_find())
    _hopyard.attach_tensorflow(library())
    _is_attached = True


def library() -> str:
    """The file that TensorFlow has loaded: there may be several, in several site-packages."""
    with open("/proc/self/maps", errors="surrogateescape") as maps:
        mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if LIBRARY in line}
    paths = {path for path in mapped if path.endswith(f"/{LIBRARY}")}
    if not paths and f"/memfd:{LIBRARY} (deleted)" in mapped:
        return _find()  # a link to it, on an executor whose directories are noexec
    if not paths:
        raise Error(f"TensorFlow has not loaded {LIBRARY}; is hopyard installed completely?")
    return min(paths)


def _find() -> str:
    """Looks where TensorFlow does not: beside the package, in directories of sys.path, in a build directory."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    directories = [os.path.join(path, "tensorflow-plugins") for path in (os.path.dirname(package), *sys.path)]
    directories.append(os.path.join(os.path.dirname(_hopyard.__file__), "..", "tensorflow"))  # pip install --editable
    for directory in directories:
        path = os.path.join(directory, LIBRARY)
        if os.path.exists(path):
            return path
    raise Error(f"tensorflow-plugins/{LIBRARY} is neither beside {package} nor in sys.path; reinstall hopyard")


def _load(path: str) -> None:
    tf.load_op_library(path)
    if op_def_registry.get("HopyardStart") is None:
        trouble = ctypes.CDLL(path).hy_tensorflow_trouble
        trouble.restype = ctypes.c_char_p
        raise Error((trouble() or b"TensorFlow did not register hopyard's ops").decode())


def start(kind: int, tensors: Sequence[Any], *, name: str, op: int = 0, set: int = 0, root: int = 0,
          prescale: float = 1.0, postscale: float = 1.0, splits: Any = None,
          waits_next: bool = False) -> tf.Tensor:  # fmt: skip
    """Submits tensors of one type to the group; returns a handle, an int64 scalar.

    `waits_next`: the wait for it follows immediately, and makes progress itself if it can, which saves a thread switch.
    """
    attrs: tuple[Any, ...] = (
        "kind",
        kind,
        "tensor_name",
        name,
        "reduce",
        op,
        "set",
        set,
        "root",
        root,
        "waits_next",
        int(waits_next),
    )
    more = [] if splits is None else [tf.cast(splits, tf.int64)]
    is_eager = context.executing_eagerly()
    if not is_eager or prescale != 1.0 or postscale != 1.0:  # a graph has no defaults
        attrs += ("prescale", _bits(prescale), "postscale", _bits(postscale))
    if is_eager:
        return _eagerly("HopyardStart", attrs, tensors, more)
    return _node("HopyardStart", name, attrs, tensors=list(tensors), splits=more).outputs[0]


def wait(handles: Sequence[tf.Tensor], dtypes: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
    """The results of all handles, in order; `results` returns their dtypes and shapes.

    Waits for all, even if one has failed. A barrier has no result: in a v1 graph it is the operation.
    """
    if context.executing_eagerly():
        return _eagerly("HopyardWait", ("Tout", dtypes), handles) or []
    with tf.control_dependencies(_polled(handles)):
        made = _node("HopyardWait", None, ("Tout", list(dtypes)), handles=list(handles))
    for output, shape in zip(made.outputs, shapes, strict=True):
        output.set_shape(shape)
    return list(made.outputs) or ([] if made.graph.building_function else [made])


def _polled(handles: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The control dependency of a wait in a TensorFlow 1 graph: a loop that ends when all handles are done.

    Ops run in any order there, different on each rank, and on few threads. A wait that blocked a thread could keep a
    start from running that another rank waits for.
    """
    if tf.compat.v1.executing_eagerly_outside_functions() or not handles:
        return []

    def poll(_: tf.Tensor) -> tf.Tensor:
        return _node("HopyardPoll", None, (), handles=list(handles)).outputs[0]

    return [tf.while_loop(tf.logical_not, poll, [tf.constant(False)], parallel_iterations=1)[0]]


def run(kind: int, tensors: Sequence[Any], **how: Any) -> list[Any]:
    """Starts and waits; has the parameters of `start`."""
    if context.executing_eagerly():  # without shapes, which cost more than everything else here
        tensors = [t if type(t) is ops.EagerTensor else tf.convert_to_tensor(t) for t in tensors]
        return wait([start(kind, tensors, waits_next=True, **how)], _result_types(kind, tensors), ())
    tensors = [tf.convert_to_tensor(t) for t in tensors]
    return wait([start(kind, tensors, waits_next=True, **how)], *results(kind, tensors))


def query(what: int) -> tf.Tensor:
    """Rank, size ... of the group at the time it runs: an int32 scalar."""
    if context.executing_eagerly():
        return _eagerly("HopyardQuery", ("what", what))
    return _node("HopyardQuery", None, ("what", what)).outputs[0]


_public: Any
for _public in (start, wait, run, query):
    _public.autograph_info__ = {}  # like do_not_convert, whose wrapper costs 3 us per call


def results(kind: int, tensors: Sequence[tf.Tensor]) -> tuple[list[Any], list[Any]]:
    """Dtypes and static shapes of the results of a collective of these tensors, for `wait`.

    One per tensor; additionally the received splits of an alltoall, or the last rank that joined (both int32).
    """
    if kind in (ALLREDUCE, BROADCAST):
        shapes = [t.shape for t in tensors]
    else:
        shapes = [t.shape[:0].concatenate([None]).concatenate(t.shape[1:]) for t in tensors]
    if kind == ALLTOALL:
        shapes.append(tf.TensorShape([None]))
    elif kind == JOIN:
        shapes.append(tf.TensorShape([]))
    return _result_types(kind, tensors), shapes


def _result_types(kind: int, tensors: Sequence[tf.Tensor]) -> list[Any]:
    return [t.dtype for t in tensors] + ([tf.int32] if kind in (ALLTOALL, JOIN) else [])


def _bits(number: float) -> int:
    """Attributes of TensorFlow are float32 at most, so a double is passed as the integer with its bits."""
    return struct.unpack("q", struct.pack("d", number))[0]


def _eagerly(op: str, attrs: Sequence[Any], *inputs: Any) -> Any:
    if not _is_attached:
        ensure_loaded()
    ctx = context.context()
    try:
        try:
            return _execute(ctx, op, None, *inputs, *attrs)
        except core._FallbackException:  # inputs that are not tensors yet, or TensorFlow's first op
            ctx.ensure_initialized()
            return _execute(ctx, op, None, *[[tf.convert_to_tensor(t) for t in i] for i in inputs], *attrs)
    except core._NotOkStatusException as e:
        ops.raise_from_not_ok_status(e, None)


def _node(op: str, name: str | None, attrs: Sequence[Any], **inputs: Any) -> tf.Operation:
    if control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph()):
        raise Error(XLA)
    if not _is_attached:
        ensure_loaded()
    node = re.sub(r"[^\w.\-/]", "_", name, flags=re.ASCII).lstrip("_-/") if name else None
    return op_def_library._apply_op_helper(op, name=node or op, **inputs, **dict(zip(attrs[::2], attrs[1::2])))[2]
