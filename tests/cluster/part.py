# SPDX-License-Identifier: Apache-2.0
"""A part of a cluster: daemons that are started and stopped together."""
from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NoReturn

import java
from processes import MARK, ClusterError, Process, kill_marked, read_stat
from system import HOST, find_java, read_json, tail, write_json

WORKERS = 2  # of Spark, and of YARN
GPUS = 2  # of each one; as in gpu.sh
FOREIGN = ("SPARK_", "PYSPARK_", "HADOOP_", "HDFS_", "YARN_", "HOPYARD_", "JAVA_TOOL_OPTIONS", "PYTHONPATH", MARK)


@dataclass
class NotReady:
    """What is not ready yet, and the daemon whose log has the reason."""
    what: str
    daemon: str


def over_tmpfs(folder: Path, options: str = "mode=755") -> list[str]:
    """The start of a command that sees an empty file system there, unlike other processes (root only)."""
    script = 'mount -t tmpfs -o "$0" hopyard-test "$1" && shift && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, options, str(folder)]


class Part:
    """Daemons that are started and stopped together."""

    name: str
    daemons: list[str]
    ports_of: dict[str, list[str]]
    runs_spark = False
    joiners: list[str]  # identified by their ports: with the old ports a restart would not be noticed

    def __init__(self, state: Path, _: argparse.Namespace) -> None:
        self.state, self.host = state, HOST
        self.folder = state / self.name
        self.conf = self.folder / "conf"
        self.record = self.folder / "daemons.json"
        known = read_json(self.record)
        self.ports: dict[str, int] = known.get("ports", {})
        self.choices: dict[str, Any] = known.get("choices", {})  # chosen at the first start, kept until stop
        self.known = {name: Process(*process) for name, process in known.get("daemons", {}).items()}

    # implemented by each part
    def configure(self) -> None: ...
    def choose(self) -> dict[str, Any]: return {}
    def prepare(self, daemon: str) -> None: ...
    def command(self, daemon: str) -> list[str]: raise NotImplementedError
    def not_ready(self) -> NotReady | None: raise NotImplementedError
    def addresses(self) -> dict[str, str]: raise NotImplementedError

    def address(self, port: str) -> str:
        return f"{self.host}:{self.ports[port]}"

    def log(self, daemon: str) -> Path:
        return self.folder / "log" / f"{daemon}.log"

    def is_alive(self, daemon: str) -> bool:
        return daemon in self.known and self.known[daemon].is_alive()

    def dead(self) -> list[str]:
        return [d for d in self.daemons if not self.is_alive(d)]

    def environment(self, daemon: str) -> dict[str, str]:
        """Of a daemon, and thus of all its descendants."""
        home = self.java_home()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        return {**kept, MARK: str(self.folder), "JAVA_HOME": str(home),
                "PATH": f"{Path(sys.executable).parent}:{home / 'bin'}:{os.environ['PATH']}",
                "JAVA_TOOL_OPTIONS": self.java_options()}

    def java_home(self) -> Path:
        return java.java_home() if self.runs_spark else find_java()

    def java_options(self) -> str:
        """With a directory for leftovers of killed JVMs."""
        options = java.options() if self.runs_spark else java.OPTIONS
        return f"{options} -Djava.io.tmpdir={self.folder / 'tmp'}"

    def mount_prefix(self, daemon: str) -> list[str]:
        """The start of a command that does not see DIR/edge."""
        edge = self.state / "edge"
        return over_tmpfs(edge) if daemon in self.joiners and edge.is_dir() else []

    def spawn(self, daemon: str) -> None:
        self.prepare(daemon)
        with open(self.log(daemon), "ab") as log:
            process = subprocess.Popen([*self.mount_prefix(daemon), *self.command(daemon)], env=self.environment(daemon),
                                       cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.known[daemon] = Process(process.pid, *read_stat(process.pid)[1:] or (0,))
        self.save()

    def save(self) -> None:
        daemons = {name: astuple(process) for name, process in self.known.items()}
        write_json(self.record, {"ports": self.ports, "choices": self.choices, "daemons": daemons})

    def clear(self) -> None:
        """Creates an empty directory, and deletes only those of a cluster."""
        if self.folder.exists() and any(self.folder.iterdir()) and not self.record.exists():
            raise ClusterError(f"{self.folder} holds something that is not a cluster's; choose another --state.")
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in (self.conf, self.folder / "log", self.folder / "tmp"):
            folder.mkdir(parents=True)
        self.ports, self.known, self.choices = {}, {}, self.choose()
        self.save()

    def start(self, ports: Iterator[int], seconds: float) -> None:
        dead = self.dead()
        if not dead:
            print(f"{self.name} is running already: {self.where()}")
            return
        if dead == self.daemons:
            self.stop()  # a killed start may have left some
            self.clear()
        else:
            print(f"{self.name}: starting {', '.join(dead)} again", flush=True)
        self.choose_ports(dead, ports)
        self.configure()
        for daemon in dead:
            self.spawn(daemon)
        self.wait_ready(seconds)
        self.publish()
        print(f"{self.name} is ready: {self.where()}", flush=True)

    def choose_ports(self, daemons: list[str], ports: Iterator[int]) -> None:
        self.ports |= {port: next(ports) for d in daemons for port in self.ports_of[d]
                       if port not in self.ports or d in self.joiners}

    def wait_ready(self, seconds: float) -> None:
        self.wait_while(self.not_ready, seconds, self.daemons)

    def wait_while(self, check: Callable[[], NotReady | None], seconds: float, needed: list[str]) -> None:
        end = time.monotonic() + seconds
        while not_ready := check():
            for daemon in (d for d in needed if not self.is_alive(d)):
                self.fail(f"{daemon} ended before it was ready", daemon)
            if time.monotonic() > end:
                self.fail(f"after {seconds:.0f} s {not_ready.what}", not_ready.daemon)
            time.sleep(0.1)

    def fail(self, why: str, daemon: str) -> NoReturn:
        raise ClusterError(f"{self.name} did not start: {why}. The end of {self.log(daemon)}:\n{tail(self.log(daemon))}")

    def program_environment(self) -> dict[str, str]:
        """The environment of a Python program whose `getOrCreate()` connects to this cluster."""
        return {"JAVA_HOME": str(self.java_home()), "SPARK_CONF_DIR": str(self.conf), "SPARK_LOCAL_IP": self.host,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_DIRS": str(self.folder / "tmp"), "JAVA_TOOL_OPTIONS": self.java_options()}

    def where(self) -> str:
        return ", ".join(f"{k} {v}" for k, v in self.addresses().items())

    def publish(self) -> None:
        environment = self.program_environment()
        (self.folder / "env").write_text("".join(f"export {k}={shlex.quote(v)}\n" for k, v in environment.items()))
        known = read_json(self.state / "cluster.json")
        write_json(self.state / "cluster.json", {**known, **self.addresses(), f"{self.name}_env": environment})

    def withdraw(self) -> None:
        known = read_json(self.state / "cluster.json")
        gone = {f"{self.name}_env", *(self.addresses() if self.ports else ())}
        if gone & known.keys():
            write_json(self.state / "cluster.json", {k: v for k, v in known.items() if k not in gone})

    def stop(self) -> bool:
        """Kills all its processes; returns whether there were any."""
        self.withdraw()
        found = kill_marked(str(self.folder))
        while kill_marked(str(self.folder)):  # a process in the middle of exec() has no readable environment
            pass
        return found

    def status(self) -> str:
        dead = self.dead()
        if dead == self.daemons:
            return "is not running"
        if dead:
            return f"has lost {', '.join(dead)}; `cluster.py start {self.name}` brings it back"
        not_ready = self.not_ready()
        return f"is not ready: {not_ready.what}" if not_ready else f"is running: {self.where()}"
