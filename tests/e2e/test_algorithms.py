# SPDX-License-Identifier: Apache-2.0
"""Searches that learn, by --algorithm: what is chosen, constraints, and a resume that continues with the same trials."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from conftest import Yard, wait_for

SPACE = ["--space", "x=-5.0..5.0", "--space", "opt=sgd,adam", "--space", "m=0.5..0.99 if opt == sgd"]
BOWL = ["--min", "loss", "--", "sh", "-c", 'echo loss=$(awk "BEGIN { print ({x} - 1) ^ 2 }")']


def params(yard: Yard, run: int) -> list[dict[str, Any]]:
    return [t["params"] for t in yard.trials(run)]


def test_auto_names_the_algorithm_that_it_has_chosen(yard: Yard) -> None:
    yard.run("run", "--algorithm", "auto", "--trials", 10, *SPACE, *BOWL)
    text = yard.run("show", 1).stdout
    assert "chose the algorithm tpe for 3 hyperparameters (2 categorical or conditional) and 10 trials" in text
    assert "search    tpe 10  x=-5.0..5.0" in text
    numbers = [word for name in "xyz" for word in ("--space", f"{name}=-5.0..5.0")]
    yard.run("run", "--algorithm", "auto", "--trials", 60, "--parallel", 2, *numbers, *BOWL)
    assert "search    cma 60, async" in yard.run("show", 2).stdout
    yard.run("run", "--algorithm", "auto", "--trials", 59, "--parallel", 2, *numbers, *BOWL)
    assert "search    tpe 59  " in yard.run("show", 3).stdout


@pytest.mark.parametrize("algorithm", ["tpe", "cma"])
def test_conditions_and_constraints_hold_for_each_trial(yard: Yard, algorithm: str) -> None:
    yard.run("run", "--algorithm", algorithm, "--trials", 40, *SPACE, "--constraint", "x < 0 or m > 0.8", *BOWL)
    found = params(yard, 1)
    assert len(found) == 40
    assert all(("m" in p) == (p["opt"] == "sgd") for p in found)
    assert all(p["x"] < 0 or p.get("m", 1) > 0.8 for p in found)


@pytest.mark.parametrize("algorithm", ["tpe", "cma"])
def test_resume_continues_with_the_trials_of_an_uninterrupted_run(yard: Yard, algorithm: str) -> None:
    command = ["--algorithm", algorithm, "--trials", 40, "--seed", 5, "--parallel", 1, *SPACE, *BOWL]
    yard.run("run", *command)
    yard.run("run", "--detach", *command)
    wait_for(lambda: len([t for t in yard.trials(2) if t["state"] == "done"]) >= 10, "trials end")
    os.kill(yard.process("driver"), signal.SIGKILL)
    yard.wait_idle()
    if yard.state(2) == "running":  # it had not ended yet
        yard.run("resume", 2)
    assert yard.state(2) == "done"
    assert params(yard, 2) == params(yard, 1)


def test_invalid_options_are_explained(yard: Yard) -> None:
    def refused(*words: object) -> str:
        return yard.run("run", *words, *SPACE, *BOWL, rc=2).stderr

    assert refused("--algorithm", "tpee", "--trials", 3) == "hopyard run: --algorithm 'tpee' is unknown; did you mean tpe?\n"
    assert refused("--algorithm", "tpe") == "hopyard run: --algorithm requires --trials N (0: unlimited)\n"
    assert refused("--random", 3, "--trials", 3) == "hopyard run: --trials requires --algorithm NAME\n"
    assert refused("--algorithm", "tpe", "--trials", 3, "--random", 3) == (
        "hopyard run: --algorithm and --random exclude each other; choose one\n")
    assert refused("--algorithm", "tpe", "--trials", 3, "--population", 5) == (
        "hopyard run: --population requires --evolve or --algorithm cma; add one of them or remove it\n")
    assert "no point of" in refused("--algorithm", "tpe", "--trials", 3, "--constraint", "x > 6")


FUNCTION = """
import hopyard
from hopyard import experiment

def training(x, opt, m=None):
    assert (m is None) == (opt == "adam")
    for step in range(5):
        if hopyard.report(step=step, loss=(x - 1) ** 2 / (step + 1)).should_end:
            break
    return (x - 1) ** 2

if __name__ == "__main__":
    space = {"x": [-5.0, 5.0], "opt": ["sgd", "adam"], "m": hopyard.uniform(0.5, 0.99, when="opt == 'sgd'")}
    result = experiment.search(training, space, trials=30, constraints=["x < 4"], direction="min", metric="loss",
                               stop="median", tensorboard=False)
    assert len(result.trials) == 30 and all(t.params["x"] < 4 for t in result.trials)
    print("best", result.best.metric, *result.notes)
"""


def test_python_functions_are_searched_with_the_algorithm_that_suits_the_space(yard: Yard) -> None:
    (yard.project / "program.py").write_text(FUNCTION)
    p = subprocess.run([sys.executable, "program.py"], env={**yard.env, "HOPYARD_PROGRAM": yard.bin}, cwd=yard.project,
                       text=True, capture_output=True, timeout=240, stdin=subprocess.DEVNULL)
    assert p.returncode == 0, p.stdout + p.stderr
    best, note = p.stdout.splitlines()[-1].removeprefix("best ").split(" ", 1)
    assert float(best) < 1 and note.startswith("chose the algorithm tpe")
