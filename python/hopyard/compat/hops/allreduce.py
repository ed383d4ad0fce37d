# SPDX-License-Identifier: Apache-2.0
"""Horovod programs on many workers."""

import os
import tempfile
from typing import Any

from hopyard import Error, allreduce, hdfs
from hopyard._jupyter import session as _notebook_session
from hopyard.util import num_executors

from ._calls import place

Path = str | os.PathLike[str]


def launch(
    spark_session: Any, notebook: Path | None = None, *, num_workers: int | None = None, name: str = "no-name",
    **options: Any,
) -> str:  # fmt: skip
    """Runs a notebook of the project on every worker, one per executor of the session; returns the run's directory.

    `num_workers` says how many where there is no session. Beyond that it takes hopyard.allreduce's arguments.
    """
    if notebook is None:  # launch('Jupyter/horovod.ipynb')
        spark_session, notebook = _notebook_session.on_cluster(), spark_session
    where = place(spark_session, name)
    where.pop("parallel", None)
    ranks = num_workers or num_executors(spark_session)
    with tempfile.TemporaryDirectory() as folder:
        path = _found(notebook)
        path = hdfs.copy_to_local(path, folder) if "://" in path else path
        return allreduce.run_notebook(path, np=ranks, **{**where, **options}).logdir


def _found(notebook: Path) -> str:
    """A notebook in the project, or in its directory Jupyter."""
    if not isinstance(notebook, str | os.PathLike):
        raise Error(f"{notebook!r:.60} is not the path of a notebook")
    text = os.fspath(notebook)
    places = [hdfs.abs_path(text)]
    if not os.path.isabs(text):
        places.append(hdfs.abs_path(os.path.join("Jupyter", text)))
    for path in places:
        if hdfs.isfile(path):
            return path
    raise Error(f"there is no notebook '{places[0]}'; a project's notebooks are in its directory Jupyter")
