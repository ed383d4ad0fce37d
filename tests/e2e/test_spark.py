# SPDX-License-Identifier: Apache-2.0
"""Experiments and trainings on the executors of a SparkSession, on a real standalone cluster.

A session takes seconds to make, so a few programs serve all tests, a cell at a time, as notebooks do.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import Yard, pids_with, wait_for

CELL_S = 120  # the longest that one may take

LOOP = """
import json, os, sys, time, traceback
from pathlib import Path
import hopyard.compat
import hopyard
from hopyard import allreduce, experiment
from pyspark.sql import SparkSession

def say(**words):
    answer.update(words)

def failing(call):
    try:
        call()
    except hopyard.Error as error:
        return str(error)

def session(**settings):
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config("spark." + name.replace("_", "."), value)
    return builder.getOrCreate()

def patient(x, gate):
    "The first two end at once, the others when somebody opens the gate."
    while x > 2 and not os.path.exists(gate):
        time.sleep(0.02)
    return x

def begin_patient(gate):
    run = experiment.grid_search(patient, {"x": list(range(1, 9)), "gate": [gate]}, spark=spark, tensorboard=False,
                                 detach=True).run
    say(run=run)

for line in sys.stdin:
    answer = {}
    try:
        exec(compile(json.loads(line), "cell", "exec"), globals())
    except BaseException:
        answer["raised"] = traceback.format_exc()
    print("\\n::" + json.dumps(answer), flush=True)
"""


class Notebook:
    """A program that runs what it is given, and says what that says."""

    def __init__(self, yard: Yard, env: dict[str, str]) -> None:
        self.errors = yard.project / "notebook.err"
        env = {**yard.env, **env, "HOPYARD_PROGRAM": yard.bin}
        with open(self.errors, "ab") as errors:
            self.process = subprocess.Popen([sys.executable, "-u", "-c", LOOP], env=env, cwd=yard.project, text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                            start_new_session=True)
        self.shown = ""

    def begin(self, code: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """What the cell has said; what it has shown is in `shown`."""
        self.shown = ""
        late = threading.Timer(CELL_S, self.close)
        late.start()
        try:
            answer = self.answer()
        finally:
            late.cancel()
        assert answer is not None, f"the program has ended, or took too long: {self.shown[-2000:]}\n{self.complaints()}"
        assert "raised" not in answer, f"{self.shown[-2000:]}\n{answer['raised']}\n{self.complaints()}"
        return answer

    def answer(self) -> dict[str, Any] | None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("::"):
                return json.loads(line[2:])
            self.shown += line
        return None

    def say(self, code: str) -> dict[str, Any]:
        self.begin(code)
        return self.end()

    def complaints(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """The Python process, and nobody else: what it leaves behind has to notice."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """With its JVM."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class House:
    """A project, a cluster, and the notebook that works there now."""

    def __init__(self, yard: Yard, cluster: dict[str, Any], part: str = "spark") -> None:
        self.yard, self.mark = yard, f"TEST_CLUSTER={cluster['state']}/{part}"
        self.env = {**cluster[f"{part}_env"]}
        self.notebook = Notebook(yard, self.env)

    def open(self) -> Notebook:
        self.notebook = Notebook(self.yard, self.env)
        return self.notebook

    def on_cluster(self, pattern: str) -> list[int]:
        return [pid for pid, command in pids_with(self.mark).items() if re.search(pattern, command)]

    def agents(self) -> list[int]:
        return self.on_cluster(r"hopyard agent\b")

    def executors(self) -> list[int]:
        return self.on_cluster(r"CoarseGrainedExecutorBackend")

    def count(self, run: int, state: str) -> int:
        """Of attempts."""
        return sum(a["state"] == state for a in self.yard.attempts(run))

    def begin_patient(self, gate: str) -> int:
        """Eight trials, of which two are done, and four run until the gate is opened."""
        run = int(self.notebook.say(f"begin_patient({str(self.yard.project / gate)!r})")["run"])
        self.wait_patient(run)
        return run

    def wait_patient(self, run: int) -> None:
        wait_for(lambda: self.count(run, "done") == 2 and self.count(run, "running") == 4, "two are done, four run")

    def check_patient(self, run: int, lost: int) -> None:
        """No trial that was done was lost or tried again, and nobody else's than the `lost` ones were."""
        assert [t["state"] for t in self.yard.trials(run)] == ["done"] * 8, self.yard.trials(run)
        attempts = self.yard.attempts(run)
        assert [a["state"] for a in attempts if a["trial"] <= 2] == ["done"] * 2, attempts
        assert sorted(a["trial"] for a in attempts if a["state"] == "done") == list(range(1, 9)), attempts
        assert len(attempts) == 8 + lost, attempts


