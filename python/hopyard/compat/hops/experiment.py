# SPDX-License-Identifier: Apache-2.0
"""Experiments of hops: launch, grid_search, random_search, evolutionary_search, begin and end; and trainings on all
executors: collective_all_reduce, parameter_server, mirrored.

The session is an optional first argument. In addition to hops' arguments they accept hopyard's: parallel, memory,
timeout, retries, seed, gpus, tensorboard. The return value depends on the version of the API: early versions return the
run's directory from launch and (directory, best hyperparameters) from a search. Versions since 1.2, recognized by
`metric_key`, `optimization_key` or a Direction, add the function's return value.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hopyard import Error, _hopyard, cluster, experiment
from hopyard._base.errors import FileNotFound
from hopyard._base.files import open_url
from hopyard._code import bundle as _bundle
from hopyard._run.settings import UNSTATED
from hopyard.experiment import Result, Trial

from . import allreduce
from ._calls import Found, keeping, place, with_or_without_spark
from .util import num_executors, num_param_servers

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
        experiment.launch, spark, fn, args or None, name, versioned_resources,
        **{"metric": metric_key, "direction": "max", **options},
    )  # fmt: skip
    if metric_key is None:
        return result.logdir
    return result.logdir, _returned(result.trials[0]) if len(result.trials) == 1 else None


@with_or_without_spark
def grid_search(
    spark: Any, fn: Any, args_dict: Lists, direction: str = UNSTATED, name: str = "no-name",
    local_logdir: bool = False, versioned_resources: Paths = None, description: Text = None,
    *, optimization_key: Text = None, **options: Any,
) -> Found:  # fmt: skip
    """Runs the function with every combination. It need not return anything; then there is no best trial."""
    result = _run(
        experiment.grid_search, spark, fn, args_dict, name, versioned_resources,
        direction=direction, metric=optimization_key, **options,
    )  # fmt: skip
    return _found(result, direction, optimization_key)


@with_or_without_spark
def random_search(
    spark: Any, fn: Any, args_dict: Lists, direction: str = UNSTATED, samples: int = 10, name: str = "no-name",
    local_logdir: bool = False, versioned_resources: Paths = None, description: Text = None,
    *, optimization_key: Text = None, **options: Any,
) -> Found:  # fmt: skip
    """Runs the function at points drawn between the bounds."""
    result = _run(
        experiment.random_search, spark, fn, args_dict, name, versioned_resources,
        direction=direction, samples=samples, metric=optimization_key, **options,
    )  # fmt: skip
    return _found(result, direction, optimization_key)


@with_or_without_spark
def evolutionary_search(
    spark: Any, fn: Any, args_dict: Lists, direction: str = UNSTATED, generations: int = 10,
    population: int = 10, mutation: float = 0.5, crossover: float = 0.7, cleanup_generations: bool = False,
    name: str = "no-name", local_logdir: bool = False, versioned_resources: Paths = None,
    description: Text = None, *, optimization_key: Text = None, strategy: str = "rand1bin", **options: Any,
) -> Found:  # fmt: skip
    """Differential evolution between the bounds, rand/1/bin as in hops. The function must return a metric."""
    result = _run(
        experiment.evolutionary_search, spark, fn, args_dict, name, versioned_resources,
        direction=direction, generations=generations, population=population, mutation=mutation,
        crossover=crossover, strategy=strategy, metric=optimization_key, **options,
    )  # fmt: skip
    if cleanup_generations:
        _clean_up(result, population)
    return _found(result, direction, optimization_key)


differential_evolution = evolutionary_search


@with_or_without_spark
def mirrored(spark: Any, fn: Any, *args: Any, evaluator: bool = False, **given: Any) -> Any:
    """Runs the function once with all its GPUs, for a MirroredStrategy on one machine.

    On a session with several executors it runs on each of them, as collective_all_reduce does.
    """
    if evaluator or given.get("num_nodes") or num_executors(spark) > 1:
        return _on_all(spark, fn, 0, *args, **{"evaluator": evaluator, **given})
    return launch(spark, fn, None, *args, **given)


@with_or_without_spark
def collective_all_reduce(spark: Any, fn: Any, *args: Any, **given: Any) -> str | tuple[str, Any]:
    """Calls the function on every executor, with TF_CONFIG set for a MultiWorkerMirroredStrategy: a chief and workers.

    `evaluator=True`: the last one is an evaluator. `num_nodes` says how many there are where there is no session.
    """
    return _on_all(spark, fn, 0, *args, **given)


@with_or_without_spark
def parameter_server(
    spark: Any, fn: Any, *args: Any, num_ps: int | None = None, **given: Any
) -> str | tuple[str, Any]:
    """The same for a ParameterServerStrategy: `num_ps` executors, or as configured, are parameter servers."""
    return _on_all(spark, fn, num_param_servers(spark) if num_ps is None else num_ps, *args, **given)


def _on_all(
    spark: Any, fn: Any, ps: int, name: str = "no-name", local_logdir: bool = False,
    versioned_resources: Paths = None, description: Text = None, evaluator: bool = False, *,
    metric_key: Text = None, num_nodes: int | None = None, **options: Any,
) -> str | tuple[str, Any]:  # fmt: skip
    """The run's directory; with `metric_key` also the chief's return value, as in hops since 1.2."""
    nodes = num_nodes or num_executors(spark)
    workers = nodes - ps - 1 - bool(evaluator)
    if workers < 0:
        raise Error(
            f"{nodes} executors are too few for a chief{f', {ps} parameter servers' if ps else ''}"
            f"{' and an evaluator' if evaluator else ''}; configure more, or set num_nodes="
        )
    where = place(spark, name)
    where.pop("parallel", None)
    with keeping(versioned_resources) as keep:
        started = cluster.run(
            _with_context(fn), None, workers, ps, chief=True, evaluator=evaluator, **{**where, **options}
        )
        found = started.results().get("chief-0")
        logdir = experiment.result(started.run, project=options.get("project")).logdir
        keep(logdir)
    return logdir if metric_key is None else (logdir, found)


def _with_context(fn: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    """The node's function for a function without arguments, as in hops."""

    def training(args: Any, ctx: Any) -> Any:
        return fn()

    training.__name__ = _bundle.name_of(fn)
    return training


