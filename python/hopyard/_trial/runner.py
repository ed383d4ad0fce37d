# SPDX-License-Identifier: Apache-2.0
"""One call of a user's function, from its bundle to what it leaves: the same in a fresh interpreter and in a fork.

What the function returns goes to $HOPYARD_RESULT. What it raises goes to stderr, as Python would print it,
and to the agent: a line for the table, and the traceback for who looks closer.
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
from .outcome import Outcome, Refusal, Wanted, of, of_rank
from .report import is_trial

ERROR_MAX = 300
DETAIL_MAX = 64 * 1024
REMARK_MAX = 600


# ---- the bundle ------------------------------------------------------------------------


@dataclass(frozen=True)
class Bundle:
    """A function as it came: `hopyard._code.bundle` makes them."""

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
    def wanted(self) -> Wanted:
        return Wanted(self.name, self.metric, self.optional, self.stated, self.launch)


def read_bundle() -> Bundle:
    """Nothing is unpickled by this."""
    path = os.environ.get("HOPYARD_FUNCTION", "$HOPYARD_FUNCTION")
    try:
        with open(path, "rb") as file:
            head, pickled = json.loads(file.readline()), memoryview(file.read())
    except OSError as error:
        sys.exit(
            f"hopyard: the run's function cannot be read from {path}: {error.strerror}; "
            "agents start this, and one of an older hopyard has no function"
        )
    return Bundle(
        name=head["name"],
        path=head["path"],
        preload=head["preload"],
        compat=head["compat"],
        metric=head["metric"],
        optional=head["optional"],
        sources=head.get("sources", {}),  # runs of an older hopyard lack these four
        ranks=head.get("ranks", False),
        stated=head.get("stated", False),
        launch=head.get("launch", False),
        pickled=pickled,
    )


def set_path(bundle: Bundle) -> None:
    """Modules are found where the run was started; then, on another machine, where this Python has its own."""
    sys.path[:] = dict.fromkeys([*bundle.path, *sys.path])
    if bundle.compat:
        _package_aliases.import_compat()
    if bundle.ranks:
        _package_aliases.serve_ranks()


def _load(bundle: Bundle) -> Callable[..., Any]:
    for file, text in bundle.sources.items():  # so that a traceback can show the lines of a notebook's cell
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    try:
        function: Callable[..., Any] = pickle.loads(bundle.pickled)
        return function
    except ModuleNotFoundError as error:
        raise Refusal(
            f"the trial cannot import '{error.name}'; it was importable where the run was started: "
            f"is it installed for {sys.executable} on {_place()}?"
        ) from error
    except Exception as error:  # a class may raise what it likes
        raise Refusal(f"{bundle.name} cannot be unpickled: {_one_line(error)}") from error


def _place() -> str:
    executor = os.environ.get("HOPYARD_EXECUTOR")
    return f"executor {executor}, {platform.node()}" if executor else platform.node()


# ---- chance and GPUs -----------------------------------------------------------------------


def _seeding(seed: int) -> dict[str, _import_hooks.Step]:
    """Forks all draw the same numbers otherwise, and fresh interpreters never the same ones twice."""
    small = seed % 2**32  # all that NumPy takes
    return {
        "random": lambda _: random.seed(seed),
        "numpy.random": lambda module: module.seed(small),
        "tensorflow": lambda module: module.random.set_seed(small),  # makes no eager context
    }


def _limit_gpu(tensorflow: Any) -> None:
    """To the trial's share of it, where the agent cannot enforce that itself."""
    megabytes = int(os.environ.get("HOPYARD_GPU_MEMORY", "0")) >> 20
    if not megabytes:
        return
    for gpu in tensorflow.config.list_physical_devices("GPU"):
        limit = tensorflow.config.LogicalDeviceConfiguration(memory_limit=megabytes)
        tensorflow.config.set_logical_device_configuration(gpu, [limit])


def _prepare() -> Mapping[str, _import_hooks.Step]:
    """Modules are seeded when they are imported, so that what they draw then follows the seed too.

    Gives what is to be seeded once more before the function is called: that it begins with the same state
    must not depend on who has imported what before.
    """
    seeding = _seeding(int(os.environ["HOPYARD_SEED"]))

    def ready_tensorflow(module: Any) -> None:
        _limit_gpu(module)
        seeding["tensorflow"](module)

    steps = {**seeding, "tensorflow": ready_tensorflow}
    _import_hooks.take_steps(steps)
    _import_hooks.take_steps_later(steps)
    return seeding


# ---- the result -----------------------------------------------------------------------------


