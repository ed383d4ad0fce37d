# SPDX-License-Identifier: Apache-2.0
"""Trials that are stopped early, paused and promoted."""
from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import pytest
from conftest import Yard, wait_for

# Reports {x} at each step, and ends when it is told to. Without a decision it ends after the step in $LAST, but waits
# there for one if it is to get one ($EXPECT): a report is sent again with the same step.
LOOP = """
i=$(cat $HOPYARD_CHECKPOINT/step 2>/dev/null || echo 0)
echo started after $i
while [ $i -lt $LAST ]; do
    i=$((i + 1)); echo $i > $HOPYARD_CHECKPOINT/step
    hopyard report --check loss=$1 step=$i || { rc=$?; echo ended at $i with $rc; exit 0; }
    waited=0
    while [ -n "$EXPECT" ] && [ $i -eq $EXPECT ] && [ $waited -lt 100 ]; do
        hopyard report --check || { rc=$?; echo ended at $i with $rc; exit 0; }
        waited=$((waited + 1)); sleep 0.05
    done
done
"""


def output(yard: Yard, trial: dict[str, Any], attempt: str = "") -> str:
    return (yard.logdir() / trial["dir"] / f"stdout{attempt}").read_text()


def reports(yard: Yard, run: int = 1) -> list[dict[str, Any]]:
    return yard.rows("SELECT * FROM metrics WHERE run = ? ORDER BY run_seq", run) if (yard.folder / "store.db").exists() else []


def decisions(yard: Yard) -> list[tuple[int, int]]:
    """(trial, decision): 0 continue, 1 stop, 2 pause."""
    if not (yard.folder / "store.db").exists():
        return []
    return [(row["trial"], row["decision"]) for row in yard.rows("SELECT * FROM decisions ORDER BY seq")]


@pytest.mark.smoke
def test_a_diverged_trial_is_pruned_and_counted_apart(yard: Yard) -> None:
    loop = yard.script("loop", LOOP)
    p = yard.run("run", "--stop", "none", "--min", "loss", "--grid", "x=1,NaN,2", "--parallel", 1, "--", loop, "{x}",
                 env={"LAST": "3", "EXPECT": ""})
    trials = yard.trials()
    assert [t["state"] for t in trials] == ["done", "pruned", "done"]
    assert trials[1]["message"] == "its loss is NaN"
    assert yard.state() == "done"
    assert "2 done, 1 pruned" in p.stdout
    shown = json.loads(yard.run("show", "--json").stdout)
    assert (shown["run"]["done"], shown["run"]["pruned"], shown["run"]["paused"]) == (2, 1, 0)
    assert [t["state"] for t in sorted(shown["trials"], key=lambda t: t["number"])] == ["done", "pruned", "done"]
    assert shown["run"]["best_trial"] == 1
    assert "2/3 (1 pruned)" in yard.run("ls").stdout
    assert "1 pruned" in yard.run("show").stdout and "stop none" in yard.run("show").stdout
    yard.run("resume", 1, rc=1)  # there is nothing to do
    assert [a["state"] for a in yard.attempts()] == ["done", "stopped", "done"]


def test_worse_trials_are_stopped_by_the_median_and_the_best_one_is_not(yard: Yard) -> None:
    loop = yard.script("loop", LOOP)
    events = yard.events("run", "--stop", "median", "--min", "loss", "--grid", "x=1,2,3,4,5,6,9", "--parallel", 1, "--", loop,
                         "{x}", env={"LAST": "30"})
    assert [t["state"] for t in yard.trials()][:5] == ["done"] * 5  # too few to compare with
    assert [t["state"] for t in yard.trials()][5:] == ["pruned", "pruned"]
    assert [t["value"] for t in yard.trials()][5:] == [6, 9]
    assert (events[-1]["done"], events[-1]["pruned"], events[-1]["state"]) == (5, 2, "done")
    assert [e["state"] for e in events if e["event"] == "trial"][-1] == "pruned"
    assert re.search(r"ended at \d+ with 3", output(yard, yard.trials()[6]))


