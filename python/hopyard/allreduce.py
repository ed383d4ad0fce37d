# SPDX-License-Identifier: Apache-2.0
"""Distributed training: the same function or notebook on many ranks.

    from hopyard import allreduce

    def training(epochs):
        import hopyard.hvd as hvd
        hvd.init()
        ...
        return accuracy

    accuracies = allreduce.run(training, args=(5,), np=4)

A training is a run: `hopyard ls` lists it, each rank has a log, and it outlives this process. It has these settings of
hopyard.experiment: `memory`, `timeout` (of the whole training), `retries` (of all ranks together), `gpus` (for each
rank), `max_transfer` (of each rank), `disk_timeout`, `oversubscribe`, `name`, `project`, `tensorboard`, `app_id`,
`hosts`, `spark` and `seed`; and

np             the number of ranks
min_np         elastic: the minimum number of ranks; the training continues when others are lost
max_np         elastic: the maximum number of ranks
reset_limit    elastic: how often the ranks may change
hostfile       a file of machines, lines of "HOST slots=N", instead of hosts
env            environment variables for the ranks
interfaces     the network interfaces between machines: ["eth0"]
timeline       a file for a trace of all collectives
output         a directory for a copy of each rank's output: rank.0/stdout …
metric         the name of a returned or reported number to show; direction: "max" or "min"
verbose        in a terminal: the output of all ranks, not only rank 0

If a rank fails, hopyard.TrialsFailed is raised with its traceback; if the run was stopped, hopyard.Stopped. Both have
the `result`.
"""

import functools
import inspect
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

from ._base.errors import Error, FileNotFound, TrialsFailed
from ._base.files import open_own
from ._code import bundle as _bundle
from ._code import notebook as _notebook
from ._code import references as _references
from ._run import display as _display
from ._run import start as _start
from ._run.result import Result, Trial, load
from ._run.settings import Settings, for_training, option
from ._spark import supplier as _supplier

__all__ = ["TrainingSettings", "run", "run_notebook"]


class TrainingSettings(Settings, total=False):
    """The settings of hopyard.experiment, and those of a training; help(hopyard.allreduce) explains them."""

    min_np: int | None
    max_np: int | None
    reset_limit: int | None
    hostfile: str | os.PathLike[str] | None
    env: Mapping[str, object] | None
    interfaces: str | Iterable[str] | None
    timeline: str | os.PathLike[str] | None
    output: str | os.PathLike[str] | None
    verbose: bool


def run(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, np: int = 2,
    **settings: Unpack[TrainingSettings],
) -> list[Any]:  # fmt: skip
    """Call `fn(*args, **kwargs)` on all ranks; returns their return values, by rank.

    For an elastic training the list has the ranks that finished.

    fn: the function; its return value is pickled
    args, kwargs: its arguments
    np: the number of ranks
    settings: min_np, max_np, reset_limit (elastic training), hosts or hostfile, spark, env, interfaces, timeline,
        output, metric and direction, verbose, memory, timeout, retries, gpus (for each rank), max_transfer,
        disk_timeout, oversubscribe, name, project, tensorboard, app_id, seed; help(hopyard.allreduce) explains them
    """
    _check(fn, args, kwargs or {})
    call = functools.partial(fn, *args, **(kwargs or {}))
    return _returned(_train(call, f"{_bundle.name_of(fn)}()", _references.preload(call), np, **settings))


def run_notebook(path: str | os.PathLike[str], np: int = 2, **settings: Unpack[TrainingSettings]) -> Result:
    """Run a notebook's code cells, in order, on all ranks. Their output is in each rank's log."""
    name, cells = os.path.basename(path), _notebook.read(path)
    call = functools.partial(_notebook.execute, name, cells)
    return _train(call, name, _notebook.preload(cells), np, **settings)


# ---- start ---------------------------------------------------------------------


def _check(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises an error before the run starts if these arguments do not match the function's parameters."""
    if not callable(fn):
        raise Error(f"{fn!r:.60} is not a function")
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError):  # some functions written in C have no signature
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise Error(f"{_bundle.name_of(fn)}() cannot be called with these arguments: {error}") from None


def _train(
    call: Callable[[], Any], title: str, preload: list[str], np: int, *,
    min_np: int | None = None, max_np: int | None = None, reset_limit: int | None = None,
    hostfile: str | os.PathLike[str] | None = None, env: Mapping[str, object] | None = None,
    interfaces: str | Iterable[str] | None = None, timeline: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None, verbose: bool = False, **settings: Unpack[Settings],
) -> Result:  # fmt: skip
    common = for_training(settings, "a training", "hopyard.allreduce")
    variables = dict(env or {})
    if reset_limit is not None:
        variables["HOPYARD_RESET_LIMIT"] = reset_limit
    words = [
        *option("num-proc", np),
        *option("min-np", min_np), *option("max-np", max_np), *option("hostfile", hostfile),
        *option("network-interfaces", interfaces if isinstance(interfaces, str | None) else ",".join(interfaces)),
        *option("timeline-filename", timeline), *option("output-filename", output),
        *option("verbose", bool(verbose)), *(("env", f"{name}={value}") for name, value in variables.items()),
    ]  # fmt: skip
    bundle = _bundle.make(call, common["metric"], "max", optional=True, ranks=True, preload=preload)
    started = _start.start(
        words, common, _start.python("hopyard._trial"), bundle, command="train", title=title, metric_optional=True
    )
    status = _display.show(started.run, common["project"], training=True)
    had_session = _supplier.settle(started.run, common["project"])
    result = load(started.run, common["project"], started.tensorboard)
    return _conclude(result, status, is_elastic=bool(min_np or max_np), had_session=had_session)


# ---- results ------------------------------------------------------------


def _conclude(result: Result, status: int, is_elastic: bool, had_session: bool) -> Result:
    """A training has succeeded if all ranks have; an elastic one may have lost some."""
    failed = [trial for trial in result.trials if trial.state == "failed"]
    if failed and (result.state == "failed" or (result.state == "done" and not is_elastic)):
        raise TrialsFailed(f"{_rank(failed[0])} of run {result.run} failed: {failed[0].error}", result)
    return _start.conclude(result, status, had_session)


def _rank(trial: Trial) -> str:
    return f"rank {trial.params.get('rank', trial.number - 1)}"


def _returned(result: Result) -> list[Any]:
    returned = []
    for trial in result.trials:
        path = os.path.join(trial.logdir, "result.pickle")
        if trial.state != "done":
            continue
        try:
            with open_own(path) as file:
                returned.append(pickle.load(file))
        except FileNotFound:
            raise Error(
                f"{_rank(trial)} has not written {path}; it exited before its function returned"
            ) from None
    return [value for _, value in sorted(returned, key=lambda pair: pair[0])]
