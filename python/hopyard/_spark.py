# SPDX-License-Identifier: Apache-2.0
"""Agents on the executors of a SparkSession.

The driver decides when an agent is needed and when not; `hopyard supply` brings us its orders. An agent is a Spark
job of one task, in a job group of its own, which takes all cores of its executor.
"""

import functools
import gzip
import hashlib
import importlib.util
import io
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import threading
import time
from typing import Any

from . import _executor, _hopyard, _program
from ._errors import Error

Project = str | os.PathLike[str] | None


def context_of(spark: Any) -> Any:
    """The SparkContext of a session, or what it takes to have one."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise Error(
            "a Spark Connect session starts no jobs of ours; use a SparkSession of this process: "
            "SparkSession.builder.master(…).getOrCreate()"
        )
    context = getattr(spark, "sparkContext", spark)
    if getattr(context, "master", None) is None:
        raise Error(f"spark takes a SparkSession, or None for this machine; {spark!r:.60} is neither")
    return context


def is_here(spark: Any) -> bool:
    """Whether its executors are this process: then this machine's own engine serves better."""
    return str(context_of(spark).master).startswith("local")


def options(spark: Any) -> list[str]:
    """What `hopyard run` is told of it."""
    context = context_of(spark)
    if is_here(spark):
        return []
    return ["--engine", "session", "--address", _address(context), "--executors", str(executors(context))]


def _address(context: Any) -> str:
    """At which executors reach this machine: what they reach Spark's driver by."""
    host = context.getConf().get("spark.driver.host", "127.0.0.1")
    return str(socket.getaddrinfo(host, None)[0][4][0])


def _listed(context: Any) -> list[Any]:
    """The executors there are now, as Spark's own page has them."""
    found = context._jsc.sc().statusStore().executorList(True)
    return [e for e in (found.apply(i) for i in range(found.size())) if e.id() != "driver"]


def executors(context: Any) -> int:
    """How many there are, or are to be."""
    conf = context.getConf()
    for name in ("spark.hopyard.executors", "spark.dynamicAllocation.maxExecutors", "spark.executor.instances"):
        said = conf.get(name, "")
        if said.isdigit() and int(said) > 0 and (
            "dynamic" not in name or conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        ):
            return int(said)
    return max(1, len(_listed(context)))


def _cores(context: Any) -> int:
    """Of each executor."""
    said = context.getConf().get("spark.executor.cores", "")
    if said.isdigit():
        return int(said)
    return max((int(e.totalCores()) for e in _listed(context)), default=0) or _cores_of_the_first(context)


def _cores_of_the_first(context: Any) -> int:
    """There is none yet, and nothing said of it: a small job waits for it."""
    [cores] = context.parallelize([0], 1).map(lambda _: _executor.cores()).collect()
    return int(cores)


def _bytes(text: str, unit: int) -> int:
    """"2g" of Spark's; a bare number is of that unit."""
    units = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    word = text.lower().removesuffix("b") if text[-2:-1].isalpha() else text.lower()
    return int(word[:-1]) * units[word[-1]] if word[-1].isalpha() else int(word) * unit


def _container(context: Any) -> int | None:
    """Bytes that an executor's container has, where there is one that is watched: heap, overhead, Python, off-heap."""
    conf, mega = context.getConf(), 1 << 20
    if not str(context.master).startswith(("yarn", "k8s")):
        return None
    heap = _bytes(conf.get("spark.executor.memory", "1g"), mega)
    least = _bytes(conf.get("spark.executor.minMemoryOverhead", "384m"), mega)
    factor = float(conf.get("spark.executor.memoryOverheadFactor", "0.1"))
    overhead = conf.get("spark.executor.memoryOverhead", "")
    python = _bytes(conf.get("spark.executor.pyspark.memory", "0"), mega)
    off_heap = _bytes(conf.get("spark.memory.offHeap.size", "0"), 1)
    return heap + (_bytes(overhead, mega) if overhead else max(least, int(heap * factor))) + python + off_heap


# ---- what goes along ---------------------------------------------------------------------------


