# SPDX-License-Identifier: Apache-2.0
"""A NameNode with invalid answers (namenode.py): nothing is written outside the target, and every command ends with a message."""
from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from conftest import RELEASE_BIN, Yard
from hopyard import FileError, _hopyard
from hopyard import hdfs as files
from namenode import BLOCK, Blocks, Entry, NameNode, Page

HOSTILE = [b"..", b".", b"../../../escaped", b"a\0b", b"\x1b[2J/"]  # all kinds: test_hdfs.c


@pytest.fixture
def namenode(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameNode]:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION", raising=False)
    with NameNode() as found:
        yield found


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A directory three levels down, so that files outside of it are noticed."""
    folder = tmp_path / "a/b/c/target"
    folder.mkdir(parents=True)
    return folder


def fails(yard: Yard, words: str, *args: object) -> str:
    """One message, in time, that has these words."""
    p = yard.run("fs", *args, rc=1, timeout=60)
    assert re.search(words, p.stderr), p.stderr
    assert p.stderr.startswith("hopyard fs: ") and p.stderr.count("\n") == 1, p.stderr
    return p.stderr


def files_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


# ---- names


@pytest.mark.parametrize("name", HOSTILE)
def test_copy_never_writes_outside_its_target(yard: Yard, namenode: NameNode, target: Path, name: bytes) -> None:
    namenode.folders = {"/data": [Entry(b"good"), Entry(name)], "/deep": [Entry(b"good", is_dir=True)],
                        "/deep/good": [Entry(name, is_dir=True)]}  # fmt: skip
    namenode.files = {f"{folder}/{n}": Blocks(0) for folder in ("/data", "", "/deep/good") for n in ("good", "escaped")}
    top = target.parents[3]
    before = files_in(top)
    for source in ("/data", "/deep"):
        fails(yard, "listed the invalid name '.*faulty or hostile", "get", namenode.url + source, target)
        fails(yard, "listed the invalid name '.*faulty or hostile", "get", namenode.url + source, target / "new")
    fails(yard, "listed the invalid name '", "get", f"{namenode.url}/data/*", target)
    assert files_in(top) == before
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_every_listing_refuses_invalid_names(yard: Yard, namenode: NameNode, tmp_path: Path, name: bytes) -> None:
    namenode.folders["/data"] = [Entry(name, is_dir=True)]
    url = f"{namenode.url}/data"
    for command in (["ls", url], ["ls", "-R", url], ["du", url], ["chmod", "-R", "700", url],
                    ["chown", "-R", "bob", url], ["rm", "-r", f"{url}/*"], ["cat", f"{url}/*"]):  # fmt: skip
        output = fails(yard, "listed the invalid name '.*faulty or hostile", *command)
        assert "\x1b" not in output and f"nothing more is read from {url}" in output
    asked = {method for method, _ in namenode.calls}
    assert asked <= {"getFileInfo", "getListing", "setPermission", "setOwner"}, asked
    assert {path for _, path in namenode.calls} <= {"/data", "/data/*"}


@pytest.mark.parametrize("name", HOSTILE)
def test_python_module_refuses_invalid_names(
    namenode: NameNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    namenode.folders["/data"] = [Entry(name)]
    url, by_fsspec = f"{namenode.url}/data", fsspec.filesystem("hdfs", host="127.0.0.1", port=namenode.port)
    calls: list[Callable[[], object]] = [
        lambda: _hopyard.list(url), lambda: _hopyard.glob(f"{url}/*"), lambda: files.ls(url),
        lambda: files.glob(f"{url}/*"), lambda: files.ls(url, recursive=True), lambda: files.copy_to_local(url, str(tmp_path / "x")),
        lambda: by_fsspec.ls("/data"), lambda: by_fsspec.glob("/data/*", on_error="raise"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(FileError, match="listed the invalid name '.*faulty or hostile"):
            call()
    assert files_in(tmp_path) == []


GFILE = """
import sys
import tensorflow as tf
url, found = sys.argv[1], []
for i in range(int(sys.argv[2])):
    for call in (tf.io.gfile.listdir, lambda url: tf.io.gfile.glob(url + "/*")):
        try:
            call(f"{url}/{i}")
        except tf.errors.OpError as e:
            found.append(e.message)
