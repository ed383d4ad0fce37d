# SPDX-License-Identifier: Apache-2.0
"""TensorBoard: where to write what it shows, and one that is started on any folder."""

import os
import subprocess

from . import _hopyard, _tensorboard
from ._errors import Error, FileError

__all__ = ["logdir", "visualize"]

_started: dict[tuple[int, str], tuple[subprocess.Popen[bytes], str]] = {}
"""For our process id (a fork has none of its parent's) and a folder: the process, and its address."""


def logdir() -> str:
    """The folder of this trial, or of the run between experiment.begin and experiment.end."""
    folder = os.environ.get("HOPYARD_TRIAL_DIR")
    if not folder:
        raise Error(
            "there is no logdir outside of a trial; call this in the function that is run, "
            "or between experiment.begin() and experiment.end()"
        )
    return folder


def _is_folder(path: str) -> bool:
    try:
        return _hopyard.stat(path).is_dir
    except FileError:
        return False


def visualize(path: str | os.PathLike[str]) -> str:
    """Starts a TensorBoard on a folder of event files, and all folders in it; its address, at once.

    It ends with this process. Asked for again it is the same one, as long as that lives.
    """
    folder = os.fspath(path) if "://" in os.fspath(path) else os.path.abspath(os.fspath(path))
    if not _is_folder(folder):
        raise Error(f"there is no folder '{folder}' to show in TensorBoard")
    process, address = _started.get((os.getpid(), folder), (None, ""))
    if process is None or process.poll() is not None:
        process, address = _started[os.getpid(), folder] = _tensorboard.launch(folder)
    return address
