# SPDX-License-Identifier: Apache-2.0
"""horovod.spark: runs a function on many ranks, on the executors of the active SparkSession."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hopyard import Error

_NO_MPI = "hopyard has its own transports, and does not use MPI"
_UNSERVED = {
    "use_mpi": _NO_MPI,
    "extra_mpi_args": _NO_MPI,
    "executable": "the function runs in the Python of the executors, which spark.pyspark.python names",
}
"""Unsupported arguments, and what to do instead."""


def run(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None, start_timeout: int | None = None, use_mpi: bool | None = None,
    use_gloo: bool | None = None, extra_mpi_args: str | None = None, env: Mapping[str, str] | None = None,
    stdout: Any = None, stderr: Any = None, verbose: int = 1, nics: str | Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False, executable: str | None = None, *, tensorboard: bool = True,
) -> list[Any]:  # fmt: skip
    """Runs `fn(*args, **kwargs)` on all ranks; returns their return values, by rank.

    `num_proc` is spark.default.parallelism unless it is said. What the ranks print on either stream goes to
    `stdout`. `start_timeout`, `use_gloo`, `stderr` and `prefix_output_with_timestamp` are taken and change nothing.
    `tensorboard` is hopyard's own: whether one is started for the run.
    """
    given = locals()
    for name, instead in _UNSERVED.items():
        if given[name]:
            raise Error(f"horovod.spark.run does not support {name} here: {instead}")
    return _train(fn, args, kwargs, num_proc, env, stdout, verbose, nics, tensorboard=tensorboard)


def run_elastic(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None, min_num_proc: int | None = None, max_num_proc: int | None = None,
    start_timeout: int | None = None, elastic_timeout: int | None = None, reset_limit: int | None = None,
    env: Mapping[str, str] | None = None, stdout: Any = None, stderr: Any = None, verbose: int = 1,
    nics: str | Iterable[str] | None = None, prefix_output_with_timestamp: bool = False,
    min_np: int | None = None, max_np: int | None = None,
) -> list[Any]:  # fmt: skip
    """The same with elastic ranks: with fewer than `min_num_proc` the training waits.

    Both limits are `num_proc` unless they are said; of what `run` takes and does not need, `elastic_timeout` is more.
    """
    for old, new, value in (("min_np", "min_num_proc", min_np), ("max_np", "max_num_proc", max_np)):
        if value is not None:
            warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=2)
    ranks = _context().defaultParallelism if num_proc is None else num_proc
    least = min_num_proc if min_np is None else min_np
    most = max_num_proc if max_np is None else max_np
    return _train(
        fn, args, kwargs, ranks, env, stdout, verbose, nics, reset_limit=reset_limit,
        min_np=ranks if least is None else least, max_np=ranks if most is None else most,
    )  # fmt: skip


def _context() -> Any:
    from pyspark import SparkContext

    if SparkContext._active_spark_context is None:
        raise Error("there is no active SparkSession; create one first: SparkSession.builder.getOrCreate()")
    return SparkContext._active_spark_context


def _train(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None, ranks: int | None,
    env: Mapping[str, str] | None, stdout: Any, verbose: int, nics: str | Iterable[str] | None, **more: Any,
) -> list[Any]:  # fmt: skip
    from hopyard import allreduce

    context = _context()
    with contextlib.nullcontext() if stdout is None else contextlib.redirect_stdout(stdout):
        return allreduce.run(
            fn, args, kwargs, np=context.defaultParallelism if ranks is None else ranks, spark=context,
            env=_meant(env or {}), interfaces=nics, verbose=verbose > 1, **more,
        )  # fmt: skip


def _meant(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that were added to a copy of the whole environment: an executor has a different PATH."""
    whole = os.environ.items() <= env.items()
    return dict(env.items() - os.environ.items()) if whole else dict(env)
