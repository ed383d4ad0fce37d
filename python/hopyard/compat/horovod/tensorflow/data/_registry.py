# SPDX-License-Identifier: Apache-2.0
"""The registry of a data service's dispatchers and workers: rank 0 of the compute job serves it over TCP.

A connection is one request. The service sends a nonce, the client a line of JSON and its HMAC over nonce and line,
by the key of the config file; the answer comes in the same form. Others can neither ask nor answer.
"""

import hmac
import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hopyard import Error

NONCE_BYTES, LINE_MAX = 32, 65536
TURN_S, SILENCE_S = 5.0, 30.0
"""Seconds of one wait before it is repeated, and of a request without data."""

Addresses = Mapping[str, Sequence[tuple[str, int]]]


def _seal(key: bytes, nonce: bytes, part: bytes, line: bytes) -> bytes:
    return hmac.digest(key, nonce + part + line, "sha256").hex().encode()


def _write(stream: Any, key: bytes, nonce: bytes, part: bytes, words: Mapping[str, Any]) -> None:
    line = json.dumps(words).encode()
    stream.write(line + b"\n" + _seal(key, nonce, part, line) + b"\n")
    stream.flush()


def _read(stream: Any, key: bytes, nonce: bytes, part: bytes) -> dict[str, Any] | None:
    """A message; None if its seal is invalid, or it is incomplete."""
    line, seal = stream.readline(LINE_MAX), stream.readline(LINE_MAX)
    if not line.endswith(b"\n") or not hmac.compare_digest(seal[:-1], _seal(key, nonce, part, line[:-1])):
        return None
    words: dict[str, Any] = json.loads(line)
    return words


def addresses_of_this_host() -> list[str]:
    """The addresses of this host; the loopback last."""
    found: list[str] = []
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):  # for documentation
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
            try:
                probe.connect((target, 9))
                found.append(probe.getsockname()[0])
            except OSError:
                continue  # no route of that family
    return [*dict.fromkeys(found), "127.0.0.1"]


class ComputeService:
    """The registry itself. It serves until `shutdown`."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Any = None) -> None:
        if dispatchers <= 0 or workers_per_dispatcher <= 0:
            raise ValueError(
                f"a data service needs at least one dispatcher and one worker for each, not {dispatchers} and "
                f"{workers_per_dispatcher}"
            )
        self._targets: list[str | None] = [None] * dispatchers
        self._workers: list[set[int]] = [set() for _ in range(dispatchers)]
        self._each, self._key = workers_per_dispatcher, key
        self._is_over = False
        self._changed = threading.Condition()
        self._server = socketserver.ThreadingTCPServer(("0.0.0.0", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="data service", daemon=True).start()

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        port = self._server.server_address[1]
        return {"hopyard": [(address, port) for address in addresses_of_this_host() if ":" not in address]}

    def shutdown(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        service = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = SILENCE_S

            def handle(self) -> None:
                nonce = secrets.token_bytes(NONCE_BYTES)
                self.wfile.write(nonce)
                words = _read(self.rfile, service._key, nonce, b"request")
                if words is not None:
                    _write(self.wfile, service._key, nonce, b"answer", service._answer(words))

        return Handler

    def _answer(self, words: dict[str, Any]) -> dict[str, Any]:
        number = words.get("dispatcher", 0)
        if not isinstance(number, int) or not 0 <= number < len(self._targets):
            return {"error": f"there is no dispatcher {number}: they are 0 to {len(self._targets) - 1}"}
        with self._changed:
            result = getattr(self, f"_on_{words['request']}")(number, words)
            self._changed.notify_all()
        return result

    def _wait(self, done: Callable[[], bool], seconds: float) -> bool:
        return self._changed.wait_for(done, min(max(seconds, 0), TURN_S))

    def _on_register_dispatcher(self, number: int, words: dict[str, Any]) -> dict[str, Any]:
        known = self._targets[number]
        if known not in (None, words["target"]):
            return {"error": f"dispatcher {number} is registered already, at {known}"}
        self._targets[number] = str(words["target"])
        return {}

    def _on_register_worker(self, number: int, words: dict[str, Any]) -> dict[str, Any]:
        self._workers[number].add(int(words["worker"]))
        return {}

    def _on_wait_for_dispatcher(self, number: int, words: dict[str, Any]) -> dict[str, Any]:
        self._wait(lambda: self._targets[number] is not None, words["seconds"])
        return {"done": self._targets[number] is not None, "target": self._targets[number]}

    def _on_wait_for_workers(self, number: int, words: dict[str, Any]) -> dict[str, Any]:
        return {"done": self._wait(lambda: len(self._workers[number]) >= self._each, words["seconds"])}

    def _on_wait_for_shutdown(self, number: int, words: dict[str, Any]) -> dict[str, Any]:
        return {"done": self._wait(lambda: self._is_over, words["seconds"])}

    def _on_shutdown(self, number: int, words: dict[str, Any]) -> dict[str, Any]:
        self._is_over = True
        return {}


class ComputeClient:
    """A client of the registry."""

    def __init__(self, compute_addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        self._places = [(host, port) for places in compute_addresses.values() for host, port in places]
        self._key = key
        self.own_address = "127.0.0.1"
        """The local address of the connection to the registry, which others can reach."""

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        self._ask("register_dispatcher", dispatcher=dispatcher_id, target=dispatcher_address)

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        self._ask("register_worker", dispatcher=dispatcher_id, worker=worker_id)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        what = f"dispatcher {dispatcher_id} of the data service"
        return str(self._wait("wait_for_dispatcher", what, timeout, dispatcher=dispatcher_id)["target"])

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        what = f"the workers of dispatcher {dispatcher_id} of the data service"
        self._wait("wait_for_workers", what, timeout, dispatcher=dispatcher_id)

    def wait_for_shutdown(self) -> None:
        self._wait("wait_for_shutdown", "the end of the data service", float("inf"))

    def is_running(self) -> bool:
        return not self._ask("wait_for_shutdown", seconds=0)["done"]

    def shutdown(self) -> None:
        """Ends the compute job."""
        self._ask("shutdown")

    def _wait(self, request: str, what: str, timeout: float, **words: Any) -> dict[str, Any]:
        until = time.monotonic() + timeout
        while True:
            answer = self._ask(request, seconds=min(until - time.monotonic(), TURN_S), **words)
            if answer["done"]:
                return answer
            if time.monotonic() >= until:
                raise Error(f"{what} did not register within {timeout:g} s; is its job still starting?")

    def _ask(self, request: str, **words: Any) -> dict[str, Any]:
        trouble = None
        for place in self._places:
            try:
                answer = self._ask_at(place, {"request": request, **words})
            except OSError as error:
                trouble = trouble or error
                continue
            if "error" in answer:
                raise Error(answer["error"])
            return answer
        raise Error(f"the data service does not answer at {self._places}: {trouble}") from trouble

    def _ask_at(self, place: tuple[str, int], words: dict[str, Any]) -> dict[str, Any]:
        with socket.create_connection(place, SILENCE_S) as connection, connection.makefile("rwb") as stream:
            self.own_address = connection.getsockname()[0]
            nonce = stream.read(NONCE_BYTES)
            _write(stream, self._key, nonce, b"request", words)
            answer = _read(stream, self._key, nonce, b"answer")
        if answer is None:
            raise ConnectionError(f"what listens at {place[0]}:{place[1]} is not the data service of this config file")
        return answer
