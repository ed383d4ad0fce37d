# SPDX-License-Identifier: Apache-2.0
"""Clients of a run with a long history: they read it from the store, at little cost for the driver."""
from __future__ import annotations

import json
import socket
import sqlite3
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from conftest import Yard, wait_for
from needs import open_files

HISTORY = 5000
WATCH = b"\x0a\x02\x08\x01"  # ClientRequest{watch{trials: true}}
MESSAGE = 6


class Watcher:
    """A client that uses the driver's socket directly."""

    def __init__(self, yard: Yard) -> None:
        path = wait_for(lambda: next(yard.runtime.rglob("*-1.sock"), None), "the driver listens")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))  # without a timeout: with one, connect fails while the driver's backlog is full
        self.socket.settimeout(60)

    def watch(self) -> None:
        self.socket.sendall(struct.pack("<IBBHI", len(WATCH), 1, MESSAGE, 0, 0) + WATCH)

    def bytes(self, n: int) -> bytes:
        """Fewer at the end of the connection."""
        got = b""
        while len(got) < n and (piece := self.socket.recv(n - len(got))):
            got += piece
        return got

    def update(self) -> bytes | None:
        """The next packed update; None after the driver has closed the connection."""
        head = self.bytes(12)
        return self.bytes(struct.unpack("<IBBHI", head)[0]) if head else None

    def updates(self) -> Iterator[bytes]:
        while (update := self.update()) is not None:
            yield update

    def waiting(self) -> int:
        """Reads what has arrived, without waiting for more; returns its size."""
        self.socket.setblocking(False)
        total = 0
        try:
            while piece := self.socket.recv(1 << 20):
                total += len(piece)
        except BlockingIOError:
            self.socket.settimeout(60)
        return total


