# SPDX-License-Identifier: Apache-2.0
"""TensorBoard: where to write what it shows, and one that is started on any folder."""

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
"""For our process id (a fork has none of its parent's) and a folder: the process, and its address."""


def logdir() -> str:
    """The folder of this trial, or of the run between experiment.begin and experiment.end.

    Elsewhere (a training function that is called by hand) a temporary folder, the same one in all of this
    process. It stays when the process ends, so that TensorBoard can show it.
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
    """Start a TensorBoard on a folder of event files, and all folders in it; returns its address at once.

    It ends with this process. Asked for again it is the same one, as long as that lives.

    path: the folder, on this machine or hdfs://…
    """
    folder = _full(path)
    if not _is_folder(folder):
        raise Error(f"there is no folder '{folder}' to show in TensorBoard")
    process, address = _started.get((os.getpid(), folder), (None, ""))
    if process is None or process.poll() is not None:
        process, address = _started[os.getpid(), folder] = _tensorboard_process.launch(folder)
    return address


def end(path: str | os.PathLike[str]) -> None:
    """Ends the one that visualize() has started on this folder, if there is one."""
    process, _ = _started.pop((os.getpid(), _full(path)), (None, ""))
    if process is not None:
        _tensorboard_process.end(process)
