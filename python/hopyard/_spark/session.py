# SPDX-License-Identifier: Apache-2.0
"""Reads the properties of a SparkSession, and settings from spark.hopyard.*, a notebook's form and hopyard.toml."""

import os
import socket
import tomllib
from dataclasses import dataclass
from typing import Any

from .._base.errors import Error
from .._base.files import open_raw
from . import executor as _executor

MANY = 10_000  # executors: more than a run can use
Project = str | os.PathLike[str] | None


def context_of(spark: Any) -> Any:
    """The SparkContext of a session."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise Error(
            "a Spark Connect session cannot start hopyard's jobs; use a SparkSession of this process: "
            "SparkSession.builder.master(…).getOrCreate()"
        )
    context = getattr(spark, "sparkContext", spark)
    if getattr(context, "master", None) is None:
        raise Error(f"spark must be a SparkSession, or None for this machine, not {spark!r:.60}")
    return context


def is_local(spark: Any) -> bool:
    """Whether it has no executors but this process: then the local engine is used."""
    return str(context_of(spark).master).startswith("local")


def directory_of(project: Project) -> str:
    directory = os.fspath(project or os.environ.get("HOPYARD_PROJECT") or os.getcwd())
    return directory.rstrip("/") if "://" in directory else os.path.abspath(directory)


# ---- settings: an argument, spark.hopyard.*, Spark's property, a notebook's form, hopyard.toml -------------


@dataclass(frozen=True)
class Setting:
    """A field of a notebook form. Its value is a whole number; of memory, in MB."""

    name: str  # of the argument; with dashes in hopyard.toml
    ours: str
    sparks: str | None  # None: Spark has no such property

    @property
    def property_name(self) -> str:
        """The property of a session that is set to it."""
        return self.sparks or self.ours

    @property
    def key(self) -> str:
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable in kernels of `hopyard notebook`."""
        return f"HOPYARD_{self.name.upper()}"


EXECUTORS = Setting("executors", "spark.hopyard.executors", "spark.executor.instances")
PARALLEL = Setting("parallel", "spark.hopyard.parallel", None)
MEMORY = Setting("executor_memory", "spark.hopyard.executor.memory", "spark.executor.memory")
GPUS = Setting("executor_gpus", "spark.hopyard.executor.gpus", "spark.executor.resource.gpu.amount")
SERVERS = Setting("parameter_servers", "spark.hopyard.parameterServers", "spark.tensorflow.num.ps")
FORM = (EXECUTORS, PARALLEL, MEMORY, GPUS, SERVERS)


def find(setting: Setting, conf: Any, project: Project) -> int | None:
    """The value in the session or the project; None if neither sets it."""
    own = conf.get(setting.ours)
    if own:
        return number(setting.ours, own)
    if setting.sparks and (value := conf.get(setting.sparks)):
        return size(setting.sparks, value, 1 << 20) >> 20 if setting is MEMORY else number(setting.sparks, value)
    of_notebook = from_environment(setting)
    return written(project).get(setting.key) if of_notebook is None else of_notebook


def from_environment(setting: Setting) -> int | None:
    """The value in the form of the notebook whose kernel this process is; None: not set there, or not a kernel."""
    text = os.environ.get(setting.variable)
    return number(setting.variable, text) if text else None


def engine() -> str | None:
    """The engine in that form: "local" or Spark's master; None: this process is not a kernel of `hopyard notebook`."""
    return os.environ.get("HOPYARD_ENGINE")


def written(project: Project) -> dict[str, Any]:
    """The [spark] table of the project's hopyard.toml; empty without that file or table."""
    path = os.path.join(directory_of(project), "hopyard.toml")
    try:
        with open_raw(path, "r") as file:
            table = tomllib.loads(file.readall().decode()).get("spark", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Error(f"cannot read {path}: {error}") from None
    known = {"master": str, **{setting.key: int for setting in FORM}}
    for name, value in table.items():
        if name not in known:
            raise Error(f"{path}: [spark] has no key '{name}' (keys: {', '.join(known)})")
        if type(value) is not known[name] or (type(value) is int and value < 0):
            raise Error(
                f"{path}: {name} in [spark] is {value!r}, which is not a {'string' if name == 'master' else 'number'}"
            )
    return dict(table)


def number(name: str, text: str) -> int:
    if not text.strip().isdigit():
        raise Error(f"{name} is '{text}', which is not a number")
    return int(text)


def size(name: str, text: str, unit: int) -> int:
    """The bytes of a Spark size such as "2g"; a number without suffix has that unit."""
    units = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    digits = text.lower().rstrip("bkmgt")
    suffix = text.lower()[len(digits) :]
    if not digits.isdigit() or suffix not in ("", *units, *(u + "b" for u in units if u != "b")):
        raise Error(f"{name} is '{text}', which is not an amount of memory")
    return int(digits) * (units[suffix[0]] if suffix else unit)


# ---- executors -------------------------------------------------------------------------------


def address(context: Any) -> str:
    """The address at which executors reach this machine: that of Spark's driver.

    A host name may resolve to 127.0.1.1 on this machine only.
    """
    host = context.getConf().get("spark.driver.host", "127.0.0.1")
    found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None)]
    remote = [word for word in found if not word.startswith("127.") and word != "::1"]
    return remote[0] if remote else found[0] if host in (*found, "localhost") else _outward() or found[0]


def _outward() -> str | None:
    """The local address of a route to other machines; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:  # there is no route
            return None
        return str(probe.getsockname()[0])


def default(name: str) -> str | None:
    """A value of spark-defaults.conf, in a process that has no session yet."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return SparkConf().get(name)


def listed(context: Any) -> list[Any]:
    """The current executors, as in Spark's web UI."""
    found = context._jsc.sc().statusStore().executorList(True)
    return [e for e in (found.apply(i) for i in range(found.size())) if e.id() != "driver"]


def executors(context: Any, project: Project) -> int | None:
    """The number of executors to expect; None if it is not fixed."""
    conf = context.getConf()
    own = conf.get(EXECUTORS.ours)
    if not own and conf.get("spark.dynamicAllocation.enabled") == "true":
        most = conf.get("spark.dynamicAllocation.maxExecutors")
        value = number("spark.dynamicAllocation.maxExecutors", most) if most else None
        return value or written(project).get(EXECUTORS.key) or MANY
    return find(EXECUTORS, conf, project) or (2 if context.master == "yarn" else None)  # Spark's default there


def cores(context: Any) -> int:
    """The number of cores of each executor, at least."""
    value = context.getConf().get("spark.executor.cores", "")
    if value.isdigit():
        return int(value)
    return min((int(e.totalCores()) for e in listed(context)), default=0) or _cores_of_the_first(context)


def _cores_of_the_first(context: Any) -> int:
    """There is no executor yet, and no setting: a small job waits for the first."""
    [count] = context.parallelize([0], 1).map(lambda _: _executor.cores()).collect()
    return int(count)


def container(context: Any) -> str | None:
    """TOTAL:TRIALS, the bytes of an executor's container, if its memory is limited, and the part that trials may use:
    everything but the JVM's heap and off-heap memory."""
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
    """A warning if Spark's channel, which carries the agents' keys, is not secure; else an empty string."""
    conf = context.getConf()
    safe = all(conf.get(name) == "true" for name in ("spark.authenticate", "spark.network.crypto.enabled"))
    if safe or conf.get("spark.ssl.rpc.enabled") == "true" or address(context).startswith("127."):
        return ""
    return (
        "Spark's channel to its executors is not authenticated and encrypted, so the agents' keys can be read on the "
        "network; set spark.authenticate and spark.network.crypto.enabled"
    )
