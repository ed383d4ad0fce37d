#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real cluster on loopback: a standalone Spark, and YARN over HDFS.

    cluster.py start  [spark|yarn|all]    until it is ready; what has died is started again
    cluster.py status [spark|yarn|all]
    cluster.py stop   [spark|yarn|all]    with all that runs in it
    cluster.py hold   [spark|yarn|all]    start, and stop at the end of standard input

--state DIR (build/cluster) is where it lives: DIR/cluster.json tells addresses,
DIR/PART/env what a program wants in its environment, DIR/PART/log what the
daemons say. Every start from nothing is an empty cluster. Where there is a
DIR/edge, workers and nodes find it empty, as one of another machine (root only).

Each daemon is the leader of a session and outlives this program. It is known by
its process id and the time it was born, so that whoever has the number next is
left alone. What daemons start (executors, containers, their children, whatever
session these are in) is known by a mark in its environment, which is inherited.
"""
from __future__ import annotations

import argparse
import contextlib
import fcntl
import getpass
import hashlib
import http.client
import importlib.util
import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
MARK = "TEST_CLUSTER"
WORKERS = 2
DATANODES = 1
GPUS = 2  # and so says gpu.sh
# Short lives: a JVM that compiles thoroughly takes twice as long to start.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
FOREIGN = ("SPARK_", "PYSPARK_", "HADOOP_", "HDFS_", "YARN_", "HOPYARD_", "JAVA_TOOL_OPTIONS", "PYTHONPATH", MARK)


class Trouble(Exception):
    """A sentence for the person who started this."""


# ---- processes -----------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A process id and when it was born, in ticks since boot: together they never come again."""
    pid: int
    born: int

    def is_alive(self) -> bool:
        return read_stat(self.pid)[1:] == (self.born,)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, never to another that has the number by now: the handle keeps both together."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.is_alive():
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return  # it ended in between
        finally:
            os.close(handle)


def read_stat(pid: int) -> tuple[int, ...]:
    """Parent and time of birth; nothing when it has ended."""
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


def family(mark: str) -> set[Process]:
    """Who bears the mark, and their descendants: a NodeManager's scripts clear their environment for a while."""
    stats = {int(p): stat for p in os.listdir("/proc") if p.isdigit() and (stat := read_stat(int(p)))}
    found: set[int] = set()
    new = {pid for pid in stats if has_mark(pid, mark)}
    while new:
        found |= new
        new = {pid for pid, (parent, _) in stats.items() if parent in new} - found
    return {Process(pid, stats[pid][1]) for pid in found}


def end_family(mark: str) -> bool:
    """Ends them all; says whether there were any. Stopped ones first: these have no more children."""
    stopped: set[Process] = set()
    while new := family(mark) - stopped:
        for process in new:
            process.send(signal.SIGSTOP)
        stopped |= new
    for process in stopped:
        process.send(signal.SIGKILL)
    end = time.monotonic() + 30
    while left := [p.pid for p in stopped if p.is_alive()]:
        if time.monotonic() > end:
            raise Trouble(f"processes {left} do not end, not even by SIGKILL.")
        time.sleep(0.02)
    return bool(stopped)


# ---- ports, pages, files ---------------------------------------------------------------


def is_free(port: int) -> bool:
    with socket.socket() as s:
        try:
            s.bind((HOST, port))
        except OSError:
            return False
    return True


def ports_from(first: int | None) -> Iterator[int]:
    """Free ports, or the given one and those behind it, free or not.

    Free ones are below those that the system gives to outgoing connections: one
    of these could take a port between our look and the daemon's bind.
    """
    if first:
        yield from range(first, 65536)
        raise Trouble(f"there are not enough ports behind {first}; give a smaller --ports.")
    outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = list(range(10000, max(outgoing, 20000)))
    random.shuffle(candidates)
    yield from filter(is_free, candidates)
    raise Trouble(f"no port between 10000 and {outgoing} is free.")


