# SPDX-License-Identifier: Apache-2.0
"""Trainings: ranks that start together, connect, and fail or continue together."""
from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import Yard, wait_for
from hosts import Hosts, hosts_of, kill
from test_agents import output_of

RANK = Path(__file__).parent / "rank.py"


def ranks(*steps: str) -> list[str]:
    return ["--", sys.executable, str(RANK), *steps]


def on_hosts(*steps: str) -> list[str]:
    """For machines with only the system's Python."""
    return ["--", "/usr/bin/python3", str(RANK), *steps]


def printed(yard: Yard, rank: int, run: int = 1, attempt: str = "") -> str:
    path = yard.logdir(run) / f"rank={rank}" / f"stdout{attempt}"
    return path.read_text() if path.exists() else ""


def rosters(yard: Yard, rank: int, attempt: str = "") -> list[dict[str, str]]:
    return [dict(word.split("=", 1) for word in line.split())
            for line in printed(yard, rank, attempt=attempt).splitlines() if line.startswith("generation=")]


def sent(yard: Yard, run: int = 1) -> str:
    return yard.rows("SELECT message FROM runs WHERE id = ?", run)[0]["message"] or ""


def states(yard: Yard) -> list[str]:
    return [t["state"] for t in yard.trials()]


def until(yard: Yard, *names: str) -> None:
    """Waits until these files exist in the run's directory."""
    wait_for(lambda: yard.state() and all((yard.logdir() / n).exists() for n in names), f"no {names}\n{yard.driver_log()}")


