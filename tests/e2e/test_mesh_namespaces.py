# SPDX-License-Identifier: Apache-2.0
"""Ranks on several hosts: network namespaces connected to one switch. Needs root and `ip netns`."""
from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest
from needs import need_root

from conftest import BIN

RANKS = os.environ.get("HOPYARD_RANKS", str(Path(BIN).absolute().parents[2] / "tests" / "ranks"))
IP = shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or "ip"
PATIENCE_S = 60


def ip(*words: object) -> None:
    done = subprocess.run([IP, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"ip {' '.join(map(str, words))}: {done.stdout}"


class Host:
    """The ranks of one namespace: one process that forks them."""

    def __init__(self, number: int, namespace: str) -> None:
        self.number, self.namespace = number, namespace
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str] = queue.Queue()

    def start(self, first: int, count: int, size: int, mode: str) -> list[str]:
        """Returns the roster lines of its ranks."""
        self.process = subprocess.Popen(
            [IP, "netns", "exec", self.namespace, RANKS, str(self.number), str(first), str(count), str(size), mode],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return [self.process.stdout.readline() for _ in range(count)]

    def connect(self, roster: list[str]) -> None:
        self.process.stdin.writelines(roster)
        self.process.stdin.close()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line.rstrip())

    def wait_for_line(self, pattern: str) -> str:
        """Reads until a line matches."""
        lines_read, end = [], time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                lines_read.append(self.lines.get(timeout=1))
            except queue.Empty:
                continue
            if re.search(pattern, lines_read[-1]):
                return lines_read[-1]
        raise AssertionError(f"no line matches {pattern!r}: {lines_read[-20:]}")

    def discard_output(self) -> None:
        """Discards the output so far."""
        while not self.lines.empty():
            self.lines.get()

    def ranks(self) -> list[int]:
        """Process IDs."""
        pid = self.process.pid
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def end(self) -> None:
        if self.process:
            self.process.kill()  # its ranks exit with it
            self.process.wait()


class Network:
    def __init__(self, count: int) -> None:
        self.name = f"hy-{os.getpid()}"
        self.switch = f"{self.name}-s"
        self.hosts = [Host(i, f"{self.name}-{i}") for i in range(count)]

    def build(self) -> None:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge", "stp_state", 0, "forward_delay", 0)
        ip("-n", self.switch, "link", "set", "br0", "up")
        for host in self.hosts:
            leg = f"leg{host.number}"
            ip("netns", "add", host.namespace)
            ip("link", "add", leg, "netns", self.switch, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
            ip("-n", self.switch, "link", "set", leg, "master", "br0", "up")
            ip("-n", host.namespace, "addr", "add", f"10.99.0.{host.number + 1}/24", "dev", "eth0")
            ip("-n", host.namespace, "addr", "add", f"fd99::{host.number + 1}/64", "dev", "eth0", "nodad")
            for link in ("eth0", "lo"):
                ip("-n", host.namespace, "link", "set", link, "up")

    def cut(self, host: Host) -> None:
        """From here on packets from and to it are dropped, without notice."""
        ip("-n", self.switch, "link", "set", f"leg{host.number}", "nomaster")

    def remove(self) -> None:
        for host in self.hosts:
            host.end()
        for name in (self.switch, *(h.namespace for h in self.hosts)):
            if Path(f"/run/netns/{name}").exists():
                ip("netns", "del", name)

    def run(self, each: int, mode: str, only: str = "") -> None:
        """Starts `each` ranks on every host; `only`: addresses that contain this."""
        size, roster = each * len(self.hosts), []
        for host in self.hosts:
            roster += host.start(host.number * each, each, size, mode)
        if only:
            roster = [" ".join([*line.split()[:3], *(a for a in line.split()[3:] if only in a)]) + "\n" for line in roster]
        for host in self.hosts:
            host.connect(roster)

    def expect_success(self) -> None:
        for host in self.hosts:
            assert host.process.wait(PATIENCE_S) == 0, list(host.lines.queue)


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    need_root("to make network namespaces")
    made = Network(getattr(request, "param", 2))
    try:
        made.build()
        yield made
    finally:
        made.remove()


@pytest.mark.slow
@pytest.mark.parametrize("network", [4], indirect=True)
def test_64_ranks_in_4_namespaces(network: Network) -> None:
    network.run(16, "check")
    network.expect_success()


def test_ranks_connect_over_ipv6_only(network: Network) -> None:
    network.run(2, "check", only="fd99")
    network.expect_success()


def test_partition_is_reported_after_the_timeout(network: Network) -> None:
    network.run(1, "loop")
    a, b = network.hosts
    for host in network.hosts:
        host.wait_for_line("turn 10")
    network.cut(b)
    assert re.search(r"rank 1 at (10\.99\.0\.2|\[fd99::2\]):\d+ has not responded for 5 s", a.wait_for_line("^rank 0: "))
    assert re.search(r"rank 0 at (10\.99\.0\.1|\[fd99::1\]):\d+ has not responded for 5 s", b.wait_for_line("^rank 1: "))


def test_rank_stopped_for_longer_than_the_timeout_is_not_an_error(network: Network) -> None:
    network.run(1, "loop")
    a, b = network.hosts
    for host in network.hosts:
        host.wait_for_line("turn 10")
    stopped = b.ranks()[0]
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(8)  # a machine would have been given up by now
    os.kill(stopped, signal.SIGCONT)
    for host in network.hosts:
        host.discard_output()
        assert "turn" in host.wait_for_line("^rank"), "the rank has ended"
