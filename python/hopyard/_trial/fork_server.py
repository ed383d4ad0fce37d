# SPDX-License-Identifier: Apache-2.0
"""The fork server: imports the modules that trials need, and forks them.

After a single TensorFlow operation here, most operations would hang in the trials, because fork() does not copy
TensorFlow's threads. So nothing is unpickled or called here, and after each import it is checked that the module has
not run an operation. The forking is in C: src/python/fork_server.c.
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

COLD = "so trials cannot be forked and each starts a fresh interpreter"

# ---- is forking safe? ---------------------------------------------------------------------


def _has_run_an_op() -> bool:
    """The first operation creates TensorFlow's eager context. (If a later TensorFlow hides it, its threads show.)"""
    module = sys.modules.get("tensorflow.python.eager.context")
    return bool(getattr(getattr(module, "_context", None), "_initialized", False))


def _has_opened_a_gpu() -> bool:
    """CUDA fails with "not initialized" in the children of a process that has used it."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the descriptor of listdir itself
            continue
        if target.startswith(("/dev/nvidia", "/dev/kfd")):
            return True
    return False


def _thread_names() -> str:
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return f" ({', '.join(names)})" if names else ""


def _unsafe(name: str) -> str | None:
    """Why forking is unsafe after this module was imported; None if it is safe."""
    if _has_run_an_op():
        return f"importing {name} has run a TensorFlow operation, {COLD}; move the operation into the function"
    if _has_opened_a_gpu():
        return f"importing {name} has opened a GPU, {COLD}; move the code that uses the GPU into the function"
    threads = _hopyard.settle() - 1
    if threads:
        left = "a thread" if threads == 1 else f"{threads} threads"
        return f"importing {name} has left {left} running{_thread_names()}, {COLD}; start it in the function"
    return None


def _preload(names: Iterable[str]) -> str | None:
    """Why trials cannot be forked from this process; None if they can."""
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # if it matters, the trial reports it
            text = f"{type(error).__name__}: {error}"
            print(f"hopyard: cannot import {name} ahead of the trials: {text}", file=sys.stderr)
        reason = _unsafe(name)
        if reason:
            return reason
    return None


# One-time work of TensorFlow: the list of operations is written out at the first lookup of an unknown name (XLA's, or a
# function's), and kernels are registered for its compiler. Doing it here saves each trial 12 ms of the 56 ms that a
# fork with one operation takes. No operation is run.
REGISTRIES = (
    ("tensorflow.python.framework.op_def_registry", "get", ("hopyard",)),
    ("tensorflow.python.util.pywrap_xla_ops", "get_cpu_kernel_names", ()),
)


def _fill_registries() -> None:
    if "tensorflow" not in sys.modules:
        return
    for module, name, arguments in REGISTRIES:
        try:
            getattr(importlib.import_module(module), name)(*arguments)
        except (ImportError, AttributeError) as error:  # they are not public names
            print(f"hopyard: each trial fills TensorFlow's registries itself: {error}", file=sys.stderr)


# ---- the server and its trials ---------------------------------------------------------


def _become_a_trial(variables: Iterable[bytes], initial: dict[bytes, bytes]) -> None:
    """Applies the trial's environment. Variables that a module has set during import stay, as in a fresh process.

    The trial may belong to a later run than the one this process was started for, with other variables.
    """
    names = set()
    for variable in variables:
        name, _, value = variable.partition(b"=")
        names.add(name)
        if initial.get(name) != value:
            os.environb[name] = value
    for name in initial.keys() - names:
        os.environb.pop(name, None)
    if b"GLIBC_TUNABLES" not in names:  # set by the agent for this process only
        os.environb.pop(b"GLIBC_TUNABLES", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    del sys.argv[1:]


def _bundle_id() -> tuple[int, int, int]:
    """Identifies the bundle file: a later run has another one, which this process has not read."""
    about = os.stat(os.environ["HOPYARD_FUNCTION"])
    return about.st_ino, about.st_ctime_ns, about.st_size


def serve() -> Bundle | None:
    """Returns a bundle in every trial, and None in the server when the agent no longer needs it."""
    socket = int(os.environ.pop("HOPYARD_SERVER"))
    initial = dict(os.environb)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bundle, bundle_id = read_bundle(), _bundle_id()
    set_path(bundle)
    gc.disable()  # imported objects stay alive: collecting garbage takes a fifth of the import time
    reason = _preload(["cloudpickle", *bundle.preload])
    if reason:
        os.write(socket, f"refuse {reason}\n".encode())
        return None
    _fill_registries()
    gc.enable()
    gc.freeze()  # a collection in a trial would write to these objects, and so copy their pages
    sys.stdout.flush()
    sys.stderr.flush()
    variables = _hopyard.serve(socket)
    if variables is None:
        return None
    _become_a_trial(variables, initial)
    return bundle if _bundle_id() == bundle_id else read_bundle()
