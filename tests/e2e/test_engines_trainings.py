# SPDX-License-Identifier: Apache-2.0
"""Trainings on many ranks, on every engine."""
from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from conftest import wait_for
from engines import Engine, by_itself, engine  # noqa: F401  (fixtures)

# ---- ranks ----------------------------------------------------------------------------------------------------


def test_return_values_are_ordered_by_rank(engine: Engine) -> None:  # noqa: F811
    """With collectives on NumPy arrays, and a variable in their environment."""
    output = engine.evaluate("""
        import numpy

        def training(base, power=1):
            import hopyard.collective as hvd
            hvd.init()
            rank = hvd.rank()
            print("rank", rank, os.environ["COLOUR"])
            mine = numpy.array([base + rank], dtype="float64") ** power
            return {"rank": rank, "size": hvd.size(), "sum": hvd.allreduce(mine, op=hvd.Sum).tolist(),
                    "mean": hvd.allreduce(mine).tolist(), "all": hvd.allgather(mine).tolist(),
                    "first": hvd.broadcast(mine, 0).tolist(), "array": mine}

        ranks = allreduce.run(training, (1,), {"power": 2}, np=4, env={"COLOUR": "blue"}, name="four", tensorboard=False, **where)
        emit(arrays=[float(r.pop("array")[0]) for r in ranks], ranks=ranks, logdir=experiment.result("four").logdir)
    """)
    assert output["ranks"] == [
        {"rank": rank, "size": 4, "sum": [30.0], "mean": [7.5], "all": [1.0, 4.0, 9.0, 16.0], "first": [1.0]}
        for rank in range(4)]
    assert output["arrays"] == [1, 4, 9, 16], "whatever can be pickled comes back"
    assert [Path(output["logdir"], f"rank={n}", "stdout").read_text() for n in range(4)] == [f"rank {n} blue\n" for n in range(4)]


def test_local_ranks_follow_the_machines_of_the_engine(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training():
            import hopyard.collective as hvd
            hvd.init()
            return [hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()]

        emit(ranks=allreduce.run(training, np=4, tensorboard=False, **where))
    """)
    local = 4 // engine.machines
    assert output["ranks"] == [[rank % local, local, rank // local, engine.machines, True] for rank in range(4)]


# ---- TensorFlow -----------------------------------------------------------------------------------------------


@pytest.mark.full
def test_tensorflow_operations(engine: Engine) -> None:  # noqa: F811
    """In a graph and eagerly; ranks with different initial values become equal."""
    output = engine.evaluate("""
        def training():
            import tensorflow as tf
            import hopyard.hvd as hvd
            hvd.init()

            @tf.function
            def summed(x):
                return hvd.allreduce(x, op=hvd.Sum)

            weights = tf.Variable([1.0, 2.0]) if hvd.rank() == 0 else tf.Variable([7.0, 7.0])
            hvd.broadcast_variables([weights], root_rank=0)
            begun = weights.numpy().tolist()
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.reduce_sum(weights * float(hvd.rank() + 1))
            [gradient] = tape.gradient(loss, [weights])
            return {"graph": summed(tf.constant([1.0, float(hvd.rank())])).numpy().tolist(), "begun": begun,
                    "eager": hvd.allgather(tf.constant([hvd.rank()])).numpy().tolist(), "gradient": gradient.numpy().tolist()}

        emit(ranks=allreduce.run(training, np=4, tensorboard=False, **where))
    """)
    assert output["ranks"] == [{"graph": [4.0, 6.0], "begun": [1.0, 2.0], "eager": [0, 1, 2, 3], "gradient": [2.5, 2.5]}] * 4


def test_keras_fit_ends_with_the_same_weights_on_all_ranks(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(epochs):
            import keras, numpy, tensorflow as tf
            import horovod.tensorflow.keras as hvd
            hvd.init()
            rng = numpy.random.default_rng(hvd.rank())  # each rank has its own data
            x = rng.normal(size=(64, 4)).astype("float32")
            y = x @ numpy.array([[1.0], [-2.0], [3.0], [0.5]], dtype="float32")
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
            model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
            history = model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]).history
            hopyard.report(step=epochs, loss=history["loss"][-1])
            return [history["loss"][0], history["loss"][-1], *(w.tolist() for w in model.get_weights())]

        emit(ranks=allreduce.run(training, (3,), np=2, name="fitted", tensorboard=False, **where),
            metrics=[t.metrics for t in experiment.result("fitted").trials])
    """)
    first, second = output["ranks"]
    assert first == second and 0 < first[1] < first[0] / 2, "it learns"
    assert all(m["loss"] == pytest.approx(first[1]) and m["examples_per_second"] > 0 for m in output["metrics"]), output["metrics"]


