# SPDX-License-Identifier: Apache-2.0
"""A client of HDFS that stays and does what it is told, so that it is as warm as a training process is.

    hdfs_peer.py hopyard|pyarrow|hdfs-native URL DATA

Lines of standard input are `read PATH BYTES`, `write PATH BYTES`, `stat PATH TIMES` and `sum PATH 0`. Each is answered
by a line: seconds, CPU seconds of this process with all its threads, and how many bytes or answers there were, or the
CRC-32 of the file. What is written is DATA again and again, a piece at a time. HdfsPeer.java does the same in Java.
"""

import mmap
import os
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit

PIECE = 4 << 20
BLOCK = 128 << 20
DATA = 15 * PIECE  # no divisor of a block: no two blocks of a file are the same


def pieces(data: list[bytes], size: int) -> Iterator[bytes]:
    """What is to be written. As bytes: of other buffers, hdfs-native takes one byte after the other."""
    for i, at in enumerate(range(0, size, PIECE)):
        yield data[i % len(data)][: size - at]


def load(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        return list(iter(lambda: file.read(PIECE), b""))


class Client(Protocol):
    def read(self, path: str) -> Iterator[Any]:
        """Its bytes; a piece is gone when the next is asked for."""

    def create(self, path: str) -> Any:
        """What has write() and close()."""

    def stat(self, path: str) -> int:
        """The size."""


class Hopyard:
    def __init__(self, url: str) -> None:
        from hopyard import _hopyard

        self.face, self.url = _hopyard, url
        self.buffer = mmap.mmap(-1, PIECE)

    def read(self, path: str) -> Iterator[Any]:
        view, at = memoryview(self.buffer), 0
        with self.face.File(self.url + path) as file:
            while got := file.preadinto(view, at):
                yield view[:got]
                at += got

    def create(self, path: str) -> Any:
        return self.face.File(self.url + path, "w")

    def stat(self, path: str) -> int:
        return self.face.stat(self.url + path).size


class PyArrow:
    def __init__(self, url: str) -> None:
        from pyarrow import fs

        where = urlsplit(url)
        self.files = fs.HadoopFileSystem(where.hostname, where.port, replication=1)
        self.buffer = mmap.mmap(-1, PIECE)

    def read(self, path: str) -> Iterator[Any]:
        view = memoryview(self.buffer)
        with self.files.open_input_file(path) as file:
            while got := file.readinto(view):
                yield view[:got]

    def create(self, path: str) -> Any:
        return self.files.open_output_stream(path)

    def stat(self, path: str) -> int:
        return self.files.get_file_info(path).size


class HdfsNative:
    def __init__(self, url: str) -> None:
        import hdfs_native

        self.client = hdfs_native.Client(url, config_dir=os.environ["HADOOP_CONF_DIR"])
        self.options = hdfs_native.WriteOptions(block_size=BLOCK, replication=1, overwrite=True)  # else the NameNode's

    def read(self, path: str) -> Iterator[Any]:
        """By what it says is "the most efficient way to iteratively read a file"."""
        file = self.client.read(path)
        return file.read_range_stream(0, len(file))

    def create(self, path: str) -> Any:
        return self.client.create(path, self.options)

    def stat(self, path: str) -> int:
        return self.client.get_file_info(path).length


CLIENTS = {"hopyard": Hopyard, "pyarrow": PyArrow, "hdfs-native": HdfsNative}


def write(client: Client, path: str, data: list[bytes], size: int) -> int:
    out, count = client.create(path), 0
    try:
        for piece in pieces(data, size):
            out.write(piece)
            count += len(piece)
    finally:
        out.close()
    return count


def stat(client: Client, path: str, times: int) -> int:
    return sum(client.stat(path) > 0 for _ in range(times))


def crc(parts: Iterator[Any]) -> int:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def obey(client: Client, data: list[bytes], command: str, path: str, count: str) -> int:
    if command == "read":
        return sum(len(part) for part in client.read(path))
    if command == "write":
        return write(client, path, data, int(count))
    if command == "stat":
        return stat(client, path, int(count))
    return crc(client.read(path))


def main() -> int:
    name, url, data = sys.argv[1:]
    client, held = CLIENTS[name](url), load(data)
    for line in sys.stdin:
        begun, cpu = time.perf_counter(), time.process_time()
        count = obey(client, held, *line.split())
        print(time.perf_counter() - begun, time.process_time() - cpu, count, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