print(len(found), sum("listed the invalid name" in m for m in found))
try:
    for folder, _, _ in tf.io.gfile.walk(f"{url}/endless", onerror=lambda e: print(e.message)):
        assert len(folder) < 3000
except RecursionError as e: # TensorFlow's own
    print(e)
"""


def test_tensorflow_refuses_invalid_names(namenode: NameNode) -> None:
    namenode.listing = lambda path, after: Page([Entry(b"d", is_dir=True)] if "/endless" in path else [
        Entry(HOSTILE[int(path.strip("/"))])])  # fmt: skip
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    p = subprocess.run([sys.executable, "-c", GFILE, namenode.url, str(len(HOSTILE))], env=env, capture_output=True,
                       text=True, timeout=240)  # fmt: skip
    assert p.returncode == 0, p.stderr
    lines = p.stdout.splitlines()
    assert lines[0] == f"{2 * len(HOSTILE)} {2 * len(HOSTILE)}"
    assert re.search("at most 1024 components|recursion", lines[1]), lines[1]


def test_unusual_but_valid_names_are_accepted(yard: Yard, namenode: NameNode, target: Path) -> None:
    names = ["...", "..a", ".hidden", "a b", "%2e%2e", "*", "-rf", "ü", "\\", "~"]
    namenode.folders["/data"] = [Entry(n.encode()) for n in names]
    namenode.files = {f"/data/{n}": Blocks(0) for n in names}
    yard.run("fs", "get", f"{namenode.url}/data", target)
    assert sorted(os.listdir(target / "data")) == sorted(names)


# ---- endless directories and listings


def descend(path: str, after: bytes) -> Page:
    """A directory in every directory."""
    return Page([Entry(b"d", is_dir=True)])


@pytest.mark.parametrize("command", [["ls", "-R"], ["chmod", "-R", "700"], ["get"]])
def test_endless_directories_are_not_followed(
    yard: Yard, namenode: NameNode, target: Path, command: list[str]
) -> None:
    namenode.listing = descend
    namenode.stat = lambda path: Entry(b"", is_dir=path != "/file")
    words = "nested more than 1000 levels deep below hdfs://.*faulty or hostile"
    fails(yard, words, *command, f"{namenode.url}/top", *([target] if command == ["get"] else []))
    assert list(target.iterdir()) == []


def test_endless_directories_use_little_memory_and_stack(yard: Yard, namenode: NameNode, target: Path) -> None:
    """Each one is full, so that a listing that is kept while the next directory is read would show; with the release build,
    without memory of sanitizers."""
    page = Page([Entry(b"%04d" % i) for i in range(30)] + [Entry(b"z", is_dir=True)])
    namenode.listing = lambda path, after: page
    p = subprocess.run([sys.executable, "-S", "-c", MEASURE, RELEASE_BIN, "fs", "get", f"{namenode.url}/top", str(target)],
                       env=yard.env, capture_output=True, text=True)  # fmt: skip
    assert "nested more than 1000 levels deep" in p.stderr, p.stderr
    status, kilobytes = map(int, p.stdout.split())
    assert status == 1 and kilobytes < 100 * 1024


# In a small process: the peak memory of a program starts with that of the process that forked it.
MEASURE = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, 256 << 10))
status = subprocess.call(sys.argv[1:])
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_python_module_does_not_follow_endless_directories(
    namenode: NameNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namenode.listing = descend
    with pytest.raises(FileError, match="at most 1024 components and 24576 bytes") as e:
        files.ls(f"{namenode.url}/top", recursive=True)
    assert e.value.errno == errno.ENAMETOOLONG
    with pytest.raises(FileError, match="at most 1024 components"):
        files.glob(f"{namenode.url}/top/**/x", recursive=True)
    with pytest.raises(FileError, match="nested more than 1000 levels deep"):
        _hopyard.copy(f"{namenode.url}/top", str(tmp_path / "x"))
    assert os.listdir(tmp_path) == []


def test_recursive_listing_has_a_limit(
    namenode: NameNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "_BELOW_MAX", 1000)
    namenode.listing = lambda path, after: Page([Entry(b"a", is_dir=True), Entry(b"b", is_dir=True)])
    with pytest.raises(FileError, match="has more than 1,000 files and directories"):
        files.ls(f"{namenode.url}/top", recursive=True)


REPEATS = {
    "one": lambda path, after: Page([Entry(b"a"), Entry(b"b")], 1),
    "three": lambda path, after: Page([Entry(b"%d" % ((int(after or b"0") + 1) % 3))], 1),
    "late": lambda path, after: Page([Entry(b"%d" % (int(after or b"0") + 1 if int(after or b"0") < 50 else 20))], 1),
}


@pytest.mark.parametrize("listing", REPEATS)
def test_repeating_listing_ends(yard: Yard, namenode: NameNode, target: Path, listing: str) -> None:
    namenode.listing = REPEATS[listing]
    words = "repeats its listing endlessly: it is faulty or hostile"
    for command in (["ls"], ["ls", "-R"], ["du"]):
        assert re.search(words, yard.run("fs", *command, f"{namenode.url}/top", rc=1, timeout=60).stderr)
    fails(yard, words, "get", f"{namenode.url}/top", target)
    with pytest.raises(FileError, match=words):
        _hopyard.list(f"{namenode.url}/top")
    assert len(namenode.calls) < 1000


def test_empty_page_with_more_to_come_is_not_the_end(yard: Yard, namenode: NameNode) -> None:
    namenode.listing = lambda path, after: Page([] if after else [Entry(b"a")], 1)
    words = "announced more entries and sent none"
    assert words in yard.run("fs", "ls", f"{namenode.url}/top", rc=1, timeout=60).stderr


# ---- sizes


def test_invalid_sizes_are_refused(yard: Yard, namenode: NameNode, target: Path) -> None:
    namenode.folders["/data"] = [Entry(b"f", length=1 << 63)]
    namenode.stat = lambda path: Entry(b"", length=(1 << 64) - 1)
    for command, *where in (["stat"], ["ls"], ["get", target]):
        fails(yard, "a size that no file can have", command, f"{namenode.url}/f", *where)
    namenode.stat = lambda path: Entry(b"", is_dir=True)
    fails(yard, "a size that no file can have", "ls", f"{namenode.url}/data")


def test_invalid_times_are_shown_as_unknown(yard: Yard, namenode: NameNode) -> None:
    namenode.folders["/data"] = [Entry(b"f", time=(1 << 63) + 5), Entry(b"g", time=(1 << 63) - 1)]
    lines = yard.run("fs", "ls", f"{namenode.url}/data").stdout.splitlines()
    assert len(lines) == 2 and all(" - " in line for line in lines), lines


LIES = {
    "longer than its blocks": Blocks(1 << 50, [(0, 10)]),
    "no blocks": Blocks((1 << 63) - 1),
    "negative": Blocks((1 << 64) - 1, [(0, 10)]),
    "overflow": Blocks(10, [(0, 1 << 63), (1 << 63, 1 << 63)]),
    "gap": Blocks(30, [(0, 10), (20, 10)]),
    "open block far away": Blocks(30, [(0, 10)], last=(1 << 63, 1 << 63)),
}


@pytest.mark.parametrize("lie", LIES)
def test_inconsistent_blocks_are_refused(yard: Yard, namenode: NameNode, target: Path, lie: str) -> None:
    namenode.files["/f"] = LIES[lie]
    for command in (["cat"], ["tail"], ["get"]):
        fails(yard, "the NameNode", *command, f"{namenode.url}/f", *([target] if command == ["get"] else []))
    with pytest.raises(FileError, match="the NameNode"):
        _hopyard.File(f"{namenode.url}/f")
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("last", [(20, 10), (0, 10), (1 << 63, 1)])
def test_append_refuses_an_inconsistent_last_block(namenode: NameNode, last: tuple[int, int]) -> None:
    namenode.files["/f"] = Blocks(10 if last[0] else BLOCK + 1, [last])
    with pytest.raises(FileError, match="a last block that does not fit the file's length"):
        _hopyard.File(f"{namenode.url}/f", "a")
