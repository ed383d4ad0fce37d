# SPDX-License-Identifier: Apache-2.0
"""`hopyard ui` as a process, and a client that speaks HTTP to it as a browser would, or as none would."""
from __future__ import annotations

import http.client
import json
import re
import signal
import socket
from typing import Any

from conftest import Yard

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(/login\?token=[0-9a-f]{64})")


class Reply:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self) -> Any:
        return json.loads(self.body)


class Ui:
    """A server. `login` is the path that logs in; it works once."""

    def __init__(self, yard: Yard, *options: str) -> None:
        self.process = yard.start("ui", "--no-browser", "--port", "0", *options)
        self.port, self.login = self.next_address()
        self.cookie = ""

    def next_address(self) -> tuple[int, str]:
        assert self.process.stdout
        for line in self.process.stdout:
            found = ADDRESS.search(line)
            if found:
                return int(found[1]), found[2]
        raise AssertionError(f"no address: {self.process.stderr.read() if self.process.stderr else ''}")

    def request(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Reply:
        """Header fields as keywords: if_none_match="…"."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            fields.setdefault("Cookie", self.cookie)
        try:
            connection.request(method, path, body, fields)
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def post(self, path: str, **headers: str) -> Reply:
        """As the page itself sends it."""
        return self.request(path, "POST", origin=f"http://127.0.0.1:{self.port}", **headers)

    def log_in(self) -> Reply:
        reply = self.request(self.login)
        assert reply.status == 303, reply.body
        self.cookie = reply.headers["Set-Cookie"].partition(";")[0]
        self.port, self.login = self.next_address()
        return reply

    def get(self, path: str) -> Any:
        reply = self.request(path)
        assert reply.status == 200, (reply.status, reply.body)
        return reply.json()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def send(self, text: str) -> bytes:
        """Bytes on a connection of their own, and all that comes back until the server closes it."""
        with self.connect() as s:
            s.sendall(text.encode("latin-1"))
            received = b""
            while chunk := s.recv(65536):
                received += chunk
            return received

    def end(self, number: int = signal.SIGINT) -> None:
        """It ends at once, whoever is connected."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=30)
        assert (self.process.returncode, err) == (0, "")


def end(ui: Ui) -> None:
    """At the end of a test; one may have ended it before."""
    if ui.process.poll() is None:
        ui.end(signal.SIGTERM)
