#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real clusters on loopback, in parts: Spark, YARN over HDFS, and HDFS only.

    cluster.py start  [PART]      returns when it is ready; restarts dead daemons
    cluster.py status [PART]
    cluster.py stop   [PART]      with everything that runs on it
    cluster.py hold   [PART]      start, and stop at the end of standard input
    cluster.py failover hdfs-ha   the other NameNode becomes the active one

    spark           standalone: a master, two workers
    yarn            two nodes, and an HDFS of one DataNode for their files
    all             both of these (stop: everything that runs)
    hdfs            a NameNode, three DataNodes
    hdfs-ha         two NameNodes with a JournalNode, three DataNodes
    hdfs-kerberos   a NameNode, three DataNodes and their KDC

--state DIR (build/cluster) is its directory: DIR/cluster.json has the addresses,
DIR/PART/env the environment for programs, DIR/PART/log the logs of the daemons.
A start after a stop gives an empty cluster. If there is a DIR/edge, workers and
nodes see it empty, like a directory of another machine (root only).

Each daemon is a session leader and outlives this program. It is identified by its
process ID and its start time, so that a process that reuses the ID is left alone.
Descendants of daemons (executors, containers, their children, in any session) are
identified by a mark in their environment, which is inherited.
"""
from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from kerberos import PROTECTIONS, HdfsKerberos
from part import Part
from processes import ClusterError
from spark import Spark
from system import HOST, ROOT, locked, ports_from
from yarn import Yarn

from hdfs import Hdfs, HdfsHa

PARTS: dict[str, type[Part]] = {part.name: part for part in (Spark, Yarn, Hdfs, HdfsHa, HdfsKerberos)}
ALL = [Spark.name, Yarn.name]  # except stop: it also stops parts that were started by name


def start(parts: list[Part], options: argparse.Namespace) -> int:
    """All or nothing: daemons that this call has started are stopped when it fails or is interrupted."""
    ports, begun = ports_from(options.ports), []
    try:
        for part in parts:
            if part.dead():
                begun.append(part)
            part.start(ports, options.wait)
    except BaseException:
        for part in begun:
            part.stop()
        raise
    return 0


def stop(parts: list[Part], _: argparse.Namespace) -> int:
    for part in parts:
        print(f"{part.name} {'is stopped' if part.stop() else 'was not running'}", flush=True)
    return 0


def stop_silently(parts: list[Part], _: argparse.Namespace) -> int:
    """Like stop, without output: there may be no reader."""
    for part in parts:
        part.stop()
    return 0


def status(parts: list[Part], _: argparse.Namespace) -> int:
    words = [part.status() for part in parts]
    for part, word in zip(parts, words):
        print(part.name, word)
    return 0 if all(w.startswith("is running") for w in words) else 3


def failover(parts: list[Part], _: argparse.Namespace) -> int:
    for part in parts:
        if not isinstance(part, HdfsHa):
            raise ClusterError(f"{part.name} has no second NameNode; failover is for {HdfsHa.name}.")
        part.failover()
    return 0


def wanted(options: argparse.Namespace) -> list[str]:
    if options.part != "all":
        return [options.part]
    others = [name for name in PARTS if name not in ALL and (options.state / name).exists()]
    return [*ALL, *others] if options.action == "stop" else ALL


def run_locked(action: Callable[[list[Part], argparse.Namespace], int], options: argparse.Namespace) -> int:
    """One at a time per state directory."""
    options.state.mkdir(parents=True, exist_ok=True)
    with locked(options.state / "lock"):
        return action([PARTS[name](options.state, options) for name in wanted(options)], options)


def hold(options: argparse.Namespace) -> int:
    """For tests: the other end of standard input closes however they end, also by `kill -9`."""
    try:
        run_locked(start, options)
        print("held", flush=True)
        sys.stdin.buffer.read()
    finally:
        run_locked(stop_silently, options)
    return 0


def protections(words: str) -> str:
    if unknown := set(words.split(",")) - set(PROTECTIONS):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))} (choose from {', '.join(PROTECTIONS)})")
    return words


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["start", "stop", "status", "hold", "failover"])
    parser.add_argument("part", nargs="?", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--state", type=Path, default=ROOT / "build/cluster", metavar="DIR")
    parser.add_argument("--ports", type=int, metavar="FIRST", help="take this port and those behind it, not free ones")
    parser.add_argument("--wait", type=float, default=60, metavar="SECONDS", help="for each part to be ready (60)")
    parser.add_argument("--address", default=HOST, help="where Spark listens, if other hosts are to reach it")
    parser.add_argument("--away", nargs=2, metavar=("PID", "ADDRESS"),
                        help="Spark's last worker is on another host: in the network of that process, at that address")
    parser.add_argument("--disk", type=int, metavar="MB",
                        help="an HDFS by itself: each DataNode has a disk of that size, in memory (root only)")
    parser.add_argument("--sockets", action="store_true",
                        help="an HDFS by itself: DataNodes hand out their files over unix sockets (short-circuit reads)")
    parser.add_argument("--protection", type=protections, default=",".join(PROTECTIONS), metavar="LIST",
                        help="what hdfs-kerberos accepts, of authentication, integrity and privacy (all)")
    parser.add_argument("--encrypt", action="store_true", help="hdfs-kerberos: blocks travel by AES only")
    options = parser.parse_args()
    options.state = options.state.resolve()
    return options


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if options.action == "hold":
            return hold(options)
        return run_locked({"start": start, "stop": stop, "status": status, "failover": failover}[options.action], options)
    except ClusterError as e:
        print(f"cluster.py: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