def test_asha_stops_all_but_the_best_at_each_rung(yard: Yard) -> None:
    loop = yard.script("loop", LOOP)
    yard.run("run", "--stop", "asha", "--stop-max", 9, "--min", "loss", "--grid", "x=1..6", "--parallel", 1, "--", loop,
             "{x}", env={"LAST": "9", "EXPECT": "1"})
    trials = yard.trials()
    assert trials[0]["state"] == "done"
    assert {t["state"] for t in trials[1:]} == {"pruned"}
    assert output(yard, trials[5]).splitlines()[-1] == "ended at 1 with 3"


def test_patience_stops_a_trial_that_does_not_improve(yard: Yard) -> None:
    loop = yard.script("loop", LOOP)
    yard.run("run", "--stop", "patience", "--patience", 3, "--max", "loss", "--", loop, "1", env={"LAST": "60", "EXPECT": "4"})
    assert [t["state"] for t in yard.trials()] == ["pruned"]
    assert re.search(r"ended at [45] with 3", output(yard, yard.trials()[0]))


def test_a_report_without_a_step_counts_as_the_next_step(yard: Yard) -> None:
    yard.run("run", "--stop", "patience", "--patience", 3, "--max", "loss", "--", "sh", "-c",
             "for i in $(seq 100); do hopyard report --check loss=1 || exit 0; sleep 0.02; done")
    assert [t["state"] for t in yard.trials()] == ["pruned"]
    assert {m["step"] for m in reports(yard)} == {-1}


def test_a_printed_metric_can_stop_its_trial(yard: Yard) -> None:
    yard.run("run", "--stop", "none", "--stop-grace", "1s", "--min", "loss", "--", "sh", "-c",
             "trap 'exit 0' TERM; echo loss=NaN; while :; do sleep 0.1; done")
    assert [t["state"] for t in yard.trials()] == ["pruned"]


def test_a_trial_that_ignores_the_decision_is_killed_after_its_grace_time(yard: Yard) -> None:
    yard.run("run", "--stop", "none", "--stop-grace", "500ms", "--min", "loss", "--", "sh", "-c",
             "trap 'echo told to end; exit 5' TERM; hopyard report loss=NaN; while :; do sleep 0.1; done")
    trial, = yard.trials()
    assert trial["state"] == "pruned"
    assert output(yard, trial) == "told to end\n"
    assert [(a["state"], a["charge"]) for a in yard.attempts()] == [("stopped", 0)]  # its exit status does not matter


def test_the_slot_of_a_stopped_trial_is_used_at_once(yard: Yard) -> None:
    gate = yard.project / "gate"
    p = yard.start("run", "--stop", "none", "--min", "loss", "--grid", "x=NaN,1", "--parallel", 1, "--", "sh", "-c",
                   f"hopyard report loss={{x}}; while [ ! -e {gate} ]; do hopyard report --check || exit 1; sleep 0.05; done")
    wait_for(lambda: len(reports(yard)) == 2, "the second trial runs")
    assert [t["state"] for t in yard.trials()] == ["pruned", "running"]
    gate.touch()
    assert p.wait(60) == 0
    p.communicate()


def test_a_trial_that_is_done_before_it_gets_the_decision_is_done(yard: Yard) -> None:
    gate = yard.project / "gate"
    p = yard.start("run", "--stop", "patience", "--patience", 1, "--min", "loss", "--", "sh", "-c",
                   "hopyard report loss=1 step=1; hopyard report loss=1 step=2; "
                   f"while [ ! -e {gate} ]; do sleep 0.05; done; echo loss=0.5")
    wait_for(lambda: decisions(yard) == [(1, 1)], "the decision is stored")
    gate.touch()
    assert p.wait(60) == 0
    p.communicate()
    assert [(t["state"], t["value"]) for t in yard.trials()] == [("done", 0.5)]


def test_a_decision_survives_the_death_of_the_driver(yard: Yard) -> None:
    yard.may_kill_anything()
    again = yard.project / "again"
    p = yard.start("run", "--stop", "none", "--min", "loss", "--grid", "x=NaN,1", "--parallel", 1, "--", "sh", "-c",
                   f"[ {{x}} = 1 ] && touch {again}; trap '' TERM; hopyard report loss={{x}} step=1; "
                   f"while [ {{x}} = NaN ]; do sleep 0.05; done")
    wait_for(lambda: decisions(yard) == [(1, 1)], "the decision is stored")
    os.kill(yard.process("driver"), signal.SIGKILL)
    p.communicate(timeout=60)
    yard.wait_idle()
    assert [t["state"] for t in yard.trials()] == ["running"]
    yard.run("resume", 1)
    assert [t["state"] for t in yard.trials()] == ["pruned", "done"]
    assert [(a["trial"], a["state"]) for a in yard.attempts()] == [(1, "lost"), (2, "done")]
    assert yard.trials()[0]["message"] == "its loss is NaN"
    assert yard.state() == "done" and again.exists()