@functools.cache
def archive() -> tuple[bytes, str]:
    """The program, this package, its extension and TensorFlow's plugin, as a tar; and a name for these bytes."""
    package = os.path.dirname(os.path.abspath(__file__))
    files = {"bin/hopyard": _program.find(), f"site/hopyard/{os.path.basename(_hopyard.__file__)}": _hopyard.__file__}
    plugin = os.path.join(os.path.dirname(package), "tensorflow-plugins", "hopyard_ops.so")
    if os.path.exists(plugin):
        files["site/tensorflow-plugins/hopyard_ops.so"] = plugin
    for folder, _, names in os.walk(package, followlinks=True):
        for name in names:
            if name.endswith((".py", ".pyi", ".typed")):
                path = os.path.join(folder, name)
                files[f"site/hopyard/{os.path.relpath(path, package)}"] = path
    cloudpickle = importlib.util.find_spec("cloudpickle")
    if cloudpickle and cloudpickle.submodule_search_locations:
        for folder in cloudpickle.submodule_search_locations:
            for name in os.listdir(folder):
                if name.endswith(".py"):
                    files[f"site/cloudpickle/{name}"] = os.path.join(folder, name)
    held = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=held, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", dereference=True) as tar,
    ):
        for name, path in sorted(files.items()):
            tar.add(path, name, recursive=False, filter=_nobody)
    data = held.getvalue()
    return data, hashlib.sha256(data).hexdigest()[:16]


def _nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file of nobody's, which all may read."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode |= 0o444
    return info


# ---- the supplier ------------------------------------------------------------------------------


_suppliers: dict[tuple[int, str], "_Supplier"] = {}
SETTLE_S = 10.0
BUSY_S = 2.0  # until an executor is asked again
GOODBYE_S = 1.0  # for an agent whose driver has ended


def _place(run: int, project: Project) -> tuple[int, str]:
    return run, os.path.abspath(project or os.environ.get("HOPYARD_PROJECT") or os.getcwd())


def supply(spark: Any, run: int, project: Project) -> None:
    """Starts agents for a run, from a thread, until that has ended."""
    _suppliers[_place(run, project)] = _Supplier(context_of(spark), run, project)


def settle(run: int, project: Project) -> None:
    """If the run has ended, waits for its jobs, so that a session stopped behind it has none to break off."""
    supplier = _suppliers.get(_place(run, project))
    if supplier and supplier.join(SETTLE_S):
        del _suppliers[_place(run, project)]


def _exposed(context: Any) -> str | None:
    """Agents' keys go through Spark's own channel: is it safe?"""
    conf = context.getConf()
    safe = all(conf.get(name, "false") == "true" for name in ("spark.authenticate", "spark.network.crypto.enabled"))
    if safe or conf.get("spark.ssl.rpc.enabled", "false") == "true" or _address(context).startswith("127."):
        return None
    return (
        "Spark's channel to its executors is not authenticated and encrypted: who can read it can read the agents' keys; "
        "set spark.authenticate and spark.network.crypto.enabled"
    )


