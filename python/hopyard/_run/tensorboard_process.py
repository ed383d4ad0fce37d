# SPDX-License-Identifier: Apache-2.0
"""`hopyard tensorboard` in the background: it ends with this process."""

import atexit
import os
import subprocess
import sys
import tempfile

from .._base.errors import Error
from . import program as _program

Run = tuple[int, str | os.PathLike[str] | None]  # its number, in its project

_of_run: tuple[int, Run, subprocess.Popen[bytes]] | None = None  # and the process it belongs to: a fork has none
_ended: set[str] = set()  # addresses of those that ended by themselves


def launch(what: str, project: str | os.PathLike[str] | None = None) -> tuple[subprocess.Popen[bytes], str]:
    """One on a run or a folder: its process, and its address.

    In a session of its own: a Ctrl-C is for us. It knows by --owner when we are gone.
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
        said = _program.sentence("tensorboard", errors.read())
    raise Error(said or "hopyard tensorboard ended without an address")


def stop(run: int, project: str | os.PathLike[str] | None = None) -> None:
    """Ends the one of this run, if that is our last one: those of others have ended before."""
    if _of_run and _of_run[1] == (run, project):
        _stop()


@atexit.register
def _stop() -> None:
    global _of_run
    if _of_run and _of_run[0] == os.getpid():
        end(_of_run[2])
    _of_run = None


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.communicate()


def show(run: int, project: str | os.PathLike[str] | None = None) -> str | None:
    """The address of one on this run, in place of that of an older run.

    A run does without: where there is no TensorBoard a line on sys.stderr says so.
    """
    global _of_run
    _stop()
    try:
        process, address = launch(str(run), project)
    except Error as error:
        print(f"hopyard: no TensorBoard: {error}", file=sys.stderr)
        return None
    _of_run = os.getpid(), (run, project), process
    return address


def living(address: str | None) -> str | None:
    """The address, unless its TensorBoard has ended by itself: nobody is sent to an address where nothing is."""
    if address in _ended:
        return None
    if not address or not _of_run or _of_run[0] != os.getpid() or _of_run[2].poll() is None:
        return address
    _ended.add(address)
    print("hopyard: TensorBoard has ended by itself; `hopyard tensorboard` says why", file=sys.stderr)
    return None
