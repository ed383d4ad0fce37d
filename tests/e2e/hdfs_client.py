# SPDX-License-Identifier: Apache-2.0
"""Our client on a real HDFS (hdfs.py): the program with sanitizers, and the file objects of the Python API.

Each test has its own directory, and can extend the cluster's settings with its own.
"""
from __future__ import annotations

import json
import os
import random
import re
import secrets
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

import pytest
from hdfs import Hdfs
from hopyard import _hopyard

MIB = 1 << 20  # the block size of the clusters

# Around the sizes of chunks (512), packets (64 KiB) and blocks (1 MiB).
SIZES = [0, 1, 511, 512, 513, 65_535, 65_536, 65_537, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 513]


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(size + (seed << 32)).randbytes(size)


def are_equal(found: bytes, wanted: bytes) -> bool:
    """For large values `assert found == wanted` takes minutes to explain the difference."""
    return found == wanted


def write_conf(conf: Path, folder: Path, settings: dict[str, object]) -> Path:
    """A directory for HADOOP_CONF_DIR: the cluster's, with these settings first."""
    folder.mkdir(exist_ok=True)
    (folder / "core-site.xml").write_bytes((conf / "core-site.xml").read_bytes())
    root = ElementTree.parse(conf / "hdfs-site.xml").getroot()
    for found in [p for p in root if p.findtext("name") in settings]:
        root.remove(found)
    for name, value in settings.items():
        entry = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(entry, "name").text = name
        ElementTree.SubElement(entry, "value").text = str(value)
    ElementTree.ElementTree(root).write(folder / "hdfs-site.xml")
    return folder