class _Supplier:
    def __init__(self, context: Any, run: int, project: Project) -> None:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(_executor)
        self._context, self._run = context, run
        self._archive = context.broadcast(archive())
        self._profile: Any = None
        self._lock, self._profile_lock = threading.Lock(), threading.Lock()
        self._over = threading.Event()
        self._agents: list[threading.Thread] = []
        words = (str(run), f"Spark {context.applicationId}", *filter(None, [_exposed(context)]))
        command = _program.command("supply", *words, project=project)
        self._program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._thread = threading.Thread(target=self._serve, name="hopyard-supply", daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Waits a moment for the run's end, and if that has come, longer for that of its agents."""
        if not self._over.wait(1.0):
            return False
        for agent in self._agents:
            agent.join(timeout)
        return True

    def _whole_executor(self) -> Any:
        with self._profile_lock:
            self._profile = self._profile or self._make_profile()
            return self._profile

    def _make_profile(self) -> Any:
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

        needs = TaskResourceRequests().cpus(_cores(self._context))
        gpus = self._context.getConf().get("spark.executor.resource.gpu.amount", "")
        if gpus.isdigit() and int(gpus) > 0:
            needs.resource("gpu", int(gpus))
        return ResourceProfileBuilder().require(needs).build

    def _group(self, agent: int) -> str:
        return f"hopyard-run-{self._run}-agent-{agent}"

    def _serve(self) -> None:
        container = _container(self._context)
        for line in self._program.stdout:
            order = {**json.loads(line), "container": container}
            if self._is_stopped():
                break
            if "start" in order:
                self._in_thread(self._start, order)
            else:
                self._context.cancelJobGroup(self._group(order["stop"]))
        self._leave()

    def _is_stopped(self) -> bool:
        """Its user may have called spark.stop(); then there is nothing that we can start."""
        return self._context._jsc is None or self._context._jsc.sc().isStopped()

    def _leave(self) -> None:
        """The driver has ended, or hears by this that there is nobody any more who starts its agents."""
        self._over.set()
        self._program.terminate()
        self._program.wait()
        for agent in self._agents:
            agent.join(GOODBYE_S)
        if not self._is_stopped():
            self._cancel_what_is_left()
            self._archive.unpersist()

    def _cancel_what_is_left(self) -> None:
        """A driver that was killed has told its agents nothing: they would wait for it."""
        for agent in self._agents:
            if agent.is_alive():
                self._context.cancelJobGroup(agent.name)

    def _in_thread(self, target: Any, order: dict[str, Any]) -> None:
        """Of Spark's kind: a job group is a matter of the thread that has set it."""
        from pyspark import InheritableThread

        thread = InheritableThread(target=target, args=(order,), name=self._group(order["start"]), daemon=True)
        thread.start()
        self._agents = [agent for agent in self._agents if agent.is_alive()] + [thread]

    def _start(self, order: dict[str, Any]) -> None:
        why = _executor.BUSY
        try:
            while why == _executor.BUSY:
                why = self._job(order)
                if why == _executor.BUSY:  # another run has an agent there; Spark cannot say when it is over
                    time.sleep(BUSY_S)
        except Exception as error:  # whatever Spark raises is why there is no agent
            why = _sentence(error)
        self._say({"over": order["start"], "why": why})
        if self._is_stopped():
            self._program.terminate()

    def _job(self, order: dict[str, Any]) -> str:
        archive = self._archive
        self._context.setJobGroup(self._group(order["start"]), f"hopyard: run {self._run}, {order['name']}", True)
        task = self._context.parallelize([order], 1).withResources(self._whole_executor())
        [why] = task.mapPartitions(lambda orders: _executor.run(next(orders), *archive.value)).collect()
        return why

    def _say(self, word: dict[str, Any]) -> None:
        with self._lock:
            try:
                self._program.stdin.write(json.dumps(word) + "\n")
                self._program.stdin.flush()
            except (BrokenPipeError, ValueError):  # the run has ended: nobody asks any more
                return


# ---- a session of the run's own: `hopyard run --engine` ---------------------------------------


def main(run: str, project: str, master: str, count: str, address: str) -> int:
    """Makes a session there, and supplies the run from it to its end."""
    try:
        session = _session(run, master, count, address)
        supplier = _Supplier(session.sparkContext, int(run), project)
    except Exception as error:  # the run cannot begin, whatever Spark or Java have against it
        _refuse(run, project, f"cannot have a Spark session at '{master}': {_sentence(error)}")
        return 1
    while not supplier.join(SETTLE_S):
        continue
    session.stop()
    return 0


def _session(run: str, master: str, count: str, address: str) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Error(f"{sys.executable} has no pyspark; install it there, or let $HOPYARD_PYTHON say which has") from None
    builder = SparkSession.builder.master(master).appName(f"hopyard run {run}")
    wanted = {"spark.executor.instances": count, "spark.driver.host": address, "spark.ui.showConsoleProgress": "false"}
    for name, value in wanted.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _refuse(run: str, project: str, why: str) -> None:
    """By the driver's own ear; it ends the run."""
    command = _program.command("supply", run, "Spark", project=project)
    subprocess.run(command, input=json.dumps({"over": 0, "why": why}) + "\n", text=True, check=False)


def _sentence(error: Exception) -> str:
    """Of what comes through py4j the line that says it."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error).strip()
    text = text.rpartition("Job aborted due to stage failure: ")[2]
    text = re.sub(r"^\[\w+\] | SQLSTATE: \w+$", "", text)  # "[SPARK_JOB_CANCELLED] Job 3 cancelled … SQLSTATE: XXKDA"
    return f"Spark: {text.splitlines()[0][:400]}" if text else f"Spark: {type(error).__name__}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
