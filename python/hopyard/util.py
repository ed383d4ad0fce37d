# SPDX-License-Identifier: Apache-2.0
"""What a Spark session was configured to, and grids written out."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _spark
from ._errors import Error
from .search import Grid

__all__ = ["grid_params", "num_executors", "num_param_servers"]


def grid_params(grid: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Every combination, as lists of equal length: the i-th values together are the i-th combination."""
    search = Grid(grid)
    combinations = iter(search.ask, None)
    columns: dict[str, list[Any]] = {name: [] for name in grid}
    for trial in combinations:
        for name, value in trial.params.items():
            columns[name].append(value)
    return columns


def num_executors(spark: Any = None) -> int:
    """The session's `spark.executor.instances`, or the most it may have; without either as many as there are."""
    asked = executors_asked_for(spark)
    if asked or spark is None or _spark.is_here(spark):
        return asked or 1
    return _spark.executors(_spark.context_of(spark))


def executors_asked_for(spark: Any) -> int | None:
    """None where the session's settings do not say."""
    fixed = _setting(spark, "spark.executor.instances")
    most = _setting(spark, "spark.dynamicAllocation.maxExecutors")
    grows = _text(spark, "spark.dynamicAllocation.enabled") == "true"
    return most if fixed is None or (grows and most is not None) else fixed


def num_param_servers(spark: Any = None) -> int:
    """The session's `spark.tensorflow.num.ps`, or `$NUM_TF_PS`, or 0."""
    asked = _setting(spark, "spark.tensorflow.num.ps")
    return asked if asked is not None else _number("NUM_TF_PS", os.environ.get("NUM_TF_PS")) or 0


def _text(spark: Any, name: str) -> str | None:
    """A session's setting, or a context's; None where there is none."""
    return None if spark is None else _spark.context_of(spark).getConf().get(name)


def _setting(spark: Any, name: str) -> int | None:
    return _number(name, _text(spark, name))


def _number(name: str, text: str | None) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise Error(f"{name} is '{text}', which is no number") from None
