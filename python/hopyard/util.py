# SPDX-License-Identifier: Apache-2.0
"""The configured sizes of a Spark session, and expanded grids."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._spark import session as _session
from .search import Grid

__all__ = ["grid_params", "num_executors", "num_param_servers"]


def grid_params(grid: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Every combination, as lists of equal length: the i-th values are the i-th combination."""
    search = Grid(grid)
    combinations = iter(search.ask, None)
    columns: dict[str, list[Any]] = {name: [] for name in grid}
    for trial in combinations:
        for name, value in trial.params.items():
            columns[name].append(value)
    return columns


def num_executors(spark: Any = None) -> int:
    """The configured number of executors (see hopyard.spark), or the maximum; else the current number.

    Without a session, that of a notebook's form, or 1.
    """
    configured = executors_asked_for(spark)
    if configured or spark is None or _session.is_local(spark):
        return configured or 1
    return len(_session.listed(_session.context_of(spark))) or 1


def executors_asked_for(spark: Any) -> int | None:
    """The configured number; None if it is not configured."""
    if spark is None:
        return _session.from_environment(_session.EXECUTORS)
    context = _session.context_of(spark)
    most = context.getConf().get("spark.dynamicAllocation.maxExecutors")
    grows = context.getConf().get("spark.dynamicAllocation.enabled") == "true"
    fixed = _session.find(_session.EXECUTORS, context.getConf(), None)
    if most and (fixed is None or grows) and not context.getConf().get(_session.EXECUTORS.ours):
        return _session.number("spark.dynamicAllocation.maxExecutors", most)
    return fixed


def num_param_servers(spark: Any = None) -> int:
    """The configured number of parameter servers (see hopyard.spark), or `$NUM_TF_PS`, or 0."""
    conf = {} if spark is None else _session.context_of(spark).getConf()
    configured = _session.find(_session.SERVERS, conf, None)
    from_shell = os.environ.get("NUM_TF_PS")
    return configured if configured is not None else _session.number("NUM_TF_PS", from_shell) if from_shell else 0
