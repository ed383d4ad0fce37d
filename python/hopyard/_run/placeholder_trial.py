# SPDX-License-Identifier: Apache-2.0
"""The trial between experiment.begin() and end(): a placeholder process for the one that called begin().

    python -m hopyard._run.placeholder_trial SOCKET

It sends its environment variables to the caller, and waits. end() sends the result as JSON, which becomes the trial's
result; if the socket closes without a result, the trial has failed. Both sides are in this file.
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


def wait_for_result(path: str) -> str | None:
    """Why the trial failed; None if it did not."""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
        except OSError as error:
            return f"the process that called experiment.begin() cannot be reached: {error.strerror}"
        with s.makefile("rw", encoding="utf-8") as stream:
            print(json.dumps({name: os.environ.get(name, "") for name in SHARED}), file=stream, flush=True)
            result = stream.readline()
    if not result.endswith("\n"):
        return "the process that called experiment.begin() has ended without experiment.end()"
    if result.strip() != "null":
        with open(os.environ["HOPYARD_RESULT"], "w", encoding="utf-8") as file:
            file.write(result)
    return None


# ---- the caller's side ---------------------------------------------------------------------------------


class Listener:
    """The socket that the trial connects to, in a directory that only this user can enter."""

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="hopyard-")
        if len(os.fsencode(self.directory)) > SOCKET_PATH_MAX - 2:
            os.rmdir(self.directory)
            self.directory = tempfile.mkdtemp(prefix="hopyard-", dir="/tmp")
        self.path = os.path.join(self.directory, "s")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)

    def wait(self, watching: list[str]) -> "PlaceholderTrial | None":
        """The trial, once it has connected; None if the command `watching`, which runs as long as the run, ends
        first."""
        none, pipe = subprocess.DEVNULL, subprocess.PIPE
        with subprocess.Popen(watching, stdin=none, stdout=pipe, start_new_session=True) as watcher:
            assert watcher.stdout is not None
            connection, run_ended = self.listener.fileno(), watcher.stdout.fileno()
            try:
                while connection not in select.select([connection, run_ended], [], [])[0]:
                    if not os.read(run_ended, 65536):
                        return None
            finally:
                watcher.terminate()
            return PlaceholderTrial(self.listener.accept()[0])

    def close(self) -> None:
        self.listener.close()
        shutil.rmtree(self.directory)


class PlaceholderTrial:
    """The connected trial; this process has its environment variables until finish()."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        with connection.makefile("r", encoding="utf-8") as stream:
            self.env: dict[str, str] = json.loads(stream.readline())
        self.before = {name: os.environ.get(name) for name in self.env}
        os.environ.update(self.env)

    @property
    def logdir(self) -> str:
        return self.env["HOPYARD_TRIAL_DIR"]

    def finish(self, result: Any) -> None:
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        # If the trial has ended already because its run was stopped, the run's state shows it.
        with self.connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.sendall(json.dumps(result).encode() + b"\n")


def main(path: str) -> int:
    reason = wait_for_result(path)
    if reason is None:
        return 0
    print(f"hopyard: {reason}", file=sys.stderr)
    _hopyard.report({}, None, reason, None)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
