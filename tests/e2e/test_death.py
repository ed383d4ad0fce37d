# SPDX-License-Identifier: Apache-2.0
"""kill -9 of any process at any time: no finished trial is lost or repeated, nothing is left."""
from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from conftest import Yard, wait_for


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def finished(yard: Yard) -> dict[int, float]:
    return {t["number"]: t["value"] for t in yard.trials() if t["state"] == "done"} if yard.state() else {}


def test_agent_death_runs_its_trials_again(yard: Yard) -> None:
    yard.run("run", "--detach", "--grid", "x=1,2", "--parallel", 2, "--max", "v", "--", "sh", "-c", "sleep 1; echo v={x}")
    wait_for(lambda: yard.state() and len(yard.attempts()) == 2, "both run")
    kill(yard.process("agent"))
    yard.run("attach", "1")
    assert [t["value"] for t in yard.trials()] == [1, 2]
    assert sorted(a["state"] for a in yard.attempts()) == ["done", "done", "lost", "lost"]
    assert all(t["attempts"] == 2 for t in yard.trials())


@pytest.mark.smoke
def test_driver_death_leaves_nothing_and_the_run_can_be_resumed(yard: Yard) -> None:
    yard.run("run", "--detach", "--grid", "x=1..6", "--parallel", 2, "--max", "v", "--", "sh", "-c", "sleep 0.3; echo v={x}")
    wait_for(lambda: len(finished(yard)) >= 2, "two are done")
    kill(yard.process("driver"))
    yard.assert_nothing_left()
    before = finished(yard)
    assert "interrupted" in yard.run("ls").stdout
    yard.run("resume", "1")
    after = finished(yard)
    assert after == {n: n for n in range(1, 7)}
    for n in before:
        assert len(yard.attempts(1, n)) == 1


def test_trial_death_fails_only_the_trial(yard: Yard) -> None:
    p = yard.run("run", "--grid", "x=1,2", "--", "sh", "-c", "[ {x} = 1 ] || kill -9 $$", rc=1)
    assert "signal 9" in p.stdout
    assert [t["state"] for t in yard.trials()] == ["done", "failed"]


def test_reaper_death_ends_the_agent_and_starts_another(yard: Yard) -> None:
    yard.run("run", "--detach", "--grid", "x=1,2", "--parallel", 2, "--", "sleep", "1")
    wait_for(lambda: yard.state() and len(yard.attempts()) == 2, "both run")
    agent = yard.process("agent")
    reaper = int(Path(f"/proc/{agent}/stat").read_text().rsplit(")", 1)[1].split()[1])
    kill(reaper)
    wait_for(lambda: not os.path.exists(f"/proc/{agent}"), "the agent exits, too")
    yard.run("attach", "1")
    assert [t["state"] for t in yard.trials()] == ["done", "done"]


def test_run_continues_after_all_processes_were_killed(yard: Yard) -> None:
    yard.run("run", "--detach", "--evolve", "--population", 4, "--generations", 4, "--space", "x=-1.0..1.0", "--min", "f", "--seed", 5,
             "--parallel", 2, "--", "sh", "-c", "sleep 0.1; awk 'BEGIN {{ print \"f=\" ({x})*({x}) }}'")
    wait_for(lambda: len(finished(yard)) >= 6, "some are done")
    yard.kill_everything()
    yard.run("gc", "--all")
    yard.run("resume", "1")
    whole = [(t["params"], t["value"]) for t in yard.trials()]
    yard.run("run", "--evolve", "--population", 4, "--generations", 4, "--space", "x=-1.0..1.0", "--min", "f", "--seed", 5,
             "--parallel", 2, "--", "sh", "-c", "awk 'BEGIN {{ print \"f=\" ({x})*({x}) }}'")
    assert whole == [(t["params"], t["value"]) for t in yard.trials(2)], "the same as an undisturbed run"


def settled(yard: Yard) -> dict[int, tuple[float, int]]:
    """Finished trials: their value, and the number of their attempts."""
    return {t["number"]: (t["value"], t["attempts"]) for t in yard.trials() if t["state"] == "done"} if yard.state() else {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_kill_at_random_times(yard: Yard, seed: int) -> None:
    """25 kills per seed, 100 in all: of client, driver, agent, their reapers, and trials."""
    yard.may_kill_anything()
    rng = random.Random(seed)
    total, kills = 150, 0
    known: dict[int, tuple[float, int]] = {}
    client = yard.start("run", "--grid", f"x=1..{total}", "--parallel", 2, "--max", "v", "--retries", 1000, "--", "sh", "-c",
                        "sleep 0.05; echo v={x}")
    wait_for(lambda: yard.state() == "running", "the run has started")
    while yard.state() != "done":
        time.sleep(rng.uniform(0, 0.12))  # at a random time
        victims = sorted(yard.processes())
        if victims and kills < 25:
            kills += kill(rng.choice(victims))
        now = settled(yard)
        assert {n: now.get(n) for n in known} == known, "a finished trial was lost or repeated"
        known = now
        if not yard.processes(r"hopyard driver") and yard.state() != "done":
            client.communicate()
            client = yard.start("resume", "1")
            wait_for(lambda: yard.processes(r"hopyard driver") or client.poll() is not None, "the driver runs again")
    client.communicate()
    assert kills == 25, "the run must outlive the killer"
    yard.wait_idle()
    yard.run("gc", "--all")  # for an agent or driver that was killed just after its reaper
    blamed = [t["message"] for t in yard.trials() if t["state"] == "failed"]
    assert all("trial kills it" in message for message in blamed), blamed
    if blamed:  # five kills have hit its agent while it ran: it is charged
        yard.run("resume", "1")
    now = settled(yard)
    assert {n: now[n] for n in known} == known
    assert {n: v for n, (v, _) in now.items()} == {n: n for n in range(1, total + 1)}
    for n in range(1, total + 1):
        assert [a["state"] for a in yard.attempts(1, n)].count("done") == 1
