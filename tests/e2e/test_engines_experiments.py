# SPDX-License-Identifier: Apache-2.0
"""Experiments, on every engine."""
from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest
from conftest import wait_for
from engines import Engine, by_itself, engine  # noqa: F401  (fixtures)

# ---- searches -------------------------------------------------------------------------------------------------


def test_grid_uses_all_slots(engine: Engine) -> None:  # noqa: F811
    """All slots at once, on every machine of the engine; a number is the metric."""
    output = engine.evaluate("""
        slots = 4 if where else len(os.sched_getaffinity(0))

        def training(x, y):
            Path(meet, f"{x} {y}").touch()
            while len(os.listdir(meet)) < slots:
                time.sleep(0.01)
            return 10 * x + y

        result = experiment.grid_search(training, {"x": [1, 2, 3], "y": [0.25, 0.5]}, tensorboard=False, **where)
        emit(run=result.run, params=[t.params for t in result.trials], metrics=[t.metric for t in result.trials],
            best=result.best.params, state=result.state, logdir=result.logdir, dirs=[t.logdir for t in result.trials])
    """)
    assert output["params"] == [{"x": x, "y": y} for x in (1, 2, 3) for y in (0.25, 0.5)] and output["state"] == "done"
    assert output["metrics"] == [10.25, 10.5, 20.25, 20.5, 30.25, 30.5] and output["best"] == {"x": 3, "y": 0.5}
    assert output["dirs"][0] == f"{output['logdir']}/x=1,y=0.25" and output["logdir"].startswith(f"{engine.yard.project}/Logs/")
    agents = {a["agent"] for a in engine.yard.attempts(output["run"])}
    assert len(agents) == engine.machines and all(re.fullmatch(engine.agents, a) for a in agents), agents


def test_optimization_key_selects_the_metric_and_min_is_best(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(x):
            return {"loss": (x - 2) ** 2, "epochs": 4, "note": "fine"}

        result = experiment.grid_search(training, {"x": [1, 2, 3]}, direction="min", metric="loss", tensorboard=False, **where)
        emit(best=result.best.params, metrics=result.best.metrics, logdir=result.best.logdir)
    """)
    assert output["best"] == {"x": 2} and output["metrics"] == {"loss": 0, "epochs": 4}
    assert json.loads(Path(output["logdir"], "result.json").read_text()) == {"loss": 0, "epochs": 4, "note": "fine"}


def test_history_is_a_metric_and_other_values_cause_a_note(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        class History:
            def __init__(self, x):
                self.history = {"loss": [9.0, 1.0], "accuracy": [0.1, 0.2], "val_loss": [2.0, 1.0], "val_accuracy": [0.9, x]}

        good = experiment.grid_search(lambda x: History(x), {"x": [1, 2]}, tensorboard=False, **where)
        bad = experiment.grid_search(lambda x: [0.3, x], {"x": [1, 2]}, tensorboard=False, **where)
        try:
            bad.best
        except hopyard.Error as error:
            why = str(error)
        emit(best=good.best.metric, metrics=good.best.metrics, notes=bad.notes, why=why)
    """)
    assert output["best"] == 2 and output["metrics"] == {"loss": 1, "accuracy": 0.2, "val_loss": 1, "val_accuracy": 2, "metric": 2}
    assert "none of the 2 finished trials has a metric, so there is no best trial" in output["notes"]
    assert "(list), which is not a number, so the trial has no metric; return one number" in output["why"]


def test_same_seed_gives_the_same_points_and_random_numbers(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(x):
            import random
            return {"drawn": random.random(), "seed": int(os.environ["HOPYARD_SEED"])}

        runs = [experiment.random_search(training, {"x": [0.0, 1.0]}, samples=3, seed=5, metric="drawn", tensorboard=False, **where)
                for _ in range(2)]
        emit(points=[[t.params["x"] for t in r.trials] for r in runs], drawn=[[t.metric for t in r.trials] for r in runs],
            seeds=[t.metrics["seed"] for t in runs[0].trials])
    """)
    assert output["points"][0] == output["points"][1] and len(set(output["points"][0])) == 3
    assert output["seeds"] == [6, 7, 8], "the run's, and the number of the trial"
    assert output["drawn"] == [[random.Random(seed).random() for seed in (6, 7, 8)]] * 2


def test_evolution(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        result = experiment.evolutionary_search(lambda x: -(x - 0.3) ** 2, {"x": [0.0, 1.0]}, population=4, generations=3,
                                                seed=7, tensorboard=False, **where)
        emit(states=[t.state for t in result.trials], best=result.best.metric, first=result.trials[0].metric)
    """)
    assert output["states"] == ["done"] * 12 and output["first"] <= output["best"] and output["best"] > -0.1


