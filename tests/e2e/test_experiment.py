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
    """Python scripts in a yard: each says what it has to say as its last line, in JSON."""

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

    def say(self, code: str) -> Any:
        """What the script passes to `say`, its last words."""
        out = self.run("def say(**words): print(json.dumps(words))\n" + textwrap.dedent(code)).stdout
        return json.loads(out.splitlines()[-1])


@pytest.fixture
def lab(yard: Yard) -> Lab:
    return Lab(yard)


# ---- results ---------------------------------------------------------------------------


def test_a_script_needs_no_main_guard(yard: Yard, lab: Lab) -> None:
    """Its functions, and what they use, go by value: the script is never imported again."""
    said = lab.say("""
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
        say(params=best.params, metric=best.metric, metrics=best.metrics, number=best.number, state=result.state,
            trials=[[t.number, t.params, t.metric, t.state, t.error, t.attempts] for t in result.trials],
            logdirs=[t.logdir for t in result.trials], logdir=result.logdir, run=result.run, repr=repr(result),
            columns=list(result.to_dataframe().columns), html=result._repr_html_(), board=result.tensorboard)
    """)
    assert said["params"] == {"lr": 2, "dropout": 0.5} and said["metric"] == 20.5 and said["number"] == 4
    assert said["metrics"] == {"metric": 20.5} and said["state"] == "done" and said["run"] == 1 and said["board"] is None
    assert said["trials"] == [[1, {"lr": 1, "dropout": 0.25}, 10.25, "done", None, 1], [2, {"lr": 1, "dropout": 0.5}, 10.5, "done", None, 1],
                              [3, {"lr": 2, "dropout": 0.25}, 20.25, "done", None, 1], [4, {"lr": 2, "dropout": 0.5}, 20.5, "done", None, 1]]
    assert said["logdirs"][0] == said["logdir"] + "/lr=1,dropout=0.25"
    assert Path(said["logdirs"][0], "stdout").read_text() == "training with 1\n"
    assert said["repr"] == "<run 1 done: 4 done; best metric=20.5 in trial 4 (lr=2, dropout=0.5)>"
    assert said["columns"] == ["number", "lr", "dropout", "metric", "state", "seconds", "attempts", "message", "logdir"]
    assert said["html"].count("<tr") == 5
    assert (yard.project / "started").read_text() == "once\n"


def test_what_happens_is_told_line_by_line_where_there_is_no_terminal(lab: Lab) -> None:
    out = lab.run("""
        def training(x):
            return x
        experiment.grid_search(training, {"x": [1, 2]}, parallel=1, tensorboard=False, name="lines")
    """).stdout
    assert re.search(r"(?m)^run 1 lines: 2 trials", out) and "[1/2] done  x=1  metric=1" in out and "run 1 done: 2 done" in out


def test_a_function_of_a_module_beside_the_script(lab: Lab) -> None:
    lab.script("def training(x):\n    return -x\n", "mymodel.py")
    said = lab.say("""
        import mymodel
        result = experiment.random_search(mymodel.training, {"x": [0.0, 1.0]}, samples=5, seed=3, tensorboard=False)
        again = experiment.random_search(mymodel.training, {"x": [0.0, 1.0]}, samples=5, seed=3, tensorboard=False)
        say(best=result.best.metric, all=[t.metric for t in result.trials], again=[t.metric for t in again.trials])
    """)
    assert len(set(said["all"])) == 5 and said["best"] == max(said["all"]) and said["again"] == said["all"]


def test_evolution_and_the_named_metric_of_a_dict(lab: Lab) -> None:
    said = lab.say("""
        def training(x):
            return {"loss": (x - 0.3) ** 2, "epochs": 4, "note": "fine"}
        result = experiment.evolutionary_search(training, {"x": [-5.0, 5.0]}, population=6, generations=4, seed=1,
                                                direction="min", metric="loss", tensorboard=False)
        alias = experiment.differential_evolution is experiment.evolutionary_search
        say(best=result.best.metric, metrics=result.best.metrics, count=len(result.trials), name=result.metric,
            losses=[t.metric for t in result.trials], direction=result.direction, alias=alias)
    """)
    assert said["count"] == 24 and said["best"] == min(said["losses"]) and said["name"] == "loss" and said["direction"] == "min"
    assert said["metrics"]["epochs"] == 4 and said["metrics"]["loss"] == said["best"] and said["alias"]


