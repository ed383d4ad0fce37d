# SPDX-License-Identifier: Apache-2.0
"""Experiments and trainings on the executors of a SparkSession, on a real standalone cluster.

Features of all engines are tested in test_engines_experiments.py and test_engines_trainings.py.
"""
from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import wait_for
from house import House, Notebook, houses  # noqa: F401  (re-exported for other tests)
from spark import repair


@pytest.fixture(scope="module")
def house(spark_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    repair("spark", spark_cluster)
    yield from houses(spark_cluster, "spark", tmp_path_factory.mktemp("house"))


@pytest.fixture(autouse=True)
def leave_no_run_behind(house: House) -> Iterator[None]:
    """A run that a failed test has left would occupy the executors of later tests."""
    yield
    for row in house.yard.rows("SELECT id FROM runs WHERE state = 1"):
        house.yard.run("stop", row["id"], rc=None)


# ---- experiments ---------------------------------------------------------------------------------------------


def test_run_belongs_to_its_application_and_releases_the_executors(house: House) -> None:
    """Executors that see the project, as these do, write to it directly."""
    output = house.notebook.evaluate("""
        def training(lr):
            from hopyard import tensorboard
            print("training with", lr)
            Path(tensorboard.logdir(), "weights").mkdir()
            Path(tensorboard.logdir(), "weights", "w.bin").write_bytes(bytes(100_000))
            return {"accuracy": lr, "cluster": os.environ.get("TEST_CLUSTER", ""), "folder": os.getcwd()}

        result = experiment.grid_search(training, {"lr": [1, 2]}, metric="accuracy", spark=spark, tensorboard=False)
        emit(run=result.run, best=result.best.params, logdir=result.logdir, app=sc.applicationId)
    """)
    assert output["best"] == {"lr": 2}
    assert output["logdir"] == f"{house.yard.project}/Logs/TensorFlow/{output['app']}/{output['run']}"
    folder = Path(output["logdir"], "lr=1")
    assert (folder / "stdout").read_text() == "training with 1\n" and (folder / "weights" / "w.bin").stat().st_size == 100_000
    returned = json.loads((folder / "result.json").read_text())
    assert f"TEST_CLUSTER={returned['cluster']}" == house.mark and returned["folder"] == str(house.yard.project)
    wait_for(lambda: not house.agents(), "the executors are given back")


def test_hops_api_with_the_session_as_first_argument(house: House) -> None:
    output = house.notebook.evaluate("""
        from hops import experiment as hops_experiment
        logdir, best = hops_experiment.grid_search(spark, lambda lr: lr, {"lr": [1, 2, 3]}, tensorboard=False)
        emit(best=best, logdir=logdir, app=sc.applicationId)
        folder = hops_experiment.begin(spark, "mine", tensorboard=False)
        emit(here=os.path.exists(folder), begun=folder)
        hops_experiment.end(0.5)
    """)
    assert output["best"] == {"lr": 3} and f"/{output['app']}/" in output["logdir"]
    assert output["here"] and f"/{output['app']}/" in output["begun"]


# ---- trainings ------------------------------------------------------------------------------------------------


def test_hops_allreduce_runs_a_notebook_on_every_executor(house: House) -> None:
    cells = ["import os\nimport hopyard.collective as hvd\nhvd.init()", "print(hvd.rank(), hvd.size(), 'TEST_CLUSTER' in os.environ)"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    folder = house.yard.project / "Jupyter"
    folder.mkdir(exist_ok=True)
    nbformat.write(book, folder / "horovod.ipynb")
    output = house.notebook.evaluate("""
        from hops import allreduce as hops_allreduce
        emit(logdir=hops_allreduce.launch(spark, "Jupyter/horovod.ipynb", tensorboard=False))
    """)
    shown = [Path(output["logdir"], f"rank={rank}", "stdout").read_text() for rank in range(2)]
    assert shown == ["0 2 True\n", "1 2 True\n"]


def test_horovod_spark_run(house: House) -> None:
    output = house.notebook.evaluate("""
        import horovod.spark, io

        def training(scale):
            import horovod.tensorflow as hvd
            import tensorflow as tf
            hvd.init()
            print("rank", hvd.rank(), os.environ["COLOUR"], "TEST_CLUSTER" in os.environ)
            return float(hvd.allreduce(tf.constant(scale * hvd.rank()), op=hvd.Sum)), hvd.size()

        shown = io.StringIO()
        emit(ranks=horovod.spark.run(training, args=(2.0,), env={**os.environ, "COLOUR": "red"}, stdout=shown),
            parallelism=sc.defaultParallelism, shown=shown.getvalue())
    """)
    assert output["ranks"] == [[12.0, 4]] * 4 and output["parallelism"] == 4
    assert "rank 3 red True" in output["shown"] and "rank 3 red" not in house.notebook.shown


def test_horovod_keras_estimator_trains_on_parquet_files_and_predicts_on_executors(house: House) -> None:
    """y = 2 a + b, from a vector; the store keeps nothing of the run."""
    output = house.notebook.evaluate(f"""
        import keras
        import numpy as np
        from horovod.spark.common.store import LocalStore
        from horovod.spark.common.util import prepare_data
        from horovod.spark.keras import KerasEstimator
        from pyspark.ml.feature import VectorAssembler
        from pyspark.sql import functions as F

        frame = spark.range(126).coalesce(1).selectExpr("id % 5 == 0 as held", "rand(1) as a", "rand(2) as b")
        frame = frame.withColumn("y", F.expr("2 * a + b"))
        frame = VectorAssembler(inputCols=["a", "b"], outputCol="x").transform(frame).cache()
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        store = LocalStore({str(house.yard.project / "store")!r}, save_runs=False)
        estimator = KerasEstimator(num_proc=2, store=store, model=model, optimizer="sgd", loss="mse", feature_cols=["x"],
                                   label_cols=["y"], validation="held", batch_size=10, epochs=8, verbose=0,
                                   partitions_per_process=1)
        with prepare_data(2, store, frame, ["y"], ["x"], "held", partitions_per_process=1) as index:
            trained = estimator.fit_on_parquet({{estimator.optimizer: keras.optimizers.SGD(0.1)}}, dataset_idx=index)
        emit(history=trained.getHistory(), optimizer=estimator.getOptimizer(),
            steps=int(trained.getModel().optimizer.iterations), left=sorted(os.listdir({str(house.yard.project / "store")!r})))
    """)
    losses = output["history"]["val_loss"]
    assert output["steps"] == 8 * 5 and len(losses) == 8 and losses[-1] < losses[0]  # 100 rows to train on, 50 for each rank
    assert output["left"] == ["intermediate_train_data", "intermediate_val_data", "runs"] and output["optimizer"] == "sgd"
    output = house.notebook.evaluate("""
        found = trained.transform(frame).collect()
        expected = trained.getModel().predict(np.array([row.x for row in found]), verbose=0)[:, 0]
        emit(same=bool(np.allclose([row.y__output for row in found], expected, atol=1e-5)), rows=len(found))
    """)
    assert output["same"] and output["rows"] == 126


def test_horovod_spark_run_elastic_survives_a_rank(house: House) -> None:
    output = house.notebook.evaluate("""
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

        emit(ranks=horovod.spark.run_elastic(training, args=(os.path.abspath("failed"),), num_proc=2, min_num_proc=1))
    """)
    assert output["ranks"] and set(output["ranks"]) == {10}


def resume_on_another_session(house: House, run: int) -> None:
    output = house.notebook.evaluate(f"""
        spark = session(executor_instances="2", executor_memory="512m")
        sc = spark.sparkContext
        emit(state=experiment.resume({run}, spark=spark, tensorboard=False).state)
    """)
    assert output["state"] == "done"
    house.check_gated_run(run, lost=4)


# ---- faults ---------------------------------------------------------------------------------------------------


def test_killed_executor_loses_only_its_trials(house: House) -> None:
    run = house.start_gated_run("gate-1")
    [first, _] = house.executors()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: house.count(run, "lost") == 2, "the trials of the executor are lost")
    house.wait_for_gated_run(run)  # with an agent on the replacement executor
    (house.yard.project / "gate-1").touch()
    output = house.notebook.evaluate(f"emit(notes=experiment.attach({run}).notes)")
    house.check_gated_run(run, lost=2)
    assert any(re.fullmatch(r"agent executor-(\d+)@\S+: executor \1 on \S+ was lost: .+", note) for note in output["notes"]), output


def test_job_cancelled_in_spark_is_reported(house: House) -> None:
    run = house.start_gated_run("gate-2")
    house.notebook.evaluate(f"sc.cancelJobGroup('hopyard-run-{run}-agent-1')")
    wait_for(lambda: house.count(run, "lost") == 2, "the trials of its agent are lost")
    house.wait_for_gated_run(run)
    (house.yard.project / "gate-2").touch()
    house.notebook.evaluate(f"experiment.attach({run})")
    house.check_gated_run(run, lost=2)
    assert re.search(r"agent executor-\d+@\S+: Spark: Job \d+ cancelled", house.notes(run)), house.notes(run)


def test_stopped_run_leaves_no_job_in_spark(house: House) -> None:
    run = house.start_gated_run("gate-never")
    jobs = "list(sc.statusTracker().getActiveJobsIds())"
    assert len(house.notebook.evaluate(f"emit(jobs={jobs})")["jobs"]) == 2
    house.yard.run("stop", run)
    wait_for(lambda: not house.notebook.evaluate(f"emit(jobs={jobs})")["jobs"], "its jobs have ended")
    assert not house.agents() and len(house.executors()) == 2, "its executors are free for others"


def test_run_is_resumed_in_another_session_after_its_session_was_stopped(house: House) -> None:
    run = house.start_gated_run("gate-3")
    house.notebook.evaluate("spark.stop()")
    wait_for(lambda: house.count(run, "lost") == 4, "its trials are lost")
    wait_for(lambda: not house.agents(), "its agents are gone")
    wait_for(lambda: "waiting" in house.yard.run("show", run).stdout.splitlines()[0], "the run is not shown as running")
    assert f"its Spark session is gone; experiment.resume({run}, spark=spark) gives it" in house.yard.run("show", run).stdout
    assert json.loads(house.yard.run("show", run, "--json").stdout)["run"]["state"] == "waiting"
    (house.yard.project / "gate-3").touch()
    resume_on_another_session(house, run)
    assert "gone" not in house.yard.run("show", run).stdout.splitlines()[1], "the stopped run has ended"


def test_dead_jvm_of_a_session_is_reported(house: House) -> None:
    """The notebook is alive, but Spark is dead and cannot report it."""
    run = house.start_gated_run("gate-jvm")
    [jvm] = [pid for pid in children(house.notebook.process.pid) if "java" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(jvm, signal.SIGKILL)
    wait_for(lambda: house.count(run, "lost") == 4, "its trials are lost")
    wait_for(lambda: "its Spark session is gone" in house.notes(run), "the run has a note")
    (house.yard.project / "gate-jvm").touch()
    house.notebook.close()
    house.open()
    resume_on_another_session(house, run)


def children(pid: int) -> list[int]:
    found = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return found + [below for child in found for below in children(child)]


def test_run_is_resumed_after_its_driver_was_killed(house: House) -> None:
    """Its agents and their trials exit by themselves; the same session is used again."""
    run = house.start_gated_run("gate-4")
    os.kill(house.yard.process("driver"), signal.SIGKILL)
    wait_for(lambda: not house.agents(), "its agents are gone")
    refused = house.yard.run("resume", run, rc=None)
    assert refused.returncode != 0 and f"experiment.resume({run}, spark=spark)" in refused.stderr, refused.stderr
    output = house.notebook.evaluate(f"""
        emit(error=failing(lambda: experiment.resume({run}, tensorboard=False)))
        Path("gate-4").touch()
        emit(state=experiment.resume({run}, spark=spark, tensorboard=False).state)
    """)
    assert f"run {run} used the executors of a SparkSession" in output["error"] and output["state"] == "done"
    house.check_gated_run(run, lost=4)


def test_run_is_resumed_by_another_process_after_its_process_was_killed(house: House) -> None:
    run = house.start_gated_run("gate-5")
    house.notebook.kill()
    wait_for(lambda: house.count(run, "lost") == 4, "its trials are lost")
    (house.yard.project / "gate-5").touch()
    house.open()
    resume_on_another_session(house, run)


def test_limit_under_which_tensorflow_aborts_is_reported(house: House) -> None:
    output = house.notebook.evaluate("""
        spark.stop()
        spark = session(executor_instances="2", executor_memory="512m", executor_pyspark_memory="1g")
        emit(error=failing(lambda: experiment.grid_search(lambda x: x, {"x": [1]}, spark=spark, tensorboard=False)))
    """)
    assert "spark.executor.pyspark.memory limits its address space to 1024 MB" in output["error"]
