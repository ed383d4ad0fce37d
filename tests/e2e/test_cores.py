# SPDX-License-Identifier: Apache-2.0
"""Runs of one user share the cores of a machine."""
from __future__ import annotations

import os
from pathlib import Path

from conftest import Yard, wait_for

CORES = os.cpu_count() or 1


def running(yard: Yard, seconds: int) -> int:
    return len(yard.processes(f"^sleep {seconds}$"))


def test_two_runs_start_at_most_one_trial_per_core(yard: Yard) -> None:
    yard.run("run", "--detach", "--grid", f"x=1..{CORES + 1}", "--", "sleep", "1000")
    wait_for(lambda: running(yard, 1000) == CORES, "every core has a trial")
    second = yard.start("run", "--parallel", "2", "--grid", "x=1,2", "--", "sleep", "0.1")
    assert second.stdout
    wait_for(lambda: second.stdout and "waits" in (line := second.stdout.readline()) and
             f"{CORES} of this machine's {CORES} core" in line and f"by run 1 in '{yard.project}'" in line, "the line has the reason")
    assert [t["state"] for t in yard.trials(2)] == ["running", "running"] and not running(yard, 0)
    assert running(yard, 1000) == CORES

    yard.run("run", "--oversubscribe", "--", "true")
    yard.run("stop", "1")
    assert second.wait(60) == 0
    second.communicate()
    assert [t["state"] for t in yard.trials(2)] == ["done", "done"]


def test_two_runs_take_turns(yard: Yard) -> None:
    """The second run does not wait for the end of the first."""
    gate = yard.project / "gate"
    for _ in range(2):
        yard.run("run", "--detach", "--grid", f"x=1..{8 * CORES}", "--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; sleep 0.05")
    wait_for(lambda: "waits" in yard.run("show", "2").stdout, "the second run waits")
    gate.touch()
    wait_for(lambda: yard.state(1) == yard.state(2) == "done", "both runs end")
    first, second = (sorted(t["ended"] for t in yard.trials(run)) for run in (1, 2))
    assert second[0] < first[4 * CORES] and first[-1] > second[2 * CORES], "they are interleaved"


def test_training_gets_all_its_cores_or_none(yard: Yard) -> None:
    """It needs no more cores than the machine has."""
    yard.run("run", "--detach", "--", "sleep", "1000")
    wait_for(lambda: running(yard, 1000) == 1, "one core is in use")
    yard.run("train", "--detach", "-np", CORES + 2, "--", "sleep", "500")
    wait_for(lambda: "waits" in yard.run("show", "2").stdout, "the training waits")
    assert not running(yard, 500)
    yard.run("stop", "1")
    wait_for(lambda: running(yard, 500) == CORES + 2, "all ranks start")
    yard.run("stop", "2")


def test_run_inside_a_trial_uses_the_core_of_the_trial(yard: Yard) -> None:
    inner = f"{yard.bin} run --project {yard.project}/inner --grid x=1..2 -- sh -c 'echo in; sleep 0.1'"
    yard.run("run", "--grid", f"x=1..{CORES}", "--", "sh", "-c", inner.replace("{", "{{").replace("}", "}}"))
    stdout = Path(yard.logdir(), yard.trials()[0]["dir"], "stdout").read_text()
    assert "run 1 done: 2 done" in stdout or "run 2 done: 2 done" in stdout
    yard.wait_idle()