def test_launch_pairs_its_lists_and_needs_none(lab: Lab) -> None:
    said = lab.say("""
        def training(x=0, y=0):
            return 10 * x + y
        pairs = experiment.launch(training, {"x": [1, 2], "y": [3, 4]}, tensorboard=False)
        alone = experiment.launch(training, tensorboard=False)
        quiet = experiment.launch(lambda: None, tensorboard=False)
        say(pairs=[t.metric for t in pairs.trials], alone=[t.metric for t in alone.trials],
            quiet=[[t.metric, t.state] for t in quiet.trials], best=quiet.best)
    """)
    assert said == {"pairs": [13, 24], "alone": [0], "quiet": [[None, "done"]], "best": None}


def test_reported_values_are_the_trials_metrics(yard: Yard, lab: Lab) -> None:
    said = lab.say("""
        def training(x):
            for step in range(3):
                hopyard.report(step=step, loss=1 / (step + x))
            return x
        result = experiment.grid_search(training, {"x": [1, 2]}, tensorboard=False)
        say(metrics=[t.metrics for t in result.trials])
    """)
    assert said["metrics"] == [{"loss": 1 / 3, "metric": 1}, {"loss": 1 / 4, "metric": 2}]


def test_tensorflow_is_imported_before_the_trials_and_not_here(lab: Lab) -> None:
    said = lab.say("""
        def training(x):
            warm = {"tensorflow", "keras"} <= set(sys.modules)
            import tensorflow as tf
            model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)])
            return {"sum": float(model(tf.constant([[x, 1.0]]))[0, 0]), "warm": int(warm)}
        result = experiment.grid_search(training, {"x": [1.0, 2.0, 3.0]}, parallel=2, metric="sum", tensorboard=False)
        say(values=[t.metrics for t in result.trials], here="tensorflow" in sys.modules)
    """)
    assert said == {"values": [{"sum": 2, "warm": 1}, {"sum": 3, "warm": 1}, {"sum": 4, "warm": 1}], "here": False}


# ---- failures ------------------------------------------------------------------------------


def test_a_traceback_comes_to_the_result_the_log_and_the_terminal(yard: Yard, lab: Lab) -> None:
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
    assert re.search(r"\[\d/3\] failed  x=2 .*ValueError: not 2", p.stdout)


def test_when_all_trials_fail_the_first_traceback_is_raised(lab: Lab) -> None:
    p = lab.run("""
        def training(x):
            return 1 / (x - x)
        try:
            experiment.grid_search(training, {"x": [1, 2]}, tensorboard=False)
        except hopyard.TrialsFailed as error:
            print(json.dumps([str(error), [t.state for t in error.result.trials], isinstance(error, hopyard.Error)]))
    """)
    text, states, family = json.loads(p.stdout.splitlines()[-1])
    assert text.startswith("all 2 trials of run 1 failed; trial 1: Traceback") and text.rstrip().endswith("ZeroDivisionError: division by zero")
    assert states == ["failed", "failed"] and family


@pytest.mark.parametrize(
    "call, sentence",
    [
        ("evolutionary_search(lambda x: None, {'x': [0.0, 1.0]}, population=4, generations=1)", "needs a number"),
        ("evolutionary_search(lambda x: 'good', {'x': [0.0, 1.0]}, population=4, generations=1)", "'good' (str), which is no number"),
        ("grid_search(lambda x: {'loss': 1}, {'x': [1]}, metric='accuracy')", "returned no 'accuracy'; it returned loss"),
    ],
)
def test_a_metric_that_is_needed_and_not_there_is_said(lab: Lab, call: str, sentence: str) -> None:
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
def test_what_the_program_refuses_is_its_sentence(yard: Yard, lab: Lab, call: str, sentence: str) -> None:
    said = lab.say(f"""
        def f(x):
            return x
        try:
            experiment.{call}
        except hopyard.Error as error:
            say(sentence=str(error))
    """)
    assert sentence in said["sentence"] and not said["sentence"].startswith("hopyard")
    assert yard.state() == "", "nothing was started"


