# SPDX-License-Identifier: Apache-2.0
"""What the parts of a cluster need from this machine: ports, web pages, files, Java and pyspark."""
from __future__ import annotations

import contextlib
import fcntl
import http.client
import importlib.util
import json
import os
import random
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from processes import ClusterError

ROOT = Path(__file__).absolute().parents[2]
HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    with socket.socket() as s:
        try:
            s.bind((HOST, port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=10).close()
    except OSError:
        return False
    return True


def ports_from(first: int | None) -> Iterator[int]:
    """Free ports, or the given one and those after it, free or not.

    Free ones are below the system's range for outgoing connections: one of
    these could take a port between our check and the daemon's bind.
    """
    if first:
        yield from range(first, 65536)
        raise ClusterError(f"there are not enough ports after {first}; use a smaller --ports.")
    outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = list(range(10000, max(outgoing, 20000)))
    random.shuffle(candidates)
    yield from filter(is_free, candidates)
    raise ClusterError(f"no port between 10000 and {outgoing} is free.")


def ask(method: str, host: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body; 0 without an answer."""
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def ask_json(host: str, path: str) -> dict[str, Any] | None:
    """None without an answer, or with another one: Spark's master serves HTML until its JSON is ready."""
    status, body = ask("GET", host, path)
    try:
        return json.loads(body) if status == 200 else None
    except json.JSONDecodeError:
        return None


def write_json(path: Path, content: Any) -> None:
    """Atomically: others read it."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content, indent=2) + "\n")
    new.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def write_site(path: Path, settings: dict[str, object]) -> None:
    lines = [f"<property><name>{escape(k)}</name><value>{escape(str(v))}</value></property>" for k, v in settings.items()]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


def write_properties(path: Path, settings: dict[str, object]) -> None:
    path.write_text("".join(f"{k} {v}\n" for k, v in settings.items()))


def tail(path: Path, lines: int = 30) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "(there is no log)"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another cluster.py, which holds {path}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def find_pyspark() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if not spec or not spec.origin:
        raise ClusterError(f"{sys.executable} has no pyspark; run `make cluster`, which installs it.")
    return Path(spec.origin).parent


def find_java() -> Path:
    """Java's home."""
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        raise ClusterError("Java (17 or newer) is not installed; run `make cluster`, which installs it, or set JAVA_HOME.")
    return Path(java).resolve().parents[1]
