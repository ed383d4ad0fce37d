# SPDX-License-Identifier: Apache-2.0
"""The program `hopyard`: finds it and calls it."""

import os
import re
import shutil
import subprocess
import sysconfig

from .._base.errors import Error

_SETTING = re.compile(
    r"(?<![\w-])--?(parallel|memory|max-transfer|timeout|disk-timeout|retries|seed|gpus|oversubscribe|name|hosts|population|generations|mutation|crossover|strategy|"
    r"random|async|project|app-id|np|min-np|max-np|hostfile)(?![\w-])(?: (\d[\w.]*))?"
)
_OTHER_NAMES = {"random": "samples", "async": "asynchronous"}
_ADVICE = re.compile(r"\b(?:raise|lower|pass|leave) --?[a-z-]+(?: \d[\w.]*)?")
_COMMAND = re.compile(r"([`']?)\bhopyard (resume|attach) (\d+)\1")


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
    return in_python(stderr.decode(errors="replace").rpartition(f"hopyard {name}: ")[2].strip())


def in_python(text: str) -> str:
    """A message of the program with Python's names for options: memory= for --memory, gpus=1 for --gpus 1."""
    text = _SETTING.sub(_as_argument, text)
    text = re.sub(r"(?<!\w)(\w+=\S+) \(\1\)", r"\1", text)  # the message had both forms
    return _COMMAND.sub(r"experiment.\2(\3)", text)


def advice_in_python(text: str) -> str:
    """The same for text that may contain the user's words (an exception, a value): only advice is changed."""
    text = _ADVICE.sub(lambda found: in_python(found[0]), text)
    return re.sub(r"(?<!\w)(gpus=\d+) \(\1\)", r"\1", text)


def _as_argument(found: re.Match[str]) -> str:
    name = _OTHER_NAMES.get(found[1], found[1].replace("-", "_"))
    return f"{name}={found[2] or ''}"
