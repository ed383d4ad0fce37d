# SPDX-License-Identifier: Apache-2.0
"""HDFS by hopyard, and by four others: Java's own client, WebHDFS, pyarrow with libhdfs, hdfs-native.

    .venv/bin/python bench/hdfs.py                      (make bench-hdfs; some ten minutes)
    .venv/bin/python bench/hdfs.py --quick              a round with 64 MiB, to see that it works
    .venv/bin/python bench/hdfs.py --size 256 --rounds 5 --peers java hdfs-native

An HDFS of one NameNode and three DataNodes is started on this machine; its JVMs compile as thoroughly as they come.
Each side reads the same file into memory, writes one of the same size out of memory, both in pieces of 4 MiB, and asks
again and again how large a file is. Blocks have 128 MiB and one replica. For root, those who can read it once more from
the files of its DataNode, which is on this machine (short-circuit reads). All but curl and our program are processes that
stay; these two read what they send from a local file, in the page cache. Before the clock runs, what each side reads and
writes has had the right checksum, and each has moved a GiB both ways. In each round they take turns, each time in another
order; figures are ratios of medians. CPU seconds are the client's alone. Exit status 0 also where a figure is missed.

For root, DataNodes keep their files in memory, and it all happens in a network namespace of its own, with cubic (or reno)
for its congestion control, as Linux comes. Under bbr, which is set on some machines, a DataNode sends at the pace at which
it has seen its reader take, and a reader that pauses now and then is held to a third of what it could take.

Of the seconds of a write, 0.4 are often a sleep of Java's client (in curl's DataNode and in pyarrow, too), and 0.5 one of
hdfs-native: the NameNode has not heard of the last block when they first say that a file is complete, and they ask again
after that time (Java's: dfs.client.block.write.locateFollowingBlock.initial.delay.ms). Of small files it is most.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import hdfs_peer
import hdfs_sides as sides
from hdfs_peer import BLOCK
from hdfs_sides import BENCH, WORK, Answer, Cluster, Side
from report import ROOT, Figure, machine, results, save

CLUSTER = [sys.executable, os.path.join(ROOT, "tests", "cluster", "cluster.py")]
AS_THEY_COME = "-XX:TieredStopAtLevel=4"  # tests have their JVMs start quickly
MB = 1 << 20
OPERATIONS = ("read", "write", "stat", "near")  # near: by short-circuit reads
NAMES = {
    "hopyard": "hopyard",
    "program": "hopyard fs cat, put",
    "java": "Java's client",
    "webhdfs": "WebHDFS by curl",
    "pyarrow": "pyarrow with libhdfs",
    "hdfs-native": "hdfs-native",
}
WANTED = {  # times as fast, at reading, writing, stat, and reading what is near
    "java": (1, 1, 2, 1),
    "webhdfs": (2, 1.5, 3),
    "pyarrow": (1.3, 2, 3, 1),
    "hdfs-native": (1.3, 1, 1),
}
RECORDS_WANTED = 1.5  # times the seconds of a local disk
DATA = "/bench/data"
WARM = 1024 * MB  # moved by each before the clock runs
DISK = 8192  # MiB of memory at most for a DataNode's files: a disk that is slower than they are would make all sides the same
CONTROL = "/proc/sys/net/ipv4/tcp_congestion_control"
INSIDE = "HOPYARD_BENCH_NETWORK"

Measured = dict[str, dict[str, list[Answer]]]  # side -> operation -> rounds


# --- the cluster -------------------------------------------------------------


@contextlib.contextmanager
def cluster(folder: pathlib.Path) -> Iterator[Cluster]:
    """It ends with this process, however that ends."""
    env = {**os.environ, "JDK_JAVA_OPTIONS": AS_THEY_COME}
    disk = ["--disk", str(DISK), "--sockets"] if os.geteuid() == 0 else []
    command = [*CLUSTER, "hold", "hdfs", *disk, "--state", str(folder / "cluster")]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdin and held.stdout
        if "held\n" not in held.stdout:
            raise SystemExit("there is no cluster to measure on.")
        try:
            yield as_client(folder)
        finally:
            held.stdin.close()


def as_client(folder: pathlib.Path) -> Cluster:
    """With settings for clients: blocks of a usual size. Nothing is said of sockets."""
    state = folder / "cluster"
    known = json.loads((state / "cluster.json").read_text())
    ports = json.loads((state / "hdfs" / "daemons.json").read_text())["ports"]
    conf = folder / "conf"
    conf.mkdir()
    write_site(conf / "core-site.xml", {"fs.defaultFS": known["hdfs"]})
    write_site(conf / "hdfs-site.xml", {"dfs.blocksize": BLOCK, "dfs.replication": 1})
    (conf / "log4j.properties").write_text((state / "hdfs" / "conf" / "log4j.properties").read_text())
    jars = known["hdfs_env"]["CLASSPATH"].split(":")[1:]  # the first is the cluster's own settings
    return Cluster(known["hdfs"], f"http://127.0.0.1:{ports['namenode_page']}", conf, jars, folder)


def near(on: Cluster) -> Cluster:
    """The same for those who read DataNodes' files."""
    known = json.loads((on.folder / "cluster" / "hdfs" / "daemons.json").read_text())["choices"]
    conf = on.folder / "conf-near"
    conf.mkdir()
    for file in on.conf.iterdir():
        (conf / file.name).write_text(file.read_text())
    write_site(conf / "hdfs-site.xml", {"dfs.blocksize": BLOCK, "dfs.replication": 1, "dfs.client.read.shortcircuit": "true",
                                        "dfs.domain.socket.path": known["sockets"]})
    return dataclasses.replace(on, conf=conf, native=os.path.join(ROOT, "build", "cluster-native"))