# ---- compatible APIs ------------------------------------------------------------------------------------------


def test_horovod_api(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(scale):
            import hopyard.collective as hvd
            import numpy
            hvd.init()
            return [float(hvd.allreduce(numpy.array([scale * hvd.rank()]), op=hvd.Sum)[0]), hvd.cross_size()]

        if "spark" in where:
            import horovod.spark
            ranks = horovod.spark.run(training, args=(2.0,), num_proc=4)
        else:
            import horovod
            ranks = horovod.run(training, args=(2.0,), num_proc=4, **{k: ",".join(v) for k, v in where.items()})
        emit(ranks=ranks)
    """)
    assert output["ranks"] == [[12.0, engine.machines]] * 4


@pytest.mark.full
def test_notebook_runs_on_every_rank(engine: Engine) -> None:  # noqa: F811
    cells = ["import numpy\nimport horovod\nimport hopyard.collective as hvd\nhvd.init()",
             "total = hvd.allreduce(numpy.array([1.0 + hvd.rank()]), op=hvd.Sum)\n"
             "print(hvd.rank(), hvd.size(), float(total[0]), horovod.__version__)"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(book, engine.yard.project / "together.ipynb")
    output = engine.evaluate("emit(logdir=allreduce.run_notebook('together.ipynb', np=2, tensorboard=False, **where).logdir)")
    shown = [Path(output["logdir"], f"rank={rank}", "stdout").read_text() for rank in range(2)]
    assert shown == [f"{rank} 2 3.0 0.28.1\n" for rank in range(2)]


# ---- failures -------------------------------------------------------------------------------------------------


def test_exception_of_a_rank_is_raised_with_its_traceback(engine: Engine) -> None:  # noqa: F811
    """The others fail as well, because the rank is lost; the own traceback is shown, though that rank takes longer to end."""
    output = engine.evaluate("""
        def training():
            import atexit
            import hopyard.collective as hvd
            if os.environ["HOROVOD_RANK"] == "2":
                atexit.register(time.sleep, 1)
            hvd.init()
            if hvd.rank() == 2:
                raise ValueError("rank two says no")
            hvd.barrier()

        try:
            allreduce.run(training, np=4, tensorboard=False, **where)
        except hopyard.TrialsFailed as error:
            emit(text=str(error), states=[t.state for t in error.result.trials], run=error.result.run)
    """)
    assert re.match(rf"rank 2 of run {output['run']} failed: Traceback", output["text"])
    assert output["text"].rstrip().endswith("ValueError: rank two says no") and output["states"][2] == "failed"


def test_killed_rank_is_reported_to_the_others(engine: Engine) -> None:  # noqa: F811
    """They would wait for it forever."""
    output = engine.evaluate("""
        def training():
            import hopyard.collective as hvd
            hvd.init()
            if hvd.rank() == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                hvd.barrier()
            except hopyard.GroupError as error:
                print("reported:", error)
                raise

        try:
            allreduce.run(training, np=4, tensorboard=False, **where)
        except hopyard.TrialsFailed as error:
            emit(text=str(error), logdir=error.result.logdir)
    """)
    assert re.fullmatch(r"rank 3 of run \d+ failed: ended by signal 9 \(Killed\)", output["text"]), output["text"]
    for rank in range(3):
        printed = Path(output["logdir"], f"rank={rank}", "stdout").read_text()
        assert re.match(r"reported: .*rank 3", printed), printed


@pytest.mark.full
def test_all_ranks_are_retried_together(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training():
            import hopyard.collective as hvd
            hvd.init()
            attempt = int(os.environ["HOPYARD_ATTEMPT"])
            if attempt == 1 and hvd.rank() == 1:
                raise RuntimeError("not yet")
            return hvd.allgather(numpy.array([attempt])).tolist()

        emit(ranks=allreduce.run(training, np=2, retries=1, tensorboard=False, **where))
    """)
    assert output["ranks"] == [[2, 2], [2, 2]]