def test_paused_trials_hold_no_slot_and_continue_from_their_checkpoint(yard: Yard) -> None:
    loop = yard.script("loop", LOOP)
    yard.run("run", "--stop", "halving", "--stop-max", 3, "--min", "loss", "--grid", "x=1,3,2", "--parallel", 1,
             "--", loop, "{x}", env={"LAST": "3", "EXPECT": "1"})
    trials = yard.trials()
    assert [t["state"] for t in trials] == ["done", "pruned", "pruned"]
    assert output(yard, trials[0], ".1").splitlines() == ["started after 0", "ended at 1 with 3"]
    assert output(yard, trials[0]).splitlines() == ["started after 1"]
    assert [(a["trial"], a["number"], a["state"], a["charge"]) for a in yard.attempts()] == \
        [(1, 1, "stopped", 0), (1, 2, "done", 0), (2, 1, "stopped", 0), (3, 1, "stopped", 0)]
    assert [d for d in decisions(yard) if d[0] == 1] == [(1, 2), (1, 0)]


def test_a_promoted_trial_that_has_nothing_left_to_do_keeps_its_value(yard: Yard) -> None:
    yard.run("run", "--stop", "halving", "--stop-max", 3, "--min", "loss", "--grid", "x=1,3,2", "--parallel", 1, "--",
             "sh", "-c", "[ $HOPYARD_ATTEMPT = 2 ] || hopyard report loss={x} step=1; "
                         "while [ $HOPYARD_ATTEMPT = 1 ] && hopyard report --check; do sleep 0.05; done; exit 0")
    assert [(t["state"], t["value"]) for t in yard.trials()] == [("done", 1), ("pruned", 3), ("pruned", 2)]


def test_paused_trials_are_shown_and_stay_paused_when_the_run_is_stopped(yard: Yard) -> None:
    loop = yard.script("loop", LOOP)
    gate = yard.project / "gate"
    gated = yard.script("gated", f"while [ $1 = 2 ] && [ ! -e {gate} ]; do sleep 0.05; done; exec {loop} $1")
    p = yard.start("run", "--stop", "halving", "--stop-max", 3, "--min", "loss", "--grid", "x=1,3,2", "--parallel", 1,
                   "--", gated, "{x}", env={**yard.env, "LAST": "3", "EXPECT": "1"})
    wait_for(lambda: (yard.folder / "store.db").exists() and
             [t["state"] for t in yard.trials()] == ["paused", "paused", "running"], "two are paused")
    assert "2 paused" in yard.run("show").stdout
    yard.run("stop", 1)
    p.communicate(timeout=60)
    assert [t["state"] for t in yard.trials()] == ["paused", "paused", "stopped"]
    assert yard.state() == "stopped"
    gate.touch()
    yard.run("resume", 1)
    assert [t["state"] for t in yard.trials()] == ["done", "pruned", "pruned"]
    assert len(yard.attempts(trial=1)) == 2 and len(yard.attempts(trial=2)) == 1


def test_paused_trials_survive_the_death_of_the_driver(yard: Yard) -> None:
    yard.may_kill_anything()
    loop = yard.script("loop", LOOP)
    gate = yard.project / "gate"
    gated = yard.script("gated", f"while [ $1 = 2 ] && [ ! -e {gate} ]; do sleep 0.05; done; exec {loop} $1")
    p = yard.start("run", "--stop", "halving", "--stop-max", 3, "--min", "loss", "--grid", "x=1,3,2", "--parallel", 1,
                   "--", gated, "{x}", env={**yard.env, "LAST": "3", "EXPECT": "1"})
    wait_for(lambda: (yard.folder / "store.db").exists() and
             [t["state"] for t in yard.trials()] == ["paused", "paused", "running"], "two are paused")
    os.kill(yard.process("driver"), signal.SIGKILL)
    p.communicate(timeout=60)
    yard.wait_idle()
    gate.touch()
    yard.run("resume", 1)
    assert [t["state"] for t in yard.trials()] == ["done", "pruned", "pruned"]
    assert [(a["trial"], a["state"]) for a in yard.attempts()] == \
        [(1, "stopped"), (1, "done"), (2, "stopped"), (3, "lost"), (3, "stopped")]


