# SPDX-License-Identifier: Apache-2.0
"""A disk that is full for a while, a store that is locked, deleted or replaced: trials continue, and no result is lost."""

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import Yard, small_disk_at, wait_for
from hosts import hosts_of

LEASE_S = 15  # the lease: an agent kills its trials after this time without a message from its driver


@pytest.fixture
def small_disk(yard: Yard) -> Iterator[Path]:
    """A project on a disk of 8 MB."""
    with small_disk_at(yard, yard.project, "size=8m") as disk:
        yield disk


def fill(disk: Path) -> Path:
    """Takes all the free space."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    return ballast


@contextmanager
def locked(yard: Yard) -> Iterator[None]:
    """Another program holds a write transaction on the store."""
    db = sqlite3.connect(yard.folder / "store.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


def gated(yard: Yard, count: int) -> list[str]:
    """Trials that end when their gate exists, and print v=NUMBER."""
    gate = yard.project.parent / "gate"
    return ["--grid", f"i=1..{count}", "--parallel", "2", "--max", "v", "--", "sh", "-c",
            f"while [ ! -e {gate} ]; do sleep 0.05; done; echo v={{i}}"]


def open_gate(yard: Yard) -> None:
    (yard.project.parent / "gate").touch()


def finish(p: subprocess.Popen[str], rc: int = 0) -> str:
    out, complaints = p.communicate(timeout=240)
    assert p.returncode == rc, out + complaints
    return out + complaints


def assert_all_done_in_one_attempt(yard: Yard, count: int) -> None:
    assert [(t["state"], t["value"]) for t in yard.trials()] == [("done", i) for i in range(1, count + 1)]
    assert len(yard.attempts()) == count, "no trial was lost or run again"


def test_store_locked_for_longer_than_the_lease_loses_no_trial(yard: Yard) -> None:
    p = yard.start("run", *gated(yard, 6))
    wait_for(lambda: len([a for a in yard.attempts() if a["state"] == "running"]) == 2, "two trials run")
    with locked(yard):
        open_gate(yard)  # they end, but nothing can be committed
        until = time.monotonic() + LEASE_S + 3
        while time.monotonic() < until:  # pings continue all that time
            assert yard.process("agent") and p.poll() is None
            time.sleep(0.5)
        assert [t["state"] for t in yard.trials()] == ["running"] * 2, "nothing was committed"
    output = finish(p)
    assert "the run is waiting: the store does not respond" in output and "the run continues" in output, output
    assert_all_done_in_one_attempt(yard, 6)


FLOOD = """
import os, socket, struct

def number(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])

def field(tag, content):
    return bytes([tag << 3 | 2]) + number(len(content)) + content

metrics = b"".join(field(3, field(1, b"x" * 200 + b"%d" % i) + b"\\x11" + struct.pack("<d", i)) for i in range(60))
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["HOPYARD_SOCKET"])
for step in range(COUNT):
    report = field(1, os.environ["HOPYARD_TAG"].encode()) + b"\\x10" + number(2 * step) + metrics
    s.sendall(struct.pack("<IBBHI", len(report), 1, 6, 0, 0) + report)
s.shutdown(socket.SHUT_WR)
while s.recv(65536):
    pass
