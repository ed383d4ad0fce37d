# SPDX-License-Identifier: Apache-2.0
"""`hopyard tensorboard` in the background; it ends with this process."""

import atexit
import os
import subprocess
import sys
import tempfile

from .._base.errors import Error
from . import program as _program

Run = tuple[int, str | os.PathLike[str] | None]  # its number, in its project

_current: tuple[int, Run, subprocess.Popen[bytes]] | None = None  # with the ID of this process: it is invalid in a fork
_ended: set[str] = set()  # addresses of TensorBoards that have ended unexpectedly


def launch(what: str, project: str | os.PathLike[str] | None = None) -> tuple[subprocess.Popen[bytes], str]:
    """Starts TensorBoard on a run or a directory: its process, and its address.

    It runs in a new session, so that Ctrl-C does not reach it. It watches --owner and ends with this process.
    """
    command = _program.command("tensorboard", what, "--owner", str(os.getpid()), project=project)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        assert process.stdout is not None
        address = process.stdout.readline().decode(errors="replace").strip().rpartition(" ")[2]
        if address.startswith("http"):
            return process, address
        process.communicate()
        errors.seek(0)
        message = _program.error_message("tensorboard", errors.read())
    raise Error(message or "hopyard tensorboard ended without printing an address")


def stop(run: int, project: str | os.PathLike[str] | None = None) -> None:
    """Ends the TensorBoard of this run, if it is the current one: earlier ones have been ended."""
    if _current and _current[1] == (run, project):
        _stop()


@atexit.register
def _stop() -> None:
    global _current
    if _current and _current[0] == os.getpid():
        end(_current[2])
    _current = None


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.communicate()


def show(run: int, project: str | os.PathLike[str] | None = None) -> str | None:
    """Starts a TensorBoard on this run, ends that of an older run, and returns its address.

    A run works without it: if it cannot be started, the reason is printed to sys.stderr.
    """
    global _current
    _stop()
    try:
        process, address = launch(str(run), project)
    except Error as error:
        print(f"hopyard: no TensorBoard: {error}", file=sys.stderr)
        return None
    _current = os.getpid(), (run, project), process
    return address


def if_running(address: str | None) -> str | None:
    """The address, unless its TensorBoard has ended unexpectedly."""
    if address in _ended:
        return None
    if not address or not _current or _current[0] != os.getpid() or _current[2].poll() is None:
        return address
    _ended.add(address)
    print("hopyard: TensorBoard has ended unexpectedly; run `hopyard tensorboard` to see why", file=sys.stderr)
    return None