def test_a_module_that_the_trial_cannot_import_is_said(lab: Lab) -> None:
    said = lab.say("""
        import types
        made_up = types.ModuleType("made_up")
        exec("def training(x):\\n    return x", made_up.__dict__)
        sys.modules["made_up"] = made_up
        try:
            experiment.grid_search(made_up.training, {"x": [1]}, tensorboard=False)
        except hopyard.TrialsFailed as error:
            say(message=error.result.trials[0].message)
    """)
    assert "the trial cannot import 'made_up'" in said["message"]


# ---- runs that outlive their script ------------------------------------------------------------


def test_a_function_run_is_resumed_from_a_terminal_with_no_python_alive(yard: Yard, lab: Lab) -> None:
    lab.run("""
        def training(x):
            if x == 2 and not os.path.exists("mended"):
                raise RuntimeError("mend me")
            return x
        experiment.grid_search(training, {"x": [1, 2, 3]}, tensorboard=False)
    """)
    yard.wait_idle()
    (yard.project / "train.py").unlink()
    (yard.project / "mended").touch()
    yard.run("resume", 1)
    said = lab.say("result = experiment.result(1); say(states=[t.state for t in result.trials], attempts=[t.attempts for t in result.trials])")
    assert said == {"states": ["done"] * 3, "attempts": [1, 2, 1]}


def test_detach_attach_and_resume(yard: Yard, lab: Lab) -> None:
    said = lab.say("""
        def training(x):
            while not os.path.exists("gate"):
                time.sleep(0.02)
            return x
        result = experiment.grid_search(training, {"x": [1, 2]}, parallel=1, name="gated", detach=True, tensorboard=False)
        say(state=result.state, run=result.run)
    """)
    assert said == {"state": "running", "run": 1}
    yard.run("stop", 1)
    (yard.project / "gate").touch()
    said = lab.say("""
        stopped = experiment.result("gated")
        try:
            experiment.attach(1)
        except hopyard.Stopped as error:
            text = str(error)
        resumed = experiment.resume(stopped, tensorboard=False)
        say(stopped=stopped.state, text=text, resumed=resumed.state, values=[t.metric for t in resumed.trials],
            attached=experiment.attach("gated").state)
    """)
    assert said["stopped"] == "stopped" and said["resumed"] == said["attached"] == "done" and said["values"] == [1, 2]
    assert said["text"] == "run 1 was stopped when 0 trials were done; experiment.resume(1) goes on with it"


def test_a_run_whose_driver_dies_is_an_error_and_can_be_resumed(yard: Yard, lab: Lab) -> None:
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
    wait_for(lambda: yard.state() == "running" and yard.attempts(), "it runs")
    os.kill(yard.process("driver"), signal.SIGKILL)
    out, err = p.communicate(timeout=60)
    assert "its driver has died" in json.loads(out.splitlines()[-1]), out + err
    yard.wait_idle()
    (yard.project / "gate").touch()
    assert lab.say("say(state=experiment.resume(1, tensorboard=False).state)") == {"state": "done"}


# ---- begin and end ----------------------------------------------------------------------------


def test_between_begin_and_end_this_process_is_the_trial(yard: Yard, lab: Lab) -> None:
    said = lab.say("""
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
        say(logdir=logdir, inside=inside, twice=twice, metric=result.best.metric, metrics=result.best.metrics,
            trial=result.trials[0].logdir, name=result.name, same=dict(os.environ) == before)
    """)
    assert said["inside"] == said["logdir"] == said["trial"] and Path(said["logdir"], "left").exists()
    assert said["metric"] == 0.9 and said["metrics"] == {"loss": 0.5, "accuracy": 0.9} and said["name"] == "mine" and said["same"]
    assert said["twice"] == "run 1 has begun and not ended; call experiment.end() first"