@pytest.mark.full
def test_launch_pairs_its_lists_and_needs_no_parameters(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(x=0, y=0):
            return 10 * x + y

        pairs = experiment.launch(training, {"x": [1, 2], "y": [3, 4]}, tensorboard=False, **where)
        alone = experiment.launch(lambda: None, tensorboard=False, **where)
        emit(pairs=[t.metric for t in pairs.trials], alone=[[t.metric, t.state] for t in alone.trials])
    """)
    assert output == {"pairs": [13, 24], "alone": [[None, "done"]]}


@pytest.mark.full
def test_parallel_limits_concurrent_trials(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(x):
            os.mkdir(os.path.join(meet, "alone"))
            time.sleep(0.05)
            os.rmdir(os.path.join(meet, "alone"))
            return x

        result = experiment.grid_search(training, {"x": [1, 2, 3, 4, 5]}, parallel=1, tensorboard=False, **where)
        emit(states=[t.state for t in result.trials])
    """)
    assert output["states"] == ["done"] * 5


@pytest.mark.full
def test_hops_calls(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        from hops import experiment as hops_experiment
        session_first = [where["spark"]] if "spark" in where else [None]
        others = {k: v for k, v in where.items() if k != "spark"}
        logdir, best = hops_experiment.grid_search(*session_first, lambda lr: lr, {"lr": [1, 2, 3]}, tensorboard=False, **others)
        emit(best=best, logdir=logdir)
    """)
    assert output["best"] == {"lr": 3} and Path(output["logdir"], "lr=3", "result.json").exists()


# ---- files and output of trials -------------------------------------------------------------------------------


def test_trial_directory_is_copied_back(engine: Engine) -> None:  # noqa: F811
    """Although only trials of this machine can see the project."""
    output = engine.evaluate("""
        project = os.getcwd()

        def training(x):
            from hopyard import hdfs, tensorboard
            folder = Path(tensorboard.logdir())
            print("training with", x)
            print("to stderr", file=sys.stderr)
            hdfs.log("a line of its own")
            (folder / "weights" / "deep").mkdir(parents=True)
            (folder / "weights" / "deep" / "w.bin").write_bytes(bytes(range(256)) * 4000)
            (folder / "weights" / "empty").touch()
            (folder / "naïve name").write_text("ünïcode")
            print("z" * 3_000_000)
            return {"accuracy": x, "sees": os.path.exists(project)}

        result = experiment.grid_search(training, {"x": [1, 2]}, metric="accuracy", tensorboard=False, **where)
        emit(logdir=result.logdir)
    """)
    folder = Path(output["logdir"], "x=2")
    assert (folder / "stdout").read_text() == "training with 2\n" + "z" * 3_000_000 + "\n"
    assert (folder / "stderr").read_text() == "to stderr\n"
    assert (folder / "trial.log").read_text().endswith(": a line of its own\n")
    assert (folder / "weights" / "deep" / "w.bin").read_bytes() == bytes(range(256)) * 4000
    assert (folder / "weights" / "empty").read_bytes() == b"" and (folder / "naïve name").read_text() == "ünïcode"
    assert json.loads((folder / "result.json").read_text()) == {"accuracy": 2, "sees": engine.sees_project}


def test_event_files_of_tensorflow_are_complete(engine: Engine) -> None:  # noqa: F811
    """TensorFlow is imported before the trial starts."""
    output = engine.evaluate("""
        def training(x):
            warm = "tensorflow" in sys.modules
            import tensorflow as tf
            from hopyard import tensorboard
            with tf.summary.create_file_writer(tensorboard.logdir() + "/train").as_default():
                for step in range(100):
                    tf.summary.scalar("loss", x / (step + 1), step=step)
            return {"sum": float(tf.reduce_sum(tf.matmul([[x, 1.0]], [[2.0], [3.0]]))), "warm": warm}

        result = experiment.grid_search(training, {"x": [1.0, 2.0, 3.0]}, metric="sum", tensorboard=False, **where)
        emit(sums=[t.metric for t in result.trials], warm=[t.metrics["warm"] for t in result.trials],
            dirs=[t.logdir for t in result.trials])
    """)
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    assert output["sums"] == [5, 7, 9] and output["warm"] == [1, 1, 1]
    for folder in output["dirs"]:
        (path,) = Path(folder, "train").glob("events.out.tfevents.*")
        assert [event.step for event in EventFileLoader(str(path)).Load() if event.summary.value] == list(range(100))
        assert len(list(Path(folder).glob("events.out.tfevents.*"))) == 1, "the driver's own"


def test_output_and_reports_are_visible_during_the_trial(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(x):
            import hopyard.tensorboard
            print("I have begun")
            hopyard.report(step=1, loss=0.5)
            Path(hopyard.tensorboard.logdir(), "events.out.tfevents.mine").write_text("begun")
            while not os.path.exists(os.path.join(meet, "gate")):
                time.sleep(0.02)
            hopyard.report(step=2, loss=0.25)
            return x

        run = experiment.grid_search(training, {"x": [1]}, name="talking", detach=True, tensorboard=False, **where)
        emit(run=run.run, state=run.state)
    """)
    yard, run = engine.yard, output["run"]
    losses = "SELECT step, value FROM metrics WHERE run = ? AND name = 'loss' ORDER BY step"
    wait_for(lambda: yard.rows(losses, run) == [{"step": 1, "value": 0.5}], "the report is in the store")
    wait_for(lambda: "I have begun" in yard.run("logs", run, 1).stdout, "hopyard logs shows what it prints")
    wait_for(lambda: [path for path in yard.logdir(run).glob("*/*.mine") if path.read_text() == "begun"], "the event file arrives during the trial")
    assert yard.state(run) == "running"
    (engine.meet / "gate").touch()
    output = engine.evaluate("emit(metrics=experiment.attach('talking').trials[0].metrics)")
    assert output["metrics"] == {"loss": 0.25, "metric": 1}
    assert yard.rows(losses, run) == [{"step": 1, "value": 0.5}, {"step": 2, "value": 0.25}]


