# SPDX-License-Identifier: Apache-2.0
"""Real clusters (tests/cluster/cluster.py), and small Python programs that run on them.

The fixtures are in conftest.py: a session fixture that two test files import
would be two fixtures.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

PROGRAM = Path(__file__).absolute().parents[1] / "cluster/cluster.py"
# Spark's executors on YARN need this setting; standalone workers have it already.
GPU_SCRIPT = {"spark.executor.resource.gpu.discoveryScript": PROGRAM.with_name("gpu.sh")}

HEAD = """
import json, os, sys, time
from pyspark.sql import SparkSession

def emit(**words):
    print(json.dumps(words), flush=True)

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
"""


def control(action: str, part: str, state: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`cluster.py start spark …`; such a cluster outlives the tests unless it is stopped."""
    return subprocess.run([sys.executable, PROGRAM, action, part, "--state", state, *options], text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=300)


def repair(part: str, cluster: dict[str, Any]) -> None:
    """Restarts daemons that an earlier test has killed."""
    again = control("start", part, cluster["state"])
    assert again.returncode == 0, again.stderr


@contextmanager
def held(part: str, state: Path, *options: str) -> Iterator[dict[str, Any]]:
    """cluster.json of a cluster that stops with this block, or with this process, however it ends."""
    command = [sys.executable, PROGRAM, "hold", part, "--state", state, *options]
    with subprocess.Popen(command, text=True, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as holder:
        assert holder.stdin and holder.stdout
        try:
            output: list[str] = []
            while "held\n" not in output:
                output.append(holder.stdout.readline())
                assert output[-1], "".join(output)
            yield {**json.loads((state / "cluster.json").read_text()), "state": state}
        except BaseException:
            holder.send_signal(signal.SIGTERM)  # it may still be starting, without reading
            raise
        finally:
            holder.stdin.close()
            holder.stdout.read()


def state_in(folder: Path) -> Path:
    """The state directory of a cluster that cannot see all of this machine's files, as far as possible."""
    if os.geteuid() == 0:
        (folder / "edge").mkdir()
    return folder


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A standalone Spark: two workers with two cores, 2 GB and two fake GPUs each."""
    with held("spark", state_in(tmp_path_factory.mktemp("spark"))) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def yarn_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """YARN with HDFS: two nodes with four cores, 4 GB and two fake GPUs each."""
    with held("yarn", state_in(tmp_path_factory.mktemp("yarn"))) as cluster:
        yield cluster


class Session:
    """Python programs on a cluster, each with its own SparkSession: `spark`, and `sc`.

    With `env`, `SparkSession.builder.getOrCreate()` of any program connects to this cluster.
    """

    def __init__(self, part: str, cluster: dict[str, Any], folder: Path) -> None:
        self.part, self.cluster, self.folder = part, cluster, folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HOPYARD_")}
        self.env.update(cluster[f"{part}_env"])
        self.started: list[subprocess.Popen[str]] = []

    def start(self, code: str, conf: dict[str, Any] | None = None, **options: Any) -> subprocess.Popen[str]:
        path = self.folder / f"program{len(self.started) + 1}.py"
        path.write_text(HEAD + textwrap.dedent(code))
        settings = [word for k, v in (conf or {}).items() for word in ("--conf", f"{k}={v}")]
        env = {**self.env, "PYSPARK_SUBMIT_ARGS": " ".join([*settings, "pyspark-shell"])}
        with open(path.with_suffix(".err"), "wb") as log:
            self.started.append(subprocess.Popen([sys.executable, path], env=env, cwd=self.folder, text=True,
                                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                                 start_new_session=True, **options))
        return self.started[-1]

    def errors(self) -> str:
        """Standard error of the last program."""
        return (self.folder / f"program{len(self.started)}.err").read_text(errors="replace")[-6000:]

    def evaluate(self, code: str, conf: dict[str, Any] | None = None) -> Any:
        """Returns what the program passes to `emit` last."""
        program = self.start(code, conf)
        out, _ = program.communicate(timeout=240)
        assert program.returncode == 0, f"{out[-4000:]}\n{self.errors()}"
        return json.loads(out.splitlines()[-1])

    def applications(self) -> list[str]:
        """Applications that run according to the cluster."""
        if self.part == "spark":
            page, path = self.cluster["spark_page"], "/json/"
        else:
            page, path = self.cluster["yarn_page"], "/ws/v1/cluster/apps?states=NEW,SUBMITTED,ACCEPTED,RUNNING"
        with urllib.request.urlopen(page + path, timeout=60) as answer:
            found = json.load(answer)
        return [a["id"] for a in (found["activeapps"] if self.part == "spark" else (found["apps"] or {}).get("app", []))]

    def end(self) -> None:
        for program in self.started:
            try:
                os.killpg(program.pid, signal.SIGKILL)  # its JVM is in its process group
            except ProcessLookupError:
                pass
            program.communicate()


def sessions(part: str, cluster: dict[str, Any], folder: Path) -> Iterator[Session]:
    """A session on a repaired cluster; afterwards none of its applications runs there."""
    repair(part, cluster)
    session = Session(part, cluster, folder)
    try:
        yield session
    finally:
        session.end()
        wait_for(lambda: not session.applications(), "the session's applications end on the cluster")


@pytest.fixture
def session(spark_cluster: dict[str, Any], tmp_path: Path) -> Iterator[Session]:
    yield from sessions("spark", spark_cluster, tmp_path)


@pytest.fixture
def yarn_session(yarn_cluster: dict[str, Any], tmp_path: Path) -> Iterator[Session]:
    yield from sessions("yarn", yarn_cluster, tmp_path)
