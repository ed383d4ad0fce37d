# SPDX-License-Identifier: Apache-2.0
"""Calls a user's function: reads the bundle, calls it, writes its result. The same in a fresh interpreter and in a
fork.

The return value is written to $HOPYARD_RESULT. An exception is printed to stderr, as Python would print it, and
reported to the agent: one line for the table, and the traceback.
"""

import atexit
import contextlib
import errno
import io
import json
import linecache
import os
import pickle
import platform
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from .. import _hopyard
from .._base.metrics import describe
from .._code import package_aliases as _package_aliases
from . import import_hooks as _import_hooks
from .outcome import Expected, Outcome, Refusal, of, of_rank
from .report import is_trial

ERROR_MAX = 300
DETAIL_MAX = 64 * 1024
REMARK_MAX = 600


# ---- the bundle ------------------------------------------------------------------------


@dataclass(frozen=True)
class Bundle:
    """A bundled function, as `hopyard._code.bundle` writes it."""

    name: str
    path: list[str]
    preload: list[str]
    compat: bool
    metric: str | None
    optional: bool
    sources: dict[str, str]
    ranks: bool
    stated: bool
    launch: bool
    pickled: memoryview

    @property
    def expected(self) -> Expected:
        return Expected(self.name, self.metric, self.optional, self.stated, self.launch)


def read_bundle() -> Bundle:
    """Reads the bundle without unpickling the function."""
    path = os.environ.get("HOPYARD_FUNCTION", "$HOPYARD_FUNCTION")
    try:
        with open(path, "rb") as file:
            head, pickled = json.loads(file.readline()), memoryview(file.read())
    except OSError as error:
        sys.exit(
            f"hopyard: cannot read the run's function from {path}: {error.strerror}; "
            "this program is started by agents, and an older hopyard's agent does not provide a function"
        )
    return Bundle(
        name=head["name"],
        path=head["path"],
        preload=head["preload"],
        compat=head["compat"],
        metric=head["metric"],
        optional=head["optional"],
        sources=head.get("sources", {}),  # bundles of an older hopyard lack these four
        ranks=head.get("ranks", False),
        stated=head.get("stated", False),
        launch=head.get("launch", False),
        pickled=pickled,
    )


def set_path(bundle: Bundle) -> None:
    """Sets sys.path: that of the process that started the run, then that of this Python, for another machine."""
    sys.path[:] = dict.fromkeys([*bundle.path, *sys.path])
    if bundle.compat:
        _package_aliases.import_compat()
    if bundle.ranks:
        _package_aliases.serve_ranks()


_MOVED = {"hopyard._node": "hopyard._trial.cluster_node", "hopyard._notebook": "hopyard._code.notebook"}
"""Modules in the bundles of earlier versions, whose runs may be resumed."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(_MOVED.get(module, module), name)


def _unpickle(pickled: memoryview) -> Any:
    try:
        return pickle.loads(pickled)
    except ModuleNotFoundError as error:
        if error.name not in _MOVED:
            raise
    return _Unpickler(io.BytesIO(pickled)).load()


def _load(bundle: Bundle) -> Callable[..., Any]:
    for file, text in bundle.sources.items():  # so that tracebacks show the lines of notebook cells
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    try:
        function: Callable[..., Any] = _unpickle(bundle.pickled)
        return function
    except ModuleNotFoundError as error:
        raise Refusal(
            f"the trial cannot import '{error.name}', which was importable where the run was started; "
            f"is it installed for {sys.executable} on {_place()}?"
        ) from error
    except Exception as error:  # classes may raise anything
        raise Refusal(f"{bundle.name} cannot be unpickled: {_one_line(error)}") from error


def _place() -> str:
    executor = os.environ.get("HOPYARD_EXECUTOR")
    return f"executor {executor}, {platform.node()}" if executor else platform.node()


# ---- seeds and GPUs -----------------------------------------------------------------------


def _seeding(seed: int) -> dict[str, _import_hooks.Hook]:
    """Without seeding, all forks would draw the same random numbers, and fresh interpreters different ones each
    time."""
    small = seed % 2**32  # NumPy's limit
    return {
        "random": lambda _: random.seed(seed),
        "numpy.random": lambda module: module.seed(small),
        "tensorflow": lambda module: module.random.set_seed(small),  # does not create an eager context
    }


def _limit_gpu(tensorflow: Any) -> None:
    """Limits TensorFlow to the trial's share of the GPU, if the agent cannot enforce it."""
    megabytes = int(os.environ.get("HOPYARD_GPU_MEMORY", "0")) >> 20
    if not megabytes:
        return
    for gpu in tensorflow.config.list_physical_devices("GPU"):
        limit = tensorflow.config.LogicalDeviceConfiguration(memory_limit=megabytes)
        tensorflow.config.set_logical_device_configuration(gpu, [limit])


def _prepare() -> Mapping[str, _import_hooks.Hook]:
    """Seeds modules when they are imported, so that random numbers drawn during import follow the seed.

    Returns the hooks that seed once more before the function is called: its initial state must not depend on which
    modules were imported before.
    """
    seeding = _seeding(int(os.environ["HOPYARD_SEED"]))

    def ready_tensorflow(module: Any) -> None:
        _limit_gpu(module)
        seeding["tensorflow"](module)

    hooks = {**seeding, "tensorflow": ready_tensorflow}
    _import_hooks.run_for_imported(hooks)
    _import_hooks.run_after_import(hooks)
    return seeding