def test_directory_and_environment_of_a_trial(engine: Engine) -> None:  # noqa: F811
    """The user's, on this machine; hosts have no such directory, executors have their own environment, too."""
    output = engine.evaluate("""
        os.environ.update(COLOUR="blue", TF_COLOUR="green")

        def training(x):
            own = os.environ["HOPYARD_TRIAL_DIR"]
            return {"folder": os.getcwd(), "own": own, "colours": [os.environ.get("COLOUR"), os.environ["TF_COLOUR"]],
                    "input": sys.stdin.read(), "numbers": [os.environ["HOPYARD_" + n] for n in ("TRIAL", "ATTEMPT")],
                    "params": json.loads(os.environ["HOPYARD_PARAMS"])}

        result = experiment.grid_search(training, {"x": ["a b/c"]}, tensorboard=False, **where)
        del os.environ["COLOUR"], os.environ["TF_COLOUR"]
        emit(logdir=result.trials[0].logdir)
    """)
    found = json.loads(Path(output["logdir"], "result.json").read_text())
    assert found["folder"] == (str(engine.yard.project) if engine.sees_project else found["own"])
    assert (engine.name in ("spark", "yarn")) == (f"/.hopyard-work-{os.geteuid()}/" in found["own"]), "an executor's work directory is removed with it"
    assert found["colours"] == ["blue" if engine.name in ("local", "hosts") else None, "green"]
    assert found["input"] == "" and found["numbers"] == ["1", "1"] and found["params"] == {"x": "a b/c"}


# ---- closures and modules -------------------------------------------------------------------------------------


