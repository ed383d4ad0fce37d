#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allreduce between two hosts, beside iperf3: two network namespaces joined by a veth, one rank in each.

    bench/allreduce_hosts.py [PATH_OF_BENCH_COLLECTIVE_HOSTS]

Of 64 MB each rank sends 64 MB and receives 64 MB (32 MB of contributions, 32 MB of results), both at once. So what
counts is iperf3's figure with traffic both ways (--bidir): bytes per second that each end sends. iperf3 only moves
bytes, from and to a small buffer that stays in the cache; an allreduce reads and writes the whole tensor, and adds.
Both hosts share the machine's cores, so the sides are measured in turns, and the median of the rounds' ratios counts.
On a machine with other work to do, run it by `chrt --rr 20`. Needs root.
"""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("BENCH_COLLECTIVE_HOSTS", str(ROOT / "build" / "wheel" / "bench_collective_hosts"))
BYTES = 64 << 20
ROUNDS = 5
SECONDS = 2
TARGET = 0.9
ADDRESSES = ("10.98.0.1", "10.98.0.2")


def tool(name: str) -> str:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or name


def ip(*words: object) -> None:
    subprocess.run([tool("ip"), *map(str, words)], check=True)


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[str, str]]:
    """Two namespaces and the veth between them; gone at the end, however it ends."""
    names = (f"hy-bench-{os.getpid()}-0", f"hy-bench-{os.getpid()}-1")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for name, address in zip(names, ADDRESSES):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", name, "link", "set", link, "up")
        yield names
    finally:
        for name in names:
            if Path(f"/run/netns/{name}").exists():
                ip("netns", "del", name)


def inside(namespace: str, *command: object, **kwargs: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([tool("ip"), "netns", "exec", namespace, *map(str, command)], text=True,
                            stdout=subprocess.PIPE, **kwargs)


def iperf3(hosts: tuple[str, str], *options: str) -> float:
    """Bits per second and direction."""
    with inside(hosts[1], tool("iperf3"), "--server", "--one-off", "--forceflush") as server:
        try:
            while "listening" not in server.stdout.readline():
                pass
            client = inside(hosts[0], tool("iperf3"), "--client", ADDRESSES[1], "--time", SECONDS, "--json", *options)
            end = json.loads(client.communicate()[0])["end"]
        finally:
            server.terminate()
    return statistics.mean(end[key]["bits_per_second"] for key in end if key.startswith("sum_received"))


def allreduce(hosts: tuple[str, str], program: str) -> float:
    """Bits per second that each rank sent."""
    ranks = [inside(host, program, rank, len(hosts), BYTES, SECONDS, stdin=subprocess.PIPE)
             for rank, host in enumerate(hosts)]
    try:
        roster = "".join(f"{address} {rank.stdout.readline()}" for address, rank in zip(ADDRESSES, ranks))
        for rank in ranks:
            rank.stdin.write(roster)
            rank.stdin.flush()
        turns, seconds = ranks[0].stdout.readline().split()
        if any(rank.wait(60) for rank in ranks):
            raise RuntimeError("a rank has failed")
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    return int(turns) * BYTES * 8 / float(seconds)


def rows(program: str = PROGRAM) -> list[dict[str, Any]]:
    """One figure, as bench/allreduce.py wants it, with the rates behind it."""
    one_way, both_ways, ours, ratios = [], [], [], []
    with two_hosts() as hosts:
        for _ in range(ROUNDS):
            one_way.append(iperf3(hosts))
            both_ways.append(iperf3(hosts, "--bidir"))
            ours.append(allreduce(hosts, program))
            ratios.append(ours[-1] / both_ways[-1])
    return [{
        "name": "64 MB over a veth, of iperf3 --bidir",
        "measured": statistics.median(ratios),
        "unit": "x",
        "target": TARGET,
        "less": False,
        "sent_by_each_rank_gbit_s": statistics.median(ours) / 1e9,
        "iperf3_bidir_each_way_gbit_s": statistics.median(both_ways) / 1e9,
        "iperf3_one_way_gbit_s": statistics.median(one_way) / 1e9,
    }]


def main(argv: list[str]) -> int:
    if os.geteuid() != 0:
        print("bench/allreduce_hosts.py makes network namespaces: run it as root", file=sys.stderr)
        return 2
    row, = rows(*argv[1:2])
    print(f"hopyard, 64 MB      {row['sent_by_each_rank_gbit_s']:6.2f} Gbit/s sent by each rank, as much received meanwhile\n"
          f"iperf3 --bidir      {row['iperf3_bidir_each_way_gbit_s']:6.2f} Gbit/s each way\n"
          f"iperf3              {row['iperf3_one_way_gbit_s']:6.2f} Gbit/s one way, nothing the other way\n"
          f"hopyard / --bidir   {row['measured']:6.2f} (median of {ROUNDS} rounds; at least {TARGET})")
    return 0 if row["measured"] >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
