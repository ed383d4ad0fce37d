# SPDX-License-Identifier: Apache-2.0
"""Python processes that live as long as a notebook kernel, and execute a cell at a time.

A session takes seconds to start, so a few processes serve all tests.
"""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from conftest import Yard, pids_with, wait_for, yard_in

CELL_S = 120  # time limit of a cell

PLAIN = """
import json, os, signal, sys, time, traceback
from pathlib import Path
import hopyard
from hopyard import allreduce, experiment
"""

SPARK = PLAIN + """
import hopyard.compat
from pyspark.sql import SparkSession
"""

LOOP = """
def emit(**words):
    answer.update(words)

def failing(call):
    try:
        call()
    except hopyard.Error as error:
        return str(error)

def session(**settings):
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config("spark." + (name if "." in name else name.replace("_", ".")), value)
    return builder.getOrCreate()

def gated(x, gate):
    "The first two return at once, the others when the gate opens."
    while x > 2 and not os.path.exists(gate):
        time.sleep(0.02)
    return x

def start_gated_run(gate):
    run = experiment.grid_search(gated, {"x": list(range(1, 9)), "gate": [gate]}, spark=spark, tensorboard=False,
                                 detach=True).run
    emit(run=run)

for line in sys.stdin:
    answer = {}
    try:
        exec(compile(json.loads(line), "cell", "exec"), globals())
    except BaseException:
        answer["raised"] = traceback.format_exc()
    print("\\n::" + json.dumps(answer), flush=True)
"""


class Notebook:
    """A process that executes cells, and returns what they emit."""

    def __init__(self, yard: Yard, env: dict[str, str], python: str = sys.executable, head: str = SPARK) -> None:
        self.errors = yard.project / "notebook.err"
        env = {**yard.env, **env, "HOPYARD_PROGRAM": yard.bin}
        with open(self.errors, "ab") as errors:
            self.process = subprocess.Popen([python, "-u", "-c", head + LOOP], env=env, cwd=yard.project, text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                            start_new_session=True)
        self.shown = ""

    def begin(self, code: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Returns the values that the cell emitted; its standard output is in `shown`."""
        self.shown = ""
        late = threading.Timer(CELL_S, self.close)
        late.start()
        try:
            answer = self.answer()
        finally:
            late.cancel()
        assert answer is not None, f"the process has exited, or took too long: {self.shown[-2000:]}\n{self.stderr()}"
        assert "raised" not in answer, f"{self.shown[-2000:]}\n{answer['raised']}\n{self.stderr()}"
        return answer

    def answer(self) -> dict[str, Any] | None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("::"):
                return json.loads(line[2:])
            self.shown += line
        return None

    def evaluate(self, code: str) -> dict[str, Any]:
        self.begin(code)
        return self.end()

    def stderr(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """Kills only the Python process: what it leaves behind has to notice."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """With its JVM."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class House:
    """A project, a cluster, and the notebook that currently uses them."""

    def __init__(self, yard: Yard, cluster: dict[str, Any], part: str = "spark") -> None:
        self.yard, self.part, self.mark = yard, part, f"TEST_CLUSTER={cluster['state']}/{part}"
        self.env = {**cluster[f"{part}_env"]}
        self.notebook = Notebook(yard, self.env)

    def open(self) -> Notebook:
        self.notebook = Notebook(self.yard, self.env)
        return self.notebook

    def close(self) -> None:
        """Agents exit with their sessions."""
        self.notebook.close()
        wait_for(lambda: not self.agents(), "agents exit with their sessions")

    def on_cluster(self, pattern: str) -> list[int]:
        return [pid for pid, command in pids_with(self.mark).items() if re.search(pattern, command)]

    def agents(self) -> list[int]:
        return self.on_cluster(r"hopyard agent\b")

    def executors(self) -> list[int]:
        return self.on_cluster(r"CoarseGrainedExecutorBackend")

    def count(self, run: int, state: str) -> int:
        """Number of attempts in this state."""
        return sum(a["state"] == state for a in self.yard.attempts(run))

    def notes(self, run: int) -> str:
        rows = self.yard.rows("SELECT text FROM notes WHERE run = ? ORDER BY seq", run)
        return "\n".join(row["text"] for row in rows)

    def start_gated_run(self, gate: str) -> int:
        """Starts eight trials: two finish at once, and four of the others run until the gate opens."""
        run = int(self.notebook.evaluate(f"start_gated_run({str(self.yard.project / gate)!r})")["run"])
        self.wait_for_gated_run(run)
        return run

    def wait_for_gated_run(self, run: int) -> None:
        wait_for(lambda: self.count(run, "done") == 2 and self.count(run, "running") == 4, "two trials are done, four are running")

    def check_gated_run(self, run: int, lost: int) -> None:
        """No finished trial was lost or retried, and no other trial than the `lost` ones."""
        assert [t["state"] for t in self.yard.trials(run)] == ["done"] * 8, self.yard.trials(run)
        attempts = self.yard.attempts(run)
        assert [a["state"] for a in attempts if a["trial"] <= 2] == ["done"] * 2, attempts
        assert sorted(a["trial"] for a in attempts if a["state"] == "done") == list(range(1, 9)), attempts
        assert len(attempts) == 8 + lost, attempts


def houses(cluster: dict[str, Any], part: str, folder: Path, **settings: str) -> Iterator[House]:
    """One with a session of two executors."""
    with opened(cluster, part, folder) as house:
        house.notebook.evaluate(f"""
            spark = session(**{dict(executor_instances="2", executor_memory="512m") | settings})
            sc = spark.sparkContext
        """)
        yield house


@contextmanager
def opened(cluster: dict[str, Any], part: str, folder: Path) -> Iterator[House]:
    """Nothing of it is left at the end."""
    with yard_in(folder) as yard, closing(House(yard, cluster, part)) as house:
        yield house
