# SPDX-License-Identifier: Apache-2.0
"""`hopyard ui` as a process, and a client that speaks HTTP to it as a browser would, or as none would."""
from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import ssl
from typing import TYPE_CHECKING, Any

from openapi import PREFIX, check_exchange

if TYPE_CHECKING:
    from conftest import Yard

ADDRESS = re.compile(r"https?://[\w.:]+[\w/]*(/login\?token=[0-9a-f]{64})")
LISTENS = re.compile(r"listens on 127\.0\.0\.1:(\d+);")


class Reply:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self) -> Any:
        return json.loads(self.body)


def connect(port: int, tls: ssl.SSLContext | None) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", port), timeout=30)
    return tls.wrap_socket(s, server_hostname="localhost", suppress_ragged_eofs=False) if tls else s


def http_connection(port: int, tls: ssl.SSLContext | None, timeout: float) -> http.client.HTTPConnection:
    if tls:
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=tls)
    return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)


class Ui:
    """A server. `login` is the path that logs in; it works once. With `tls` the clients speak HTTPS."""

    def __init__(self, yard: Yard, *options: str, tls: ssl.SSLContext | None = None, browser: bool = False) -> None:
        self.tls = tls
        port = [] if "--port" in options else ["--port", "0"]
        self.process = yard.start("ui", *([] if browser else ["--no-browser"]), *port, *options)
        self.port, self.login = self.next_address()
        self.cookie = ""

    def next_address(self) -> tuple[int, str]:
        assert self.process.stdout
        login = ""
        for line in self.process.stdout:
            found = ADDRESS.search(line)
            login = found[1] if found else login
            port = LISTENS.search(line)
            if port:
                self.port = int(port[1])
            if login and (port or line.startswith("Logged in")):
                return self.port, login
        raise AssertionError(f"no address: {self.process.stderr.read() if self.process.stderr else ''}")

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def request(self, path: str, method: str = "GET", body: str | bytes | None = None, **headers: str) -> Reply:
        """Header fields as keywords: if_none_match="…"."""
        connection = http_connection(self.port, self.tls, 30)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            fields.setdefault("cookie", self.cookie)
        try:
            connection.request(method, path, body, fields)
            reply = Reply(connection.getresponse())
        finally:
            connection.close()
        if f"{PREFIX}/" in path and method != "HEAD":
            check_exchange(method, path, body, reply.status, reply.headers["Content-Type"] or "", reply.body)
        return reply

    def post(self, path: str, method: str = "POST", body: str | bytes | None = None, **headers: str) -> Reply:
        """As the page itself sends it."""
        return self.request(path, method, body, origin=self.origin, **headers)

    def change(self, path: str, method: str, value: Any = None) -> Reply:
        """The same with a JSON body."""
        body = None if value is None else json.dumps(value)
        return self.request(path, method, body, origin=self.origin)

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
        return connect(self.port, self.tls)

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
