# SPDX-License-Identifier: Apache-2.0
"""hdfs:// in TensorFlow, with one build, in the installed version and in the oldest one, without an import of hopyard."""
from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import hopyard
import pytest
from conftest import ROOT, wait_for
from hdfs import Hdfs
from hdfs_client import write_conf

OLD = ROOT / ".venv-old/bin/python"  # built by `make test`
PLUGINS = Path(hopyard.__file__).parents[1] / "tensorflow-plugins"
CONTENT = random.Random(1).randbytes(3 * (1 << 20) + 7)  # as in gfile_suite.py
USER = "alice"


class TensorFlow:
    """A TensorFlow that has found hdfs:// by itself."""

    def __init__(self, python: str | Path, path: Path | None) -> None:
        self.python = python
        self.env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        if path:
            self.env["PYTHONPATH"] = str(path)

    def run(self, *arguments: str | Path, **env: str) -> str:
        p = subprocess.run([self.python, *arguments], env=self.env | env, cwd=ROOT, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        assert p.returncode == 0, p.stdout[-20000:]
        return p.stdout


@pytest.fixture(params=["installed", "oldest"])
def tensorflow(request: pytest.FixtureRequest, tmp_path: Path) -> TensorFlow:
    if request.param == "installed":
        return TensorFlow(sys.executable, None)
    assert OLD.exists(), "make test installs it"
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "tensorflow-plugins").symlink_to(PLUGINS)
    return TensorFlow(OLD, site)


def new_folder(hdfs: Hdfs, name: str) -> str:
    """It belongs to the user."""
    hdfs.shell("-mkdir", "-p", f"/gfile/{name}")
    hdfs.shell("-chown", USER, f"/gfile/{name}")
    return f"{hdfs.url}/gfile/{name}"


def test_tensorflow_file_operations_on_hdfs(
    hdfs: Hdfs, tensorflow: TensorFlow, tmp_path: Path
) -> None:
    folder = new_folder(hdfs, tmp_path.name)
    hdfs.shell("-mkdir", "-p", "/gfile/closed")
    hdfs.shell("-chmod", "700", "/gfile/closed")
    (tmp_path / "content").write_bytes(CONTENT)
    hdfs.shell("-put", tmp_path / "content", f"{folder}/from-hadoop")
    tensorflow.run("-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "tests/e2e/gfile_suite.py",
                   GFILE_FOLDER=folder, GFILE_CLOSED=f"{hdfs.url}/gfile/closed", **hdfs.env(USER))  # fmt: skip
    assert hdfs.shell("-cat", f"{folder}/for-hadoop").out == CONTENT


TWICE = """
import ctypes, sys
import tensorflow as tf
print("hdfs" in tf.io.gfile.get_registered_schemes(), "hopsfs" in tf.io.gfile.get_registered_schemes())
for path in sys.argv[1:]:
    trouble = ctypes.CDLL(path).hy_tensorflow_files_trouble
    trouble.restype = ctypes.c_char_p
    print((trouble() or b"serves").decode())
"""


def test_hopyard_installed_twice_registers_once(tensorflow: TensorFlow, tmp_path: Path) -> None:
    second = tmp_path / "second/site-packages"
    shutil.copytree(PLUGINS, second / "tensorflow-plugins")
    path = os.pathsep.join(filter(None, [tensorflow.env.get("PYTHONPATH"), str(second)]))
    libraries = [PLUGINS / "hopyard_ops.so", second / "tensorflow-plugins/hopyard_ops.so"]
    *_, first, one, other = tensorflow.run("-c", TWICE, *libraries, PYTHONPATH=path).splitlines()
    assert first == "True True"
    assert sorted(t.rsplit(": ")[-1] for t in (one, other)) == ["File system for hdfs already registered", "serves"]


# ---- TensorBoard -----------------------------------------------------------------------------------------------------

WRITER = """
import sys
import tensorflow as tf
with tf.summary.create_file_writer(sys.argv[1]).as_default():
    for step, line in enumerate(sys.stdin):
        tf.summary.scalar("loss", float(line), step)
        tf.summary.flush()
        print("written", flush=True)
"""


