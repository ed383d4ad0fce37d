# SPDX-License-Identifier: Apache-2.0
"""A connection to the driver of a run."""

import json
import os

from .. import _hopyard
from .._base.errors import Error
from . import program as _program


def connect(run: int, project: str | os.PathLike[str] | None) -> _hopyard.Driver | None:
    """The connection; None if the run has ended."""
    about = json.loads(_program.call("show", str(run), "--json", "--trials", "1", project=project))["run"]
    if "socket" not in about:
        return None
    try:
        return _hopyard.Driver(about["socket"])
    except Error:
        if is_over(run, project):  # it has ended in the meantime
            return None
        raise


def is_over(run: int, project: str | os.PathLike[str] | None) -> bool:
    about = json.loads(_program.call("show", str(run), "--json", "--trials", "1", project=project))["run"]
    return "socket" not in about