def ask(method: str, host: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body; 0 while nobody answers."""
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def ask_json(host: str, path: str) -> dict[str, Any] | None:
    """None while nobody answers, or a page that is about to be there is empty."""
    status, body = ask("GET", host, path)
    return json.loads(body) if status == 200 and body else None


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all: others read it."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content, indent=2) + "\n")
    new.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def write_site(path: Path, settings: dict[str, object]) -> None:
    lines = [f"<property><name>{escape(k)}</name><value>{escape(str(v))}</value></property>" for k, v in settings.items()]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


def write_properties(path: Path, settings: dict[str, object]) -> None:
    path.write_text("".join(f"{k} {v}\n" for k, v in settings.items()))


def tail(path: Path, lines: int = 30) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "(there is no log)"


# ---- what it is made of ----------------------------------------------------------------


def find_pyspark() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if not spec or not spec.origin:
        raise Trouble(f"{sys.executable} has no pyspark; run `make cluster`, which installs it.")
    return Path(spec.origin).parent


def find_java() -> Path:
    """Java's home."""
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        raise Trouble("there is no Java (17 or newer); run `make cluster`, which installs it, or set JAVA_HOME.")
    return Path(java).resolve().parents[1]


def hadoop_clients() -> tuple[str, list[Path]]:
    """The version of Hadoop that pyspark brings along, and its two jars."""
    folder = find_pyspark() / "jars"
    found = sorted(folder.glob("hadoop-client-api-*.jar"))
    if len(found) != 1:
        raise Trouble(f"{folder} should hold one hadoop-client-api-VERSION.jar and holds {len(found)}.")
    version = found[0].stem.removeprefix("hadoop-client-api-")
    return version, [found[0], folder / f"hadoop-client-runtime-{version}.jar"]


def fetch_jars() -> list[str]:
    """Hadoop's servers as a class path; Maven fetches them once for each version and pom.xml."""
    version, clients = hadoop_clients()
    pom, jars = Path(__file__).with_name("pom.xml"), ROOT / "build/cluster-jars"
    jars.parent.mkdir(exist_ok=True)
    with locked(jars.with_suffix(".lock")):
        stamp = f"{version} {hashlib.sha256(pom.read_bytes()).hexdigest()}\n"
        if not (jars / "stamp").exists() or (jars / "stamp").read_text() != stamp:
            print(f"fetching Hadoop {version} from Maven's repository", flush=True)
            shutil.rmtree(jars, ignore_errors=True)
            run_maven(["-f", str(pom), f"-Dhadoop.version={version}", f"-DoutputDirectory={jars}"])
            (jars / "stamp").write_text(stamp)
    return [str(jars / "*"), *map(str, clients)]


def run_maven(options: list[str]) -> None:
    try:
        done = subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies", *options], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError:
        raise Trouble("there is no Maven (mvn); run `make cluster`, which installs it.") from None
    if done.returncode:
        raise Trouble(f"Maven could not fetch Hadoop's jars:\n{done.stdout[-3000:]}")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another cluster.py, which holds {path}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---- parts -----------------------------------------------------------------------------


@dataclass
class Lack:
    """What is not ready yet, and whose log would tell why."""
    what: str
    daemon: str


class Part:
    """Some daemons that are started and stopped together."""

    name: str
    daemons: list[str]
    ports_of: dict[str, list[str]]
    joiners: list[str]  # known to others by their ports: with the old one again they would seem never to have died

    def __init__(self, state: Path, _: argparse.Namespace) -> None:
        self.state, self.host = state, HOST
        self.folder = state / self.name
        self.conf = self.folder / "conf"
        self.record = self.folder / "daemons.json"
        known = read_json(self.record)
        self.ports: dict[str, int] = known.get("ports", {})
        self.known = {name: Process(*who) for name, who in known.get("daemons", {}).items()}

    # what each part says for itself
    def configure(self) -> None: ...
    def prepare(self, daemon: str) -> None: ...
    def command(self, daemon: str) -> list[str]: raise NotImplementedError
    def lack(self) -> Lack | None: raise NotImplementedError
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
        """A daemon's, and with it that of all it starts."""
        java = find_java()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        return {**kept, MARK: str(self.folder), "JAVA_HOME": str(java),
                "PATH": f"{Path(sys.executable).parent}:{java / 'bin'}:{os.environ['PATH']}",
                "JAVA_TOOL_OPTIONS": self.java_options()}

    def java_options(self) -> str:
        """With a folder for what a JVM that is killed leaves behind."""
        return f"{JAVA_OPTIONS} -Djava.io.tmpdir={self.folder / 'tmp'}"

    def apart(self, daemon: str) -> list[str]:
        """What a command begins with that is not to see DIR/edge."""
        edge = self.state / "edge"
        if daemon not in self.joiners or not edge.is_dir():
            return []
        script = 'mount -t tmpfs -o mode=755 hopyard-test "$0" && exec "$@"'
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(edge)]

    def spawn(self, daemon: str) -> None:
        self.prepare(daemon)
        with open(self.log(daemon), "ab") as log:
            process = subprocess.Popen([*self.apart(daemon), *self.command(daemon)], env=self.environment(daemon),
                                       cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.known[daemon] = Process(process.pid, *read_stat(process.pid)[1:] or (0,))
        self.save()

    def save(self) -> None:
        write_json(self.record, {"ports": self.ports, "daemons": {k: astuple(p) for k, p in self.known.items()}})

    def clear(self) -> None:
        """Makes an empty folder, and deletes no other than a cluster's."""
        if self.folder.exists() and any(self.folder.iterdir()) and not self.record.exists():
            raise Trouble(f"{self.folder} holds something that is not a cluster's; choose another --state.")
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in (self.conf, self.folder / "log", self.folder / "tmp"):
            folder.mkdir(parents=True)
        self.ports, self.known = {}, {}
        self.save()

    def start(self, ports: Iterator[int], seconds: float) -> None:
        dead = self.dead()
        if not dead:
            print(f"{self.name} is running already: {self.where()}")
            return
        if dead == self.daemons:
            self.stop()  # a start that was killed may have left some
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
        end = time.monotonic() + seconds
        while lack := self.lack():
            for daemon in self.dead():
                self.give_up(f"{daemon} ended before it was ready", daemon)
            if time.monotonic() > end:
                self.give_up(f"after {seconds:.0f} s {lack.what}", lack.daemon)
            time.sleep(0.1)

    def give_up(self, why: str, daemon: str) -> None:
        raise Trouble(f"{self.name} did not start: {why}. The end of {self.log(daemon)}:\n{tail(self.log(daemon))}")

    def program_environment(self) -> dict[str, str]:
        """What a Python program wants that gets its SparkSession here, by a plain `getOrCreate()`."""
        return {"SPARK_CONF_DIR": str(self.conf), "SPARK_LOCAL_IP": self.host, "PYSPARK_PYTHON": sys.executable,
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
        """Ends all there is; says whether there was something."""
        self.withdraw()
        found = end_family(str(self.folder))
        while end_family(str(self.folder)):  # whoever was in the middle of an exec had no environment to read
            pass
        return found

    def status(self) -> str:
        dead = self.dead()
        if dead == self.daemons:
            return "is not running"
        if dead:
            return f"has lost {', '.join(dead)}; `cluster.py start {self.name}` brings it back"
        lack = self.lack()
        return f"is not ready: {lack.what}" if lack else f"is running: {self.where()}"


class Spark(Part):
    """A Master and Workers with two cores, 2 GB and two made-up GPUs each."""

    name = "spark"
    workers = joiners = [f"worker{i + 1}" for i in range(WORKERS)]
    daemons = ["master", *workers]
    ports_of = {"master": ["master", "master_page"], **{w: [w, f"{w}_page"] for w in workers}}

    def __init__(self, state: Path, options: argparse.Namespace) -> None:
        super().__init__(state, options)
        self.host, self.away = options.address, options.away

    def configure(self) -> None:
        write_properties(self.folder / "daemon.conf", {
            "spark.port.maxRetries": 0,  # or a daemon takes the next port, and workers join somebody else's master
            "spark.master.rest.enabled": "false",
            "spark.worker.resource.gpu.amount": GPUS,
            "spark.worker.resource.gpu.discoveryScript": Path(__file__).with_name("gpu.sh"),
        })
        write_properties(self.conf / "spark-defaults.conf", {
            "spark.master": f"spark://{self.address('master')}",
            "spark.ui.port": 0,
            "spark.ui.showConsoleProgress": "false",
        })

    def environment(self, daemon: str) -> dict[str, str]:
        return {**super().environment(daemon), "SPARK_HOME": str(find_pyspark()), "SPARK_CONF_DIR": str(self.conf),
                "SPARK_LOCAL_IP": self.host_of(daemon), "SPARK_LOCAL_DIRS": str(self.folder / "tmp"),
                "SPARK_DAEMON_MEMORY": "512m"}

    def is_away(self, daemon: str) -> bool:
        return bool(self.away) and daemon == self.workers[-1]

    def host_of(self, daemon: str) -> str:
        return self.away[1] if self.is_away(daemon) else self.host

    def command(self, daemon: str) -> list[str]:
        start = [str(find_pyspark() / "bin/spark-class")]
        if self.is_away(daemon):
            start = ["nsenter", "--target", self.away[0], "--net", "--uts", *start]
        common = ["-h", self.host_of(daemon), "-p", str(self.ports[daemon]),
                  "--webui-port", str(self.ports[f"{daemon}_page"]), "--properties-file", str(self.folder / "daemon.conf")]
        if daemon == "master":
            return [*start, "org.apache.spark.deploy.master.Master", *common]
        return [*start, "org.apache.spark.deploy.worker.Worker", *common, "-c", "2", "-m", "2g",
                "-d", str(self.folder / daemon), f"spark://{self.address('master')}"]

    def lack(self) -> Lack | None:
        page = ask_json(self.address("master_page"), "/json/")
        if page is None:
            return Lack("the master's page does not answer", "master")
        alive = {w["port"] for w in page["workers"] if w["state"] == "ALIVE"}
        for worker in self.workers:
            if self.ports[worker] not in alive:
                return Lack(f"{worker} has not joined the master", worker)
        if len(alive) > WORKERS:
            return Lack("the master still counts on a worker that has died", "master")
        return None

    def addresses(self) -> dict[str, str]:
        return {"spark": f"spark://{self.address('master')}", "spark_page": f"http://{self.address('master_page')}"}

    def program_environment(self) -> dict[str, str]:
        return {"MASTER": f"spark://{self.address('master')}", **super().program_environment()}


class Yarn(Part):
    """A NameNode, DataNodes, a ResourceManager and NodeManagers with four cores, 4 GB and two made-up GPUs each."""

    name = "yarn"
    datanodes = [f"datanode{i + 1}" for i in range(DATANODES)]
    nodemanagers = joiners = [f"nodemanager{i + 1}" for i in range(WORKERS)]
    # Those who wait for others come first: they start while the NameNode's folder is formatted.
    daemons = ["resourcemanager", *nodemanagers, "namenode", *datanodes]
    ports_of = {
        "resourcemanager": ["rm", "rm_scheduler", "rm_tracker", "rm_admin", "rm_page"],
        "namenode": ["namenode", "namenode_page"],
        **{n: [n] for n in nodemanagers},
        **{d: [] for d in datanodes},
    }
    classes = {
        "resourcemanager": "yarn.server.resourcemanager.ResourceManager",
        "nodemanager": "yarn.server.nodemanager.NodeManager",
        "namenode": "hdfs.server.namenode.NameNode",
        "datanode": "hdfs.server.datanode.DataNode",
    }

    def configure(self) -> None:
        self.class_path = ":".join([str(self.conf), *fetch_jars()])
        self.configure_hdfs()
        self.configure_yarn()
        write_properties(self.conf / "spark-defaults.conf", {
            "spark.master": "yarn",
            "spark.executor.instances": WORKERS,
            "spark.executor.memory": "512m",
            "spark.ui.port": 0,
            "spark.ui.showConsoleProgress": "false",
            "spark.yarn.jars": f"local:{find_pyspark() / 'jars'}/*",  # else 400 MB go to HDFS for each session
        })
        (self.conf / "log4j.properties").write_text("""\
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
""")

    def configure_hdfs(self) -> None:
        write_site(self.conf / "core-site.xml", {
            "fs.defaultFS": f"hdfs://{self.address('namenode')}",
            "hadoop.tmp.dir": self.folder / "tmp",
        })
        write_site(self.conf / "hdfs-site.xml", {
            "dfs.replication": 1,
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.name.dir": (self.folder / "namenode").as_uri(),
            "dfs.namenode.http-address": self.address("namenode_page"),
            "dfs.datanode.data.dir": f"{self.folder.as_uri()}/${{env.DAEMON:-datanode}}",
            "dfs.datanode.address": f"{HOST}:0",
            "dfs.datanode.http.address": f"{HOST}:0",
            "dfs.datanode.ipc.address": f"{HOST}:0",
            "dfs.datanode.hostname": "localhost",
        })

    def configure_yarn(self) -> None:
        gpus = {"yarn.nodemanager.resource-type.yarn.io/gpu": GPUS}
        write_site(self.conf / "resource-types.xml", {"yarn.resource-types": "yarn.io/gpu"})
        write_site(self.conf / "node-resources.xml", gpus)
        write_site(self.conf / "capacity-scheduler.xml", {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
            "yarn.scheduler.capacity.maximum-am-resource-percent": 0.9,
            "yarn.scheduler.capacity.resource-calculator":
                "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
        })
        write_site(self.conf / "yarn-site.xml", {
            "yarn.resourcemanager.hostname": HOST,
            "yarn.resourcemanager.address": self.address("rm"),
            "yarn.resourcemanager.scheduler.address": self.address("rm_scheduler"),
            "yarn.resourcemanager.resource-tracker.address": self.address("rm_tracker"),
            "yarn.resourcemanager.admin.address": self.address("rm_admin"),
            "yarn.resourcemanager.webapp.address": self.address("rm_page"),
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": 200,
            "yarn.nm.liveness-monitor.expiry-interval-ms": 15000,  # a killed NodeManager is missed in 15 s, not 10 min
            "yarn.scheduler.minimum-allocation-mb": 128,
            "yarn.nodemanager.hostname": HOST,
            "yarn.nodemanager.address": f"{HOST}:${{env.NODEMANAGER_PORT:-0}}",
            "yarn.nodemanager.localizer.address": f"{HOST}:0",
            "yarn.nodemanager.webapp.address": f"{HOST}:0",
            "yarn.nodemanager.local-dirs": f"{self.folder}/${{env.DAEMON:-nodemanager}}/local",
            "yarn.nodemanager.log-dirs": f"{self.folder}/${{env.DAEMON:-nodemanager}}/log",
            "yarn.nodemanager.resource.memory-mb": 4096,
            "yarn.nodemanager.resource.cpu-vcores": 4,
            "yarn.nodemanager.pmem-check-enabled": "true",
            "yarn.nodemanager.resource.memory.enforced": "false",  # or it trusts in cgroups, and checks nothing
            "yarn.nodemanager.vmem-check-enabled": "false",
            # A container's environment is empty but for these.
            "yarn.nodemanager.env-whitelist": f"JAVA_HOME,PATH,LANG,TZ,JAVA_TOOL_OPTIONS,{MARK}",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.9,
            "yarn.resource-types": "yarn.io/gpu",
            **gpus,
        })

    def environment(self, daemon: str) -> dict[str, str]:
        port = {"NODEMANAGER_PORT": str(self.ports[daemon])} if daemon in self.nodemanagers else {}
        return {**super().environment(daemon), "DAEMON": daemon, **port}

    def command(self, daemon: str) -> list[str]:
        main = self.classes[daemon.rstrip("0123456789")]
        return [str(find_java() / "bin/java"), "-Xmx512m", "-cp", self.class_path, f"org.apache.hadoop.{main}"]

    def prepare(self, daemon: str) -> None:
        if daemon != "namenode" or (self.folder / "namenode").exists():
            return
        with open(self.log("format"), "wb") as log:
            done = subprocess.run([*self.command(daemon), "-format", "-nonInteractive"], env=self.environment(daemon),
                                  cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if done.returncode:
            self.give_up("the NameNode's folder could not be formatted", "format")

    def lack(self) -> Lack | None:
        return self.lack_of_nodes() or self.lack_of_files()

    def lack_of_nodes(self) -> Lack | None:
        page = ask_json(self.address("rm_page"), "/ws/v1/cluster/nodes?states=RUNNING")
        if page is None:
            return Lack("the ResourceManager's page does not answer", "resourcemanager")
        # By port: the name before it is what the system calls our address.
        running = {int(n["id"].rpartition(":")[2]) for n in (page["nodes"] or {}).get("node", [])}
        for node in self.nodemanagers:
            if self.ports[node] not in running:
                return Lack(f"{node} has not joined the ResourceManager", node)
        if len(running) > WORKERS:
            return Lack("the ResourceManager still counts on a node that has died", "resourcemanager")
        return None

    def lack_of_files(self) -> Lack | None:
        """A file is written to HDFS: the NameNode says where, a DataNode takes it."""
        path = f"/webhdfs/v1/cluster-is-ready?user.name={urllib.parse.quote(getpass.getuser())}"
        status, body = ask("PUT", self.address("namenode_page"), f"{path}&op=CREATE&overwrite=true&noredirect=true")
        if status != 200:
            return Lack("the NameNode takes no file" if status else "the NameNode's page does not answer", "namenode")
        place = urllib.parse.urlsplit(json.loads(body)["Location"])
        status, _ = ask("PUT", place.netloc, f"{place.path}?{place.query}", b"ready\n")
        if status != 201:
            return Lack("a DataNode takes no file", self.datanodes[0])
        ask("DELETE", self.address("namenode_page"), f"{path}&op=DELETE")
        return None

    def addresses(self) -> dict[str, str]:
        return {"hdfs": f"hdfs://{self.address('namenode')}", "hdfs_page": f"http://{self.address('namenode_page')}",
                "yarn_conf": str(self.conf), "yarn_page": f"http://{self.address('rm_page')}"}

    def program_environment(self) -> dict[str, str]:
        return {"MASTER": "yarn", "HADOOP_CONF_DIR": str(self.conf), **super().program_environment()}


# ---- the program -----------------------------------------------------------------------

PARTS: dict[str, type[Part]] = {"spark": Spark, "yarn": Yarn}


def start(parts: list[Part], options: argparse.Namespace) -> int:
    """All or nothing: what this call has begun goes when it fails or is interrupted."""
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


def end(parts: list[Part], _: argparse.Namespace) -> int:
    """Like stop, without a word: nobody may be there to read it."""
    for part in parts:
        part.stop()
    return 0


def status(parts: list[Part], _: argparse.Namespace) -> int:
    words = [part.status() for part in parts]
    for part, word in zip(parts, words):
        print(part.name, word)
    return 0 if all(w.startswith("is running") for w in words) else 3


def in_turn(action: Callable[[list[Part], argparse.Namespace], int], options: argparse.Namespace) -> int:
    """One at a time for one state folder."""
    options.state.mkdir(parents=True, exist_ok=True)
    with locked(options.state / "lock"):
        wanted = PARTS if options.part == "all" else [options.part]
        return action([PARTS[name](options.state, options) for name in wanted], options)


def hold(options: argparse.Namespace) -> int:
    """For tests: the other end of standard input closes however they end, by `kill -9` too."""
    try:
        in_turn(start, options)
        print("held", flush=True)
        sys.stdin.buffer.read()
    finally:
        in_turn(end, options)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["start", "stop", "status", "hold"])
    parser.add_argument("part", nargs="?", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--state", type=Path, default=ROOT / "build/cluster", metavar="DIR")
    parser.add_argument("--ports", type=int, metavar="FIRST", help="take this port and those behind it, not free ones")
    parser.add_argument("--wait", type=float, default=60, metavar="SECONDS", help="for each part to be ready (60)")
    parser.add_argument("--address", default=HOST, help="where Spark listens, if other hosts are to reach it")
    parser.add_argument("--away", nargs=2, metavar=("PID", "ADDRESS"),
                        help="Spark's last worker is on another host: in the network of that process, at that address")
    options = parser.parse_args()
    options.state = options.state.resolve()
    return options


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if options.action == "hold":
            return hold(options)
        return in_turn({"start": start, "stop": stop, "status": status}[options.action], options)
    except Trouble as e:
        print(f"cluster.py: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