# ---- the result -----------------------------------------------------------------------------


def _open_new(path: str, flags: int) -> int:
    """Does not follow links, and denies others write access: the file will be unpickled."""
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _put(path: str, data: bytes) -> None:
    """Writes the file atomically: a partial one would take space that the log needs."""
    part = f"{path}.{os.getpid()}.tmp"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)  # left by a process with the same id, or planted there
        with open(part, "wb", opener=_open_new) as file:
            file.write(data)
        os.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):  # the first error is reported
            os.unlink(part)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refusal(f"disk full: cannot write {len(data)} bytes to '{path}'; free some space") from None
        raise Refusal(f"cannot write '{path}': {error.strerror}") from None


def _finish(outcome: Outcome) -> None:
    """Writes the values, and reports the remark to the run."""
    if outcome.values is not None:
        _put(os.environ["HOPYARD_RESULT"], json.dumps(outcome.values).encode())
    if outcome.remark and is_trial():
        line = _bytes(" ".join(outcome.remark.split()))[:REMARK_MAX]
        try:
            _hopyard.report({}, None, None, None, line.decode(errors="ignore"), outcome.lacks_metric)
        except _hopyard.Error as reason:  # does not fail a trial that is done
            print(f"hopyard: {reason}", file=sys.stderr)


def _rank() -> int:
    """This process's rank in the training, or its last one if it has left the group."""
    return _hopyard.group_query(0) if _hopyard.group_joined() else int(os.environ.get("HOROVOD_RANK", "0"))


def _store_rank_result(bundle: Bundle, returned: Any) -> None:
    """Writes a rank's return value for the process that waits for it; numbers in it are metrics, too."""
    import cloudpickle

    try:
        pickled = cloudpickle.dumps((_rank(), returned))
    except Exception as error:  # classes may raise anything
        raise Refusal(f"{bundle.name} returned {describe(returned)}, which cannot be pickled: {error}") from None
    _put(os.path.join(os.environ["HOPYARD_TRIAL_DIR"], "result.pickle"), pickled)
    _finish(of_rank(returned, bundle.metric, bundle.name))


# ---- failures -------------------------------------------------------------------------------


def _one_line(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # classes may raise anything
        text = "(its __str__ failed)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _traceback(error: BaseException) -> str:
    """As Python prints it, without the frames of this package."""
    tb, ours = error.__traceback__, os.path.dirname(_traceback.__code__.co_filename) + os.sep
    while tb is not None and tb.tb_frame.f_code.co_filename in (f"{ours}runner.py", f"{ours}cluster_node.py"):
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(error), error, tb))


def _bytes(text: str) -> bytes:
    return text.replace("\0", "\\0").encode(errors="backslashreplace")


def _fail(error: str, detail: str = "", text: str = "") -> int:
    """Reports the error to the agent, and prints `text`, or the detail, to the log. Returns the exit status.

    The agent comes first: the function may have closed the log.
    """
    line, end, not_sent = _bytes(error)[:ERROR_MAX], _bytes(detail)[-DETAIL_MAX:], ""
    try:
        _hopyard.report({}, None, line.decode(errors="ignore"), end.decode(errors="ignore"))
    except _hopyard.Error as reason:
        not_sent = f"\nhopyard: {reason}"
    print((text or detail).rstrip() + not_sent, file=sys.stderr, flush=True)
    return 1


def _leave(error: SystemExit) -> int:
    """As Python treats it: a status, nothing, or a text and status 1."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    return _fail(str(error.code), text=str(error.code))


# ---- the call -------------------------------------------------------------------------------


def _call(bundle: Bundle) -> None:
    seeding = _prepare()
    function = _load(bundle)
    params = json.loads(os.environ["HOPYARD_PARAMS"])
    _import_hooks.run_for_imported(seeding)
    if bundle.ranks:
        _store_rank_result(bundle, function())
        return
    returned = function(**params)
    outcome = of(returned, bundle.expected)
    if outcome.lacks_metric and returned is not None:  # for the trial's log
        print(f"hopyard: {outcome.remark}", file=sys.stderr)
    _finish(outcome)


def run(bundle: Bundle) -> int:
    """Returns the exit status; a negative number is a signal to die of."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that output shows up at once
    try:
        _call(bundle)
    except Refusal as refusal:
        sys.last_value = refusal  # as Python sets it: exit handlers may use it
        cause = _traceback(refusal.__cause__) if refusal.__cause__ else ""
        text = f"{cause}hopyard: {refusal}"
        return _fail(str(refusal), text if cause else "", text)
    except SystemExit as error:
        return _leave(error)
    except KeyboardInterrupt as error:
        sys.stderr.write(_traceback(error))
        return -signal.SIGINT
    except BaseException as error:
        sys.last_value = error
        return _fail(_one_line(error), _traceback(error))
    return 0


def _flush(status: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            status = status or 120  # Python's status for this
    return status


def end(status: int) -> NoReturn:
    """Ends the process as an interpreter does, but skips the teardown, which is useless and slow with TensorFlow."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for non-daemon threads
        atexit._run_exitfuncs()
    except BaseException:  # probably a KeyboardInterrupt
        traceback.print_exc()
        status = status or 1
    status = _flush(status)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    _hopyard.leave(status & 0xFF)