def test_closures_lambdas_classes_and_modules_are_transferred(engine: Engine) -> None:  # noqa: F811
    """Those of the notebook by value; an installed module by name."""
    (engine.meet / "mymodel.py").write_text("def scale(x):\n    return 1000 * x\n")
    output = engine.evaluate("""
        sys.path.insert(0, meet)
        import mymodel

        class Model:
            def __init__(self, base):
                self.base = base

            def predict(self, x):
                return self.base + mymodel.scale(x)

        def training_of(offset):
            model = Model(offset)
            return lambda x: model.predict(x) + SCALE

        SCALE = 0.5
        result = experiment.grid_search(training_of(10), {"x": [1, 2]}, tensorboard=False, **where)
        theirs = experiment.grid_search(mymodel.scale, {"x": [3]}, tensorboard=False, **where)
        sys.path.remove(meet)
        emit(values=[t.metric for t in result.trials], theirs=theirs.best.metric)
    """)
    assert output == {"values": [1010.5, 2010.5], "theirs": 3000}


@pytest.mark.full
def test_large_data_is_transferred_with_a_function(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        import hashlib
        data = os.urandom(8 << 20)

        def training(x, words):
            return {"hash": hashlib.sha256(data).hexdigest(), "length": len(words)}

        result = experiment.grid_search(training, {"x": [1, 2, 3, 4], "words": ["w" * 50_000]}, metric="length", tensorboard=False,
                                        **where)
        emit(lengths=[t.metric for t in result.trials], dirs=[t.logdir for t in result.trials],
            hash=hashlib.sha256(data).hexdigest())
    """)
    assert output["lengths"] == [50_000] * 4
    assert {json.loads(Path(d, "result.json").read_text())["hash"] for d in output["dirs"]} == {output["hash"]}


def test_missing_module_is_named(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        import types
        made_up = types.ModuleType("made_up")
        exec("def training(x):\\n    return x", made_up.__dict__)
        sys.modules["made_up"] = made_up
        emit(error=failing(lambda: experiment.grid_search(made_up.training, {"x": [1]}, tensorboard=False, **where)))
    """)
    assert "cannot import 'made_up'" in output["error"]


# ---- failures and limits --------------------------------------------------------------------------------------


def test_failed_trial_has_its_traceback(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def deeper(x):
            if x == 2:
                raise ValueError("two is too much")
            return x

        result = experiment.grid_search(lambda x: deeper(x), {"x": [1, 2, 3]}, tensorboard=False, **where)
        bad = result.trials[1]
        emit(states=[t.state for t in result.trials], error=bad.error, message=bad.message, logdir=bad.logdir,
            best=result.best.params)
    """)
    assert output["states"] == ["done", "failed", "done"] and output["best"] == {"x": 3}
    assert output["message"] == "ValueError: two is too much"
    assert re.search(r"(?s)^Traceback .*in deeper.*ValueError: two is too much\s*$", output["error"])
    assert "in deeper" in Path(output["logdir"], "stderr").read_text()


def test_first_traceback_is_raised_if_all_trials_fail(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        try:
            experiment.grid_search(lambda x: 1 / (x - x), {"x": [1, 2]}, tensorboard=False, **where)
        except hopyard.TrialsFailed as error:
            emit(text=str(error), states=[t.state for t in error.result.trials])
    """)
    assert output["states"] == ["failed"] * 2 and re.match(r"all 2 trials of run \d+ failed; trial 1: Traceback", output["text"])
    assert output["text"].rstrip().endswith("ZeroDivisionError: division by zero")


@pytest.mark.full
def test_killed_trial_has_the_signal_in_its_message(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        import signal
        result = experiment.grid_search(lambda x: os.kill(os.getpid(), signal.SIGKILL) if x == 1 else x, {"x": [1, 2]},
                                        tensorboard=False, **where)
        emit(states=[t.state for t in result.trials], message=result.trials[0].message)
    """)
    assert output["states"] == ["failed", "done"] and output["message"] == "ended by signal 9 (Killed)"


def test_retried_trial_finds_its_checkpoint(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(x):
            kept = Path(os.environ["HOPYARD_CHECKPOINT"], "epoch")
            attempt = int(os.environ["HOPYARD_ATTEMPT"])
            print("attempt", attempt)
            if attempt == 1:
                kept.write_text("7")
                raise RuntimeError("once more")
            return int(kept.read_text()) + x

        result = experiment.grid_search(training, {"x": [1]}, retries=1, tensorboard=False, **where)
        emit(metric=result.best.metric, attempts=result.best.attempts, logdir=result.best.logdir)
    """)
    assert output["metric"] == 8 and output["attempts"] == 2
    assert Path(output["logdir"], "stdout.1").read_text() == "attempt 1\n"
    assert Path(output["logdir"], "stdout").read_text() == "attempt 2\n"


