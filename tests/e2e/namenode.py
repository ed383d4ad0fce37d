# SPDX-License-Identifier: Apache-2.0
"""A NameNode with arbitrary answers: a real one cannot be made to send invalid ones.

    with NameNode() as namenode:
        namenode.folders["/"] = [Entry(b"..", is_dir=True)]
        subprocess.run(["hopyard", "fs", "ls", namenode.url])

It implements Hadoop's RPC without authentication, and the few calls of a client that reads or starts to append.
Messages are encoded by hand: the project's protobuf code would refuse to encode invalid ones.
"""
from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

BLOCK = 1 << 20
CONTEXT = -3  # the call in which a client identifies itself, which has no answer


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def message(*fields: tuple[int, int | bytes | str | None]) -> bytes:
    """Numbers as varints, everything else length-delimited; None is omitted."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value & (1 << 64) - 1)
        elif value is not None:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def take_varint(data: bytes, at: int) -> tuple[int, int]:
    n = shift = 0
    while True:
        n |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return n, at


def take_delimited(data: bytes, at: int) -> tuple[dict[int, int | bytes], int]:
    length, at = take_varint(data, at)
    end, found = at + length, {}
    while at < end:
        key, at = take_varint(data, at)
        value, at = take_varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        found[key >> 3] = value
    return found, at


@dataclass
class Entry:
    name: bytes
    is_dir: bool = False
    length: int = 0
    time: int = 1_700_000_000_000
    owner: str = "alice"

    def encode(self) -> bytes:
        return message((1, 1 if self.is_dir else 2), (2, self.name), (3, self.length), (4, message((1, 0o755))),
                       (5, self.owner), (6, "staff"), (7, self.time), (8, self.time), (11, BLOCK))  # fmt: skip


@dataclass
class Page:
    entries: list[Entry]
    remaining: int = 0

    def encode(self) -> bytes:
        return message(*((1, e.encode()) for e in self.entries), (2, self.remaining))


@dataclass
class Blocks:
    """The alleged blocks of a file: its length, and (offset, length) of each block, which no DataNode has."""

    length: int
    blocks: list[tuple[int, int]] = field(default_factory=list)
    last: tuple[int, int] | None = None  # under construction

    def encode(self) -> bytes:
        last = None if self.last is None else located(*self.last)
        return message((1, self.length), *((2, located(*b)) for b in self.blocks), (3, int(last is not None)),
                       (4, last), (5, int(last is None)))  # fmt: skip


def located(offset: int, length: int) -> bytes:
    block = message((1, "pool"), (2, 1 + offset & 0xFFFF), (3, 1), (4, length))
    token = message((1, b""), (2, b""), (3, ""), (4, ""))
    return message((1, block), (2, offset), (4, 0), (5, token))


class NameNode:
    """`listing(path, after)` and `stat(path)` may be replaced; by default they use `folders` and `files`."""

    def __init__(self) -> None:
        self.folders: dict[str, list[Entry]] = {}
        self.files: dict[str, Blocks] = {}
        self.listing: Callable[[str, bytes], Page] = lambda path, after: Page(self.folders.get(path, []))
        self.stat: Callable[[str], Entry | None] = self.look
        self.calls: list[tuple[str, str]] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.url = f"hdfs://127.0.0.1:{self.port}"

    def __enter__(self) -> NameNode:
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def look(self, path: str) -> Entry | None:
        """Everything that is not a file is a directory, so that they nest without end; only patterns do not exist."""
        return None if "*" in path else Entry(b"", is_dir=path not in self.files)

    def accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=self.serve, args=self.listener.accept()[:1], daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(ConnectionError), client, client.makefile("rb") as requests:
            requests.read(7)  # "hrpc", version, service, authentication
            for frame in frames(requests.read):
                header, at = take_delimited(frame, 0)
                call = header[3] >> 1 ^ -(header[3] & 1)
                if call == CONTEXT:
                    continue
                method, at = take_delimited(frame, at)
                answer = self.answer(method[1].decode(), take_delimited(frame, at)[0])
                head = message((1, call), (2, 0))
                body = varint(len(head)) + head + varint(len(answer)) + answer
                client.sendall(len(body).to_bytes(4, "big") + body)

    def answer(self, method: str, request: dict[int, int | bytes]) -> bytes:
        path = request[1].decode(errors="surrogateescape") if 1 in request else ""
        self.calls.append((method, path))
        if method == "getFileInfo":
            found = self.stat(path)
            return message((1, found and found.encode()))
        if method == "getListing":
            return message((1, self.listing(path, request[2]).encode()))
        if method == "getBlockLocations":
            return message((1, self.files[path].encode()))
        if method == "getContentSummary":
            return message((1, message(*((n, 0) for n in range(1, 7)))))
        if method == "getServerDefaults":
            return message((1, message((1, BLOCK), (2, 512), (3, 65536), (4, 1), (5, 4096), (8, 2))))
        if method == "append":
            found = self.files[path]
            return message((1, located(*found.blocks[-1])), (2, Entry(b"", length=found.length).encode()))
        return b""


def frames(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while len(head := read(4)) == 4:
        yield read(int.from_bytes(head, "big"))
