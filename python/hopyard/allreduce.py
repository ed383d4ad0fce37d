# SPDX-License-Identifier: Apache-2.0
"""A training on many ranks: the same function, or the same notebook, in as many processes, which work together.

    from hopyard import allreduce

    def training(epochs):
        import hopyard.hvd as hvd
        hvd.init()
        ...
        return accuracy

    accuracies = allreduce.run(training, args=(5,), np=4)

A training is a run like any other: it is in `hopyard ls`, has a log for each rank, and outlives this
process. It may have `memory`, `timeout` (of the whole), `retries` (of all ranks together), `gpus` (for each
rank), `max_transfer` (of each rank), `disk_timeout`, `oversubscribe`, `name`, `project`, `tensorboard`, `app_id`, `hosts`, `seed`, as
hopyard.experiment has them, and

np             how many ranks there are
min_np         elastic: goes on with so many when others are lost
max_np         elastic: takes in up to so many
reset_limit    elastic: how often the ranks may change
hostfile       a file of machines, lines of "HOST slots=N", instead of hosts
env            variables for the ranks' environment
interfaces     the networks through which ranks of several machines talk: ["eth0"]
timeline       a file for a trace of all collectives
output         a folder in which each rank's output is to be found as well: rank.0/stdout …
metric         of the numbers that the function returns or reports, the one to show; direction: "max" or "min"
verbose        in a terminal: what all ranks print, not only rank 0

Where a rank fails, hopyard.TrialsFailed is raised with its traceback; where the run was stopped,
hopyard.Stopped. Both have the `result`.
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
    """Call `fn(*args, **kwargs)` on all ranks; returns what each of them returned, by rank.

    In an elastic training the list has those ranks that came to the end.

    fn: the function; what it returns is pickled
    args, kwargs: its arguments
    np: how many ranks there are
    settings: min_np, max_np, reset_limit (elastic training), hosts or hostfile, spark, env, interfaces, timeline, output,
        metric and direction, verbose, memory, timeout, retries, gpus (for each rank), max_transfer, disk_timeout, oversubscribe, name,
        project, tensorboard, app_id, seed: help(hopyard.allreduce) explains them
    """
    _check(fn, args, kwargs or {})
    call = functools.partial(fn, *args, **(kwargs or {}))
    return _returned(_train(call, f"{_bundle.name_of(fn)}()", _references.preload(call), np, **settings))


def run_notebook(path: str | os.PathLike[str], np: int = 2, **settings: Unpack[TrainingSettings]) -> Result:
    """Runs a notebook's cells of code, in order, on all ranks. What they print is in each rank's log."""
    name, cells = os.path.basename(path), _notebook.read(path)
    call = functools.partial(_notebook.execute, name, cells)
    return _train(call, name, _notebook.preload(cells), np, **settings)


# ---- from the function ... ---------------------------------------------------------------------


def _check(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Says now what every rank would: that these arguments do not fit the function."""
    if not callable(fn):
        raise Error(f"a function is needed, and {fn!r:.60} is none")
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError):  # some functions written in C do not say what they take
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
        "--function", "-", "--title", title, "--metric-optional", *option("num-proc", np),
        *option("min-np", min_np), *option("max-np", max_np), *option("hostfile", hostfile),
        *option("network-interfaces", interfaces if isinstance(interfaces, str | None) else ",".join(interfaces)),
        *option("timeline-filename", timeline), *option("output-filename", output),
        *(["--verbose"] if verbose else []),
        *(word for name, value in variables.items() for word in option("env", f"{name}={value}")),
    ]  # fmt: skip
    bundle = _bundle.make(call, common["metric"], "max", optional=True, ranks=True, preload=preload)
    number, address = _start.start(words, common, _start.python("hopyard._trial"), bundle, command="train")
    status = _display.show(number, common["project"], training=True)
    had_session = _supplier.settle(number, common["project"])
    result = load(number, common["project"], address)
    return _conclude(result, status, is_elastic=bool(min_np or max_np), had_session=had_session)


# ---- ... to what the ranks returned ------------------------------------------------------------


def _conclude(result: Result, status: int, is_elastic: bool, had_session: bool) -> Result:
    """A training is done when all ranks are; an elastic one may have lost some."""
    failed = [trial for trial in result.trials if trial.state == "failed"]
    if failed and (result.state == "failed" or (result.state == "done" and not is_elastic)):
        raise TrialsFailed(f"{_rank(failed[0])} of run {result.run} failed: {failed[0].error}", result)
    return _start.conclude(result, status, had_session)


def _rank(trial: Trial) -> str:
    return f"rank {trial.params.get('rank', trial.number - 1)}"


def _returned(result: Result) -> list[Any]:
    kept = []
    for trial in result.trials:
        path = os.path.join(trial.logdir, "result.pickle")
        if trial.state != "done":
            continue
        try:
            with open_own(path) as file:
                kept.append(pickle.load(file))
        except FileNotFound:
            raise Error(
                f"{_rank(trial)} has left no {path}; it ended by itself before its function returned"
            ) from None
    return [value for _, value in sorted(kept, key=lambda pair: pair[0])]
