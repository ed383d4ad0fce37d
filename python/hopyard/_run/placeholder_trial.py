# SPDX-License-Identifier: Apache-2.0
"""The trial between experiment.begin() and end(): it stands for a process that runs elsewhere, ours.

    python -m hopyard._run.placeholder_trial SOCKET

It tells us its part of the environment, and waits. end() sends what came out, as JSON, which becomes the
trial's result; when the socket closes without that, the trial has failed. Both sides are in this file.
"""

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import Any

from .. import _hopyard

SHARED = tuple(f"HOPYARD_{name}" for name in ("RUN", "TRIAL", "TRIAL_DIR", "SOCKET", "TAG", "SEED"))
SOCKET_PATH_MAX = 107

# ---- the trial's side -----------------------------------------------------------------------


def hold(path: str) -> str | None:
    """Why the trial failed; None when it did not."""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
        except OSError as error:
            return f"the process that called experiment.begin() cannot be reached: {error.strerror}"
        with s.makefile("rw", encoding="utf-8") as talk:
            print(json.dumps({name: os.environ.get(name, "") for name in SHARED}), file=talk, flush=True)
            said = talk.readline()
    if not said.endswith("\n"):
        return "the process that called experiment.begin() has ended without experiment.end()"
    if said.strip() != "null":
        with open(os.environ["HOPYARD_RESULT"], "w", encoding="utf-8") as result:
            result.write(said)
    return None


# ---- our side ---------------------------------------------------------------------------------


class Meeting:
    """The socket at which the trial finds us, in a folder that only we may enter."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="hopyard-")
        if len(os.fsencode(self.folder)) > SOCKET_PATH_MAX - 2:
            os.rmdir(self.folder)
            self.folder = tempfile.mkdtemp(prefix="hopyard-", dir="/tmp")
        self.path = os.path.join(self.folder, "s")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)

    def wait(self, watching: list[str]) -> "Held | None":
        """The trial, once it is here; None when `watching`, which lasts as long as the run, ends first."""
        none, pipe = subprocess.DEVNULL, subprocess.PIPE
        with subprocess.Popen(watching, stdin=none, stdout=pipe, start_new_session=True) as watcher:
            assert watcher.stdout is not None
            here, over = self.listener.fileno(), watcher.stdout.fileno()
            try:
                while here not in select.select([here, over], [], [])[0]:
                    if not os.read(over, 65536):
                        return None
            finally:
                watcher.terminate()
            return Held(self.listener.accept()[0])

    def close(self) -> None:
        self.listener.close()
        shutil.rmtree(self.folder)


class Held:
    """The trial, as we see it; our environment has its names until it is let go."""

    def __init__(self, talk: socket.socket) -> None:
        self.talk = talk
        with talk.makefile("r", encoding="utf-8") as said:
            self.env: dict[str, str] = json.loads(said.readline())
        self.before = {name: os.environ.get(name) for name in self.env}
        os.environ.update(self.env)

    @property
    def logdir(self) -> str:
        return self.env["HOPYARD_TRIAL_DIR"]

    def let_go(self, result: Any) -> None:
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        # Where the trial has ended before us (its run was stopped), the run's state says it.
        with self.talk, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.talk.sendall(json.dumps(result).encode() + b"\n")


def main(path: str) -> int:
    why = hold(path)
    if why is None:
        return 0
    print(f"hopyard: {why}", file=sys.stderr)
    _hopyard.report({}, None, why, None)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
