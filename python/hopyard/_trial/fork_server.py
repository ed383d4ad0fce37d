# SPDX-License-Identifier: Apache-2.0
"""The process that trials are forked from: it imports what they need, and does nothing else.

After a single TensorFlow operation here, most operations would hang in the trials: the threads that work
for it do not come along. So nothing is unpickled or called, and it is checked rather than hoped that no
module has done so when it was imported. The forking is C: src/python/warm.c.
"""

import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterable

from .. import _hopyard
from .runner import Bundle, read_bundle, set_path

COLD = "so trials cannot be forked from it and each starts a fresh interpreter"

# ---- is it safe? ---------------------------------------------------------------------


def _has_run_an_op() -> bool:
    """The first operation makes TensorFlow's eager context. (Where a later TensorFlow hides it, threads tell.)"""
    module = sys.modules.get("tensorflow.python.eager.context")
    return bool(getattr(getattr(module, "_context", None), "_initialized", False))


def _has_opened_a_gpu() -> bool:
    """CUDA answers "not initialized" in the children of a process that has used it, and they cannot help it."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # that of listdir itself
            continue
        if target.startswith(("/dev/nvidia", "/dev/kfd")):
            return True
    return False


def _thread_names() -> str:
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return f" ({', '.join(names)})" if names else ""


def _unsafe(name: str) -> str | None:
    """Why not, after this module was imported; None: it is."""
    if _has_run_an_op():
        return f"importing {name} has run a TensorFlow operation, {COLD}; move the operation into the function"
    if _has_opened_a_gpu():
        return f"importing {name} has opened a GPU, {COLD}; move what uses the GPU into the function"
    threads = _hopyard.settle() - 1
    if threads:
        left = "a thread" if threads == 1 else f"{threads} threads"
        return f"importing {name} has left {left} running{_thread_names()}, {COLD}; start it in the function"
    return None


def _preload(names: Iterable[str]) -> str | None:
    """Why trials cannot be forked from this; None: they can."""
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # if it matters, the trial will say it
            reason = f"{type(error).__name__}: {error}"
            print(f"hopyard: cannot import {name} ahead of the trials: {reason}", file=sys.stderr)
        why = _unsafe(name)
        if why:
            return why
    return None


# What TensorFlow does when it is first asked, and then never again: the list of operations is written out
# for one that it does not know (an XLA or a function's name), kernels are registered for its compiler. Once
# here is not once in each trial: 12 ms of the 56 that a fork with one operation takes. No operation is run.
REGISTRIES = (
    ("tensorflow.python.framework.op_def_registry", "get", ("hopyard",)),
    ("tensorflow.python.util.pywrap_xla_ops", "get_cpu_kernel_names", ()),
)


def _open_registries() -> None:
    if "tensorflow" not in sys.modules:
        return
    for module, name, arguments in REGISTRIES:
        try:
            getattr(importlib.import_module(module), name)(*arguments)
        except (ImportError, AttributeError) as error:  # they are none of its public names
            print(f"hopyard: TensorFlow's registries are opened by each trial anew: {error}", file=sys.stderr)


# ---- the server and its trials ---------------------------------------------------------


def _become_a_trial(words: Iterable[bytes], began_with: dict[bytes, bytes]) -> None:
    """Takes its environment; what a module has set when it was imported stays, as it would in a fresh process.

    The run may be another one than that which this process was started for, with other variables.
    """
    names = set()
    for word in words:
        name, _, value = word.partition(b"=")
        names.add(name)
        if began_with.get(name) != value:
            os.environb[name] = value
    for name in began_with.keys() - names:
        os.environb.pop(name, None)
    if b"GLIBC_TUNABLES" not in names:  # those are the agent's, for this process alone
        os.environb.pop(b"GLIBC_TUNABLES", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    del sys.argv[1:]


def _function() -> tuple[int, int, int]:
    """Which function this is: the next run has another one, of which the server knows nothing."""
    about = os.stat(os.environ["HOPYARD_FUNCTION"])
    return about.st_ino, about.st_ctime_ns, about.st_size


def serve() -> Bundle | None:
    """Returns in every trial, and None in the server when the agent does not need it any more."""
    socket = int(os.environ.pop("HOPYARD_SERVER"))
    began_with = dict(os.environb)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bundle, function = read_bundle(), _function()
    set_path(bundle)
    gc.disable()  # imports make objects that stay: to look for garbage in them takes a fifth of the time
    why = _preload(["cloudpickle", *bundle.preload])
    if why:
        os.write(socket, f"refuse {why}\n".encode())
        return None
    _open_registries()
    gc.enable()
    gc.freeze()  # so that a collection in a trial does not write to, and thereby copy, what is here
    sys.stdout.flush()
    sys.stderr.flush()
    words = _hopyard.serve(socket)
    if words is None:
        return None
    _become_a_trial(words, began_with)
    return bundle if _function() == function else read_bundle()