def _open_new(path: str, flags: int) -> int:
    """No link is followed, and others may read it at most: what it holds is unpickled."""
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _put(path: str, data: bytes) -> None:
    """Whole or not at all: half of it would take the room that the log needs."""
    part = f"{path}.{os.getpid()}.tmp"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)  # left behind by a process with our number, or laid there
        with open(part, "wb", opener=_open_new) as file:
            file.write(data)
        os.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):  # the first error is what counts
            os.unlink(part)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refusal(f"disk full: cannot write {len(data)} bytes to '{path}'; free some space") from None
        raise Refusal(f"cannot write '{path}': {error.strerror}") from None


def _finish(outcome: Outcome) -> None:
    """Writes what is to be kept, and passes the remark on to the run."""
    if outcome.values is not None:
        _put(os.environ["HOPYARD_RESULT"], json.dumps(outcome.values).encode())
    if outcome.remark and is_trial():
        line = _bytes(" ".join(outcome.remark.split()))[:REMARK_MAX]
        try:
            _hopyard.report({}, None, None, None, line.decode(errors="ignore"), outcome.lacks_metric)
        except _hopyard.Error as reason:  # no reason to fail a trial that is done
            print(f"hopyard: {reason}", file=sys.stderr)


def _rank() -> int:
    """This process's in the training, the last one that it knows of."""
    return _hopyard.group_query(0) if _hopyard.group_joined() else int(os.environ.get("HOROVOD_RANK", "0"))


def _keep(bundle: Bundle, returned: Any) -> None:
    """What a rank returned, for who waits for it; numbers in it are metrics, too."""
    import cloudpickle

    try:
        kept = cloudpickle.dumps((_rank(), returned))
    except Exception as error:  # a class may raise what it likes
        raise Refusal(f"{bundle.name} returned {describe(returned)}, which cannot be pickled: {error}") from None
    _put(os.path.join(os.environ["HOPYARD_TRIAL_DIR"], "result.pickle"), kept)
    _finish(of_rank(returned, bundle.metric, bundle.name))


# ---- failures -------------------------------------------------------------------------------


def _one_line(error: BaseException) -> str:
    try:
        said = " ".join(str(error).split())
    except Exception:  # a class may raise what it likes
        said = "(its text cannot be had)"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _traceback(error: BaseException) -> str:
    """As Python prints it, without the frames that are ours."""
    tb, ours = error.__traceback__, os.path.dirname(_traceback.__code__.co_filename) + os.sep
    while tb is not None and tb.tb_frame.f_code.co_filename in (f"{ours}runner.py", f"{ours}cluster_node.py"):
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(error), error, tb))


def _bytes(text: str) -> bytes:
    return text.replace("\0", "\\0").encode(errors="backslashreplace")


def _fail(error: str, detail: str = "", said: str = "") -> int:
    """Tells it to the agent, and to whoever reads the log: `said`, or the detail. The exit status.

    To the agent first: the function may have closed the log.
    """
    line, end, unheard = _bytes(error)[:ERROR_MAX], _bytes(detail)[-DETAIL_MAX:], ""
    try:
        _hopyard.report({}, None, line.decode(errors="ignore"), end.decode(errors="ignore"))
    except _hopyard.Error as reason:
        unheard = f"\nhopyard: {reason}"
    print((said or detail).rstrip() + unheard, file=sys.stderr, flush=True)
    return 1


def _leave(error: SystemExit) -> int:
    """As Python takes it: a status, nothing, or a text and status 1."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    return _fail(str(error.code), said=str(error.code))


# ---- the call -------------------------------------------------------------------------------


def _call(bundle: Bundle) -> None:
    seeding = _prepare()
    function = _load(bundle)
    params = json.loads(os.environ["HOPYARD_PARAMS"])
    _import_hooks.take_steps(seeding)
    if bundle.ranks:
        _keep(bundle, function())
        return
    returned = function(**params)
    outcome = of(returned, bundle.wanted)
    if outcome.lacks_metric and returned is not None:  # for the trial's own log
        print(f"hopyard: {outcome.remark}", file=sys.stderr)
    _finish(outcome)


def run(bundle: Bundle) -> int:
    """The exit status; less than 0: the signal to end by."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # who watches wants to see it now
    try:
        _call(bundle)
    except Refusal as refusal:
        sys.last_value = refusal  # as Python has it: whoever is called at exit may ask
        cause = _traceback(refusal.__cause__) if refusal.__cause__ else ""
        said = f"{cause}hopyard: {refusal}"
        return _fail(str(refusal), said if cause else "", said)
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
            status = status or 120  # Python's own for this
    return status


def end(status: int) -> NoReturn:
    """As an interpreter ends, but for taking everything apart, which has no use and, with TensorFlow, takes long."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
        atexit._run_exitfuncs()
    except BaseException:  # a KeyboardInterrupt, most likely
        traceback.print_exc()
        status = status or 1
    status = _flush(status)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    _hopyard.leave(status & 0xFF)
