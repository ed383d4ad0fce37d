# SPDX-License-Identifier: Apache-2.0
"""The program `hopyard`: finds it, calls it, and submits runs to it."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from typing import TypedDict, Unpack

from .. import _hopyard
from .._base.errors import Error

Options = list[tuple[str, str]]
"""Names and values of options of the program, without dashes; the value of a flag is ""."""

_OTHER_NAMES = {
    "random": "samples", "async": "asynchronous", "num-proc": "np", "max": "metric", "min": "metric",
    "stop-min": "stop: min", "stop-max": "stop: max", "stop-pause": "stop: pause", "stop-grace": "stop: grace",
    "reduction": "stop: reduction", "patience": "stop: steps", "min-delta": "stop: min_delta",
}  # fmt: skip


class Fields(TypedDict, total=False):
    """What is submitted for a run besides options; see _hopyard.Driver.submit."""

    function: bytes
    title: str
    metric_optional: bool
    app_id: str
    roles: list[tuple[str, int]]
    fed: bool
    warm_key: str
    address: str


def find() -> str:
    """$HOPYARD_PROGRAM, the one installed with this package, or the one in PATH."""
    given = os.environ.get("HOPYARD_PROGRAM")
    if given:
        return given
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    places = [sysconfig.get_path("scripts", scheme) for scheme in schemes]
    found = shutil.which("hopyard", path=os.pathsep.join(places)) or shutil.which("hopyard")
    if not found:
        raise Error(f"the program 'hopyard' is neither in {places[0]} nor in PATH; reinstall hopyard")
    return found


def command(*args: str, project: str | os.PathLike[str] | None = None) -> list[str]:
    """The command line `hopyard ARGS…` for a project; None: $HOPYARD_PROJECT, or the current directory."""
    place = [] if project is None else ["--project", os.fspath(project)]
    return [find(), args[0], *place, *args[1:]]


def call(*args: str, project: str | os.PathLike[str] | None = None, input: bytes = b"") -> str:
    """The output of `hopyard ARGS…`; raises an Error with its message if it fails.

    The program runs in a new session, so that Ctrl-C interrupts this process only, and not the program half-way.
    """
    line = command(*args, project=project)
    try:
        done = subprocess.run(line, input=input, capture_output=True, start_new_session=True)
    except OSError as error:
        raise Error(f"cannot start {line[0]}: {error.strerror}") from None
    if done.returncode:
        raise Error(
            error_message(args[0], done.stderr) or f"hopyard {args[0]} ended with status {done.returncode}"
        )
    return done.stdout.decode(errors="replace")


def error_message(name: str, stderr: bytes) -> str:
    """The error message of `hopyard NAME`, without its prefix and the notes before it."""
    return stderr.decode(errors="replace").rpartition(f"hopyard {name}: ")[2].strip()


def submit(
    command: str, options: Options, project: str | os.PathLike[str] | None, run: str = "",
    argv: Sequence[str] = (), **fields: Unpack[Fields],
) -> _hopyard.Driver:  # fmt: skip
    """Starts a run as `hopyard COMMAND` does, and connects to its driver."""
    place = [] if project is None else [("project", os.fspath(project))]
    try:
        return _hopyard.Driver.submit(find(), command, [*place, *options], run=run, argv=list(argv), **fields)
    except Error as error:
        option: str = getattr(error, "option", "")
        if not option:
            raise
        raise Error(f"{_OTHER_NAMES.get(option, option.replace('-', '_'))}= {error}") from None