def write_history(yard: Yard) -> None:
    """Trials 3 to HISTORY have ended, in the reverse order of their numbers."""
    with closing(sqlite3.connect(yard.folder / "store.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        seq, = db.execute("SELECT max(max(asked_seq, ended_seq)) FROM trials").fetchone()
        rows = [(i, f'{{"i": {i}}}', f"i={i}", seq + i, seq + 3 * HISTORY - i, seq + 3 * HISTORY - i)
                for i in range(3, HISTORY + 1)]
        db.executemany("INSERT INTO trials(run, number, params, dir, state, attempts, started, ended, asked_seq, told_seq,"
                       " ended_seq) VALUES (1, ?, ?, ?, 2, 1, 1, 2, ?, ?, ?)", rows)
        db.execute("UPDATE tallies SET done = ? WHERE run = 1", (len(rows),))
        db.execute("COMMIT")


@contextmanager
def long_run(yard: Yard) -> Iterator[None]:
    """Run 1 continues with a long history; two of its trials run, two are left. They end afterwards."""
    gate = yard.project / "gate"
    yard.script("wait", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    yard.run("run", "--detach", "--grid", f"i=1..{HISTORY + 2}", "--parallel", 2, "--", "./wait")
    wait_for(lambda: len(yard.attempts()) == 2, "two trials run")
    yard.run("stop", "1")
    write_history(yard)
    yard.run("resume", "1", "--detach")
    yield
    gate.touch()
    wait_for(lambda: yard.state() == "done", "the run ends")


def test_updates_are_small_with_any_number_of_ended_trials(yard: Yard) -> None:
    with long_run(yard):
        client = Watcher(yard)
        client.watch()
        sizes = [len(client.update() or b"") for _ in range(3)]
        assert all(0 < n < 1000 for n in sizes), sizes
    rest = [len(update) for update in client.updates()]
    assert rest and max(rest) < 1000, rest  # at the end of the run, too


def test_client_reads_the_whole_history_and_each_trial_once(yard: Yard) -> None:
    with long_run(yard):
        client = yard.start("attach", "1", "--json")
        assert client.stdout
        lines = [client.stdout.readline() for _ in range(HISTORY - 1)]
    out, err = client.communicate(timeout=60)
    events = [json.loads(line) for line in [*lines, *out.splitlines()]]
    numbers = [e["number"] for e in events if e["event"] == "trial"]
    assert numbers[:HISTORY - 2] == list(range(HISTORY, 2, -1))
    assert sorted(numbers[HISTORY - 2:]) == [1, 2, HISTORY + 1, HISTORY + 2]
    assert events[-1]["event"] == "end" and events[-1]["done"] == HISTORY + 2
    assert client.returncode == 0, err


def test_client_that_attaches_after_the_end_reads_the_same(yard: Yard) -> None:
    with long_run(yard):
        pass
    numbers = [e["number"] for e in yard.events("attach", "1") if e["event"] == "trial"]
    assert numbers[:HISTORY - 2] == list(range(HISTORY, 2, -1))
    assert sorted(numbers[HISTORY - 2:]) == [1, 2, HISTORY + 1, HISTORY + 2]


def assert_wal_is_reused(yard: Yard, client: subprocess.Popen[str]) -> None:
    """While the client is blocked on its reader, the store is written to, and no read transaction is open."""
    wait_for(lambda: is_blocked(client.pid), "the client is blocked on its reader")
    with closing(sqlite3.connect(yard.folder / "store.db", isolation_level=None, timeout=60)) as db:
        db.execute("UPDATE runs SET name = 'long' WHERE id = 1")
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 0


def test_blocked_client_does_not_prevent_wal_reuse(yard: Yard) -> None:
    with long_run(yard):
        clients = [yard.start("attach", "1", "--json")]
        assert_wal_is_reused(yard, clients[0])
    yard.wait_idle()
    clients.append(yard.start("attach", "1", "--json"))
    assert_wal_is_reused(yard, clients[1])
    for client in clients:
        assert len(client.communicate(timeout=60)[0].splitlines()) == HISTORY + 4


def is_blocked(pid: int) -> bool:
    """In write(), which is system call 1."""
    with open(f"/proc/{pid}/syscall") as file:
        return file.read().split()[:2] == ["1", "0x1"]


def test_slow_client_gets_the_newest_update_without_a_backlog(yard: Yard) -> None:
    long = "x" * 60_000
    yard.run("run", "--detach", "--grid", f"v=[\"{long}\"]", "--", "sleep", 1000)
    wait_for(lambda: yard.attempts(), "the trial runs")
    silent, other = Watcher(yard), Watcher(yard)
    silent.watch()
    for _ in range(30):  # each makes the driver send an update to all clients
        other.watch()
        assert len(other.update() or b"") > len(long)
    total = silent.waiting()
    stop = yard.start("stop", "1")
    while piece := silent.socket.recv(1 << 20):
        total, last = total + len(piece), piece
    assert b"stopped" in last  # the newest one arrived
    assert len(long) < total < 10 * len(long), total  # what the socket holds, and two more
    stop.communicate(timeout=60)


@pytest.mark.slow
def test_driver_accepts_1000_clients_and_refuses_the_next_with_a_message(yard: Yard) -> None:
    yard.run("run", "--detach", "--", "sleep", 1000)
    with open_files(2000):  # this process only; the driver raises its own limit
        clients = [Watcher(yard) for _ in range(1000)]
        for client in clients:
            client.watch()
        for client in clients:
            assert client.update()
        refused = yard.run("attach", "1", rc=1)
        assert "run 1 has the maximum of 1000 clients" in refused.stderr
        more = [Watcher(yard) for _ in range(100)]
        assert "run 1 has the maximum of 1100 clients" in yard.run("attach", "1", rc=1).stderr
        for client in more:
            client.socket.close()
        assert "stopped" in yard.run("stop", "1").stdout
        for client in clients:
            assert list(client.updates())
            client.socket.close()


def test_notes_of_an_earlier_driver_are_not_repeated(yard: Yard) -> None:
    gate = yard.project / "gate"
    yard.script("twice", f'[ "$HOPYARD_ATTEMPT" -gt 1 ] || exit 3\nwhile [ ! -e {gate} ]; do sleep 0.05; done')
    yard.run("run", "--detach", "--retries", 3, "--", "./twice")
    wait_for(lambda: len(yard.attempts()) == 2, "the second attempt runs")
    with closing(yard.start("attach", "1", "--json").stdout) as first:
        assert first is not None
        events = [json.loads(first.readline()) for _ in range(2)]
    assert events[1]["event"] == "note" and "retried" in events[1]["message"]
    yard.run("stop", "1")
    gate.touch()
    resumed = yard.events("resume", "1")
    assert [e["event"] for e in resumed] == ["run", "trial", "end"]
