# SPDX-License-Identifier: Apache-2.0
"""Elastic trainings on hosts that a discovery script lists, and messages of horovodrun on failed and missing hosts."""
from __future__ import annotations

import re
import sys
from pathlib import Path

from conftest import Yard, wait_for
from hosts import hosts_of
from test_training import on_hosts, printed, ranks, rosters, sent


STALL = """
import time
import numpy
from hopyard import collective
collective.init()
if collective.rank() == 1:
    time.sleep(300)
collective.allreduce(numpy.ones(4, "float32"), name="late")
"""


def discovery(yard: Yard, hosts: str) -> Path:
    """The list of hosts; the script is `cat`, as in Horovod's own tutorial."""
    file = yard.project / "hosts"
    file.write_text(hosts)
    return file


def name(file: Path, hosts: str) -> None:
    """Atomically: the script may be reading."""
    new = file.with_suffix(".new")
    new.write_text(hosts)
    new.rename(file)


def notes(yard: Yard) -> str:
    return "\n".join(row["text"] for row in yard.rows("SELECT text FROM notes ORDER BY seq"))


def size(yard: Yard) -> str:
    return rosters(yard, 0)[-1]["size"] if yard.state() and rosters(yard, 0) else ""


def test_ranks_follow_the_slots_of_a_host(yard: Yard) -> None:
    file = discovery(yard, "localhost:1\n")
    yard.run("horovodrun", "-np", 1, "--min-np", 1, "--max-np", 3, "--host-discovery-script", f"cat {file}", "--detach", *ranks("again"))
    wait_for(lambda: size(yard) == "1", "the first rank runs")
    name(file, "localhost:2\n")
    wait_for(lambda: size(yard) == "2", f"another rank runs\n{yard.driver_log()}")
    assert rosters(yard, 0)[-1]["rank"] == "0" and rosters(yard, 0)[-1]["hosts"] == "0,0", "one machine, so one shared memory"
    name(file, "localhost:1\n")
    wait_for(lambda: size(yard) == "1", f"one rank has left\n{yard.driver_log()}")
    assert "was ended: its host has fewer slots now" in printed(yard, 0)
    assert "host localhost has 2 slots now (before: 1)" in notes(yard) and "host localhost has 1 slot now (before: 2)" in notes(yard)
    assert yard.state() == "running"
    yard.run("stop", 1)


def test_training_waits_for_hosts_and_continues_without_removed_ones(yard: Yard) -> None:
    """`--slots` is the old name of `--slots-per-host`."""
    file = discovery(yard, "")
    yard.run("train", "-np", 1, "--host-discovery-script", f"cat {file}", "--slots", 1, "--detach", *ranks("again"))
    wait_for(lambda: "the host discovery script has not listed any yet" in notes(yard), "the training waits")
    name(file, "localhost\n")
    wait_for(lambda: size(yard) == "1", f"the rank of the host runs\n{yard.driver_log()}")
    name(file, "")
    wait_for(lambda: "host localhost is not listed any more; its ranks end" in notes(yard), "the host is removed")
    wait_for(lambda: not yard.processes(r"rank\.py"), "its rank ends")
    name(file, "localhost\n")
    wait_for(lambda: yard.processes(r"rank\.py"), f"the host is back\n{yard.driver_log()}")
    yard.run("stop", 1)


def test_machines_are_added_and_removed_over_ssh(yard: Yard) -> None:
    file = discovery(yard, "a:1\n")
    with hosts_of(yard, "a", "b"):
        yard.run("train", "-np", 1, "--min-np", 1, "--host-discovery-script", f"cat {file}", "--detach", *on_hosts("again"))
        wait_for(lambda: size(yard) == "1", f"the first rank\n{yard.driver_log()}")
        name(file, "a:1\nb:1\n")
        wait_for(lambda: size(yard) == "2", f"the rank of the other machine runs\n{yard.driver_log()}")
        assert rosters(yard, 0)[-1]["hosts"] == "0,1" and {a["agent"] for a in yard.attempts()} == {"a", "b"}
        name(file, "a:1\n")
        wait_for(lambda: size(yard) == "1", f"the training continues without the host\n{yard.driver_log()}")
        yard.run("stop", 1)
        yard.wait_idle()


