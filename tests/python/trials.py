# SPDX-License-Identifier: Apache-2.0
"""Trials without an agent: the bundle, the environment, and somebody who listens to what they report."""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

TIMEOUT_S = 120
MESSAGE = 6  # the type of a frame, see src/wire/frame.c


def bundle(fn: Callable[..., Any], folder: Path, preload: Sequence[str] = (), compat: bool = False,
           metric: str | None = None, optional: bool = True, stated: bool = False,
           launch: bool = False) -> Path:  # fmt: skip
    """A function as it comes to an agent, by value, as one of a notebook does; modules in `folder` are found."""
    module = sys.modules[fn.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        pickled = cloudpickle.dumps(fn)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    head = {"name": fn.__name__, "path": [str(folder), *sys.path], "preload": list(preload), "compat": compat,
            "metric": metric, "direction": "max", "optional": optional, "sources": {}, "stated": stated,
            "launch": launch}  # fmt: skip
    path = folder / "bundle"
    path.write_bytes(json.dumps(head).encode() + b"\n" + pickled)
    return path


def environment(folder: Path, function: Path, params: dict[str, Any] | None = None, seed: int = 1) -> dict[str, str]:
    """What an agent gives a trial, but for its marks."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")},
        "HOPYARD_FUNCTION": str(function),
        "HOPYARD_PARAMS": json.dumps(params or {}),
        "HOPYARD_SEED": str(seed),
        "HOPYARD_RESULT": str(folder / "result.json"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


@dataclass
class Done:
    status: int
    stdout: str
    stderr: str
    result: Any


def result_of(folder: Path) -> Any:
    """What a trial has left; None: nothing. It is taken away, for the next one."""
    path = folder / "result.json"
    if not path.exists():
        return None
    text = path.read_text()
    path.unlink()
    return json.loads(text)


def cold(folder: Path, function: Path, params: dict[str, Any] | None = None, seed: int = 1, **env: str) -> Done:
    """A trial in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hopyard._trial"], env={**environment(folder, function, params, seed), **env},
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr, result_of(folder))


# ---- reports ------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def _fields(data: bytes) -> dict[int, list[Any]]:
    """A protobuf message: its fields by number."""
    at, found = 0, {}
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
        else:
            size, at = (8, at) if key & 7 == 1 else _varint(data, at)
            value, at = data[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


@dataclass
class Report:
    """A TrialReport, see proto/hopyard.proto."""

    token: str
    step: int
    metrics: dict[str, float]
    error: str
    detail: str
    remark: str

    @classmethod
    def parse(cls, data: bytes) -> "Report":
        fields = _fields(data)
        step = fields.get(2, [0])[0]
        metrics = [_fields(m) for m in fields.get(3, [])]
        return cls(
            fields[1][0].decode(), (step >> 1) ^ -(step & 1),
            {m[1][0].decode(): struct.unpack("<d", m.get(2, [bytes(8)])[0])[0] for m in metrics},
            *(fields.get(number, [b""])[0].decode() for number in (4, 5, 7)),
        )  # fmt: skip


@dataclass
class Listener:
    """Takes reports as an agent does, and answers each with `answer`, an error or ""."""

    path: Path
    answer: str = ""
    reports: list[Report] = field(default_factory=list)

    def __enter__(self) -> "Listener":
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:  # shut down
                return
            with connection, connection.makefile("rb") as file:
                size, version, kind, zero, stream = struct.unpack("<IBBHI", file.read(12))
                assert (version, kind, zero, stream) == (1, MESSAGE, 0, 0)
                self.reports.append(Report.parse(file.read(size)))
                error = self.answer.encode()
                body = bytes([0x0A, len(error)]) + error if error else b""
                connection.sendall(struct.pack("<IBBHI", len(body), 1, MESSAGE, 0, 0) + body)

    def env(self) -> dict[str, str]:
        return {"HOPYARD_SOCKET": str(self.path), "HOPYARD_TAG": "1.1.1"}
