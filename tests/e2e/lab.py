# SPDX-License-Identifier: Apache-2.0
"""`hopyard notebook` as a process, and a client that runs cells in its kernels as a browser does: HTTP and WebSocket."""
from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from typing import Any

import websocket
from conftest import Yard

ADDRESS = re.compile(r"JupyterLab \((\w+)\) http://127\.0\.0\.1:(\d+)/lab\?token=([0-9a-f]{48})")


class CellError(AssertionError):
    """A cell that has failed."""


class Lab:
    """A server, which listens on a port."""

    def __init__(self, yard: Yard, *options: object, env: dict[str, str] | None = None) -> None:
        self.errors = yard.runtime / f"lab-{uuid.uuid4().hex}.err"  # also what kernels print
        with open(self.errors, "w") as log:
            self.process = subprocess.Popen(
                yard.command("notebook", "--no-browser", "--port", "0", *options), env={**yard.env, "HOPYARD_PYTHON": sys.executable, **(env or {})},
                cwd=yard.project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        assert self.process.stdout
        found = ADDRESS.search(self.process.stdout.readline())
        assert found, self.errors.read_text()
        self.mode, self.port, self.token = found[1], int(found[2]), found[3]

    def request(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """The status, and the JSON value if there is one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        fields = {"Authorization": f"token {self.token if token is None else token}"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), fields)
            reply = connection.getresponse()
            text = reply.read()
            return reply.status, json.loads(text) if text[:1] in (b"{", b"[") else text
        finally:
            connection.close()

    def kernel(self, folder: str = "") -> "Kernel":
        status, kernel = self.request("POST", "/api/kernels", {"name": "python3", "path": folder})
        assert status == 201, kernel
        return Kernel(self, kernel["id"])

    def end(self, number: int = signal.SIGINT) -> None:
        """Ends it, without a prompt."""
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0 and "hopyard notebook: " not in self.errors.read_text(), self.errors.read_text()

    def kill(self) -> None:
        """At the end of a test, in any case: kills the server's group; its kernels end with it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=60)


class Kernel:
    """Cells of a kernel. `printed` has what the last one printed, `shown` its displays."""

    def __init__(self, lab: Lab, number: str) -> None:
        self.session = uuid.uuid4().hex
        self.socket = websocket.create_connection(
            f"ws://127.0.0.1:{lab.port}/api/kernels/{number}/channels?session_id={self.session}",
            header=[f"Authorization: token {lab.token}"], timeout=240)
        self.printed = ""
        self.shown: list[dict[str, str]] = []

    def run(self, code: str) -> str:
        """The value of the cell's last expression as text, or ""."""
        request = uuid.uuid4().hex
        header = {"msg_id": request, "session": self.session, "username": "", "msg_type": "execute_request", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": False}
        self.socket.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content,
                                     "channel": "shell", "buffers": []}))
        self.printed, self.shown, value = "", [], ""
        while True:
            message = json.loads(self.socket.recv())
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                self.printed += content["text"]
            elif kind in ("display_data", "update_display_data"):
                self.shown.append(content["data"])
            elif kind == "execute_result":
                value = content["data"]["text/plain"]
            elif kind == "error":
                raise CellError(re.sub(r"\x1b\[[\d;]*m", "", "\n".join(content["traceback"])) + "\n" + self.printed)
            elif kind == "status" and content["execution_state"] == "idle":
                return value