def test_script_that_fails_at_the_start_fails_the_training(yard: Yard) -> None:
    p = yard.run("train", "-np", 1, "--host-discovery-script", "exit 3", "true", rc=1)
    assert "the host discovery script 'exit 3' ended with exit status 3" in p.stdout + p.stderr
    p = yard.run("train", "-np", 1, "--host-discovery-script", "echo localhost", "true", rc=1)
    assert "host 'localhost' has no number of slots; print HOST:SLOTS, or pass --slots-per-host N" in p.stdout + p.stderr


def test_script_that_fails_later_changes_nothing(yard: Yard) -> None:
    file = discovery(yard, "localhost:1\n")
    yard.run("train", "-np", 1, "--host-discovery-script", f"cat {file}", "--detach", *ranks("again"))
    wait_for(lambda: size(yard) == "1", "the first rank runs")
    file.unlink()
    wait_for(lambda: "the hosts stay unchanged, and the script is run again" in notes(yard), "the failure is reported")
    assert yard.processes(r"rank\.py") and yard.state() == "running"
    yard.run("stop", 1)


def test_elastic_timeout_ends_a_training_that_has_too_few_ranks(yard: Yard) -> None:
    file = discovery(yard, "localhost:1\n")
    p = yard.run("train", "-np", 2, "--min-np", 2, "--host-discovery-script", f"cat {file}", "--elastic-timeout", 2, "true", rc=1)
    assert "for 2 s there were 0 ranks, but the minimum is 2; the elastic timeout ends the training" in p.stdout + p.stderr
    p = yard.run("train", "-np", 2, "--host-discovery-script", f"cat {file}", "true", rc=1, env={"HOROVOD_ELASTIC_TIMEOUT": "1"})
    assert "the elastic timeout ends the training" in p.stdout + p.stderr


def test_no_rank_starts_on_a_host_during_its_cooldown(yard: Yard) -> None:
    yard.run("train", "-np", 2, "--min-np", 1, "--blacklist-cooldown-range", 600, 900, "--detach",
             *ranks("join", "exit:3@1.1", "rejoin", "sleep"))
    wait_for(lambda: re.search(r"no rank is started on local for 600 s, because a rank has failed there", notes(yard)), "the host cools down")
    wait_for(lambda: len(rosters(yard, 0)) == 2, "the other rank continues")
    wait_for(lambda: yard.rows("SELECT 1 FROM notes WHERE text LIKE '%it is restarted%'"), "the rank is to be restarted")
    assert len(yard.attempts(1, 2)) == 1, "not on that host yet"
    yard.run("stop", 1)


def test_stall_shutdown_time_ends_a_stalled_training(yard: Yard) -> None:
    (yard.project / "stall.py").write_text(STALL)
    p = yard.run("train", "-np", 2, "--stall-check-warning-time-seconds", 1, "--stall-check-shutdown-time-seconds", 2,
                 sys.executable, "stall.py", rc=1)
    assert "rank 1: no request for 'late' (allreduce) for 1 s; rank 0 waits for it" in p.stdout + p.stderr
    assert "rank 1: no request for 'late' (allreduce) for 2 s; rank 0 waits for it; the training ends after 2 s" in sent(yard)


def test_horovod_variables_without_effect_are_listed_in_one_line(yard: Yard) -> None:
    p = yard.run("train", "-np", 1, "true", env={
        "HOROVOD_CYCLE_TIME": "3", "HOROVOD_FUSION_THRESHOLD": "1", "HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_CONTROLLER": "gloo"})
    [line] = [line for line in p.stderr.splitlines() if "HOROVOD_" in line]
    assert re.match(r"note: HOROVOD_\w+, HOROVOD_\w+: set in the environment, but without effect", line), line
    assert "HOROVOD_CYCLE_TIME" in line and "HOROVOD_FUSION_THRESHOLD" in line


def test_config_file_of_horovodrun_is_read(yard: Yard) -> None:
    (yard.project / "c.yaml").write_text("params:\n  cycle_time_ms: 3\nstall_check:\n  warning_time_seconds: 11\ntimeline:\n  filename: t.json\n")
    p = yard.run("horovodrun", "-np", 1, "--config-file", "c.yaml", "sh", "-c", "echo $HOROVOD_STALL_CHECK_TIME_SECONDS $HOROVOD_TIMELINE")
    assert p.stdout == f"[0] 11 {yard.project}/t.json\n" and "note: --cycle-time-ms: no effect; " in p.stderr
    (yard.project / "c.yaml").write_text("tuning:\n")
    assert "c.yaml, line 1: unknown section 'tuning'" in yard.run("horovodrun", "-np", 1, "--config-file", "c.yaml", "true", rc=2).stderr