@pytest.mark.full
def test_trial_over_its_time_limit_is_killed(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(x):
            while x == 1:
                time.sleep(0.02)
            return x

        result = experiment.grid_search(training, {"x": [1, 2]}, timeout=4, tensorboard=False, **where)
        emit(states=[t.state for t in result.trials], message=result.trials[0].message)
    """)
    assert output["states"] == ["failed", "done"] and "longer than the 4" in output["message"], output


def test_trial_over_its_memory_limit_is_killed(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(mb):
            return len(os.urandom(1) * (mb << 20)) >> 20

        result = experiment.grid_search(training, {"mb": [10, 400]}, memory="150M", tensorboard=False, **where)
        emit(states=[t.state for t in result.trials], message=result.trials[1].message)
    """)
    assert output["states"] == ["done", "failed"]
    assert re.match(r"killed: used .* of the 150\.0 MB it may use", output["message"]), output["message"]


# ---- detached runs --------------------------------------------------------------------------------------------


def test_stop_and_resume(engine: Engine) -> None:  # noqa: F811
    """Finished trials stay, the others start again."""
    output = engine.evaluate("""
        def training(x):
            while x > 1 and not os.path.exists(os.path.join(meet, "gate")):
                time.sleep(0.02)
            return x

        run = experiment.grid_search(training, {"x": [1, 2, 3]}, name="halting", detach=True, tensorboard=False, **where)
        emit(run=run.run, state=run.state)
    """)
    yard, run = engine.yard, output["run"]
    assert output["state"] == "running"
    wait_for(lambda: [t["state"] for t in yard.trials(run)][:2] == ["done", "running"], "one trial is done, another runs")
    yard.run("stop", run)
    (engine.meet / "gate").touch()
    output = engine.evaluate(f"""
        stopped = experiment.result("halting").state
        text = failing(lambda: experiment.attach({run}))
        resumed = experiment.resume({run}, tensorboard=False, **({{"spark": where["spark"]}} if "spark" in where else {{}}))
        emit(stopped=stopped, text=text, state=resumed.state, values=[t.metric for t in resumed.trials],
            first=resumed.trials[0].attempts)
    """)
    assert output["stopped"] == "stopped" and f"run {run} was stopped when 1 trials were done" in output["text"]
    assert output["state"] == "done" and output["values"] == [1, 2, 3] and output["first"] == 1


@pytest.mark.full
def test_resume_retries_failed_trials(engine: Engine) -> None:  # noqa: F811
    output = engine.evaluate("""
        def training(x):
            if x == 2 and not os.path.exists(os.path.join(meet, "fixed")):
                raise RuntimeError("not fixed yet")
            return x

        failed = experiment.grid_search(training, {"x": [1, 2, 3]}, tensorboard=False, **where)
        Path(meet, "fixed").touch()
        resumed = experiment.resume(failed, tensorboard=False, **({"spark": where["spark"]} if "spark" in where else {}))
        emit(before=[t.state for t in failed.trials], after=[t.state for t in resumed.trials],
            attempts=[t.attempts for t in resumed.trials])
    """)
    assert output == {"before": ["done", "failed", "done"], "after": ["done"] * 3, "attempts": [1, 2, 1]}


@pytest.mark.full
def test_two_concurrent_runs(engine: Engine) -> None:  # noqa: F811
    """On a cluster the second run waits for the executors of the first."""
    output = engine.evaluate("""
        runs = [experiment.grid_search(lambda x: x, {"x": [1, 2]}, detach=True, tensorboard=False, **where) for _ in range(2)]
        emit(states=[experiment.attach(run).state for run in runs])
    """)
    assert output["states"] == ["done", "done"]