def houses(cluster: dict[str, Any], part: str, folder: Path, **settings: str) -> Iterator[House]:
    """One with a session of two executors; at the end nothing of it is left."""
    yard = Yard(folder)
    house = House(yard, cluster, part)
    try:
        house.notebook.say(f"""
            spark = session(executor_instances="2", executor_memory="512m", **{settings})
            sc = spark.sparkContext
        """)
        yield house
        house.notebook.close()
        wait_for(lambda: not house.agents(), "agents end with their sessions")
        yard.assert_nothing_left()
        yard.assert_no_sanitizer_reports()
    finally:
        house.notebook.close()
        yard.kill_everything()
        shutil.rmtree(yard.runtime, ignore_errors=True)


@pytest.fixture(scope="module")
def house(spark_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    yield from houses(spark_cluster, "spark", tmp_path_factory.mktemp("house"))


@pytest.fixture(autouse=True)
def leave_no_run_behind(house: House) -> Iterator[None]:
    """One that a failed test has left would keep the executors from those behind it."""
    yield
    for row in house.yard.rows("SELECT id FROM runs WHERE state = 1"):
        house.yard.run("stop", row["id"], rc=None)


# ---- experiments ---------------------------------------------------------------------------------------------


def test_trials_run_on_executors_and_their_folders_come_back(house: House) -> None:
    said = house.notebook.say("""
        def training(lr, dropout):
            from hopyard import tensorboard
            print("training with", lr)
            print("to stderr", file=sys.stderr)
            Path(tensorboard.logdir(), "weights").mkdir()
            Path(tensorboard.logdir(), "weights", "w.bin").write_bytes(bytes(100_000))
            hopyard.report(step=1, seen=lr)
            Path(here, f"{lr} {dropout}").touch()
            while len(os.listdir(here)) < 4:  # all at once: as many as there are slots
                time.sleep(0.01)
            return {"accuracy": lr * 10 + dropout, "host": os.environ.get("TEST_CLUSTER", "")}

        here = os.path.abspath("here")
        os.mkdir(here)
        result = experiment.grid_search(training, {"lr": [1, 2], "dropout": [0.25, 0.5]}, metric="accuracy", spark=spark,
                                        tensorboard=False)
        say(run=result.run, best=result.best.params, metric=result.best.metric, logdir=result.logdir, app=sc.applicationId,
            logdirs=[t.logdir for t in result.trials])
    """)
    assert said["best"] == {"lr": 2, "dropout": 0.5} and said["metric"] == 20.5
    assert said["logdir"] == f"{house.yard.project}/Logs/TensorFlow/{said['app']}/{said['run']}"
    folder = Path(said["logdir"], "lr=1,dropout=0.25")
    assert (folder / "stdout").read_text() == "training with 1\n" and (folder / "stderr").read_text() == "to stderr\n"
    assert (folder / "weights" / "w.bin").stat().st_size == 100_000
    assert house.mark.endswith(json.loads((folder / "result.json").read_text())["host"]), "it was on the cluster"
    agents = {a["agent"] for a in house.yard.attempts(said["run"])}
    assert len(agents) == 2 and all("executor" in a for a in agents), agents
    wait_for(lambda: not house.agents(), "the executors are given back")


def test_evolution_on_executors(house: House) -> None:
    said = house.notebook.say("""
        result = experiment.evolutionary_search(lambda x: -(x - 0.3) ** 2, {"x": [0.0, 1.0]}, population=4, generations=3,
                                                seed=7, spark=spark, tensorboard=False)
        say(run=result.run, count=len(result.trials), states=[t.state for t in result.trials], best=result.best.metric)
    """)
    assert said["count"] == 12 and set(said["states"]) == {"done"} and said["best"] > -0.1


def test_a_failing_trial_brings_its_traceback(house: House) -> None:
    said = house.notebook.say("""
        def choosy(x):
            if x == 2:
                raise ValueError("two is too much")
            return x

        result = experiment.grid_search(choosy, {"x": [1, 2, 3]}, spark=spark, tensorboard=False)
        say(states=[t.state for t in result.trials], error=result.trials[1].error)
    """)
    assert said["states"] == ["done", "failed", "done"]
    assert said["error"].startswith("Traceback") and said["error"].rstrip().endswith("ValueError: two is too much")


def test_a_module_that_executors_do_not_have_is_named_with_the_executor(house: House) -> None:
    said = house.notebook.say("""
        import platform
        os.mkdir("elsewhere")
        Path("elsewhere", "mymodel.py").write_text("def training(x):\\n    return x\\n")
        sys.path.insert(0, "elsewhere")
        import mymodel
        sys.path.remove("elsewhere")  # where the trials will look, too
        say(error=failing(lambda: experiment.grid_search(mymodel.training, {"x": [1]}, spark=spark, tensorboard=False)),
            host=platform.node())
    """)
    assert "cannot import 'mymodel'" in said["error"] and said["host"] in said["error"]


def test_hops_with_the_session_first(house: House) -> None:
    said = house.notebook.say("""
        from hops import experiment as hops_experiment
        logdir, best = hops_experiment.grid_search(spark, lambda lr: lr, {"lr": [1, 2, 3]}, tensorboard=False)
        say(best=best, logdir=logdir, app=sc.applicationId)
        folder = hops_experiment.begin(spark, "mine", tensorboard=False)
        say(here=os.path.exists(folder), begun=folder)
        hops_experiment.end(0.5)
    """)
    assert said["best"] == {"lr": 3} and f"/{said['app']}/" in said["logdir"]
    assert said["here"] and f"/{said['app']}/" in said["begun"]


# ---- trainings ------------------------------------------------------------------------------------------------


def test_four_ranks_on_two_executors(house: House) -> None:
    said = house.notebook.say("""
        import numpy

        def training(base):
            import hopyard.collective as hvd
            hvd.init()
            total = hvd.allreduce(numpy.array([base + hvd.rank()], dtype="float64"), op=hvd.Sum)
            return hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_size(), float(total[0]), os.environ["COLOUR"]

        say(ranks=allreduce.run(training, (10,), np=4, spark=spark, env={"COLOUR": "blue"}, tensorboard=False))
    """)
    assert said["ranks"] == [[rank, rank % 2, 2, 2, 46.0, "blue"] for rank in range(4)]


def test_hops_allreduce_runs_a_notebook_on_every_executor(house: House) -> None:
    cells = ["import os\nimport hopyard.collective as hvd\nhvd.init()", "print(hvd.rank(), hvd.size(), 'TEST_CLUSTER' in os.environ)"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    folder = house.yard.project / "Jupyter"
    folder.mkdir(exist_ok=True)
    nbformat.write(book, folder / "horovod.ipynb")
    said = house.notebook.say("""
        from hops import allreduce as hops_allreduce
        say(logdir=hops_allreduce.launch(spark, "Jupyter/horovod.ipynb", tensorboard=False))
    """)
    shown = [Path(said["logdir"], f"rank={rank}", "stdout").read_text() for rank in range(2)]
    assert shown == ["0 2 True\n", "1 2 True\n"]


def test_horovod_spark_run(house: House) -> None:
    said = house.notebook.say("""
        import horovod.spark, io

        def training(scale):
            import horovod.tensorflow as hvd
            import tensorflow as tf
            hvd.init()
            print("rank", hvd.rank(), os.environ["COLOUR"], "TEST_CLUSTER" in os.environ)
            return float(hvd.allreduce(tf.constant(scale * hvd.rank()), op=hvd.Sum)), hvd.size()

        shown = io.StringIO()
        say(ranks=horovod.spark.run(training, args=(2.0,), env={**os.environ, "COLOUR": "red"}, stdout=shown),
            parallelism=sc.defaultParallelism, shown=shown.getvalue())
    """)
    assert said["ranks"] == [[12.0, 4]] * 4 and said["parallelism"] == 4
    assert "rank 3 red True" in said["shown"] and "rank 3 red" not in house.notebook.shown


def test_horovod_spark_run_elastic_survives_a_rank(house: House) -> None:
    said = house.notebook.say("""
        def training(folder):
            import horovod.tensorflow.elastic as elastic
            import horovod.tensorflow as hvd
            import numpy, signal
            hvd.init()
            state = hvd.elastic.TensorFlowState(variables=[], batch=0)

            @hvd.elastic.run
            def train(state):
                while state.batch < 10:
                    if state.batch == 5 and hvd.rank() == 1:
                        try:
                            os.mkdir(folder)
                            os.kill(os.getpid(), signal.SIGKILL)
                        except FileExistsError:
                            pass
                    hvd.broadcast_object(state.batch)
                    state.batch += 1
                    state.commit()
                return state.batch

            return train(state)

        say(ranks=horovod.spark.run_elastic(training, args=(os.path.abspath("fell"),), num_proc=2, min_num_proc=1))
    """)
    assert said["ranks"] and set(said["ranks"]) == {10}


# ---- faults ---------------------------------------------------------------------------------------------------


def test_an_executor_that_is_killed_loses_only_what_ran_on_it(house: House) -> None:
    run = house.begin_patient("gate-1")
    [first, _] = house.executors()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: house.count(run, "lost") == 2, "the trials of the executor are lost")
    house.wait_patient(run)  # with an agent on the executor that Spark has started in its place
    (house.yard.project / "gate-1").touch()
    house.notebook.say(f"experiment.attach({run})")
    house.check_patient(run, lost=2)
    assert re.search(r"agent executor-\d@\S+: the executor that it ran on was lost", house.notebook.shown)


def test_a_job_that_is_cancelled_in_spark_shows_as_that(house: House) -> None:
    run = house.begin_patient("gate-2")
    house.notebook.say(f"sc.cancelJobGroup('hopyard-run-{run}-agent-1')")
    wait_for(lambda: house.count(run, "lost") == 2, "the trials of its agent are lost")
    house.wait_patient(run)
    (house.yard.project / "gate-2").touch()
    house.notebook.say(f"experiment.attach({run})")
    house.check_patient(run, lost=2)
    assert re.search(r"agent executor-1@\S+: Spark: Job \d+ cancelled", house.notebook.shown), house.notebook.shown


def test_a_run_whose_session_was_stopped_goes_on_with_another_one(house: House) -> None:
    run = house.begin_patient("gate-3")
    house.notebook.say("spark.stop()")
    wait_for(lambda: house.count(run, "lost") == 4, "its trials are lost")
    wait_for(lambda: not house.agents(), "its agents are gone")
    (house.yard.project / "gate-3").touch()
    said = house.notebook.say(f"""
        spark = session(executor_instances="2", executor_memory="512m")
        sc = spark.sparkContext
        say(state=experiment.resume({run}, spark=spark, tensorboard=False).state)
    """)
    assert said["state"] == "done"
    house.check_patient(run, lost=4)


def test_a_run_whose_driver_was_killed_goes_on(house: House) -> None:
    """Its agents and their trials go by themselves; the same session serves again."""
    run = house.begin_patient("gate-4")
    os.kill(house.yard.process("driver"), signal.SIGKILL)
    wait_for(lambda: not house.agents(), "its agents are gone")
    refused = house.yard.run("resume", run, rc=None)
    assert refused.returncode != 0 and f"experiment.resume({run}, spark=spark)" in refused.stderr, refused.stderr
    said = house.notebook.say(f"""
        say(error=failing(lambda: experiment.resume({run}, tensorboard=False)))
        Path("gate-4").touch()
        say(state=experiment.resume({run}, spark=spark, tensorboard=False).state)
    """)
    assert f"run {run} was on the executors of a SparkSession" in said["error"] and said["state"] == "done"
    house.check_patient(run, lost=4)


def test_a_run_whose_process_was_killed_goes_on_with_another_one(house: House) -> None:
    run = house.begin_patient("gate-5")
    house.notebook.kill()
    wait_for(lambda: house.count(run, "lost") == 4, "its trials are lost")
    (house.yard.project / "gate-5").touch()
    said = house.open().say(f"""
        spark = session(executor_instances="2", executor_memory="512m")
        sc = spark.sparkContext
        say(state=experiment.resume({run}, spark=spark, tensorboard=False).state)
    """)
    assert said["state"] == "done"
    house.check_patient(run, lost=4)


def test_a_limit_under_which_tensorflow_aborts_is_said(house: House) -> None:
    said = house.notebook.say("""
        spark.stop()
        spark = session(executor_instances="2", executor_memory="512m", executor_pyspark_memory="1g")
        say(error=failing(lambda: experiment.grid_search(lambda x: x, {"x": [1]}, spark=spark, tensorboard=False)))
    """)
    assert "spark.executor.pyspark.memory limits its address space to 1024 MB" in said["error"]