@contextmanager
def ended(command: list[str | Path], env: dict[str, str], **pipes: int) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, env=env, text=True, **pipes) as p:
        try:
            yield p
        finally:
            p.kill()


class Board:
    """A TensorBoard, and its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: SimpleQueue[str] = SimpleQueue()
        self.reader = threading.Thread(target=self.collect, args=(process,), daemon=True)
        self.reader.start()
        self.address = self.find()

    def collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr
        for line in process.stderr:
            self.lines.put(line)
        self.lines.put("")

    def find(self) -> str:
        output = []
        while line := self.lines.get(timeout=120):
            output.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                return found[0]
        raise AssertionError("".join(output))

    def ask(self, path: str, **query: str) -> object:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # ignores proxies of the environment
        with opener.open(f"{self.address}{path}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
            return json.load(answer)

    def scalars(self) -> list[float]:
        if "loss" not in self.ask("data/plugin/scalars/tags").get("trial", {}):
            return []
        return [round(value, 3) for _, _, value in self.ask("data/plugin/scalars/scalars", run="trial", tag="loss")]


@pytest.mark.parametrize("tensorflow", ["installed", pytest.param("oldest", marks=pytest.mark.full)], indirect=True)
def test_tensorboard_shows_files_during_the_write(hdfs: Hdfs, tensorflow: TensorFlow, tmp_path: Path) -> None:
    folder = new_folder(hdfs, tmp_path.name)
    env = tensorflow.env | hdfs.env(USER)
    board = [tensorflow.python, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", "0",
             "--reload_interval", "1"]
    pipe = subprocess.PIPE
    with (ended([tensorflow.python, "-c", WRITER, f"{folder}/trial"], env, stdin=pipe, stdout=pipe) as writer,
          ended(board, env, stderr=pipe) as process):  # fmt: skip
        shown = Board(process)
        expected: list[float] = []
        for value in (0.5, 0.25, 0.125):
            assert writer.stdin and writer.stdout
            print(value, file=writer.stdin, flush=True)
            assert writer.stdout.readline() == "written\n"
            expected.append(value)
            wait_for(lambda: shown.scalars() == expected, f"TensorBoard shows {expected} while the file is open")
        writer.stdin.close()
        assert writer.wait(60) == 0


RECORDS = """
import hashlib, sys
import tensorflow as tf

path, count = sys.argv[1], 20000
def record(n):
    return hashlib.sha512(str(n).encode()).digest() * (1 + n % 5)

with tf.io.TFRecordWriter(path) as writer:
    for n in range(count):
        writer.write(record(n))
        if n == count // 2:
            print("half written", flush=True)
            input()
seen = 0
for n, found in enumerate(tf.data.TFRecordDataset(path, buffer_size=4096)):
    assert found.numpy() == record(n), n
    seen += 1
    if n == count // 2:
        print("half read", flush=True)
        input()
print("seen", seen, flush=True)
"""


def test_records_survive_the_death_of_a_datanode(hdfs: Hdfs, tmp_path: Path) -> None:
    """Killed while TensorFlow writes, and another one while it reads: in the blocks' pipeline, or with a replica."""
    conf = write_conf(hdfs.conf, tmp_path / "conf", {"dfs.replication": 3})
    env = {**os.environ, **hdfs.env(), "HADOOP_CONF_DIR": str(conf), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    with subprocess.Popen([sys.executable, "-c", RECORDS, f"{hdfs.url}/{tmp_path.name}.tfrecord"], env=env, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin and program.stdout and program.stderr
        for moment, datanode in (("half written", 0), ("half read", 1)):
            assert program.stdout.readline() == f"{moment}\n", program.stderr.read()
            hdfs.datanodes[datanode].kill()
            program.stdin.write("go on\n")
            program.stdin.flush()
        out, err = program.communicate(timeout=240)
    assert program.returncode == 0 and out == "seen 20000\n", out + err
