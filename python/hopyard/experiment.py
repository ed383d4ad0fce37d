# SPDX-License-Identifier: Apache-2.0
"""Runs of a Python function over many hyperparameters, several trials at a time.

    from hopyard import experiment

    def training(learning_rate, dropout):
        ...
        return accuracy

    result = experiment.grid_search(training, {"learning_rate": [0.001, 0.0005], "dropout": [0.45, 0.7]})
    result.best.params, result.best.metric

The function returns a number; or a dict, and `metric` names the value in it that counts; or nothing,
where no metric is needed (a grid, random points, launch). A run is a process of its own: it outlives this
one, `attach` comes back to it, `resume` goes on with one that was stopped or killed.

What all of them take:

direction    "max" or "min": what is best
metric       the name of the value that counts, for a function that returns a dict
parallel     at most so many trials at a time (default: as many as there are slots)
memory       the most a trial may use, in bytes or as "4G"
timeout      the longest a trial may take, in seconds or as "15m"
retries      how often a failed trial is tried again
seed         the same seed gives the same trials
gpus         GPUs for each trial: a whole number, or a share such as 0.2; 0 hides them all
name         a name to call the run by
project      its folder (default: $HOPYARD_PROJECT, or the folder we are in)
tensorboard  whether to start a TensorBoard on the run
app_id       the folder below Logs/TensorFlow in which the run's logs are
spark        a SparkSession: its application's id becomes app_id, and trials run on its executors, unless
             its master is "local…"
hosts        machines to run on, by ssh: ["a:4", "b"], or "a:4,b"
detach       True: start it, and return at once

Where every trial fails, hopyard.TrialsFailed is raised, with the first one's traceback; where the run was
stopped, hopyard.Stopped. Both have the `result`.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _held, _program, _run, _show
from ._errors import Error
from ._report import described, number
from ._result import Result, Trial, load
from ._run import Settings, option

__all__ = [
    "Result", "Trial", "attach", "begin", "differential_evolution", "end", "evolutionary_search",
    "grid_search", "launch", "random_search", "result", "resume",
]  # fmt: skip

Function = Callable[..., Any]
Space = Mapping[str, Any]
Hosts = str | Iterable[str] | None
Project = str | os.PathLike[str] | None
Amount = int | float | str | None
Run = int | str | Result

# ---- a function, many times ------------------------------------------------------------------


def grid_search(
    fn: Function, space: Space,
    direction: str = "max", metric: str | None = None, parallel: int | None = None,
    memory: Amount = None, timeout: Amount = None, retries: int = 0, seed: int | None = None,
    gpus: float | None = None, name: str | None = None, project: Project = None, tensorboard: bool = True,
    app_id: str | None = None, spark: Any = None, hosts: Hosts = None, detach: bool = False,
) -> Result:  # fmt: skip
    """Every combination of the values in the space, the first name slowest."""
    settings = Settings(direction, metric, parallel, memory, timeout, retries, seed, gpus, name, project,
                        tensorboard, app_id, spark, hosts, detach)  # fmt: skip
    return _run.function(fn, space, "grid", [], settings)


def random_search(
    fn: Function, space: Space, samples: int,
    direction: str = "max", metric: str | None = None, parallel: int | None = None,
    memory: Amount = None, timeout: Amount = None, retries: int = 0, seed: int | None = None,
    gpus: float | None = None, name: str | None = None, project: Project = None, tensorboard: bool = True,
    app_id: str | None = None, spark: Any = None, hosts: Hosts = None, detach: bool = False,
) -> Result:  # fmt: skip
    """`samples` points of the space by chance; 0: until it is stopped."""
    settings = Settings(direction, metric, parallel, memory, timeout, retries, seed, gpus, name, project,
                        tensorboard, app_id, spark, hosts, detach)  # fmt: skip
    return _run.function(fn, space, "random", option("random", samples), settings)


def evolutionary_search(
    fn: Function, space: Space, population: int | None = None, generations: int = 10,
    mutation: float | None = None, crossover: float | None = None, strategy: str | None = None,
    asynchronous: bool = False,
    direction: str = "max", metric: str | None = None, parallel: int | None = None,
    memory: Amount = None, timeout: Amount = None, retries: int = 0, seed: int | None = None,
    gpus: float | None = None, name: str | None = None, project: Project = None, tensorboard: bool = True,
    app_id: str | None = None, spark: Any = None, hosts: Hosts = None, detach: bool = False,
) -> Result:  # fmt: skip
    """Differential evolution: `generations` of `population` points; the function must return a metric.

    `mutation`, `crossover` and `strategy` ("best1bin", "rand1bin") are the textbook's; without them it does
    what needs the fewest trials. With `asynchronous` no trial waits for a generation's end.
    """
    settings = Settings(direction, metric, parallel, memory, timeout, retries, seed, gpus, name, project,
                        tensorboard, app_id, spark, hosts, detach)  # fmt: skip
    search = ["--evolve", *option("generations", generations), *option("population", population),
              *option("mutation", mutation), *option("crossover", crossover), *option("strategy", strategy),
              *(["--async"] if asynchronous else [])]  # fmt: skip
    return _run.function(fn, space, "evolve", search, settings, optional=False)


differential_evolution = evolutionary_search


def launch(
    fn: Function, args: Mapping[str, Sequence[Any]] | None = None,
    direction: str = "max", metric: str | None = None, parallel: int | None = None,
    memory: Amount = None, timeout: Amount = None, retries: int = 0, seed: int | None = None,
    gpus: float | None = None, name: str | None = None, project: Project = None, tensorboard: bool = True,
    app_id: str | None = None, spark: Any = None, hosts: Hosts = None, detach: bool = False,
) -> Result:  # fmt: skip
    """A trial for each index: the first values of all lists, then the second ones. No lists: one trial."""
    settings = Settings(direction, metric, parallel, memory, timeout, retries, seed, gpus, name, project,
                        tensorboard, app_id, spark, hosts, detach)  # fmt: skip
    return _run.function(fn, args or {}, "paired", [], settings)


# ---- runs that are there --------------------------------------------------------------------


def _word(run: Run) -> int | str:
    return run.run if isinstance(run, Result) else run


def resume(
    run: Run, project: Project = None, tensorboard: bool = True, detach: bool = False, spark: Any = None
) -> Result:  # fmt: skip
    """Goes on with a run that was stopped or killed, or has failed trials. What has ended well stays.

    One that was on the executors of a SparkSession goes on with those of `spark`, also where it still waits for some.
    """
    number, address = _run.resume(_word(run), project, tensorboard, spark)
    return load(number, project, address) if detach else _run.watch(number, project, address)


def attach(run: Run, project: Project = None) -> Result:
    """Watches a run again, to its end."""
    return _run.watch(load(_word(run), project).run, project, None)


def result(run: Run, project: Project = None) -> Result:
    """A run and its trials as they are now, whether it has ended or not."""
    return load(_word(run), project)


# ---- this process as a trial ------------------------------------------------------------------


@dataclass(frozen=True)
class _Begun:
    run: int
    settings: Settings
    address: str | None
    trial: _held.Held


_begun: _Begun | None = None


def begin(
    name: str | None = None, direction: str = "max", metric: str | None = None, project: Project = None,
    tensorboard: bool = True, app_id: str | None = None, spark: Any = None,
) -> str:  # fmt: skip
    """Makes a run of what this process does from here to end(). Returns the folder for what it writes.

    In between this process is the run's one trial, for tensorboard.logdir(), hdfs.log() and hopyard.report().
    """
    global _begun
    if _begun:
        raise Error(f"run {_begun.run} has begun and not ended; call experiment.end() first")
    app_id = app_id if spark is None or app_id else _run.application_of(spark)  # no more: we are the trial
    settings = Settings(direction, metric, name=name, project=project, tensorboard=tensorboard, app_id=app_id)
    meeting = _held.Meeting()
    try:
        command = _run.python("hopyard._held", meeting.path)
        run, address = _run.start(["--metric-optional", "--title", "experiment.begin()"], settings, command)
        trial = meeting.wait(_program.command("attach", str(run), project=project))
    finally:
        meeting.close()
    if trial is None:
        _run.conclude(load(run, project), 0)
        raise Error(f"run {run} has ended before it began; 'hopyard show {run}' says more")
    _begun = _Begun(run, settings, address, trial)
    return trial.logdir


def _outcome(metric: Any, name: str) -> dict[str, float] | None:
    """What end() was given, by name."""
    if metric is None:
        return None
    values = metric if isinstance(metric, Mapping) else {name: metric}
    numbers = {}
    for key, value in values.items():
        as_number = number(value)
        if as_number is None:
            raise Error(f"'{key}' is {described(value)}, which is no number")
        numbers[str(key)] = as_number
    return numbers


def end(metric: float | Mapping[str, float] | None = None) -> Result:
    """Ends what begin() began, with a number, a dict of them, or nothing to show for it."""
    global _begun
    if not _begun:
        raise Error("there is no run to end; call experiment.begin() first")
    outcome = _outcome(metric, _begun.settings.metric or _run.DEFAULT_METRIC)
    begun, _begun = _begun, None
    begun.trial.let_go(outcome)
    status = _show.wait(begun.run, begun.settings.project)
    return _run.conclude(load(begun.run, begun.settings.project, begun.address), status)
