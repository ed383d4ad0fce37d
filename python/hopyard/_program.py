# SPDX-License-Identifier: Apache-2.0
"""The program `hopyard`, which does the work: where it is, and one call of it."""

import os
import re
import shutil
import subprocess
import sysconfig

from ._errors import Error

_SETTING = re.compile(
    r"(?<![\w-])--?(parallel|memory|timeout|retries|seed|gpus|name|hosts|population|generations|mutation|crossover|strategy|"
    r"np|min-np|max-np|hostfile)\b"
)


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
    """A sentence of the program's, which speaks of --memory, for who has written memory='4G'."""
    return _SETTING.sub(lambda found: f"{found[1].replace('-', '_')}=", text)
