# SPDX-License-Identifier: Apache-2.0
"""A trial that kills its agent is charged for it, alone; other losses of an agent are not charged to any trial."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard, wait_for
from hopyard import _hopyard

LOSS, LOSSES_MAX = 2, 5  # HY_CHARGE_LOSS of the driver
BLAMED = "its agent died 5 times while it ran, the last 3 times with nothing else on it, so the trial kills it"


def charged(yard: Yard, trial: int, charge: int) -> list[dict[str, Any]]:
    return [a for a in yard.attempts(1, trial) if a["charge"] == charge]


def ran_alone(yard: Yard, attempt: dict[str, Any]) -> bool:
    """No other trial had an attempt at that time."""
    return not any(a["trial"] != attempt["trial"] and a["started"] < attempt["ended"] and attempt["started"] < a["ended"]
                   for a in yard.attempts())


@pytest.mark.parametrize("sig", ["KILL", "TERM"])
def test_trial_that_kills_its_agent_fails_alone(yard: Yard, sig: str) -> None:
    """The others share its agent twice; from then on each runs alone on the agent, and finishes."""
    p = yard.run("run", "--grid", "x=1..6", "--parallel", 4, "--max", "v", "--", "sh", "-c",
                 f"[ {{x}} != 2 ] || kill -{sig} $PPID; sleep 0.5; echo v={{x}}", rc=1, timeout=100)
    trials = yard.trials()
    assert [t["state"] for t in trials] == ["done", "failed", "done", "done", "done", "done"], p.stdout
    assert trials[1]["message"].startswith(BLAMED), trials[1]["message"]
    losses = charged(yard, 2, LOSS)
    assert len(losses) == LOSSES_MAX and all(ran_alone(yard, a) for a in losses[2:])
    for t in (1, 3, 4):
        assert [a["state"] for a in yard.attempts(1, t)] == ["lost", "lost", "done"]
        assert ran_alone(yard, yard.attempts(1, t)[-1])
    assert "run alone on an agent from now on" in yard.run("show", 1).stdout


def test_two_trials_that_kill_their_agent_are_both_charged_and_the_others_continue(yard: Yard) -> None:
    yard.run("run", "--grid", "x=1..5", "--parallel", 2, "--max", "v", "--", "sh", "-c",
             "[ {x} -gt 2 ] || kill -9 $PPID; echo v={x}", rc=1, timeout=100)
    assert [t["state"] for t in yard.trials()] == ["failed", "failed", "done", "done", "done"]


def interrupt(yard: Yard) -> None:
    """kill -9 of the driver; its agents exit."""
    os.kill(yard.process("driver"), signal.SIGKILL)
    yard.assert_nothing_left()


def test_losses_survive_resume_and_an_interruption_is_not_a_loss(yard: Yard) -> None:
    yard.run("run", "--detach", "--grid", "x=1,2", "--parallel", 2, "--max", "v", "--", "sh", "-c",
             "sleep 0.3; [ {x} = 2 ] || kill -9 $PPID; sleep 0.5; echo v={x}")
    for n in (1, 3):
        wait_for(lambda n=n: len(charged(yard, 1, LOSS)) >= n and yard.attempts(1, 1)[-1]["state"] == "running",  # type: ignore[misc]
                 f"the agent has died {n} times")
        interrupt(yard)
        if n == 1:
            yard.run("resume", 1, "--detach")
    yard.run("resume", 1, rc=1, timeout=100)
    one, two = yard.trials()
    assert one["state"] == "failed" and one["message"].startswith(BLAMED) and two["state"] == "done"
    assert len(charged(yard, 1, LOSS)) == LOSSES_MAX
    assert all(a["message"] == "the driver was interrupted" for a in yard.attempts(1, 1) if a["charge"] != LOSS)


def test_retry_counts_survive_resume_until_the_trial_has_failed(yard: Yard) -> None:
    def failed() -> int:
        """Attempts that were lost or stopped do not count."""
        return [a["state"] for a in yard.attempts()].count("failed")

    failing = yard.project / "failing"
    failing.touch()
    yard.run("run", "--detach", "--retries", 2, "--", "sh", "-c", f"[ ! -e {failing} ]")
    wait_for(lambda: yard.state() and failed() == 1, "the first trial has failed")
    interrupt(yard)
    yard.run("resume", 1, rc=1, timeout=100)
    assert failed() == 3, "two retries in all"
    yard.run("resume", 1, "--detach")  # it had failed for good: two more retries
    wait_for(lambda: failed() == 4, "it is retried once more")
    yard.run("stop", 1)
    yard.run("resume", 1, rc=1, timeout=100)
    assert failed() == 6


# ---- supplied agents ---------------------------------------------------------------------------


class Supplier:
    """Starts a run's agents as a Spark session would, and reports their ends as configured."""

    def __init__(self, yard: Yard, died: bool, slots: tuple[int, ...] = (2,)) -> None:
        self.yard, self.died, self.slots, self.ends = yard, died, slots, 0
        self.starts: list[int] = []
        self.starts_max = 100  # of one agent
        self.driver = _hopyard.Driver(json.loads(yard.run("show", "--json").stdout)["run"]["socket"])
        self.driver.supply("a test", 1)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while (order := self.driver.next()) is not None:
            if "start" in order:
                self.starts.append(order["start"])
                if self.starts.count(order["start"]) <= self.starts_max:
                    threading.Thread(target=self.run_agent, args=(order,), daemon=True).start()

    def run_agent(self, order: dict[str, Any]) -> None:
        command = self.yard.command("agent", "--join", order["join"], "--identity", order["identity"], "--key-file", "-",
                                    "--slots", self.slots[order["start"] - 1], "--name", "executor")
        agent = subprocess.Popen(command, env=self.yard.env, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        agent.stdin.write(order["key"].encode() + b"\n")
        agent.stdin.flush()
        if agent.wait() != 0:
            self.ends += 1
            self.driver.agent_ended(order["start"], "executor 1 was lost", died=self.died)

    def close(self) -> None:
        self.driver.close()


def supplied(yard: Yard, *command: str, trials: int = 2, parallel: int = 2) -> subprocess.Popen[str]:
    started = yard.submit([("grid", f"x=1..{trials}"), ("parallel", parallel)], command, address="127.0.0.1")
    return yard.start("attach", started["run"])


def test_repeatedly_lost_executors_fail_no_trial(yard: Yard) -> None:
    """More often than a trial may kill its agent; and no trial has to run alone for it."""
    count = yard.project / "count"
    count.touch()
    strike = f"echo >>{count}; [ $(wc -l <{count}) -gt {LOSSES_MAX + 1} ] || kill -9 $PPID"
    client = supplied(yard, "sh", "-c", f"[ {{x}} = 2 ] || {{{{ {strike}; }}}}; sleep 0.2")
    supplier = Supplier(yard, died=False)
    out, err = client.communicate(timeout=100)
    supplier.close()
    assert client.returncode == 0, out + err
    assert supplier.ends == LOSSES_MAX + 1
    assert [a["state"] for a in yard.attempts(1, 1)] == ["lost"] * (LOSSES_MAX + 1) + ["done"]
    assert not any(a["charge"] for a in yard.attempts())
    assert out.count("executor 1 was lost") + err.count("executor 1 was lost") >= LOSSES_MAX, "each loss is reported"


def test_trial_that_kills_its_agent_on_a_live_executor_is_charged(yard: Yard) -> None:
    client = supplied(yard, "sh", "-c", "[ {x} = 2 ] || kill -9 $PPID; sleep 0.2")
    supplier = Supplier(yard, died=True)
    out, err = client.communicate(timeout=100)
    supplier.close()
    assert client.returncode == 1, out + err
    one, two = yard.trials()
    assert one["state"] == "failed" and one["message"].startswith(BLAMED) and two["state"] == "done"


def test_slots_are_used_while_a_trial_waits_to_run_alone(yard: Yard) -> None:
    """Its own agent does not come back. It waits for one of two others, and trials fill the other one meanwhile."""
    gates = yard.project / "gates"
    gates.mkdir()
    client = supplied(yard, "sh", "-c", f"""
        [ {{x}} -gt 5 ] || while [ ! -e {gates}/{{x}} ]; do sleep 0.05; done
        [ {{x}} != 1 ] || [ $HOPYARD_ATTEMPT -gt 2 ] || kill -9 $PPID
    """, trials=8, parallel=5)
    supplier = Supplier(yard, died=True, slots=(1, 2, 2))
    supplier.starts_max = 2
    wait_for(lambda: len(yard.attempts()) == 1, "the first has an agent of one slot")
    supplier.driver.supply("a test", 3)
    wait_for(lambda: len(yard.attempts()) == 5, "the others have two agents of two slots")
    (gates / "1").touch()
    wait_for(lambda: len(charged(yard, 1, LOSS)) == 2, "the agent of the first has died twice")
    (gates / "2").touch()
    (gates / "4").touch()
    wait_for(lambda: [t["number"] for t in yard.trials() if t["state"] == "done"] == [2, 4, 6, 7, 8], "the others continue")
    assert len(yard.attempts(1, 1)) == 2, "no agent was free"
    (gates / "3").touch()
    (gates / "5").touch()
    out, err = client.communicate(timeout=100)
    supplier.close()
    assert client.returncode == 0, out + err
    assert [a["state"] for a in yard.attempts(1, 1)] == ["lost", "lost", "done"]


# ---- functions and trainings --------------------------------------------------------------------


def test_function_that_kills_its_agent_fails_alone(yard: Yard) -> None:
    """Forked from a warm process: its parent is the agent as well."""
    script = Path(yard.project, "search.py")
    script.write_text(
        "import os, signal, time\n"
        "from hopyard import experiment\n"
        "def training(x):\n"
        "    if x == 2:\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(0.3)\n"
        "    return x\n"
        "if __name__ == '__main__':\n"
        "    result = experiment.grid_search(training, {'x': [1, 2, 3, 4]}, parallel=4, tensorboard=False)\n"
        "    print([t.state for t in result.trials])\n")
    p = subprocess.run(["python", str(script)], env={**yard.env, "HOPYARD_PROGRAM": yard.bin}, cwd=yard.project, text=True,
                       capture_output=True, timeout=100)
    assert "['done', 'failed', 'done', 'done']" in p.stdout, p.stdout + p.stderr
    assert BLAMED in yard.trials()[1]["message"]


def test_training_whose_rank_kills_its_agent_fails_and_keeps_its_count_over_resume(yard: Yard) -> None:
    yard.run("train", "--detach", "-np", 2, "--", "sh", "-c", "sleep 0.3; kill -9 $PPID; sleep 5")
    wait_for(lambda: yard.state() and len(charged(yard, 1, LOSS)) >= 2 and yard.attempts(1, 1)[-1]["state"] == "running",
             "the agent has died twice")
    interrupt(yard)
    yard.run("resume", 1, rc=1, timeout=100)
    assert yard.state() == "failed" and len(charged(yard, 1, LOSS)) == LOSSES_MAX
