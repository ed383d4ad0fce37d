# SPDX-License-Identifier: Apache-2.0
"""The processes of a cluster: each is identified by its ID and start time, and all of them by a mark that they inherit."""
from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MARK = "TEST_CLUSTER"


class ClusterError(Exception):
    """A message for the user."""


@dataclass(frozen=True)
class Process:
    """A process ID and its start time, in ticks since boot: together they are unique."""
    pid: int
    start_time: int

    def is_alive(self) -> bool:
        return read_stat(self.pid)[1:] == (self.start_time,)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, never to a process that reuses the ID: the pidfd refers to one process."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.is_alive():
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return  # it has exited meanwhile
        finally:
            os.close(handle)


def read_stat(pid: int) -> tuple[int, ...]:
    """Parent and start time; empty if it has exited."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return () if fields[0] in "ZX" else (int(fields[1]), int(fields[19]))


def has_mark(pid: int, mark: str) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return f"{MARK}={mark}".encode() in environ.split(b"\0")


def marked(mark: str) -> set[Process]:
    """Processes with the mark, and their descendants: a NodeManager's scripts clear their environment for a while."""
    stats = {int(p): stat for p in os.listdir("/proc") if p.isdigit() and (stat := read_stat(int(p)))}
    found: set[int] = set()
    new = {pid for pid in stats if has_mark(pid, mark)}
    while new:
        found |= new
        new = {pid for pid, (parent, _) in stats.items() if parent in new} - found
    return {Process(pid, stats[pid][1]) for pid in found}


def kill_marked(mark: str) -> bool:
    """Kills all of them; returns whether there were any. Stops them first: stopped processes do not fork."""
    stopped: set[Process] = set()
    while new := marked(mark) - stopped:
        for process in new:
            process.send(signal.SIGSTOP)
        stopped |= new
    for process in stopped:
        process.send(signal.SIGKILL)
    end = time.monotonic() + 30
    while left := [p.pid for p in stopped if p.is_alive()]:
        if time.monotonic() > end:
            raise ClusterError(f"processes {left} survive SIGKILL.")
        time.sleep(0.02)
    return bool(stopped)