def pid_of(yard: Yard, rank: int) -> int:
    return next(iter(wait_for(lambda: {
        pid: 1 for pid in yard.processes(r"rank\.py")
        if f"HOPYARD_TRIAL={rank + 1}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()}, f"no rank {rank}")))


# ---- rendezvous --------------------------------------------------------------------------

@pytest.mark.parametrize("count", [1, 2, 4])
def test_all_ranks_get_one_roster_one_key_and_one_shared_memory(yard: Yard, count: int) -> None:
    yard.run("train", "-np", count, *ranks("join", "leave"))
    each = [rosters(yard, r) for r in range(count)]
    assert all(len(r) == 1 for r in each)
    assert [r[0]["rank"] for r in each] == [str(r) for r in range(count)]
    for name in ("generation", "size", "trials", "hosts", "ports", "key"):
        assert len({r[0][name] for r in each}) == 1
    assert each[0][0]["size"] == str(count)
    assert each[0][0]["trials"] == ",".join(str(r + 1) for r in range(count))
    assert each[0][0]["ports"] == ",".join(str(1000 + r) for r in range(count))
    assert len(bytes.fromhex(each[0][0]["key"])) == 32
    assert bool(each[0][0].get("shared")) == (count > 1)
    assert all("shared ok" in printed(yard, r) for r in range(count))  # each saw what the others wrote there
    assert states(yard) == ["done"] * count and yard.state() == "done"
    assert each[0][0]["key"].encode() not in (yard.folder / "store.db").read_bytes()


def test_ranks_have_their_number_before_they_join(yard: Yard) -> None:
    yard.run("train", "-np", 3, *ranks("env"))
    for r in range(3):
        words = dict(w.split("=") for w in printed(yard, r).split())
        assert words == {"HOPYARD_GROUP": "1", "HOROVOD_RANK": str(r), "HOROVOD_SIZE": "3", "HOROVOD_LOCAL_RANK": str(r),
                         "HOROVOD_LOCAL_SIZE": "3", "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1",
                         "HOROVOD_ELASTIC": "0"}


def test_ranks_that_rejoin_are_in_a_new_generation(yard: Yard) -> None:
    yard.run("train", "-np", 2, *ranks("join", "leave", "join", "leave"))
    for r in range(2):
        assert [x["generation"] for x in rosters(yard, r)] == ["1", "2"]
    assert len({x["key"] for x in rosters(yard, 0)}) == 2
    assert states(yard) == ["done", "done"]


def test_messages_with_tokens_of_others_are_refused(yard: Yard) -> None:
    yard.run("train", "-np", 2, *ranks("impostor", "join", "leave"))
    for r in range(2):
        assert "refused: this trial has ended, or was never started here" in printed(yard, r)
        assert "refused: unexpected message: a rank can join, leave or send a note" in printed(yard, r)
    assert states(yard) == ["done", "done"]


def test_trial_of_another_run_is_refused_as_a_rank(yard: Yard) -> None:
    p = yard.run("run", *ranks("join"), rc=1)
    assert "this run is not a training; start it with `hopyard train`" in p.stdout + p.stderr + str(list(yard.logdir().rglob("stderr"))[0].read_text())


def test_metric_of_rank_0_is_that_of_the_run(yard: Yard) -> None:
    yard.run("train", "-np", 2, "--max", "acc", "--", "sh", "-c", "[ $HOROVOD_RANK = 1 ] || echo acc=0.5")
    assert [t["value"] for t in yard.trials()] == [0.5, None]
    assert states(yard) == ["done", "done"]
    yard.run("train", "-np", 2, "--max", "acc", "--", "sh", "-c", "[ $HOROVOD_RANK = 0 ] || echo acc=0.5")
    assert [t["value"] for t in yard.trials(2)] == [None, None]


def test_notes_of_ranks_are_rate_limited(yard: Yard) -> None:
    p = yard.run("train", "-np", 1, *ranks("join", "notes:500", "leave"))
    notes = re.findall(r"rank 0 on \S+: note \d+", p.stdout + p.stderr)
    assert 5 <= len(set(notes)) < 500


# ---- lost ranks ------------------------------------------------------------------------------

def assert_failed_with(yard: Yard, cause: int, why: str, others: list[int]) -> None:
    assert yard.state() == "failed" and re.fullmatch(rf"rank {cause} on \S+ {why}", sent(yard)), sent(yard)
    trials = yard.trials()
    assert trials[cause]["state"] == "failed"
    for r in others:
        assert trials[r]["state"] == "stopped"
        assert trials[r]["message"] == f"ended because {sent(yard)}"


@pytest.mark.parametrize("end, why", [("kill", r"was ended by signal 9 \(Killed\)"), ("exit:3", "ended with exit status 3"),
                                      ("exit:0", r"ended \(exit status 0\) while the others were still training")])
def test_dead_rank_is_reported_to_the_others_and_the_run_fails(yard: Yard, end: str, why: str) -> None:
    p = yard.run("train", "-np", 3, *ranks("join", f"{end}@1", "lost"), rc=1)
    assert_failed_with(yard, 1, why, [0, 2])
    assert sent(yard) in p.stdout + p.stderr
    for r in (0, 2):
        assert f"reported: {sent(yard)} rank 1 generation 1" in printed(yard, r)


@pytest.mark.parametrize("end, why", [("exit:1", "ended with exit status 1"),
                                      ("exit:0", r"ended \(exit status 0\) without joining the others")])
def test_rank_that_exits_without_joining_ends_the_rendezvous(yard: Yard, end: str, why: str) -> None:
    yard.run("train", "-np", 3, *ranks("mark", "waitmarks:3@2", f"{end}@2", "join"), rc=1)
    assert re.search(rf"rank 2 (on \S+ {why}|has ended, but the others wait)", sent(yard)), sent(yard)
    for r in (0, 1):
        assert sent(yard) in (yard.logdir() / f"rank={r}" / "stderr").read_text()


def test_dead_rank_with_live_children_is_reported_at_once(yard: Yard) -> None:
    yard.run("train", "-np", 2, *ranks("join", "child@1", "kill@1", "lost"), rc=1)
    assert_failed_with(yard, 1, r"was ended by signal 9 \(Killed\)", [0])


def test_failed_rank_is_reported_to_the_others_before_it_exits(yard: Yard) -> None:
    yard.run("train", "-np", 3, *ranks("join", "fail:out_of_memory@1", "sleep@1", "lost"), rc=1)
    assert re.fullmatch(r"rank 1 on \S+ cannot continue: out_of_memory", sent(yard)), sent(yard)
    for r in (0, 2):
        assert f"reported: {sent(yard)} rank 1 generation 1" in printed(yard, r)


def test_elastic_training_restarts_after_a_failed_rank(yard: Yard) -> None:
    yard.run("train", "-np", 3, "--min-np", 2, *ranks("join", "fail:out_of_memory@1", "rejoin@0", "rejoin@2", "join@1", "leave"))
    for r in range(3):
        assert [x["generation"] for x in rosters(yard, r)] == ["1", "2"]
    assert states(yard) == ["done"] * 3


def test_unresponsive_ranks_are_killed(yard: Yard) -> None:
    yard.run("train", "-np", 3, *ranks("join", "kill@1", "lost@2", "sleep"), rc=1)
    assert_failed_with(yard, 1, r"was ended by signal 9 \(Killed\)", [0, 2])


def test_retries_restart_all_ranks(yard: Yard) -> None:
    p = yard.run("train", "-np", 2, "--retries", 2, *ranks("count", "join", "kill@1.1", "exit:4@0.2", "lost@0.1", "lost@1.2", "leave"))
    assert states(yard) == ["done", "done"] and yard.state() == "done"
    assert [[a["state"] for a in yard.attempts(1, t)] for t in (1, 2)] == [["stopped", "failed", "done"], ["failed", "stopped", "done"]]
    assert [x["generation"] for r in ("", ".2", ".1") for x in rosters(yard, 0, attempt=r)] == ["3", "2", "1"]
    assert all(f"attempts so far: {n}" in printed(yard, 0, attempt=a) for n, a in ((0, ".1"), (1, ".2"), (2, "")))  # the checkpoint
    assert len(re.findall(r"all ranks are restarted \([12] of 2\)", p.stdout + p.stderr)) == 2


def test_retries_are_limited(yard: Yard) -> None:
    yard.run("train", "-np", 2, "--retries", 1, *ranks("join", "exit:3@1", "lost"), rc=1)
    assert_failed_with(yard, 1, "ended with exit status 3", [0])
    assert [t["attempts"] for t in yard.trials()] == [2, 2]


def test_agent_death_restarts_all_ranks(yard: Yard) -> None:
    yard.run("train", "-np", 2, "--detach", *ranks("join", "mark", "sleep@0.1", "sleep@1.1", "leave"))
    until(yard, "rank=0/mark.1", "rank=1/mark.1")
    os.kill(yard.process("agent"), signal.SIGKILL)
    yard.run("attach", "1")
    assert states(yard) == ["done", "done"]
    assert [[a["state"] for a in yard.attempts(1, t)] for t in (1, 2)] == [["lost", "done"]] * 2


# ---- stop, resume ------------------------------------------------------------------------------

def test_stopped_training_is_resumed_as_a_whole(yard: Yard) -> None:
    yard.run("train", "-np", 3, "--detach", *ranks("join", "mark", "leave@2", "exit:0@2", "sleep@0.1", "sleep@1.1", "leave"))
    until(yard, *(f"rank={r}/mark.1" for r in range(3)))
    wait_for(lambda: yard.attempts()[2]["state"] == "done", "one rank is done")
    yard.run("stop", "1")
    assert yard.state() == "stopped" and states(yard) == ["stopped", "stopped", "done"]
    yard.run("resume", "1")
    assert yard.state() == "done" and states(yard) == ["done"] * 3
    assert [t["attempts"] for t in yard.trials()] == [2] * 3
    yard.run("resume", "1", rc=1)


def test_driver_death_leaves_nothing_and_resume_restarts_all_ranks(yard: Yard) -> None:
    yard.run("train", "-np", 2, "--detach", *ranks("join", "mark", "sleep@0.1", "sleep@1.1", "leave"))
    until(yard, *(f"rank={r}/mark.1" for r in range(2)))
    os.kill(yard.process("driver"), signal.SIGKILL)
    yard.assert_nothing_left()
    yard.run("resume", "1")
    assert states(yard) == ["done", "done"] and [t["attempts"] for t in yard.trials()] == [2, 2]


def test_training_over_its_timeout_is_killed(yard: Yard) -> None:
    yard.run("train", "-np", 2, "--timeout", "1s", *ranks("join", "sleep"), rc=1)
    assert re.search(r"rank [01] on \S+ was killed: ran longer than the 1s it may take", sent(yard)), sent(yard)


# ---- elastic ---------------------------------------------------------------------------------------

def test_elastic_training_continues_and_the_dead_rank_rejoins(yard: Yard) -> None:
    yard.run("train", "-np", 3, "--min-np", 2, "--detach", *ranks("again"))
    wait_for(lambda: yard.state() and all(len(rosters(yard, r)) == 1 for r in range(3)), "the first generation")
    os.kill(pid_of(yard, 0), signal.SIGKILL)
    wait_for(lambda: all(len(rosters(yard, r)) == 3 for r in (1, 2)) and len(rosters(yard, 0)) == 1, "the third generation")
    ahead, back = rosters(yard, 1), rosters(yard, 0)[0]
    assert [x["size"] for x in ahead] == ["3", "2", "3"]
    assert [x["rank"] for x in ahead] == ["1", "0", "0"]                     # it has the state, and is listed before ...
    assert [x["rank"] for x in rosters(yard, 2)] == ["2", "1", "1"]
    assert back["rank"] == "2" and back["trials"] == "2,3,1"                 # ... the new rank
    assert back["generation"] == "3" and back["key"] == ahead[2]["key"] and len({x["key"] for x in ahead}) == 3
    for r in (1, 2):
        assert re.search(r"lost rank 0 on \S+ was ended by signal 9 \(Killed\)\n.*\n.*\noutdated", printed(yard, r))
    assert [a["state"] for a in yard.attempts(1, 1)] == ["failed", "running"]
    yard.run("stop", "1")


def test_elastic_training_is_done_when_the_remaining_ranks_are(yard: Yard) -> None:
    yard.run("train", "-np", 3, "--min-np", 1, *ranks("join", "kill@1", "rejoin", "leave"))
    assert yard.state() == "done" and states(yard) == ["done", "failed", "done"]
    assert re.fullmatch(r"rank 1 on \S+ was ended by signal 9 \(Killed\)", yard.trials()[1]["message"])
    assert len(yard.attempts(1, 2)) == 1  # it was to be restarted when the others were done
    yard.run("resume", "1", rc=1)
    assert "is done" in yard.run("resume", "1", rc=1).stderr


def test_rank_that_fails_permanently_is_dropped(yard: Yard) -> None:
    p = yard.start("train", "-np", 2, "--min-np", 1, "--retries", 1, *ranks("exit:3@1", "join", "wait:dropped", "leave"))
    wait_for(lambda: yard.state() and [a["state"] for a in yard.attempts(1, 2)] == ["failed", "failed"], "rank 1 has failed twice")
    (yard.logdir() / "dropped").touch()
    out, err = p.communicate(timeout=60)
    assert "rank 1 on" in out + err and "it is not restarted" in out + err
    assert yard.state() == "done" and states(yard) == ["done", "failed"]
    assert [t["attempts"] for t in yard.trials()] == [1, 2] and yard.trials()[1]["message"] == "exit status 3"


def test_elastic_training_fails_with_too_few_ranks(yard: Yard) -> None:
    yard.run("train", "-np", 3, "--min-np", 3, *ranks("join", "kill@1", "again"), rc=1)
    assert yard.state() == "failed"
    assert re.fullmatch(r"rank 1 on \S+ was ended by signal 9 \(Killed\); the training needs 3 ranks, but only 2 remain", sent(yard))
    assert states(yard) == ["stopped", "failed", "stopped"]


def test_elastic_training_survives_the_death_of_an_agent(yard: Yard) -> None:
    yard.run("train", "-np", 2, "--min-np", 2, "--detach", *ranks("join", "mark", "sleep@0.1", "sleep@1.1", "leave"))
    until(yard, "rank=0/mark.1", "rank=1/mark.1")
    os.kill(yard.process("agent"), signal.SIGKILL)
    yard.run("attach", "1")
    assert states(yard) == ["done", "done"] and [t["attempts"] for t in yard.trials()] == [2, 2]


def test_late_rank_is_released_when_the_others_are_done(yard: Yard) -> None:
    yard.run("train", "-np", 2, "--min-np", 1, *ranks("join@0", "join@1.1", "kill@1.1", "wait:rank=1/mark.2@0",
             "leave@0", "exit:0@0", "mark", "join", "leave"), timeout=60)
    assert yard.state() == "done" and states(yard) == ["done", "stopped"]
    assert yard.trials()[1]["message"] == "the others were done before it joined"


def test_new_machine_gets_more_ranks(yard: Yard) -> None:
    yard.run("train", "-np", 1, "--min-np", 1, "--max-np", 3, "--listen", "127.0.0.1:0", "--detach", *ranks("again"))
    match = wait_for(lambda: re.search(r"--join HOST:(\d+) --key-file (\S+)", yard.driver_log()), "the log says how to join")
    wait_for(lambda: yard.state() and len(rosters(yard, 0)) == 1, "the first generation")
    agent = yard.start("agent", "--join", f"127.0.0.1:{match[1]}", "--key-file", match[2], "--slots", 5, "--name", "extra")
    wait_for(lambda: rosters(yard, 0)[-1]["size"] == "3", "the ranks of the machine have joined")
    last: dict[str, Any] = rosters(yard, 0)[-1]
    assert last["rank"] == "0" and last["trials"] in ("1,2,3", "1,3,2") and last["hosts"] == "0,1,1"
    assert "shared" not in last or not last["shared"]
    assert len(yard.trials()) == 3 and {a["agent"] for a in yard.attempts()} == {"local", "extra"}
    wait_for(lambda: rosters(yard, 1) and rosters(yard, 1)[-1]["size"] == "3", "the new ranks have the roster, too")
    agent.terminate()
    output_of(agent)
    wait_for(lambda: rosters(yard, 0)[-1]["size"] == "1", "the training continues without them")
    yard.run("stop", "1")


# ---- placement -----------------------------------------------------------------------------------

def test_ranks_that_do_not_fit_are_refused_with_a_hint(yard: Yard) -> None:
    p = yard.run("train", "-np", 2, "--memory", "900T", *ranks("join"), rc=1)
    assert "lower the memory limit" in p.stdout + p.stderr and yard.state() == "failed"
    memory = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 0.7)
    p = yard.run("train", "-np", 2, "--memory", memory, *ranks("join"), rc=1)
    assert "2 ranks with" in p.stdout + p.stderr and "start fewer ranks or lower the memory limit" in p.stdout + p.stderr


# ---- several machines ------------------------------------------------------------------------------

@pytest.fixture
def net(yard: Yard) -> Iterator[Hosts]:
    with hosts_of(yard, "a", "b") as hosts:
        yield hosts


def test_ranks_of_several_machines_connect_and_share_memory_per_machine(yard: Yard, net: Hosts) -> None:
    yard.run("train", "-np", 3, "-H", "a:1,b:2", *on_hosts("env", "meet", "leave"))
    each = [rosters(yard, r)[0] for r in range(3)]
    assert [x["hosts"] for x in each] == ["0,1,1"] * 3 and [x["rank"] for x in each] == ["0", "1", "2"]
    assert not each[0].get("shared") and each[1]["shared"] == each[2]["shared"]
    local = [re.search(r"HOROVOD_CROSS_RANK=(\d) HOROVOD_CROSS_SIZE=(\d) .*LOCAL_RANK=(\d) HOROVOD_LOCAL_SIZE=(\d)", printed(yard, r))
             for r in range(3)]
    assert [m and m.groups() for m in local] == [("0", "2", "0", "1"), ("1", "2", "0", "2"), ("0", "1", "1", "2")]


def test_ranks_without_enough_machines_are_refused_with_a_hint(yard: Yard, net: Hosts) -> None:
    p = yard.run("train", "-np", 3, "-H", "a:1,locked:2", *ranks("meet"), rc=1)
    assert "3 ranks need 3 slots, but there is 1; start 1, or" in p.stdout + p.stderr
    assert not yard.attempts() and yard.state() == "failed"


def test_elastic_training_starts_with_the_available_machines(yard: Yard, net: Hosts) -> None:
    yard.run("train", "-np", 3, "--min-np", 2, "-H", "a:2,locked:1", *on_hosts("meet", "leave"))
    assert [rosters(yard, r)[0]["size"] for r in (0, 1)] == ["2", "2"] and not rosters(yard, 2)
    assert states(yard) == ["done", "done", "stopped"] and yard.state() == "done"


def test_machine_death_restarts_all_ranks(yard: Yard, net: Hosts) -> None:
    p = yard.start("train", "-np", 2, "-H", "a:1,b:1", *on_hosts("meet", "lost@0.1", "sleep@1.1", "leave"))
    wait_for(lambda: yard.state() and all(rosters(yard, r) for r in range(2)), "the first generation")
    kill(net["b"].agent())
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0, out + err
    assert re.search(r"reported: rank 1 on b is lost: its agent is gone", printed(yard, 0, attempt=".1"))
    assert [[a["state"] for a in yard.attempts(1, t)] for t in (1, 2)] == [["stopped", "done"], ["lost", "done"]]
