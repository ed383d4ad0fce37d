# SPDX-License-Identifier: Apache-2.0
"""hopyard.experiment: runs of Python functions, from scripts and in a terminal."""
from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard, wait_for
from test_terminal import Terminal, terminal  # noqa: F401  (a fixture)

HEAD = """
import json, os, sys, time
import hopyard
from hopyard import experiment
"""


class Lab:
    """Python scripts in a yard: each prints its results as its last line, in JSON."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.python = sys.executable
        self.env = {**yard.env, "HOPYARD_PROGRAM": yard.bin}

    def script(self, code: str, name: str = "train.py") -> Path:
        path = self.yard.project / name
        path.write_text(HEAD + textwrap.dedent(code))
        return path

    def start(self, code: str) -> subprocess.Popen[str]:
        return subprocess.Popen([self.python, self.script(code)], env=self.env, cwd=self.yard.project, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    def run(self, code: str, rc: int = 0) -> subprocess.CompletedProcess[str]:
        p = subprocess.run([self.python, self.script(code)], env=self.env, cwd=self.yard.project, text=True,
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
        assert p.returncode == rc, f"{p.stdout[-4000:]}\n{p.stderr[-4000:]}\n{self.yard.driver_log()}"
        return p

    def evaluate(self, code: str) -> Any:
        """Returns what the script passes to `emit` last."""
        out = self.run("def emit(**words): print(json.dumps(words))\n" + textwrap.dedent(code)).stdout
        return json.loads(out.splitlines()[-1])


@pytest.fixture
def lab(yard: Yard) -> Lab:
    return Lab(yard)


# ---- results ---------------------------------------------------------------------------


def test_script_needs_no_main_guard(yard: Yard, lab: Lab) -> None:
    """Its functions, and what they use, go by value: the script is not imported again."""
    output = lab.evaluate("""
        with open("started", "a") as f:
            print("once", file=f)
        SCALE = 10

        def scaled(x):
            return SCALE * x

        def training(lr, dropout):
            print("training with", lr)
            return scaled(lr) + dropout

        result = experiment.grid_search(training, {"lr": [1, 2], "dropout": [0.25, 0.5]}, parallel=2, tensorboard=False)
        best = result.best
        emit(params=best.params, metric=best.metric, metrics=best.metrics, number=best.number, state=result.state,
            trials=[[t.number, t.params, t.metric, t.state, t.error, t.attempts] for t in result.trials],
            logdirs=[t.logdir for t in result.trials], logdir=result.logdir, run=result.run, repr=repr(result),
            columns=list(result.to_dataframe().columns), html=result._repr_html_(), board=result.tensorboard)
    """)
    assert output["params"] == {"lr": 2, "dropout": 0.5} and output["metric"] == 20.5 and output["number"] == 4
    assert output["metrics"] == {"metric": 20.5} and output["state"] == "done" and output["run"] == 1 and output["board"] is None
    assert output["trials"] == [[1, {"lr": 1, "dropout": 0.25}, 10.25, "done", None, 1], [2, {"lr": 1, "dropout": 0.5}, 10.5, "done", None, 1],
                                [3, {"lr": 2, "dropout": 0.25}, 20.25, "done", None, 1], [4, {"lr": 2, "dropout": 0.5}, 20.5, "done", None, 1]]
    assert output["logdirs"][0] == output["logdir"] + "/lr=1,dropout=0.25"
    assert Path(output["logdirs"][0], "stdout").read_text() == "training with 1\n"
    assert output["repr"] == "<run 1 done: 4 done; best metric=20.5 in trial 4 (lr=2, dropout=0.5)>"
    assert output["columns"] == ["number", "lr", "dropout", "metric", "state", "seconds", "attempts", "message", "logdir"]
    assert output["html"].count("<tr") == 5
    assert (yard.project / "started").read_text() == "once\n"


def test_progress_is_printed_in_lines_without_a_terminal(lab: Lab) -> None:
    out = lab.run("""
        def training(x):
            return x
        experiment.grid_search(training, {"x": [1, 2]}, parallel=1, tensorboard=False, name="lines")
    """).stdout
    assert re.search(r"(?m)^run 1 lines: 2 trials", out) and "[1/2] trial 1 done  x=1  metric=1" in out and "run 1 done: 2 done" in out


def test_missing_tensorboard_causes_one_line(yard: Yard, lab: Lab) -> None:
    """One that exits by itself leaves no address either."""
    (yard.project / "sitecustomize.py").write_text("import sys\nsys.modules['tensorboard'] = None\n")
    lab.env["PYTHONPATH"] = str(yard.project)
    p = lab.run("""
        result = experiment.grid_search(lambda x: x, {"x": [1]})
        print(json.dumps([result.tensorboard, result.state]))
    """)
    assert json.loads(p.stdout.splitlines()[-1]) == [None, "done"] and "http" not in p.stdout
    (line,) = p.stderr.splitlines()
    assert re.match(r"hopyard: no TensorBoard: TensorBoard is not installed for .*; install it with: .* -m pip install tensorboard$", line)
    (yard.project / "sitecustomize.py").unlink()
    broken = yard.project / "tensorboard"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('no numpy')\n")
    lab.script("def train(x):\n    import time\n    while not os.path.exists(x):\n        time.sleep(0.02)\n    return 1\n", "mytrain.py")
    p = lab.run("""
        import mytrain, threading
        from hopyard._run import tensorboard_process as _tensorboard
        def end():
            while not _tensorboard._current or _tensorboard._current[2].poll() is None:
                time.sleep(0.02)
            open("gate", "w").close()
        threading.Thread(target=end, daemon=True).start()
        result = experiment.grid_search(mytrain.train, {"x": [os.path.abspath("gate")]})
        print(json.dumps([result.tensorboard, result.state]))
    """)
    assert json.loads(p.stdout.splitlines()[-1]) == [None, "done"]
    assert p.stderr == "hopyard: TensorBoard has ended unexpectedly; run `hopyard tensorboard` to see why\n"


@pytest.mark.smoke
def test_function_of_a_module_next_to_the_script(lab: Lab) -> None:
    lab.script("def training(x):\n    return -x\n", "mymodel.py")
    output = lab.evaluate("""
        import mymodel
        result = experiment.random_search(mymodel.training, {"x": [0.0, 1.0]}, samples=5, seed=3, tensorboard=False)
        again = experiment.random_search(mymodel.training, {"x": [0.0, 1.0]}, samples=5, seed=3, tensorboard=False)
        emit(best=result.best.metric, all=[t.metric for t in result.trials], again=[t.metric for t in again.trials])
    """)
    assert len(set(output["all"])) == 5 and output["best"] == max(output["all"]) and output["again"] == output["all"]


def test_evolution_with_the_named_metric_of_a_dict(lab: Lab) -> None:
    output = lab.evaluate("""
        def training(x):
            return {"loss": (x - 0.3) ** 2, "epochs": 4, "note": "fine"}
        result = experiment.evolutionary_search(training, {"x": [-5.0, 5.0]}, population=6, generations=4, seed=1,
                                                direction="min", metric="loss", tensorboard=False)
        alias = experiment.differential_evolution is experiment.evolutionary_search
        emit(best=result.best.metric, metrics=result.best.metrics, count=len(result.trials), name=result.metric,
            losses=[t.metric for t in result.trials], direction=result.direction, alias=alias)
    """)
    assert output["count"] == 24 and output["best"] == min(output["losses"]) and output["name"] == "loss" and output["direction"] == "min"
    assert output["metrics"]["epochs"] == 4 and output["metrics"]["loss"] == output["best"] and output["alias"]


def test_launch_pairs_its_lists_and_needs_no_parameters(lab: Lab) -> None:
    output = lab.evaluate("""
        def training(x=0, y=0):
            return 10 * x + y
        pairs = experiment.launch(training, {"x": [1, 2], "y": [3, 4]}, tensorboard=False)
        alone = experiment.launch(training, tensorboard=False)
        quiet = experiment.launch(lambda: None, tensorboard=False)
        emit(pairs=[t.metric for t in pairs.trials], alone=[t.metric for t in alone.trials],
            quiet=[[t.metric, t.state] for t in quiet.trials], notes=quiet.notes)
    """)
    assert output == {"pairs": [13, 24], "alone": [0], "quiet": [[None, "done"]], "notes": []}


def test_reported_values_are_metrics_of_the_trial(yard: Yard, lab: Lab) -> None:
    output = lab.evaluate("""
        def training(x):
            for step in range(3):
                hopyard.report(step=step, loss=1 / (step + x))
            return x
        result = experiment.grid_search(training, {"x": [1, 2]}, tensorboard=False)
        emit(metrics=[t.metrics for t in result.trials])
    """)
    assert output["metrics"] == [{"loss": 1 / 3, "metric": 1}, {"loss": 1 / 4, "metric": 2}]


NO_BEST = """
        def best(result):
            try:
                return result.best.params
            except hopyard.Error as error:
                return str(error)
