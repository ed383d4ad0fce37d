# SPDX-License-Identifier: Apache-2.0
"""Runs the same function on many executors, independently."""

from collections.abc import Callable
from typing import Any

from hopyard import cluster, experiment

from .TFCluster import default_fs

__all__ = ["run"]


def run(
    sc: Any,
    map_fn: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    use_barrier: bool = True,
    **settings: Any,
) -> None:
    """Calls `map_fn(tf_args, ctx)` on `num_executors` executors: at once, or (use_barrier=False) as they become free.

    `ctx` has worker_num, executor_id, num_workers and defaultFS. If one fails, its traceback is raised.
    """
    home = default_fs(sc)
    settings = {"tensorboard": False, "gpus": getattr(tf_args, "num_gpus", None), **settings}
    if use_barrier:
        cluster.run(map_fn, tf_args, num_executors, default_fs=home, spark=sc, **settings).shutdown()
        return

    def alone(worker_num: int) -> None:
        import os

        from hopyard._trial.cluster_node import Context

        spec = {"worker": [""] * num_executors}
        map_fn(tf_args, Context(worker_num, "worker", worker_num, spec, home, os.getcwd()))

    experiment.grid_search(alone, {"worker_num": list(range(num_executors))}, spark=sc, **settings)
