# SPDX-License-Identifier: Apache-2.0
"""What a SparkSession is and has, and the settings that people give it."""

import os
import socket
import tomllib
from dataclasses import dataclass
from typing import Any

from .._base.errors import Error
from .._base.files import open_raw
from . import executor as _executor

MANY = 10_000  # executors: as many as a run can use
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


def folder_of(project: Project) -> str:
    folder = os.fspath(project or os.environ.get("HOPYARD_PROJECT") or os.getcwd())
    return folder.rstrip("/") if "://" in folder else os.path.abspath(folder)


# ---- settings: an argument, spark.hopyard.*, Spark's own, hopyard.toml --------------------------


@dataclass(frozen=True)
class Setting:
    """One line of a notebook form. It is a whole number; of memory, MB."""

    name: str  # of the argument, and with a dash in hopyard.toml
    ours: str
    sparks: str | None  # None: Spark has nothing of the kind

    @property
    def goes_to(self) -> str:
        """The property of a session that is to have it."""
        return self.sparks or self.ours

    @property
    def key(self) -> str:
        return self.name.replace("_", "-")


EXECUTORS = Setting("executors", "spark.hopyard.executors", "spark.executor.instances")
PARALLEL = Setting("parallel", "spark.hopyard.parallel", None)
MEMORY = Setting("executor_memory", "spark.hopyard.executor.memory", "spark.executor.memory")
GPUS = Setting("executor_gpus", "spark.hopyard.executor.gpus", "spark.executor.resource.gpu.amount")
SERVERS = Setting("parameter_servers", "spark.hopyard.parameterServers", "spark.tensorflow.num.ps")
FORM = (EXECUTORS, PARALLEL, MEMORY, GPUS, SERVERS)


def find(setting: Setting, conf: Any, project: Project) -> int | None:
    """What the session says of it, or the project; None: nobody does."""
    own = conf.get(setting.ours)
    if own:
        return number(setting.ours, own)
    if setting.sparks and (value := conf.get(setting.sparks)):
        return size(setting.sparks, value, 1 << 20) >> 20 if setting is MEMORY else number(setting.sparks, value)
    return written(project).get(setting.key)


def written(project: Project) -> dict[str, Any]:
    """The [spark] of the project's hopyard.toml; nothing where there is none."""
    path = os.path.join(folder_of(project), "hopyard.toml")
    try:
        with open_raw(path, "r") as file:
            table = tomllib.loads(file.readall().decode()).get("spark", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Error(f"{path} cannot be read: {error}") from None
    known = {"master": str, **{setting.key: int for setting in FORM}}
    for name, value in table.items():
        if name not in known:
            raise Error(f"{path}: [spark] knows no '{name}'; it has {', '.join(known)}")
        if type(value) is not known[name] or (type(value) is int and value < 0):
            raise Error(
                f"{path}: {name} in [spark] is {value!r}, which is no {'text' if name == 'master' else 'number'}"
            )
    return dict(table)


def number(name: str, text: str) -> int:
    if not text.strip().isdigit():
        raise Error(f"{name} is '{text}', which is no number")
    return int(text)


def size(name: str, text: str, unit: int) -> int:
    """Bytes of Spark's "2g"; a bare number is of that unit."""
    units = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    digits = text.lower().rstrip("bkmgt")
    suffix = text.lower()[len(digits) :]
    if not digits.isdigit() or suffix not in ("", *units, *(u + "b" for u in units if u != "b")):
        raise Error(f"{name} is '{text}', which is no amount of memory")
    return int(digits) * (units[suffix[0]] if suffix else unit)


# ---- what it has -------------------------------------------------------------------------------


def address(context: Any) -> str:
    """At which executors reach this machine: what they reach Spark's driver by.

    A name may be this machine's own word for itself, and mean 127.0.1.1 only here.
    """
    host = context.getConf().get("spark.driver.host", "127.0.0.1")
    found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None)]
    elsewhere = [word for word in found if not word.startswith("127.") and word != "::1"]
    return elsewhere[0] if elsewhere else found[0] if host in (*found, "localhost") else _outward() or found[0]


def _outward() -> str | None:
    """This machine's address on the way to others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:  # there is no way
            return None
        return str(probe.getsockname()[0])


def default(name: str) -> str | None:
    """What spark-defaults.conf says, in a process that has no session yet."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return SparkConf().get(name)


def listed(context: Any) -> list[Any]:
    """The executors there are now, as Spark's own page has them."""
    found = context._jsc.sc().statusStore().executorList(True)
    return [e for e in (found.apply(i) for i in range(found.size())) if e.id() != "driver"]


def executors(context: Any, project: Project) -> int | None:
    """How many there are to be; None: as many as come."""
    conf = context.getConf()
    own = conf.get(EXECUTORS.ours)
    if not own and conf.get("spark.dynamicAllocation.enabled") == "true":
        most = conf.get("spark.dynamicAllocation.maxExecutors")
        said = number("spark.dynamicAllocation.maxExecutors", most) if most else None
        return said or written(project).get(EXECUTORS.key) or MANY
    return find(EXECUTORS, conf, project) or (2 if context.master == "yarn" else None)  # as Spark has it there


def cores(context: Any) -> int:
    """Of each executor, at least."""
    said = context.getConf().get("spark.executor.cores", "")
    if said.isdigit():
        return int(said)
    return min((int(e.totalCores()) for e in listed(context)), default=0) or _cores_of_the_first(context)


def _cores_of_the_first(context: Any) -> int:
    """There is none yet, and nothing said of it: a small job waits for it."""
    [count] = context.parallelize([0], 1).map(lambda _: _executor.cores()).collect()
    return int(count)


def container(context: Any) -> str | None:
    """Bytes that an executor's container has, where there is one that is watched, and what of them is for trials:
    not the JVM's heap, nor what that has beside it."""
    conf, mega = context.getConf(), 1 << 20
    if not str(context.master).startswith(("yarn", "k8s")):
        return None

    def amount(name: str, default: str, unit: int = mega) -> int:
        return size(name, conf.get(name) or default, unit)

    heap = amount("spark.executor.memory", "1g")
    factor = float(conf.get("spark.executor.memoryOverheadFactor") or 0.1)
    least = max(amount("spark.executor.minMemoryOverhead", "384m"), int(heap * factor))
    trials = amount("spark.executor.memoryOverhead", f"{least}b") + amount("spark.executor.pyspark.memory", "0")
    off_heap = amount("spark.memory.offHeap.size", "0", 1) if conf.get("spark.memory.offHeap.enabled") == "true" else 0
    return f"{heap + trials + off_heap}:{trials}"


def exposed(context: Any) -> str:
    """Agents' keys go through Spark's own channel: is it safe? Then nothing."""
    conf = context.getConf()
    safe = all(conf.get(name) == "true" for name in ("spark.authenticate", "spark.network.crypto.enabled"))
    if safe or conf.get("spark.ssl.rpc.enabled") == "true" or address(context).startswith("127."):
        return ""
    return (
        "Spark's channel to its executors is not authenticated and encrypted: who can read it can read the agents' keys; "
        "set spark.authenticate and spark.network.crypto.enabled"
    )