"""


def test_values_without_a_metric_cause_a_note_or_an_error_if_one_is_needed(yard: Yard, lab: Lab) -> None:
    """A list as model.evaluate returns it; a dict of epochs without a metric name; reports only."""
    p = lab.run(NO_BEST + """
        listed = experiment.grid_search(lambda x: [0.3, x], {"x": [1, 2, 3]}, tensorboard=False)
        loss = experiment.random_search(lambda x: {"loss": [1.0, x]}, {"x": [0.0, 1.0]}, samples=2, tensorboard=False)
        def reports(x):
            hopyard.report(step=1, accuracy=x)
        silent = experiment.grid_search(reports, {"x": [1]}, tensorboard=False)
        named = experiment.grid_search(reports, {"x": [1, 2]}, metric="accuracy", tensorboard=False)
        def prints(x):
            print(f"metric={x}")
            return [x]
        printed = experiment.grid_search(prints, {"x": [1, 2]}, tensorboard=False)
        print(json.dumps([[r.state, r.notes, best(r)] for r in (listed, loss, silent, named, printed)]))
    """)
    listed, loss, silent, named, printed = json.loads(p.stdout.splitlines()[-1])
    first = next(note for note in listed[1] if "(list)" in note)
    assert re.fullmatch(r"trial \d: lambda returned \[0.3, \d\] \(list\), which is not a number, so the trial has no metric; return one number, or .*", first)
    assert listed[1] == [first, "none of the 3 finished trials has a metric, so there is no best trial"]
    assert listed[2] == f"run 1 has no best trial: {first}" and f"note: {first}" in p.stdout
    assert "without a direction, and lower may be better" in loss[1][0] and "direction='min'" in loss[2]
    assert "reported accuracy, so the trial has no metric; name the metric, as in metric='accuracy'" in silent[2]
    assert named == printed == ["done", [], {"x": 2}]


def test_search_uses_the_metric_also_after_a_resume(yard: Yard, lab: Lab) -> None:
    """Histories of Keras, reports only, and a driver that is killed between trials."""
    p = lab.run(NO_BEST + """
        class History:
            def __init__(self, x):
                self.history = {"loss": [9.0, x], "accuracy": [0.1, 0.2], "val_loss": [1.0, 2.0], "val_accuracy": [0.5, -abs(x)]}
        def training(x):
            return History(x)
        space = {"x": [-5.0, 5.0]}
        evolved = experiment.differential_evolution(training, space, population=4, generations=3, seed=1, tensorboard=False)
        plain = experiment.differential_evolution(lambda x: -abs(x), space, population=4, generations=3, seed=1, tensorboard=False)
        def reports(x):
            hopyard.report(step=0, score=9.0)
            hopyard.report(step=1, score=-abs(x))
        reported = experiment.differential_evolution(reports, space, population=4, generations=3, seed=1, metric="score", tensorboard=False)
        def killing(x):
            if x == 2 and not os.path.exists("killed"):
                open("killed", "w").close()
                os.kill(int(open(".hopyard/run-4.lock").read()), 9)
                time.sleep(60)
            return [x, x]
        try:
            experiment.grid_search(killing, {"x": [1, 2, 3]}, parallel=1, tensorboard=False)
        except hopyard.Error as error:
            assert "experiment.resume(4)" in str(error), error
        resumed = experiment.resume(4, tensorboard=False)
        print(json.dumps([[t.params for t in r.trials] for r in (evolved, plain, reported)] + [evolved.notes, evolved.best.metrics, resumed.notes, best(resumed)]))
    """)
    evolved, plain, reported, notes, metrics, resumed, why = json.loads(p.stdout.splitlines()[-1])
    assert evolved == plain == reported, "the same values, so the same trials"
    [note] = notes  # of the first trial that has ended
    assert re.fullmatch("trial [12]: val_accuracy is used as the metric; name another value with metric=", note), note
    assert metrics["val_accuracy"] == metrics["metric"] and metrics["val_loss"] == 2.0
    assert resumed[-1] == "none of the 3 finished trials has a metric, so there is no best trial"
    assert "killing returned [1, 1] (list)" in why


def test_metric_named_loss_needs_a_direction(yard: Yard, lab: Lab) -> None:
    output = lab.evaluate("""
        try:
            experiment.grid_search(lambda x: {"val_loss": x}, {"x": [1, 2]}, metric="val_loss", tensorboard=False)
        except hopyard.Error as error:
            text = str(error)
        result = experiment.grid_search(lambda x: {"val_loss": x}, {"x": [1, 2]}, direction="min", tensorboard=False)
        emit(text=text, best=result.best.params)
    """)
    assert output["best"] == {"x": 1} and len(yard.rows("SELECT id FROM runs")) == 1
    assert output["text"] == ("'val_loss' looks like a loss or an error, and the default is direction='max'; "
                              "add direction='min' (or 'max')")


def test_keras_callback_reports_every_epoch_and_the_history_is_a_metric(lab: Lab) -> None:
    """Keras 3 and tf_keras, which have no class in common."""
    output = lab.evaluate("""
        def training(kit):
            import importlib, numpy, hopyard.keras
            keras = importlib.import_module(kit)
            x = numpy.random.default_rng(1).random((32, 4), numpy.float32)
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse", metrics=["mae"])
            return model.fit(x, x.sum(axis=1), epochs=3, verbose=0, validation_split=0.25, callbacks=[hopyard.keras.Report()])
        result = experiment.grid_search(training, {"kit": ["keras", "tf_keras"]}, metric="val_loss", direction="min", tensorboard=False)
        emit(metrics=[t.metrics for t in result.trials], best=result.best.metric, state=[t.message for t in result.trials])
    """)
    for metrics in output["metrics"]:
        assert {"loss", "mae", "val_loss", "val_mae"} <= set(metrics), output
    assert output["best"] == min(metrics["val_loss"] for metrics in output["metrics"])
    steps = lab.yard.rows("SELECT trial, step FROM metrics WHERE name = 'val_loss' AND step >= 0 ORDER BY trial, step")
    assert [row["step"] for row in steps] == [0, 1, 2, 0, 1, 2]


def test_numbers_in_directory_names_are_short_and_exact(lab: Lab) -> None:
    output = lab.evaluate("""
        import numpy
        space = {"rate": numpy.array([0.1, 1e-5, 0.7], "float32"), "drop": numpy.linspace(0.1, 0.3, 3)}
        grid = experiment.grid_search(lambda rate, drop: rate, space, tensorboard=False)
        drawn = experiment.random_search(lambda x, y: x, {"x": [0.0, 1.0], "y": hopyard.log(1e-9, 1e9)}, samples=20, tensorboard=False)
        emit(dirs=[os.path.basename(t.logdir) for t in grid.trials], drawn=[[os.path.basename(t.logdir), t.params] for t in drawn.trials])
    """)
    assert output["dirs"] == [f"rate={rate},drop={drop}" for rate in ("0.1", "1e-05", "0.7") for drop in ("0.1", "0.2", "0.3")]
    for name, params in output["drawn"]:
        for part in name.split(","):
            key, _, text = part.partition("=")
            assert float(text) == params[key] and len(text) <= len(repr(params[key])), (text, params)


def test_functions_may_use_namespace_packages(yard: Yard, lab: Lab) -> None:
    """Namespace packages, for which importlib looks up a parent among the imported modules."""
    deep = yard.project / "proj" / "models" / "deep"
    deep.mkdir(parents=True)
    (deep / "net.py").write_text("import numpy\ndef value(x): return 2 * x\n")
    output = lab.evaluate("""
        def training(x):
            from proj.models.deep import net
            return net.value(x)
        emit(best=experiment.grid_search(training, {"x": [1, 2]}, tensorboard=False).best.metric)
    """)
    assert output["best"] == 4


def test_tensorflow_is_preloaded_for_trials_and_not_imported_in_the_script(lab: Lab) -> None:
    output = lab.evaluate("""
        def training(x):
            warm = {"tensorflow", "keras"} <= set(sys.modules)
            import tensorflow as tf
            model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)])
            return {"sum": float(model(tf.constant([[x, 1.0]]))[0, 0]), "warm": int(warm)}
        result = experiment.grid_search(training, {"x": [1.0, 2.0, 3.0]}, parallel=2, metric="sum", tensorboard=False)
        emit(values=[t.metrics for t in result.trials], here="tensorflow" in sys.modules)
    """)
    assert output == {"values": [{"sum": 2, "warm": 1}, {"sum": 3, "warm": 1}, {"sum": 4, "warm": 1}], "here": False}


# ---- failures ------------------------------------------------------------------------------


def test_traceback_is_in_the_result_the_log_and_the_terminal(yard: Yard, lab: Lab) -> None:
    p = lab.run("""
        def deeper(x):
            if x == 2:
                raise ValueError(f"not {x}")
            return x
        def training(x):
            return deeper(x)
        result = experiment.grid_search(training, {"x": [1, 2, 3]}, tensorboard=False)
        bad = result.trials[1]
        print(json.dumps([bad.state, bad.metric, bad.message, bad.error, bad.logdir, result.best.metric, repr(result)]))
    """)
    state, metric, message, error, logdir, best, text = json.loads(p.stdout.splitlines()[-1])
    assert state == "failed" and metric is None and best == 3 and "1 failed" in text
    assert message == "ValueError: not 2"
    assert re.search(r"(?s)^Traceback .*in training.*in deeper.*raise ValueError.*ValueError: not 2\s*$", error)
    assert "ValueError: not 2" in Path(logdir, "stderr").read_text() and "in deeper" in Path(logdir, "stderr").read_text()
    assert re.search(r"\[\d/3\] trial 2 failed  x=2 .*ValueError: not 2", p.stdout)


def test_first_traceback_is_raised_if_all_trials_fail(lab: Lab) -> None:
    p = lab.run("""
        def training(x):
            return 1 / (x - x)
        try:
            experiment.grid_search(training, {"x": [1, 2]}, tensorboard=False)
        except hopyard.TrialsFailed as error:
            print(json.dumps([str(error), [error.result.state, *(t.state for t in error.result.trials)], isinstance(error, hopyard.Error)]))
    """)
    text, states, family = json.loads(p.stdout.splitlines()[-1])
    assert text.startswith("all 2 trials of run 1 failed; trial 1: Traceback") and text.rstrip().endswith("ZeroDivisionError: division by zero")
    assert states == ["failed", "failed", "failed"] and family


@pytest.mark.parametrize(
    "call, sentence",
    [
        ("evolutionary_search(lambda x: None, {'x': [0.0, 1.0]}, population=4, generations=1)", "needs a number"),
        ("evolutionary_search(lambda x: 'good', {'x': [0.0, 1.0]}, population=4, generations=1)", "'good' (str), which is not a number"),
        ("grid_search(lambda x: {'loss': 1}, {'x': [1]}, metric='accuracy')", "returned no 'accuracy'; it returned loss"),
    ],
)
def test_missing_metric_is_an_error(lab: Lab, call: str, sentence: str) -> None:
    p = lab.run(f"""
        try:
            experiment.{call[:-1]}, tensorboard=False)
        except hopyard.TrialsFailed as error:
            print(json.dumps([str(error), error.result.trials[0].message]))
    """)
    text, message = json.loads(p.stdout.splitlines()[-1])
    assert sentence in text and sentence in message


@pytest.mark.parametrize(
    "call, sentence",
    [
        ("grid_search(f, {'x': [1]}, memory='lots')", "memory= takes a size such as 512M or 4G, not 'lots'"),
        ("grid_search(f, {'x': [1]}, name='7')", "name= cannot be a number"),
        ("evolutionary_search(f, {'x': [0.0, 1.0]}, strategy='best')", "did you mean best1bin?"),
        ("resume(9)", "no runs yet in"),
        ("result('nobody')", "no runs yet in"),
    ],
)
def test_usage_errors_have_the_message_of_the_program(yard: Yard, lab: Lab, call: str, sentence: str) -> None:
    output = lab.evaluate(f"""
        def f(x):
            return x
        try:
            experiment.{call}
        except hopyard.Error as error:
            emit(sentence=str(error))
    """)
    assert sentence in output["sentence"] and not output["sentence"].startswith("hopyard")
    assert yard.state() == "", "no run was started"


def test_module_missing_in_a_trial_is_reported(lab: Lab) -> None:
    output = lab.evaluate("""
        import types
        made_up = types.ModuleType("made_up")
        exec("def training(x):\\n    return x", made_up.__dict__)
        sys.modules["made_up"] = made_up
        try:
            experiment.grid_search(made_up.training, {"x": [1]}, tensorboard=False)
        except hopyard.TrialsFailed as error:
            emit(message=error.result.trials[0].message)
    """)
    assert "the trial cannot import 'made_up'" in output["message"]


# ---- runs that outlive their script ------------------------------------------------------------


def test_function_run_is_resumed_from_a_terminal_without_its_python_process(yard: Yard, lab: Lab) -> None:
    lab.run("""
        def training(x):
            if x == 2 and not os.path.exists("mended"):
                raise RuntimeError("not fixed yet")
            return x
        experiment.grid_search(training, {"x": [1, 2, 3]}, tensorboard=False)
    """)
    yard.wait_idle()
    (yard.project / "train.py").unlink()
    (yard.project / "mended").touch()
    yard.run("resume", 1)
    output = lab.evaluate("result = experiment.result(1); emit(states=[t.state for t in result.trials], attempts=[t.attempts for t in result.trials])")
    assert output == {"states": ["done"] * 3, "attempts": [1, 2, 1]}


def test_detach_attach_and_resume(yard: Yard, lab: Lab) -> None:
    output = lab.evaluate("""
        def training(x):
            while not os.path.exists("gate"):
                time.sleep(0.02)
            return x
        result = experiment.grid_search(training, {"x": [1, 2]}, parallel=1, name="gated", detach=True, tensorboard=False)
        emit(state=result.state, run=result.run)
    """)
    assert output == {"state": "running", "run": 1}
    yard.run("stop", 1)
    (yard.project / "gate").touch()
    output = lab.evaluate("""
        stopped = experiment.result("gated")
        try:
            experiment.attach(1)
        except hopyard.Stopped as error:
            text = str(error)
        resumed = experiment.resume(stopped, tensorboard=False)
        emit(stopped=stopped.state, text=text, resumed=resumed.state, values=[t.metric for t in resumed.trials],
            attached=experiment.attach("gated").state)
    """)
    assert output["stopped"] == "stopped" and output["resumed"] == output["attached"] == "done" and output["values"] == [1, 2]
    assert output["text"] == "run 1 was stopped when 0 trials were done; continue it with experiment.resume(1)"


def test_run_whose_driver_dies_raises_an_error_and_can_be_resumed(yard: Yard, lab: Lab) -> None:
    p = lab.start("""
        def training(x):
            while not os.path.exists("gate"):
                time.sleep(0.02)
            return x
        try:
            experiment.grid_search(training, {"x": [1]}, tensorboard=False)
        except hopyard.Error as error:
            print(json.dumps(str(error)))
    """)
    wait_for(lambda: yard.state() == "running" and yard.attempts(), "the trial runs")
    os.kill(yard.process("driver"), signal.SIGKILL)
    out, err = p.communicate(timeout=60)
    assert re.search("driver of run 1 (has )?died", json.loads(out.splitlines()[-1])), out + err
    yard.wait_idle()
    (yard.project / "gate").touch()
    assert lab.evaluate("emit(state=experiment.resume(1, tensorboard=False).state)") == {"state": "done"}


# ---- begin and end ----------------------------------------------------------------------------


def test_between_begin_and_end_this_process_is_the_trial(yard: Yard, lab: Lab) -> None:
    output = lab.evaluate("""
        before = dict(os.environ)
        logdir = experiment.begin("mine", metric="accuracy", tensorboard=False)
        inside = os.environ["HOPYARD_TRIAL_DIR"]
        with open(os.path.join(logdir, "left"), "w") as f:
            f.write("something")
        hopyard.report(step=1, loss=0.5)
        try:
            experiment.begin()
        except hopyard.Error as error:
            twice = str(error)
        result = experiment.end(0.9)
        emit(logdir=logdir, inside=inside, twice=twice, metric=result.best.metric, metrics=result.best.metrics,
            trial=result.trials[0].logdir, name=result.name, same=dict(os.environ) == before)
    """)
    assert output["inside"] == output["logdir"] == output["trial"] and Path(output["logdir"], "left").exists()
    assert output["metric"] == 0.9 and output["metrics"] == {"loss": 0.5, "accuracy": 0.9} and output["name"] == "mine" and output["same"]
    assert output["twice"] == "run 1 has not ended; call experiment.end() first"


def test_end_accepts_nothing_or_dicts_and_refuses_non_numbers(yard: Yard, lab: Lab) -> None:
    output = lab.evaluate("""
        experiment.begin(tensorboard=False)
        nothing = experiment.end()
        experiment.begin(tensorboard=False)
        try:
            experiment.end("good")
        except hopyard.Error as error:
            text = str(error)
        values = experiment.end({"metric": 1, "loss": 2})
        try:
            nothing.best
        except hopyard.Error as error:
            why = str(error)
        emit(nothing=nothing.state, why=why, text=text, metrics=values.best.metrics)
    """)
    assert output == {"nothing": "done", "text": "'metric' is 'good' (str), which is not a number", "metrics": {"metric": 1, "loss": 2},
                      "why": "run 1 has no best trial: no trial has a metric; return a number from the function, "
                           "or pass one to experiment.end()"}


def test_process_that_dies_after_begin_fails_its_trial(yard: Yard, lab: Lab) -> None:
    lab.env["TMPDIR"] = str(yard.runtime)
    lab.run("""
        experiment.begin(tensorboard=False)
        os._exit(0)
    """)
    wait_for(lambda: yard.state() == "failed", "the run ends")
    (trial,) = yard.trials()
    assert trial["state"] == "failed" and "ended without experiment.end()" in trial["message"]
    assert not list(yard.runtime.glob("hopyard-*")), "no socket is left"


# ---- TensorBoard -----------------------------------------------------------------------------------


def test_tensorboard_starts_automatically_and_exits_with_the_process(yard: Yard, lab: Lab) -> None:
    output = lab.evaluate("""
        from pathlib import Path
        def boards():
            lines = []
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    lines.append(path.read_bytes().split(b"\\0"))
                except OSError:
                    continue
            return sum(line[1:2] == [b"tensorboard"] and str(os.getpid()).encode() in line for line in lines)
        def training(x):
            return x
        first = experiment.grid_search(training, {"x": [1]})
        second = experiment.grid_search(training, {"x": [2]})
        emit(first=first.tensorboard, second=second.tensorboard, boards=boards())
    """)
    assert re.match(r"http://(127\.0\.0\.1|localhost):\d+", output["first"]) and output["second"]
    assert output["boards"] == 1, "the TensorBoard of the second run replaced that of the first"
    yard.wait_idle()


def test_run_continues_without_tensorboard_with_one_line(yard: Yard, lab: Lab, tmp_path: Path) -> None:
    """A program that fails stands for a machine without TensorBoard."""
    fake = tmp_path / "hopyard"
    fake.write_text(f'#!/bin/sh\n[ "$1" = tensorboard ] && {{ echo "hopyard tensorboard: it is not installed" >&2; exit 1; }}\nexec {shlex.quote(yard.bin)} "$@"\n')
    fake.chmod(0o755)
    lab.env["HOPYARD_PROGRAM"] = str(fake)
    p = lab.run("""
        def training(x):
            return x
        assert experiment.grid_search(training, {"x": [1]}).tensorboard is None
    """)
    assert p.stderr == "hopyard: no TensorBoard: it is not installed\n"


# ---- a terminal ------------------------------------------------------------------------------------


GATED = """
def training(x):
    while not os.path.exists("gate"):
        time.sleep(0.02)
    return x