def write_site(path: pathlib.Path, settings: dict[str, object]) -> None:
    lines = [f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items()]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


# --- the rounds --------------------------------------------------------------


class Bench:
    def __init__(self, on: Cluster, folder: pathlib.Path, options: argparse.Namespace) -> None:
        self.size = options.size * MB
        self.count = {"read": self.size, "write": self.size, "stat": options.stats, "near": self.size}
        data, file = folder / "data", folder / "file"
        data.write_bytes(os.urandom(hdfs_peer.DATA))
        held = hdfs_peer.load(str(data))
        with open(file, "wb") as out:
            out.writelines(hdfs_peer.pieces(held, self.size))
        self.sum = hdfs_peer.crc(hdfs_peer.pieces(held, self.size))
        self.web = sides.Curl(on, file)
        known: dict[str, Any] = {
            "hopyard": lambda: sides.hopyard(on, data), "program": lambda: sides.Program(on, file),
            "java": lambda: sides.java(on, data), "webhdfs": lambda: self.web,
            "pyarrow": lambda: sides.pyarrow(on, data), "hdfs-native": lambda: sides.hdfs_native(on, data),
        }  # fmt: skip
        self.sides: dict[str, Side] = {name: known[name]() for name in NAMES if name in options.sides}
        self.near: dict[str, Side] = {}
        if os.geteuid() == 0:
            there, makers = near(on), {"hopyard": sides.hopyard, "java": sides.java, "pyarrow": sides.pyarrow}
            self.near = {name: make(there, data) for name, make in makers.items() if name in self.sides}

    def close(self) -> None:
        for side in [*self.sides.values(), *self.near.values()]:
            side.close()

    def remove(self, path: str) -> None:
        sides.output(self.web.call(path, "DELETE", "--request", "DELETE"), self.web.env)

    def check_blocks(self, name: str, path: str) -> None:
        """Another block size, or more replicas, would be another race."""
        said = json.loads(sides.output(self.web.call(path, "GETFILESTATUS"), self.web.env))["FileStatus"]
        found = said["length"], said["blockSize"], said["replication"]
        if found != (self.size, BLOCK, 1):
            raise SystemExit(f"{NAMES[name]} wrote a file whose length, block size and replication are {found}.")

    def check_sum(self, name: str, by: str, path: str) -> None:
        if (said := self.sides[by].ask("sum", path)) is None or said.count != self.sum:
            raise SystemExit(f"{NAMES[by]} did not read what {NAMES[name]} wrote: {said} and not {self.sum}.")

    def prepare(self) -> None:
        """What each reads and writes is right; and JVMs, of DataNodes too, have compiled what they need."""
        self.ask("hopyard", "write", DATA)
        for name in self.sides:
            progress(f"before the clock runs: {NAMES[name]}")
            path = f"/bench/{name}"
            self.check_sum("hopyard", name, DATA)
            self.ask(name, "write", path)
            self.check_blocks(name, path)
            self.check_sum(name, "hopyard", path)
            self.remove(path)
        for name, side in self.near.items():
            if (said := side.ask("sum", DATA)) is None or said.count != self.sum:
                raise SystemExit(f"{NAMES[name]} did not read what is near: {said} and not {self.sum}.")
        self.rounds(max(1, WARM // self.size), "before the clock runs")

    def ask(self, name: str, operation: str, path: str) -> Answer | None:
        wanted = self.count[operation]
        if operation != "near":
            answer = self.sides[name].ask(operation, path, wanted)
        else:
            answer = self.near[name].ask("read", path, wanted) if name in self.near else None
        if answer and answer.count != wanted:
            raise SystemExit(f"{NAMES[name]}: {operation} {path} answered {answer.count}, and not {wanted}.")
        return answer

    def turn(self, name: str, operation: str) -> Answer | None:
        if operation != "write":
            return self.ask(name, operation, DATA)
        path = f"/bench/{name}"
        os.sync()  # or it would wait for what others have written
        answer = self.ask(name, operation, path)
        self.remove(path)
        return answer

    def rounds(self, count: int, words: str = "") -> Measured:
        """One operation after the other, so that nobody reads while a disk is busy with what was written before."""
        measured: Measured = {name: {operation: [] for operation in OPERATIONS} for name in self.sides}
        for i, operation in itertools.product(range(count), OPERATIONS):
            os.sync()
            for name in random.sample(list(self.sides), len(self.sides)):
                progress(f"{words or f'round {i + 1} of {count}'}: {operation}, {NAMES[name]}")
                if answer := self.turn(name, operation):
                    measured[name][operation].append(answer)
        progress("")
        return measured


def progress(words: str) -> None:
    print(f"\r  {words:<60}", end="\n" if not words else "", file=sys.stderr, flush=True)


def records(on: Cluster, folder: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    local = folder / "records"
    local.mkdir()
    command = [sys.executable, str(BENCH / "hdfs_records.py"), f"{on.url}/bench/records", str(local),
               str(options.size * MB), str(options.rounds)]
    progress("TFRecords")
    done = subprocess.run(command, env=on.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = [line for line in done.stdout.splitlines() if line.startswith("MEASURED ")]
    if done.returncode or not found:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
    progress("")
    return json.loads(found[0].removeprefix("MEASURED "))


# --- the report --------------------------------------------------------------


def median(answers: list[Answer], what: str = "seconds") -> float:
    return statistics.median(getattr(answer, what) for answer in answers)


def figures(measured: Measured, read: dict[str, Any]) -> list[Figure]:
    found = []
    for name, targets in WANTED.items():
        for operation, target in zip(OPERATIONS, targets):
            if name in measured and measured[name][operation]:
                ratio = median(measured[name][operation]) / median(measured["hopyard"][operation])
                words = {"near": "short-circuit read"}.get(operation, operation)
                found.append(Figure(f"{words}, times {NAMES[name]}", ratio, "x", target, False))
    if read:
        ratio = statistics.median(read["hdfs"]) / statistics.median(read["local"])
        found.append(Figure("TFRecords in tf.data, seconds over a local disk's", ratio, "x", RECORDS_WANTED))
    return found


def show_sides(measured: Measured, options: argparse.Namespace) -> None:
    heads = (["read", "CPU", "write", "CPU", "near", "CPU", "stat", "CPU"],
             ["MiB/s", "s/GiB", "MiB/s", "s/GiB", "MiB/s", "s/GiB", "a second", "ms each"])  # fmt: skip
    print()
    for first, words in zip((f"{options.size} MiB, replication 1", ""), heads):
        print(f"  {first:<24}", *(f"{word:>9}" for word in words))
    for name, by in measured.items():
        cells = []
        for operation in ("read", "write", "near"):
            if not by[operation]:
                cells += [" " * 9] * 2
                continue
            rate, cpu = options.size / median(by[operation]), median(by[operation], "cpu") * 1024 / options.size
            cells += [f"{rate:>9.0f}", f"{cpu:>9.2f}"]
        if by["stat"]:
            rate, cpu = options.stats / median(by["stat"]), median(by["stat"], "cpu") * 1000 / options.stats
            cells += [f"{rate:>9.0f}", f"{cpu:>9.3f}"]
        print(f"  {NAMES[name]:<24}", *cells)


def show_records(read: dict[str, Any]) -> None:
    for side, words in (("local", "local disk, page cache"), ("hdfs", "hdfs://")):
        print(f"  {f'TFRecords, {words}':<34}{read['bytes'] / 1e6 / statistics.median(read[side]):>9.0f} MB/s")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, 64 MiB, 500 stats")
    parser.add_argument("--size", type=int, metavar="MIB", help="of the file (1024)")
    parser.add_argument("--rounds", type=int, help="(9)")
    parser.add_argument("--stats", type=int, help="in a row (3000)")
    parser.add_argument("--peers", nargs="*", choices=list(WANTED), default=list(WANTED), help="all, if not said")
    parser.add_argument("--no-records", action="store_true", help="nothing about tf.data")
    options = parser.parse_args()
    options.size = options.size or (64 if options.quick else 1024)
    options.rounds = options.rounds or (1 if options.quick else 9)
    options.stats = options.stats or (500 if options.quick else 3000)
    options.sides = ["hopyard", "program", *options.peers]
    return options


def fetch(peers: list[str]) -> None:
    """What is not there yet, while there is a network."""
    WORK.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, os.path.join(ROOT, "tests", "cluster", "hadoop.py")], check=True)
    if "pyarrow" in peers:
        sides.libhdfs()
    if "hdfs-native" in peers:
        sides.native_python()


def in_network_of_its_own() -> None:
    """This program again, in there. Where a namespace may not have cubic, reno is what every one may: without losses
    they are the same."""
    control = f"{{ echo cubic > {CONTROL} || echo reno > {CONTROL}; }} 2>/dev/null"
    script = f"ip link set lo up && {control} && exec \"$@\""
    words = ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, *sys.argv]
    os.execvpe(words[0], words, {**os.environ, INSIDE: "1"})


def main() -> int:
    options = parse()
    if os.geteuid() == 0 and INSIDE not in os.environ:
        fetch(options.peers)
        in_network_of_its_own()
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK, prefix="hdfs-") as name, cluster(pathlib.Path(name)) as on:
        folder = pathlib.Path(name)
        with contextlib.closing(Bench(on, folder, options)) as bench:
            bench.prepare()
            measured = bench.rounds(options.rounds)
        read = {} if options.no_records else records(on, folder, options)
    found = figures(measured, read)
    show_sides(measured, options)
    if read:
        show_records(read)
    print()
    for figure in found:
        print(figure.row(56))
    print(f"  medians of {options.rounds}; {machine()}; all of it is in {os.path.relpath(results('hdfs'))}")
    kept = {side: {op: [vars(answer) for answer in by[op]] for op in by} for side, by in measured.items()}
    save(results("hdfs"), found, mib=options.size, stats=options.stats, measured=kept, records=read)
    return 0


if __name__ == "__main__":
    sys.exit(main())
