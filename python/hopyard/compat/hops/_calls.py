# SPDX-License-Identifier: Apache-2.0
"""What the adapters have in common: how hops' calls are read, and how they are answered."""

import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hopyard import Error, _hopyard, hdfs
from hopyard.compat._absent import Absent
from hopyard.util import executors_asked_for

# The names that arguments had in one version or another.
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
    """Early versions take the session first, later ones none: what can be called is the function."""

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        session = given.pop("spark", None)
        if args and not callable(args[0]):
            session, *args = args  # type: ignore[assignment]
        return function(session, *args, **{_NAMES.get(name, name): value for name, value in given.items()})

    return call


def place(spark: Any, name: str) -> dict[str, Any]:
    """hopyard's words for where a run is to be, and what it is called."""
    hdfs.project_path()  # it is used from now on, and gets its folders
    return {"name": None if name == "no-name" else name, **_session(spark)}


def _session(spark: Any) -> dict[str, Any]:
    if spark is None:
        return {}
    return {"spark": spark, "parallel": executors_asked_for(spark)}


class Found(tuple[Any, ...]):
    """(logdir, best hyperparameters), and a path all the same.

    Some guides unpack what a search returns, others take it for the folder and hand it to
    tensorboard.visualize: this is right for both.
    """

    def __fspath__(self) -> str:
        return str(self[0])


@contextmanager
def keeping(resources: Iterable[str] | None) -> Iterator[Callable[[str], None]]:
    """Files to keep with a run: copied as they are now, and handed over when the run has a folder."""
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
    """For a module's __getattr__: names of hops that only Hopsworks can serve."""
    if name not in known:
        raise AttributeError(f"module '{module}' has no attribute '{name}'")
    return Absent(f"{module}.{name}", "a Hopsworks cluster")
