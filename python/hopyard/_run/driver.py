# SPDX-License-Identifier: Apache-2.0
"""A connection to the driver of a run."""

import json
import os
from typing import Any

from .. import _hopyard
from .._base.errors import Error
from . import program as _program


def connect(run: int, project: str | os.PathLike[str] | None) -> _hopyard.Driver | None:
    """The connection; None if the run has ended."""
    socket = _socket(run, project)
    try:
        return _hopyard.Driver(socket) if socket else None
    except Error:
        if _socket(run, project):
            raise
        return None  # it has ended in the meantime


def last_update(driver: _hopyard.Driver) -> dict[str, Any] | None:
    """The last update of a driver that is watched and has ended the run; None if it is to be read from the store."""
    try:
        while (event := driver.next(0)) is not None:
            if event.get("update", {}).get("last"):
                update: dict[str, Any] = event["update"]
                return update
    except (TimeoutError, Error):  # the user has detached; the driver had too many clients to accept this one
        return None
    return None


def stop(driver: _hopyard.Driver) -> None:
    """Stops the run, and waits until it has ended."""
    driver.watch()
    driver.stop()
    while driver.next() is not None:
        pass


def _socket(run: int, project: str | os.PathLike[str] | None) -> str | None:
    """The path of the driver's socket; None if the run has no driver."""
    shown = json.loads(_program.call("show", str(run), "--json", "--trials", "1", project=project))
    socket: str | None = shown["run"].get("socket")
    return socket
