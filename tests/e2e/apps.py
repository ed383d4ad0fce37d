# SPDX-License-Identifier: Apache-2.0
"""Apps behind the page, and the browser's side of their port."""
from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from conftest import Yard, wait_for
from ui import Reply, Ui, connect, http_connection

ECHO = Path(__file__).with_name("echo_app.py")


def use_echo_app(yard: Yard) -> None:
    """Apps of this project are tests/e2e/echo_app.py."""
    program = yard.project / "python-of-echo-app"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {ECHO} "$@"\n')
    program.chmod(0o755)
    yard.env["HOPYARD_PYTHON"] = str(program)


def start(ui: Ui, runs: str = "1") -> dict[str, Any]:
    reply = ui.post(f"/api/v1/apps/tensorboard?runs={runs}")
    assert reply.status == 200, reply.body
    return dict(reply.json())


def wait_started(ui: Ui, app: dict[str, Any]) -> dict[str, Any]:
    """Until it is ready or has failed."""
    wait_for(lambda: ui.get(f"/api/v1/apps/{app['id']}")["state"] != "starting", "the app does not start")
    return dict(ui.get(f"/api/v1/apps/{app['id']}"))


class App:
    """A browser that has entered an app."""

    def __init__(self, ui: Ui, runs: str = "1") -> None:
        self.row = wait_started(ui, start(ui, runs))
        assert self.row["state"] == "ready", self.row
        opened = ui.post(f"/api/v1/apps/{self.row['id']}/open")
        assert opened.status == 200, opened.body
        self.enter = opened.json()["enter"]
        self.url = urlsplit(opened.json()["url"])
        assert self.url.port
        self.tls = ui.tls
        self.port = self.url.port
        self.cookie = ""

    def request(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Reply:
        """A path that does not start with '/' is below the app's."""
        connection = http_connection(self.port, self.tls, 60)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            fields.setdefault("cookie", self.cookie)
        try:
            connection.request(method, path if path.startswith("/") else self.url.path + path, body, fields)
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def log_in(self) -> Reply:
        reply = self.request(self.enter.partition(self.url.netloc)[2])
        assert reply.status == 303, reply.body
        self.cookie = reply.headers["Set-Cookie"].partition(";")[0]
        return reply

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return connect(self.port, self.tls)

    def head(self, path: str, method: str = "GET", *fields: str) -> bytes:
        lines = [f"{method} {self.url.path}{path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Cookie: {self.cookie}",
                 f"Origin: {self.origin}", *fields]
        return "".join(line + "\r\n" for line in lines).encode() + b"\r\n"

    def switch(self, path: str) -> socket.socket:
        """A connection that the app has accepted as a WebSocket."""
        s = self.connect()
        s.sendall(self.head(path, "GET", "Connection: keep-alive, Upgrade", "Upgrade: websocket"))
        reply = b""
        while not reply.endswith(b"\r\n\r\n"):
            reply += s.recv(1)
        assert reply.startswith(b"HTTP/1.1 101 "), reply
        return s


def receive_all(s: socket.socket) -> bytes:
    received = bytearray()
    while part := s.recv(1 << 16):
        received += part
    return bytes(received)
