# SPDX-License-Identifier: Apache-2.0
"""Where an estimator's ranks run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod import spark as _spark

__all__ = ["Backend", "SparkBackend", "default_num_proc"]


def default_num_proc() -> int:
    """spark.default.parallelism of the active SparkSession."""
    return int(_spark._context().defaultParallelism)


class Backend:
    """Subclasses run a function on a number of ranks."""

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:  # fmt: skip
        """Returns what `fn(*args, **kwargs)` returned on each rank, by rank."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """The number of ranks."""
        raise NotImplementedError


class SparkBackend(Backend):
    """Runs the ranks with `horovod.spark.run`, which takes all other arguments (`stdout`, `nics`, ...).

    `env` is added to the environment that ranks have in any case.
    """

    def __init__(self, num_proc: int | None = None, env: Mapping[str, str] | None = None, **given: Any) -> None:
        self._num_proc = num_proc or default_num_proc()
        self._env, self._given = env, given

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:  # fmt: skip
        variables = {**(self._env or {}), **(env or {})}
        given = {"tensorboard": False, **self._given}  # an estimator's events are in its store, not with the run
        return _spark.run(fn, args, kwargs, self._num_proc, env=variables, **given)

    def num_processes(self) -> int:
        return self._num_proc