def test_elastic_training_continues_without_a_rank(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training():
            import hopyard.collective as hvd
            hvd.init()
            if hvd.rank() == 1 and not os.path.exists(meet + "/failed"):
                os.mkdir(meet + "/failed")
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                try:
                    hvd.barrier()
                    return hvd.rank()
                except hopyard.GroupError:
                    hvd.shutdown()
                    hvd.init()

        emit(ranks=allreduce.run(training, np=2, min_np=1, max_np=2, tensorboard=False, **where))
    """)
    assert (engine.meet / "failed").exists() and output["ranks"] in ([0], [0, 1]), "the lost rank may rejoin in time"


@pytest.mark.full
def test_training_over_its_time_limit_is_killed(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training():
            while True:
                time.sleep(0.02)

        emit(error=failing(lambda: allreduce.run(training, np=2, timeout=1, tensorboard=False, **where)))
    """)
    assert re.match(r"rank \d of run \d+ failed: .*1 ?s", output["error"]), output["error"]


@pytest.mark.full
def test_training_is_stopped_like_any_run(engine: Engine) -> None:  # noqa: F811
    engine.notebook.begin("""
        def training():
            import hopyard.collective as hvd
            hvd.init()
            hvd.barrier()
            Path(meet, str(hvd.rank())).touch()
            while True:
                time.sleep(0.02)

        emit(error=failing(lambda: allreduce.run(training, np=2, tensorboard=False, **where)))
    """)
    wait_for(lambda: len(list(engine.meet.iterdir())) == 2, "both ranks are running")
    [run] = engine.running()
    engine.yard.run("stop", run)
    assert f"run {run} was stopped" in engine.notebook.end()["error"]


@pytest.mark.full
def test_ranks_without_a_slot_are_refused_with_a_message(engine: Engine) -> None:  # noqa: F811
    """Only this machine takes any number of ranks."""
    output = engine.evaluate("""
        emit(error=failing(lambda: allreduce.run(lambda: 1, np=5, tensorboard=False, **where)))
    """)
    assert output["error"] is None if engine.name == "local" else re.search(r"\b4 slots|are 4;", output["error"]), output["error"]


@pytest.mark.full
def test_each_rank_writes_a_timeline(engine: Engine) -> None:  # noqa: F811
    """In the requested directory, or with the rank's logs if its machine does not have it."""
    output = engine.evaluate("""
        def training():
            import hopyard.collective as hvd
            hvd.init()
            hvd.barrier()

        allreduce.run(training, np=4, timeline="trace.json", tensorboard=False, **where)
        emit(project=os.getcwd())
    """)
    logs = engine.yard.logdir(max(row["id"] for row in engine.yard.rows("SELECT id FROM runs")))
    for rank in range(4):
        folder = Path(output["project"]) if engine.sees_project else logs / f"rank={rank}"
        trace = json.loads((folder / (f"trace.rank-{rank}.json" if rank else "trace.json")).read_text())
        assert "BARRIER" in {event.get("name") for event in trace}, trace


@pytest.mark.full
def test_output_of_ranks_is_in_the_requested_directory(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training():
            import hopyard.collective as hvd
            hvd.init()
            print("rank", hvd.rank())
            hvd.barrier()

        allreduce.run(training, np=2, output="printed", tensorboard=False, **where)
        emit(shown=[Path("printed", f"rank.{n}", "stdout").read_text() for n in range(2)])
    """)
    assert output["shown"] == ["rank 0\n", "rank 1\n"]