def test_asha_with_pauses_promotes_a_trial_that_is_among_the_best_later(yard: Yard) -> None:
    loop = yard.script("loop", LOOP)
    yard.run("run", "--stop", "asha", "--stop-pause", "--stop-max", 3, "--min", "loss", "--grid", "x=1,2,3", "--parallel", 1,
             "--", loop, "{x}", env={"LAST": "3", "EXPECT": "1"})
    trials = yard.trials()
    assert trials[0]["state"] == "done"
    assert len(yard.attempts(trial=1)) == 2  # it was paused until others had arrived
    assert output(yard, trials[0]).startswith("started after 1\n")
    assert yard.state() == "done" and not [t for t in trials if t["state"] == "paused"]


def test_hyperband_ends_with_every_trial_done_or_pruned(yard: Yard) -> None:
    loop = yard.script("loop", LOOP)
    yard.run("run", "--stop", "hyperband", "--stop-max", 4, "--reduction", 2, "--min", "loss", "--grid", "x=1..10",
             "--parallel", 2, "--", loop, "{x}", env={"LAST": "4"})
    states = [t["state"] for t in yard.trials()]
    assert set(states) == {"done", "pruned"} and len(states) == 10
    assert yard.state() == "done"


@pytest.mark.parametrize(("options", "text"), [
    (["--stop", "median"], "--stop requires a metric: --max NAME or --min NAME"),
    (["--stop", "medain", "--min", "loss"], "--stop 'medain' is unknown; did you mean median?"),
    (["--stop", "x", "--min", "loss"], "--stop 'x' is unknown; choose median, halving, asha, hyperband, patience or none"),
    (["--stop-max", "9", "--min", "loss"], "--stop-max requires --stop halving, asha or hyperband"),
    (["--stop", "median", "--reduction", "3", "--min", "loss"], "--reduction requires --stop halving, asha or hyperband"),
    (["--stop", "patience", "--min", "loss"], "--stop patience requires --patience N"),
    (["--stop", "asha", "--reduction", "1", "--min", "loss"], "--reduction takes an integer from 2 to 1000, not '1'"),
    (["--stop", "hyperband", "--min", "loss"], "--stop-max is required for Hyperband"),
    (["--stop", "asha", "--stop-grace", "x", "--min", "loss"], "--stop-grace takes a duration such as 30s or 5m, not 'x'"),
    (["--stop-grace", "1s", "--min", "loss"], "--stop-grace requires --stop RULE"),
])
def test_wrong_options_are_refused_in_one_sentence(yard: Yard, options: list[str], text: str) -> None:
    p = yard.run("run", *options, "--", "true", rc=2)
    assert text in p.stderr
    assert not (yard.folder / "store.db").exists()


def test_help_describes_the_options_and_the_exit_status(yard: Yard) -> None:
    text = yard.run("run", "--help").stdout
    for name in ("--stop RULE", "--stop-min N", "--stop-max N", "--reduction N", "--stop-pause", "--patience N",
                 "--min-delta X", "--stop-grace TIME"):
        assert name in text, name
    assert "3 with --check: the trial is to end" in yard.run("report", "--help").stdout


def test_report_keeps_its_status_without_check(yard: Yard) -> None:
    yard.run("run", "--stop", "none", "--min", "loss", "--", "sh", "-c",
             "hopyard report loss=NaN || exit 9; while hopyard report --check; do sleep 0.05; done; "
             "hopyard report loss=1 && echo still 0; hopyard report --check loss=1; echo $?")
    trial, = yard.trials()
    assert output(yard, trial) == "still 0\n3\n"
    assert (trial["state"], trial["value"]) == ("pruned", 1)


def test_report_check_outside_a_trial_is_an_error(yard: Yard) -> None:
    assert "not inside a trial" in yard.run("report", "--check", "loss=1", rc=1).stderr