try:
    result = experiment.grid_search(training, {"x": [1, 2]}, parallel=2, tensorboard=False)
    print("result", result.best.metric)
except BaseException as error:
    print(type(error).__name__, str(error).replace(" ", "_"))
signal_is_back = __import__("signal").getsignal(2) is __import__("signal").default_int_handler
print("over", signal_is_back)
"""


def type_python(lab: Lab, terminal: Terminal) -> None:
    path = lab.script(GATED)
    terminal.tmux("send-keys", "-l", f"clear; HOPYARD_PROGRAM={shlex.quote(lab.yard.bin)} {sys.executable} {path}")
    terminal.key("Enter")


def test_live_table_and_final_output(yard: Yard, lab: Lab, terminal: Terminal) -> None:
    type_python(lab, terminal)
    terminal.see(r"(?s)run 1.*0/2.*running")
    (yard.project / "gate").touch()
    screen = terminal.see("over True")
    assert "2 of 2 trials" in screen and "result 2" in screen


def test_ctrl_c_detaches(yard: Yard, lab: Lab, terminal: Terminal) -> None:
    type_python(lab, terminal)
    terminal.see("running")
    terminal.key("C-c")
    terminal.see(r"Stop the run \(s\), detach")
    terminal.key("d")
    screen = terminal.see("over True").replace("\n", "")
    assert "KeyboardInterrupt run_1_continues;_watch_it_with_experiment.attach(1)" in screen, screen
    assert yard.state() == "running"
    yard.run("stop", 1)


def test_ctrl_c_stops(yard: Yard, lab: Lab, terminal: Terminal) -> None:
    type_python(lab, terminal)
    terminal.see("running")
    terminal.key("C-c")
    terminal.see(r"Stop the run \(s\), detach")
    terminal.key("s")
    screen = terminal.see("over True").replace("\n", "")
    assert "Stopped run_1_was_stopped_when_0_trials_were_done" in screen, screen
    assert yard.state() == "stopped"
    yard.wait_idle()


def test_ctrl_c_and_continue(yard: Yard, lab: Lab, terminal: Terminal) -> None:
    type_python(lab, terminal)
    terminal.see("running")
    terminal.key("C-c")
    terminal.see(r"continue \(c\)")
    terminal.key("c")
    (yard.project / "gate").touch()
    terminal.see("result 2")


@pytest.mark.parametrize("recipient", ["the group", "the process"])
def test_interrupt_in_a_pipe_stops_the_run(yard: Yard, lab: Lab, recipient: str) -> None:
    p = lab.start(GATED)
    assert p.stdout and "run 1" in p.stdout.readline()
    (os.killpg if recipient == "the group" else os.kill)(p.pid, signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert "Stopped run_1_was_stopped" in out, out + err
    yard.wait_idle()


def test_interrupt_during_the_start_leaves_no_run_behind(yard: Yard, lab: Lab, tmp_path: Path) -> None:
    slow = tmp_path / "hopyard"
    slow.write_text(f'#!/bin/sh\n[ "$2" = --submit ] && {{ touch {tmp_path}/asked; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; }}\n'
                    f'exec {shlex.quote(yard.bin)} "$@"\n')
    slow.chmod(0o755)
    lab.env["HOPYARD_PROGRAM"] = str(slow)
    p = lab.start(GATED)
    wait_for(lambda: (tmp_path / "asked").exists(), "the run was requested")
    os.killpg(p.pid, signal.SIGINT)
    (tmp_path / "go").touch()
    out, err = p.communicate(timeout=60)
    assert "KeyboardInterrupt run_1_was_stopped_while_it_started" in out, out + err
    assert yard.state() == "stopped"


def test_runs_in_other_threads(yard: Yard, lab: Lab) -> None:
    output = lab.evaluate("""
        from concurrent.futures import ThreadPoolExecutor
        def training(x):
            return x
        def search(scale):
            return experiment.grid_search(training, {"x": [scale, 2 * scale]}, tensorboard=False).best.metric
        with ThreadPoolExecutor(2) as pool:
            emit(best=sorted(pool.map(search, [1, 10])))
    """)
    assert output == {"best": [2, 20]}
