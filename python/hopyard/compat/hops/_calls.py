# SPDX-License-Identifier: Apache-2.0
"""Shared by the adapters: hops' arguments and return values."""

import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hopyard import Error, _hopyard, hdfs
from hopyard._jupyter import session as _notebook_session
from hopyard._spark import session as _spark_session
from hopyard.compat._absent import Absent
from hopyard.util import executors_asked_for

# Names of arguments in various versions.
_NAMES = {
    "map_fun": "fn",
    "train_fn": "fn",
    "objective_function": "fn",
    "grid_dict": "args_dict",
    "search_dict": "args_dict",
    "boundary_dict": "args_dict",
    "popsize": "population",
}


def with_or_without_spark(function: Callable[..., Any]) -> Callable[..., Any]:
    """Early versions take the session as first argument, later ones do not: the callable argument is the function.

    Without it, a notebook whose form selects a cluster uses its session.
    """

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if args and not callable(args[0]):
            given["spark"], *args = args  # type: ignore[assignment]
        session = given.pop("spark") if "spark" in given else _notebook_session.on_cluster()
        return function(session, *args, **{_NAMES.get(name, name): value for name, value in given.items()})

    return call


def place(spark: Any, name: str) -> dict[str, Any]:
    """hopyard's settings for the place and name of a run."""
    hdfs.project_path()  # creates the project's directories
    return {"name": None if name == "no-name" else name, **_session(spark)}


def _session(spark: Any) -> dict[str, Any]:
    if spark is None:
        return {}
    is_set = _spark_session.find(_spark_session.PARALLEL, _spark_session.context_of(spark).getConf(), None)
    return {"spark": spark, "parallel": None if is_set else executors_asked_for(spark)}


class Found(tuple[Any, ...]):
    """(logdir, best hyperparameters), which is also usable as a path.

    Some guides unpack what a search returns, others take it for the folder and hand it to
    tensorboard.visualize: this is right for both.
    """

    def __fspath__(self) -> str:
        return str(self[0])


@contextmanager
def keeping(resources: Iterable[str] | None) -> Iterator[Callable[[str], None]]:
    """Files to keep with a run: copied now, and moved when the run has a directory."""
    with tempfile.TemporaryDirectory() as folder:
        for resource in [resources] if isinstance(resources, str) else resources or ():
            if not hdfs.exists(resource):
                source = hdfs.abs_path(resource)
                raise Error(f"there is no '{source}' to keep with the run; correct versioned_resources")
            hdfs.copy_to_local(resource, folder)
        yield lambda logdir: _hand_over(folder, logdir)


def _hand_over(folder: str, logdir: str) -> None:
    for name in os.listdir(folder):
        kept = _hopyard.join(logdir, "versioned_resources")
        _hopyard.mkdirs(kept)
        _hopyard.copy(os.path.join(folder, name), kept, True)


def needs_hopsworks(module: str, name: str, known: set[str]) -> Absent:
    """For a module's __getattr__: names of hops that need Hopsworks."""
    if name not in known:
        raise AttributeError(f"module '{module}' has no attribute '{name}'")
    return Absent(f"{module}.{name}", "a Hopsworks cluster")
