# SPDX-License-Identifier: Apache-2.0
"""The program `hopyard`, which does the work: where it is, and one call of it."""

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
    """$HOPYARD_PROGRAM, the one installed with this package, or the one of the PATH."""
    given = os.environ.get("HOPYARD_PROGRAM")
    if given:
        return given
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    places = [sysconfig.get_path("scripts", scheme) for scheme in schemes]
    found = shutil.which("hopyard", path=os.pathsep.join(places)) or shutil.which("hopyard")
    if not found:
        raise Error(f"the program 'hopyard' is neither in {places[0]} nor in the PATH; install hopyard again")
    return found


def command(*args: str, project: str | os.PathLike[str] | None = None) -> list[str]:
    """The command line `hopyard ARGS…` for this project; None: $HOPYARD_PROJECT, or the folder we are in."""
    place = [] if project is None else ["--project", os.fspath(project)]
    return [find(), args[0], *place, *args[1:]]


def call(*args: str, project: str | os.PathLike[str] | None = None, input: bytes = b"") -> str:
    """What `hopyard ARGS…` prints; an Error with its sentence when it fails.

    In a session of its own: a Ctrl-C is for us, and must not end it half-way.
    """
    line = command(*args, project=project)
    try:
        done = subprocess.run(line, input=input, capture_output=True, start_new_session=True)
    except OSError as error:
        raise Error(f"cannot start {line[0]}: {error.strerror}") from None
    if done.returncode:
        raise Error(
            sentence(args[0], done.stderr) or f"hopyard {args[0]} ended with status {done.returncode}"
        )
    return done.stdout.decode(errors="replace")


def sentence(name: str, said: bytes) -> str:
    """What `hopyard NAME` complained of, without its name and the notes before it."""
    return in_python(said.decode(errors="replace").rpartition(f"hopyard {name}: ")[2].strip())


def in_python(text: str) -> str:
    """A sentence of the program's, in the names of Python: memory= for --memory, gpus=1 for --gpus 1."""
    text = _SETTING.sub(_as_argument, text)
    text = re.sub(r"(?<!\w)(\w+=\S+) \(\1\)", r"\1", text)  # where it had both
    return _COMMAND.sub(r"experiment.\2(\3)", text)


def advice_in_python(text: str) -> str:
    """The same for text that may have words of the user's own in it (an exception, a value): only what is advice."""
    text = _ADVICE.sub(lambda found: in_python(found[0]), text)
    return re.sub(r"(?<!\w)(gpus=\d+) \(\1\)", r"\1", text)


def _as_argument(found: re.Match[str]) -> str:
    name = _OTHER_NAMES.get(found[1], found[1].replace("-", "_"))
    return f"{name}={found[2] or ''}"