class Client:
    """`client / "a"` is a URL in the test's directory, `client.path("a")` the same for Hadoop's shell."""

    def __init__(self, hdfs: Hdfs, binary: str, folder: Path) -> None:
        self.hdfs, self.bin, self.folder = hdfs, binary, folder
        self.top = f"/{secrets.token_hex(6)}"
        self.settings: dict[str, object] = {}
        self.env = hdfs.env()
        self.started: list[subprocess.Popen[bytes]] = []
        call_in(self.env, _hopyard.mkdirs, hdfs.url + self.top)

    def set(self, **settings: object) -> None:
        """dfs_replication=3 is dfs.replication; affects files opened from now on."""
        self.settings |= {name.replace("__", "-").replace("_", "."): value for name, value in settings.items()}
        conf = self.folder / f"conf-{secrets.token_hex(4)}"  # the settings of a known cluster are cached
        self.env["HADOOP_CONF_DIR"] = str(write_conf(self.hdfs.conf, conf, self.settings))

    def __truediv__(self, path: str) -> str:
        return self.hdfs.url + self.path(path)

    def path(self, path: str) -> str:
        return f"{self.top}/{path}"

    # ---- the program
    def start(self, *args: object, user: str | None = None, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("HOPYARD_")} | self.env
        if user:
            env["HADOOP_USER_NAME"] = user
        self.started.append(subprocess.Popen([self.bin, "fs", *map(str, args)], env=env, stdin=stdin,
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return self.started[-1]

    def run(self, *args: object, user: str | None = None, stdin: bytes = b"", rc: int = 0) -> bytes:
        """Returns its standard output; its standard error is in `stderr`."""
        program = self.start(*args, user=user, stdin=subprocess.PIPE)
        out, output = program.communicate(stdin, timeout=240)
        self.stderr = output.decode()
        assert program.returncode == rc, f"fs {args}: {program.returncode}\n{self.stderr}"
        return out

    def fails(self, words: str, *args: object, **kw: Any) -> None:
        """Fails with one message that contains these words."""
        self.run(*args, rc=1, **kw)
        assert words in self.stderr, self.stderr
        assert self.stderr.startswith("hopyard fs: ") and self.stderr.count("\n") == 1, self.stderr

    def put(self, path: str, data: bytes) -> None:
        self.run("put", "-f", "-", self / path, stdin=data)

    def cat(self, path: str) -> bytes:
        return self.run("cat", self / path)

    def names(self, path: str = "") -> list[str]:
        return [Path(entry["path"]).name for entry in json.loads(self.run("ls", "--json", self / path))]

    # ---- the Python API
    def open(self, path: str, mode: str = "r") -> Any:
        return call_in(self.env, _hopyard.File, self / path, mode)

    def write(self, path: str, data: bytes) -> None:
        with self.open(path, "w") as file:
            file.write(data)

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.pread(-1, 0)

    def close(self) -> None:
        """Kills programs that a test has left running."""
        for program in self.started:
            if program.poll() is None:
                program.kill()
                program.communicate()

    # ---- Hadoop's client
    def shell(self, *args: object, **kw: Any) -> Any:
        return self.hdfs.shell(*args, **kw)

    def shell_cat(self, path: str) -> bytes:
        """Through a file: a small JVM would hold the output in memory several times."""
        copy = self.folder / f"copy-{secrets.token_hex(4)}"
        self.shell("-get", self.path(path), copy)
        return copy.read_bytes()


def call_in(env: dict[str, str], call: Callable[..., Any], *args: object) -> Any:
    """The cluster's settings are read when a file is opened."""
    with mock.patch.dict(os.environ, env):
        return call(*args)


# ---- directories of files


def make_files(folder: Path, sizes: list[int]) -> dict[str, bytes]:
    """One of each size, by name."""
    folder.mkdir()
    made = {f"of{size}": content(size) for size in sizes}
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return made


def files_in(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.endswith(".crc")}


def assert_same(found: dict[str, bytes], wanted: dict[str, bytes]) -> None:
    """Reports what differs, not all the bytes."""
    assert sorted(found) == sorted(wanted)
    wrong = {n: (len(found[n]), len(wanted[n])) for n in wanted if found[n] != wanted[n]}
    assert not wrong, f"differences (found, wanted): {wrong}"


def pieces(data: bytes, seed: int, most: int) -> Iterator[bytes]:
    """All of it, in chunks of varying size."""
    rng, at = random.Random(seed), 0
    while at < len(data):
        n = rng.choice([rng.randint(1, 700), rng.randint(1, most)])
        yield data[at : at + n]
        at += n


# ---- replicas ------------------------------------------------------------------------------------------------------


def replicas(hdfs: Hdfs, data: bytes) -> list[Path]:
    """Files of the block with exactly these bytes. Blocks of removed files may disappear meanwhile."""
    found = []
    for path in (p for d in hdfs.datanodes for p in d.blocks()):
        with suppress(FileNotFoundError):
            if path.stat().st_size == len(data) and path.read_bytes() == data:
                found.append(path)
    return found


def flip_a_byte(block: Path, at: int) -> None:
    with open(block, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def corrupt_blocks(hdfs: Hdfs) -> int:
    found = re.search(r"Blocks with corrupt replicas: (\d+)", hdfs.dfsadmin("-report").text)
    assert found
    return int(found[1])


def assert_no_wrong_byte_is_read(client: Client) -> None:
    """Of a file whose only replica is corrupt."""
    data = content(2 * MIB, 7)
    client.put("one", data)
    block, = replicas(client.hdfs, data[MIB:])
    flip_a_byte(block, 123_456)
    got = client.run("cat", client / "one", rc=1)
    assert "is damaged at byte 123392" in client.stderr and client.stderr.count("\n") == 1, client.stderr
    assert are_equal(got, data[: len(got)]) and len(got) <= MIB + 123_392
    with client.open("one") as file:
        assert file.pread(100_000, MIB) == data[MIB : MIB + 100_000], "the rest is intact"
        with pytest.raises(OSError, match="is damaged"):
            file.pread(100_000, MIB + 100_000)
    client.run("rm", client / "one")


def wrong_reads(file: Any, data: bytes, threads: int) -> list[tuple[int, int]]:
    """Random reads whose data was wrong."""

    def read(seed: int) -> list[tuple[int, int]]:
        rng, wrong = random.Random(seed), []
        for _ in range(60):
            at, n = rng.randrange(len(data)), rng.choice([1, 100, 70_000, 2 * MIB])
            if file.pread(n, at) != data[at : at + n]:
                wrong.append((at, n))
        return wrong

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(read, range(threads)), [])