def test_end_takes_nothing_and_dicts_and_refuses_what_is_no_number(yard: Yard, lab: Lab) -> None:
    said = lab.say("""
        experiment.begin(tensorboard=False)
        nothing = experiment.end()
        experiment.begin(tensorboard=False)
        try:
            experiment.end("good")
        except hopyard.Error as error:
            text = str(error)
        values = experiment.end({"metric": 1, "loss": 2})
        say(nothing=[nothing.state, nothing.best], text=text, metrics=values.best.metrics)
    """)
    assert said == {"nothing": ["done", None], "text": "'metric' is 'good' (str), which is no number", "metrics": {"metric": 1, "loss": 2}}


def test_a_process_that_dies_after_begin_fails_its_trial(yard: Yard, lab: Lab) -> None:
    lab.env["TMPDIR"] = str(yard.runtime)
    lab.run("""
        experiment.begin(tensorboard=False)
        os._exit(0)
    """)
    wait_for(lambda: yard.state() == "done", "the run ends")
    (trial,) = yard.trials()
    assert trial["state"] == "failed" and "ended without experiment.end()" in trial["message"]
    assert not list(yard.runtime.glob("hopyard-*")), "no socket is left"


# ---- TensorBoard -----------------------------------------------------------------------------------


def test_a_tensorboard_starts_by_itself_and_ends_with_the_process(yard: Yard, lab: Lab) -> None:
    said = lab.say("""
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
        say(first=first.tensorboard, second=second.tensorboard, boards=boards())
    """)
    assert re.match(r"http://(127\.0\.0\.1|localhost):\d+", said["first"]) and said["second"]
    assert said["boards"] == 1, "the second run's took the place of the first one's"
    yard.wait_idle()


def test_without_tensorboard_a_run_goes_on_with_one_line(yard: Yard, lab: Lab, tmp_path: Path) -> None:
    """A program that cannot show anything stands for a machine without TensorBoard."""
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


def test_the_live_table_and_its_end(yard: Yard, lab: Lab, terminal: Terminal) -> None:
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
    assert "KeyboardInterrupt run_1_goes_on;_come_back_with_experiment.attach(1)" in screen, screen
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


def test_ctrl_c_and_go_on(yard: Yard, lab: Lab, terminal: Terminal) -> None:
    type_python(lab, terminal)
    terminal.see("running")
    terminal.key("C-c")
    terminal.see(r"go on \(c\)")
    terminal.key("c")
    (yard.project / "gate").touch()
    terminal.see("result 2")


@pytest.mark.parametrize("whom", ["the group", "the process"])
def test_an_interrupt_in_a_pipe_stops_the_run(yard: Yard, lab: Lab, whom: str) -> None:
    p = lab.start(GATED)
    assert p.stdout and "run 1" in p.stdout.readline()
    (os.killpg if whom == "the group" else os.kill)(p.pid, signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert "Stopped run_1_was_stopped" in out, out + err
    yard.wait_idle()


def test_an_interrupt_while_it_starts_leaves_no_run_behind(yard: Yard, lab: Lab, tmp_path: Path) -> None:
    slow = tmp_path / "hopyard"
    slow.write_text(f'#!/bin/sh\n[ "$1" = run ] && {{ touch {tmp_path}/asked; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; }}\n'
                    f'exec {shlex.quote(yard.bin)} "$@"\n')
    slow.chmod(0o755)
    lab.env["HOPYARD_PROGRAM"] = str(slow)
    p = lab.start(GATED)
    wait_for(lambda: (tmp_path / "asked").exists(), "the run is asked for")
    os.killpg(p.pid, signal.SIGINT)
    (tmp_path / "go").touch()
    out, err = p.communicate(timeout=60)
    assert "KeyboardInterrupt run_1_was_stopped_while_it_started" in out, out + err
    assert yard.state() == "stopped"


def test_runs_in_other_threads(yard: Yard, lab: Lab) -> None:
    said = lab.say("""
        from concurrent.futures import ThreadPoolExecutor
        def training(x):
            return x
        def search(scale):
            return experiment.grid_search(training, {"x": [scale, 2 * scale]}, tensorboard=False).best.metric
        with ThreadPoolExecutor(2) as pool:
            say(best=sorted(pool.map(search, [1, 10])))
    """)
    assert said == {"best": [2, 20]}
