# SPDX-License-Identifier: Apache-2.0
"""Runs a Python function with many hyperparameters, several trials at a time.

    from hopyard import experiment

    def training(learning_rate, dropout):
        ...
        return accuracy

    result = experiment.grid_search(training, {"learning_rate": [0.001, 0.0005], "dropout": [0.45, 0.7]})
    result.best.params, result.best.metric

The function returns a number, a dict, or the History of Keras' fit; `metric` names the value in it that is optimized.
It may return nothing if no metric is needed (grid search, random search, launch), or if it reports the metric. A run is
a separate process: it outlives this one, `attach` watches it again, `resume` continues one that was stopped or killed.
help(experiment.grid_search) describes the settings that all functions share.

If every trial fails, hopyard.TrialsFailed is raised, with the traceback of the first; if the run was stopped,
hopyard.Stopped. Both have the `result`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from ._base.errors import Error
from ._base.metrics import DEFAULT_METRIC, describe, number
from ._run import display as _display
from ._run import placeholder_trial as _placeholder_trial
from ._run import program as _program
from ._run import settings as _settings
from ._run import start as _start
from ._run.result import Result, Trial, load
from ._run.settings import UNSTATED, Settings, option, with_settings

__all__ = [
    "Result", "Settings", "Trial", "attach", "begin", "differential_evolution", "end", "evolutionary_search",
    "grid_search", "launch", "random_search", "result", "resume", "search",
]  # fmt: skip

Function = Callable[..., Any]
Space = Mapping[str, Any]
Project = str | os.PathLike[str] | None
Run = int | str | Result

# ---- searches ------------------------------------------------------------------


@with_settings
def grid_search(fn: Function, space: Space, **settings: Unpack[Settings]) -> Result:
    """Run a function with every combination of values; the first name varies slowest.

    fn: the function to run; each hyperparameter is passed as an argument
    space: a list of values for each hyperparameter, as in {"lr": [0.1, 0.01], "units": [32, 64]}
    """
    return _start.run_function(fn, space, "grid", [], settings)


@with_settings
def random_search(fn: Function, space: Space, samples: int = 10, **settings: Unpack[Settings]) -> Result:
    """Run a function at points drawn at random from the space.

    fn: the function to run; each hyperparameter is passed as an argument
    space: two numbers are bounds, other lists are choices, as in {"lr": hopyard.log(1e-5, 1e-1), "dropout": [0.0, 0.5],
        "act": ["relu", "tanh"]}; `hopyard.uniform`, `integer` and `choice` are explicit
    samples: the number of points; 0: until the run is stopped
    """
    return _start.run_function(fn, space, "random", option("random", samples), settings)


@with_settings
def search(
    fn: Function, space: Space, trials: int = 100, algorithm: str = "auto", constraints: Sequence[str] = (),
    **settings: Unpack[Settings],
) -> Result:  # fmt: skip
    """Search for the best hyperparameters. Each trial must have a metric.

    fn: the function to run; each hyperparameter is passed as an argument
    space: as for random_search
    trials: the number of trials; 0: until the run is stopped
    algorithm: "tpe", "cma", "evolve" or "random"; default: one that suits the space and the number of trials,
        which a note of the run names
    constraints: expressions that are true for every trial, such as "batch * seq <= 65536"
    """
    options = [*option("algorithm", algorithm), *option("trials", trials)]
    options += [choice for text in constraints for choice in option("constraint", text)]
    return _start.run_function(fn, space, "search", options, settings, optional=algorithm == "random")


@with_settings
def evolutionary_search(
    fn: Function, space: Space, population: int | None = None, generations: int = 10,
    mutation: float | None = None, crossover: float | None = None, strategy: str | None = None,
    asynchronous: bool = False, **settings: Unpack[Settings],
) -> Result:  # fmt: skip
    """Search by differential evolution: new trials combine the best ones so far. Each must have a metric.

    fn: the function to run; each hyperparameter is passed as an argument
    space: as for random_search
    population: trials per generation; default: 4 plus 5/4 per hyperparameter, rounded up
    generations: the number of generations; 0: until the run is stopped
    mutation: the distance of a child from its parents, above 0 to 2; default: drawn at random for each
    crossover: the probability that a value is taken from the mutant, 0 to 1; default: chosen by the strategy
    strategy: "best1bin" or "rand1bin", as in textbooks; default: current-to-elite/1/bin, which needs the fewest trials
    asynchronous: True: no trial waits for the end of a generation
    """
    search = [*option("evolve", True), *option("generations", generations), *option("population", population),
              *option("mutation", mutation), *option("crossover", crossover), *option("strategy", strategy),
              *option("async", bool(asynchronous))]  # fmt: skip
    return _start.run_function(fn, space, "evolve", search, settings, optional=False)


differential_evolution = evolutionary_search


@with_settings
def launch(
    fn: Function, args: Mapping[str, Sequence[Any]] | None = None, **settings: Unpack[Settings]
) -> Result:
    """Run a function once, or with the first values of all lists, then with the second ones, and so on.

    fn: the function to run; each name in `args` is passed as an argument
    args: lists of values by name, all of the same length; default: one trial without arguments
    """
    return _start.run_function(fn, args or {}, "paired", [], settings)


# ---- existing runs --------------------------------------------------------------------


def _number_or_name(run: Run) -> int | str:
    return run.run if isinstance(run, Result) else run


def resume(
    run: Run, project: Project = None, tensorboard: bool = True, detach: bool = False, spark: Any = None
) -> Result:  # fmt: skip
    """Continue a run that was stopped or killed, or has failed trials. Finished trials are kept.

    run: its number, its name (the newest of that name), or a Result
    project: its directory; default: $HOPYARD_PROJECT, or the current directory
    tensorboard: whether to start a TensorBoard on the run
    detach: True: return at once, with the result so far
    spark: for a run on Spark, the SparkSession to continue with, also if the run still waits for executors
    """
    number, address = _start.resume(_number_or_name(run), project, tensorboard, spark)
    return load(number, project, address) if detach else _start.watch(number, project, address)


def attach(run: Run, project: Project = None) -> Result:
    """Watch a run to its end, and return its Result.

    run: its number, its name (the newest of that name), or a Result
    project: its directory; default: $HOPYARD_PROJECT, or the current directory
    """
    return _start.watch(load(_number_or_name(run), project).run, project, None)


def result(run: Run, project: Project = None) -> Result:
    """The Result of a run as it is now, whether it has ended or not.

    run: its number, its name (the newest of that name), or a Result
    project: its directory; default: $HOPYARD_PROJECT, or the current directory
    """
    return load(_number_or_name(run), project)


# ---- this process as the trial ------------------------------------------------------------------


@dataclass(frozen=True)
class _Begun:
    run: int
    settings: Settings
    address: str | None
    trial: _placeholder_trial.PlaceholderTrial


_begun: _Begun | None = None


def begin(
    name: str | None = None, direction: str = UNSTATED, metric: str | None = None, project: Project = None,
    tensorboard: bool = True, app_id: str | None = None, spark: Any = None,
) -> str:  # fmt: skip
    """Begin a run whose only trial is this process, until end(). Returns the trial's directory.

    Until then tensorboard.logdir(), hdfs.log() and hopyard.report() work as in a trial.

    name: a name for the run
    direction: "max" or "min": which values of the metric are better
    metric: the name of the number given to end(); for a dict, the name of the metric in it
    project: its directory, created if it does not exist; default: $HOPYARD_PROJECT, or the current directory
    tensorboard: whether to start a TensorBoard on the run
    app_id: the directory below Logs/TensorFlow for the run's logs; default: "local-" and the time
    spark: a SparkSession, whose application id becomes the app_id
    """
    global _begun
    if _begun:
        raise Error(f"run {_begun.run} has not ended; call experiment.end() first")
    if not app_id and spark is not None:
        app_id = _settings.application_of(spark)  # nothing else of the session is used: this process is the trial
    settings = _settings.complete(
        {"direction": direction, "metric": metric, "name": name, "project": project, "tensorboard": tensorboard,
         "app_id": app_id}
    )  # fmt: skip
    _settings.check_direction(settings)
    listener = _placeholder_trial.Listener()
    try:
        command = _start.python("hopyard._run.placeholder_trial", listener.path)
        title = "experiment.begin()"
        started = _start.start(option("oversubscribe", True), settings, command, title=title, metric_optional=True)
        run, address = started.run, started.tensorboard
        trial = listener.wait(_program.command("attach", str(run), project=project))
    finally:
        listener.close()
    if trial is None:
        _start.conclude(load(run, project), 0)
        raise Error(f"run {run} ended before its trial started; see 'hopyard show {run}'")
    _begun = _Begun(run, settings, address, trial)
    return trial.logdir


def _outcome(metric: Any, name: str) -> dict[str, float] | None:
    """The values given to end(), by name."""
    if metric is None:
        return None
    values = metric if isinstance(metric, Mapping) else {name: metric}
    numbers = {}
    for key, value in values.items():
        as_number = number(value)
        if as_number is None:
            raise Error(f"'{key}' is {describe(value)}, which is not a number")
        numbers[str(key)] = as_number
    return numbers


def end(metric: float | Mapping[str, float] | None = None) -> Result:
    """End the run that begin() began, and return its Result.

    metric: a number, a dict of numbers, or None
    """
    global _begun
    if not _begun:
        raise Error("there is no run to end; call experiment.begin() first")
    outcome = _outcome(metric, _begun.settings["metric"] or DEFAULT_METRIC)
    begun, _begun = _begun, None
    begun.trial.finish(outcome)
    status = _display.wait(begun.run, begun.settings["project"])
    return _start.conclude(load(begun.run, begun.settings["project"], begun.address), status)