def horovod(spark: Any, notebook: Any = None, **given: Any) -> str:
    """allreduce.launch by another name: a notebook on every worker; returns the run's directory."""
    return allreduce.launch(spark, notebook, **given)


def begin(
    spark: Any = None, name: str = "no-name", local_logdir: bool = False, versioned_resources: Paths = None,
    description: Text = None, **options: Any,
) -> str:  # fmt: skip
    """Begins an experiment whose trial is this process; returns its directory. experiment.end() ends it."""
    if isinstance(spark, str):  # begin('name')
        spark, name = None, spark
    where = place(spark, name)
    where.pop("parallel", None)
    with keeping(versioned_resources) as keep:
        logdir = experiment.begin(**where, **options)
        keep(logdir)
    return logdir


def end(metric: float | None = None) -> None:
    """Ends the experiment of begin(), with its metric if it has one."""
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
    best = result._best
    found = (result.logdir, best.params if best else None)
    if key is not None or direction in (Direction.MAX, Direction.MIN):
        return Found((*found, _returned(best) if best else None))
    return Found(found)


def _returned(trial: Trial) -> dict[str, Any]:
    """All values that the function returned, including strings; or its reported metrics."""
    path = os.path.join(trial.logdir, "result.json")
    try:
        with open_url(path, "r") as file:
            return dict(json.load(file))
    except FileNotFound:
        return dict(trial.metrics)


def _clean_up(result: Result, population: int) -> None:
    """Removes the directories of all generations except the last, and keeps the best trial's."""
    for trial in result.trials[: max(len(result.trials) - population, 0)]:
        if result._best is None or trial.number != result._best.number:
            _hopyard.remove(trial.logdir, True)
