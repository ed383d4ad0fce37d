# SPDX-License-Identifier: Apache-2.0
"""TensorBoard: the log directory of a trial, and TensorBoards on other directories."""

import functools
import os
import subprocess
import sys
import tempfile

from . import _hopyard
from ._base.errors import Error, FileError
from ._run import tensorboard_process as _tensorboard_process

__all__ = ["logdir", "visualize"]

_started: dict[tuple[int, str], tuple[subprocess.Popen[bytes], str]] = {}
"""By process id (a fork does not have its parent's) and directory: the process, and its address."""


def logdir() -> str:
    """The directory of this trial, or of the run between experiment.begin and experiment.end.

    Otherwise (a training function that is called directly) a temporary directory, one per process. It is kept when the
    process ends, so that TensorBoard can show it.
    """
    return os.environ.get("HOPYARD_TRIAL_DIR") or _temporary()


@functools.cache
def _temporary() -> str:
    folder = tempfile.mkdtemp(prefix="hopyard-")
    print(f"hopyard: this is not a trial, so tensorboard.logdir() is {folder}", file=sys.stderr)
    return folder


def _is_folder(path: str) -> bool:
    try:
        return _hopyard.stat(path).is_dir
    except FileError:
        return False


def _full(path: str | os.PathLike[str]) -> str:
    return os.fspath(path) if "://" in os.fspath(path) else os.path.abspath(os.fspath(path))


def visualize(path: str | os.PathLike[str]) -> str:
    """Start a TensorBoard on a directory of event files and its subdirectories; returns its address.

    It ends with this process. Another call with the same directory returns the same TensorBoard, if it is still
    running.

    path: the directory, on this machine or hdfs://…
    """
    folder = _full(path)
    if not _is_folder(folder):
        raise Error(f"cannot start TensorBoard: '{folder}' is not a directory")
    process, address = _started.get((os.getpid(), folder), (None, ""))
    if process is None or process.poll() is not None:
        process, address = _started[os.getpid(), folder] = _tensorboard_process.launch(folder)
    return address


def end(path: str | os.PathLike[str]) -> None:
    """Ends the TensorBoard that visualize() has started on this directory, if any."""
    process, _ = _started.pop((os.getpid(), _full(path)), (None, ""))
    if process is not None:
        _tensorboard_process.end(process)