print("v=1")
"""


def test_unacknowledged_reports_lose_no_agent_while_the_store_is_locked(yard: Yard) -> None:
    """More than the driver and the link buffer, sent without reading an answer: the rest waits in the trial."""
    count, started = 1600, yard.project.parent / "started"  # 13 KB each
    script = yard.project.parent / "flood.py"
    script.write_text(FLOOD.replace("COUNT", str(count)).replace("\\\\", "\\"))
    p = yard.start("run", "--grid", "i=1,2", "--parallel", 2, "--max", "v", "--", "sh", "-c",
                   f"touch {started}; [ {{i}} = 2 ] || exec python3 {script}; sleep 3; echo v=2")
    wait_for(started.exists, "the trials have started")
    with locked(yard):
        time.sleep(4)
    finish(p)
    assert [a["state"] for a in yard.attempts()] == ["done"] * 2, "no agent was lost"
    assert yard.rows("SELECT count(*) AS n FROM metrics WHERE trial = 1 AND step >= 0")[0]["n"] == count * 60


def test_failed_creation_of_directories_on_a_full_disk_fails_no_trial(yard: Yard) -> None:
    """The store has room, and its files exist; there is no space for the directories of trials."""
    logs = yard.project / "Logs"
    logs.mkdir()
    with small_disk_at(yard, logs, "size=4m,nr_inodes=20"):
        p = yard.start("run", "--grid", "i=1..20", "--parallel", 2, "--max", "v", "--", "sh", "-c", "echo v={i}")
        wait_for(lambda: "the run is waiting" in yard.driver_log(), "the run waits")
        time.sleep(3)
        assert p.poll() is None and "failed" not in {t["state"] for t in yard.trials()}
        subprocess.run(["mount", "-o", "remount,nr_inodes=1000", logs], check=True)
        finish(p)
        assert [(t["state"], t["value"]) for t in yard.trials()] == [("done", i) for i in range(1, 21)]


def test_files_from_another_machine_wait_for_disk_space(yard: Yard) -> None:
    """More files are announced while there is no space for the first."""
    logs = yard.project / "Logs"
    logs.mkdir()
    with small_disk_at(yard, logs, "size=4m,nr_inodes=12"):
        with hosts_of(yard, "a"):
            p = yard.start("run", "--hosts", "a:1", "--max", "v", "--", "sh", "-c",
                           "cd $HOPYARD_TRIAL_DIR; for i in $(seq 40); do echo $i > file-$i; done; echo v=1")
            wait_for(lambda: "the run is waiting" in yard.driver_log(), "the run waits")
            time.sleep(2)
            assert p.poll() is None
            subprocess.run(["mount", "-o", "remount,nr_inodes=1000", logs], check=True)
            finish(p)
            folder = yard.logdir() / yard.trials()[0]["dir"]
            assert [(folder / f"file-{i}").read_text() for i in range(1, 41)] == [f"{i}\n" for i in range(1, 41)]


def test_interrupted_run_reports_only_what_is_in_the_store(yard: Yard) -> None:
    p = yard.start("run", "--disk-timeout", "2s", *gated(yard, 2))
    wait_for(lambda: len([a for a in yard.attempts() if a["state"] == "running"]) == 2, "two trials run")
    with locked(yard):
        open_gate(yard)
        output = finish(p, rc=1)
    assert "2 done" not in output and "best" not in output, output
    yard.wait_idle()
    assert "running" in {t["state"] for t in yard.trials()}  # the commit in progress may have succeeded
    yard.run("resume", "1")
    assert [t["state"] for t in yard.trials()] == ["done"] * 2


def test_run_continues_when_its_disk_has_space_again(yard: Yard, small_disk: Path) -> None:
    p = yard.start("run", *gated(yard, 6))
    wait_for(lambda: len([a for a in yard.attempts() if a["state"] == "running"]) == 2, "two trials run")
    ballast = fill(small_disk)
    open_gate(yard)
    wait_for(lambda: "the run is waiting: disk full" in yard.driver_log(), "the run waits")
    time.sleep(2)  # and keeps waiting
    assert p.poll() is None
    ballast.unlink()
    output = finish(p)
    assert "the run is waiting: disk full" in output and "the run continues" in output, output
    assert_all_done_in_one_attempt(yard, 6)


def test_output_of_trials_waits_for_disk_space(yard: Yard, small_disk: Path) -> None:
    """More than fits; the store has free space in its own files."""
    p = yard.start("run", "--grid", "i=1..4", "--parallel", "2", "--max", "v", "--", "sh", "-c",
                   "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo v={i}")  # 12 MB
    wait_for(lambda: "the run is waiting: disk full" in yard.driver_log(), "the run waits")
    assert p.poll() is None
    subprocess.run(["mount", "-o", "remount,size=32m", small_disk], check=True)
    finish(p)
    assert_all_done_in_one_attempt(yard, 4)
    for t in yard.trials():
        assert (yard.logdir() / t["dir"] / "stdout").stat().st_size == 3000000 + len(f"\nv={t['number']}\n")


def test_full_disk_interrupts_the_run_after_a_timeout_and_resume_completes_it(yard: Yard, small_disk: Path) -> None:
    p = yard.start("run", "--disk-timeout", "2s", *gated(yard, 4))
    wait_for(lambda: len([a for a in yard.attempts() if a["state"] == "running"]) == 2, "two trials run")
    ballast = fill(small_disk)
    open_gate(yard)
    output = finish(p, rc=1)
    assert "disk full" in output and "`hopyard resume 1` continues the run" in output, output
    yard.wait_idle()
    ballast.unlink()
    yard.run("resume", "1")
    assert [t["state"] for t in yard.trials()] == ["done"] * 4


def test_run_waiting_for_disk_space_can_be_stopped(yard: Yard) -> None:
    p = yard.start("run", *gated(yard, 4))
    wait_for(lambda: len([a for a in yard.attempts() if a["state"] == "running"]) == 2, "two trials run")
    with locked(yard):
        open_gate(yard)
        wait_for(lambda: "the run is waiting" in yard.driver_log(), "the run waits")
        os.kill(yard.process("driver"), signal.SIGTERM)
        finish(p, rc=1)
        yard.wait_idle()
    yard.run("resume", "1")
    assert [t["state"] for t in yard.trials()] == ["done"] * 4


@pytest.mark.parametrize("how", ["deleted", "replaced", "moved"])
def test_store_lost_during_a_run_is_reported_instead_of_success(yard: Yard, how: str) -> None:
    p = yard.start("run", *gated(yard, 2))
    wait_for(lambda: len([a for a in yard.attempts() if a["state"] == "running"]) == 2, "two trials run")
    if how == "moved":
        yard.folder.rename(yard.project / "elsewhere")
    else:
        for path in yard.folder.glob("store.db*"):
            if how == "replaced":
                shutil.copyfile(path, f"{path}.copy")
                os.replace(f"{path}.copy", path)
            else:
                path.unlink()
    open_gate(yard)
    output = finish(p, rc=1)
    assert "was deleted or replaced" in output, output
