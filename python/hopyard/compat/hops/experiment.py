# SPDX-License-Identifier: Apache-2.0
"""Experiments as hops has them: launch, grid_search, random_search, evolutionary_search, begin and end.

All take the session first, or none. Beyond hops' arguments they take hopyard's: parallel, memory,
timeout, retries, seed, gpus, tensorboard. What they return depends on whose words are used. Early
versions return the run's folder from launch and (folder, best hyperparameters) from a search. Those
from 1.2 on, known by `metric_key`, `optimization_key` or a Direction, add what the function returned.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from hopyard import _hopyard, experiment
from hopyard._errors import FileNotFound
from hopyard._file import open_url
from hopyard.experiment import Result, Trial

from . import allreduce
from ._calls import Found, keeping, not_yet, place, with_or_without_spark
from .util import num_executors

Lists = Mapping[str, Iterable[Any]]
Paths = Iterable[str] | None
Text = str | None


class Direction:
    MAX = "MAX"
    MIN = "MIN"


@with_or_without_spark
def launch(
    spark: Any, fn: Any, args_dict: Lists | None = None, name: str = "no-name", local_logdir: bool = False,
    versioned_resources: Paths = None, description: Text = None, *, metric_key: Text = None, **options: Any,
) -> str | tuple[str, dict[str, Any] | None]:  # fmt: skip
    """Runs the function once, or with the first values of all lists, then the second ones, and so on."""
    args = {key: list(values) for key, values in (args_dict or {}).items()}
    if len({len(values) for values in args.values()}) > 1:
        lengths = ", ".join(f"{key} has {len(values)}" for key, values in args.items())
        raise ValueError(f"the lists of args_dict must be equally long: {lengths}")
    result = _run(
        experiment.launch, spark, fn, args or None, name, versioned_resources, metric=metric_key, **options
    )
    if metric_key is None:
        return result.logdir
    return result.logdir, _returned(result.trials[0]) if len(result.trials) == 1 else None


@with_or_without_spark
def grid_search(
    spark: Any, fn: Any, args_dict: Lists, direction: str = "max", name: str = "no-name",
    local_logdir: bool = False, versioned_resources: Paths = None, description: Text = None,
    *, optimization_key: Text = None, **options: Any,
) -> Found:  # fmt: skip
    """Runs the function with every combination. It need not return anything; then nothing is best."""
    result = _run(
        experiment.grid_search, spark, fn, args_dict, name, versioned_resources,
        direction=direction.lower(), metric=optimization_key, **options,
    )  # fmt: skip
    return _found(result, direction, optimization_key)


@with_or_without_spark
def random_search(
    spark: Any, fn: Any, args_dict: Lists, direction: str = "max", samples: int = 10, name: str = "no-name",
    local_logdir: bool = False, versioned_resources: Paths = None, description: Text = None,
    *, optimization_key: Text = None, **options: Any,
) -> Found:  # fmt: skip
    """Runs the function at points drawn between the bounds."""
    result = _run(
        experiment.random_search, spark, fn, args_dict, name, versioned_resources,
        direction=direction.lower(), samples=samples, metric=optimization_key, **options,
    )  # fmt: skip
    return _found(result, direction, optimization_key)


@with_or_without_spark
def evolutionary_search(
    spark: Any, fn: Any, args_dict: Lists, direction: str = "max", generations: int = 10,
    population: int = 10, mutation: float = 0.5, crossover: float = 0.7, cleanup_generations: bool = False,
    name: str = "no-name", local_logdir: bool = False, versioned_resources: Paths = None,
    description: Text = None, *, optimization_key: Text = None, strategy: str = "rand1bin", **options: Any,
) -> Found:  # fmt: skip
    """Differential evolution between the bounds, rand/1/bin as in hops. The function must return a metric."""
    result = _run(
        experiment.evolutionary_search, spark, fn, args_dict, name, versioned_resources,
        direction=direction.lower(), generations=generations, population=population, mutation=mutation,
        crossover=crossover, strategy=strategy, metric=optimization_key, **options,
    )  # fmt: skip
    if cleanup_generations:
        _clean_up(result, population)
    return _found(result, direction, optimization_key)


differential_evolution = evolutionary_search


@with_or_without_spark
def mirrored(spark: Any, fn: Any, *args: Any, evaluator: bool = False, **given: Any) -> Any:
    """Runs the function once, with all its GPUs: what a MirroredStrategy needs on one machine."""
    if evaluator or num_executors(spark) > 1:
        not_yet("hops.experiment.mirrored", "clusters of many workers")
    return launch(spark, fn, None, *args, **given)


def collective_all_reduce(*args: Any, **given: Any) -> NoReturn:
    not_yet("hops.experiment.collective_all_reduce", "clusters of many workers")


def parameter_server(*args: Any, **given: Any) -> NoReturn:
    not_yet("hops.experiment.parameter_server", "clusters of many workers")


def horovod(spark: Any, notebook: Any = None, **given: Any) -> str:
    """allreduce.launch by another name: a notebook on every worker; the run's folder."""
    return allreduce.launch(spark, notebook, **given)


def begin(
    spark: Any = None, name: str = "no-name", local_logdir: bool = False, versioned_resources: Paths = None,
    description: Text = None, **options: Any,
) -> str:  # fmt: skip
    """Begins an experiment of this process's own; its folder. experiment.end() ends it."""
    if isinstance(spark, str):  # begin('name')
        spark, name = None, spark
    where = place(spark, name)
    where.pop("parallel", None)
    with keeping(versioned_resources) as keep:
        logdir = experiment.begin(**where, **options)
        keep(logdir)
    return logdir


def end(metric: float | None = None) -> None:
    """Ends what begin() began, with its metric if it has one."""
    experiment.end(None if metric is None else float(metric))


def _run(
    how: Callable[..., Result],
    spark: Any,
    fn: Any,
    space: Lists | None,
    name: str,
    resources: Paths,
    **words: Any,
) -> Result:
    with keeping(resources) as keep:
        result = how(fn, space, **{**place(spark, name), **words})
        keep(result.logdir)
    return result


def _found(result: Result, direction: str, key: str | None) -> Found:
    best = result.best
    found = (result.logdir, best.params if best else None)
    if key is not None or direction in (Direction.MAX, Direction.MIN):
        return Found((*found, _returned(best) if best else None))
    return Found(found)


def _returned(trial: Trial) -> dict[str, Any]:
    """All that the function returned, texts too; where it printed its metric, that."""
    path = os.path.join(trial.logdir, "result.json")
    try:
        with open_url(path, "r") as file:
            return dict(json.load(file))
    except FileNotFound:
        return dict(trial.metrics)


def _clean_up(result: Result, population: int) -> None:
    """Removes the folders of all generations but the last, and keeps the best trial's."""
    for trial in result.trials[: max(len(result.trials) - population, 0)]:
        if result.best is None or trial.number != result.best.number:
            _hopyard.remove(trial.logdir, True)
