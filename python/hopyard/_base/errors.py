# SPDX-License-Identifier: Apache-2.0
"""The exceptions. All derive from hopyard.Error."""

from typing import TYPE_CHECKING

from .._hopyard import Error as Error
from .._hopyard import FileError as FileError
from .._hopyard import FileExists as FileExists
from .._hopyard import FileForbidden as FileForbidden
from .._hopyard import FileNotFound as FileNotFound
from .._hopyard import GroupError as GroupError
from .._hopyard import IsFolder as IsFolder
from .._hopyard import NotFolder as NotFolder

if TYPE_CHECKING:
    from .._run.result import Result


class RunError(Error):
    """A run that did not finish; `result` has what it produced."""

    result: "Result"

    def __init__(self, message: str, result: "Result | None" = None) -> None:  # None: during unpickling
        super().__init__(message)
        if result is not None:
            self.result = result


class TrialsFailed(RunError):
    """Every trial of the run failed; the message has the traceback of the first."""


class FeedTimeout(Error):
    """No node took rows for feed_timeout seconds."""


class Stopped(RunError):
    """The run was stopped; experiment.resume continues it."""


for _class in (RunError, TrialsFailed, Stopped, FeedTimeout):
    _class.__module__ = "hopyard"  # where users import them from


_BY_OSERROR = {
    FileNotFoundError: FileNotFound,
    FileExistsError: FileExists,
    PermissionError: FileForbidden,
    IsADirectoryError: IsFolder,
    NotADirectoryError: NotFolder,
}


def file_error(error: OSError) -> FileError:
    """The hopyard.FileError that corresponds to an OSError."""
    kind = _BY_OSERROR.get(type(error), FileError)
    return kind(error.errno, f"cannot open '{error.filename}': {error.strerror}", error.filename)
