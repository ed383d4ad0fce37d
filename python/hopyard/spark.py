# SPDX-License-Identifier: Apache-2.0
"""A SparkSession as a platform's notebook form makes one.

    import hopyard.spark

    spark = hopyard.spark.session("yarn", executors=4, executor_memory=4096, executor_gpus=1)

master             "yarn", "spark://HOST:7077"
executors          number of executors
parallel           max parallel executions: of trials, over all executors
executor_memory    of each executor, in MB. Trials live beside it, in "spark.executor.memoryOverhead"
executor_gpus      of each executor
parameter_servers  how many of a training's processes are parameter servers

What is not said here is taken from the first that says it: `spark.hopyard.*` (spark.hopyard.executors, .parallel,
.executor.memory, .executor.gpus, .parameterServers), in spark-defaults.conf, say; Spark's own property
(spark.executor.instances, spark.executor.memory, spark.executor.resource.gpu.amount, spark.tensorflow.num.ps); the
project's hopyard.toml:

    [spark]
    master = "yarn"
    executors = 4
    parallel = 8
    executor-memory = 4096
    executor-gpus = 1
    parameter-servers = 1
"""

from collections.abc import Mapping
from typing import Any

from ._base.errors import Error
from ._spark import session as _session

__all__ = ["session"]


def session(
    master: str | None = None, executors: int | None = None, parallel: int | None = None,
    executor_memory: int | None = None, executor_gpus: int | None = None, parameter_servers: int | None = None,
    project: _session.Project = None, conf: Mapping[str, object] | None = None,
) -> Any:  # fmt: skip
    """Make a SparkSession. What is not given is taken from Spark's own settings or the project's hopyard.toml.

    master: "yarn" or "spark://HOST:7077"
    executors: how many executors
    parallel: at most so many trials at a time, over all executors
    executor_memory: of each executor's JVM, in MB; trials live beside it, in "spark.executor.memoryOverhead"
    executor_gpus: GPUs of each executor
    parameter_servers: how many of a training's processes are parameter servers
    project: the folder whose hopyard.toml is read; default: $HOPYARD_PROJECT, or the current folder
    conf: further properties of Spark, by name
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise Error("this Python has no pyspark: pip install pyspark") from None
    if SparkContext._active_spark_context is not None:
        raise Error("this process has a SparkSession already; stop it first: spark.stop()")
    arguments = {"executors": executors, "parallel": parallel, "executor_memory": executor_memory,
                 "executor_gpus": executor_gpus, "parameter_servers": parameter_servers}  # fmt: skip
    SparkContext._ensure_initialized()  # from here on a SparkConf knows spark-defaults.conf
    said = SparkConf().setAll([(name, str(value)) for name, value in (conf or {}).items()])
    _fill(said, master, arguments, project)
    return SparkSession.builder.config(conf=said).getOrCreate()


def _fill(said: Any, master: str | None, arguments: Mapping[str, int | None], project: _session.Project) -> None:
    chosen = master or said.get("spark.master") or _session.written(project).get("master")
    if chosen:
        said.set("spark.master", chosen)
    for setting in _session.FORM:
        value = _checked(setting, arguments[setting.name])
        value = _session.find(setting, said, project) if value is None else value
        if value is not None:
            said.set(setting.property_name, f"{value}m" if setting is _session.MEMORY else str(value))
            said.set(setting.ours, str(value))
    _limit_cores(said)


def _checked(setting: _session.Setting, value: int | None) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise Error(f"{setting.name} takes a whole number from 0 on, not {value!r}")
    return value


def _limit_cores(said: Any) -> None:
    """A standalone cluster counts cores, not executors: it would give all it has."""
    count, cores = said.get(_session.EXECUTORS.property_name), said.get("spark.executor.cores")
    if count and cores and not said.get("spark.cores.max"):
        said.set("spark.cores.max", str(int(count) * _session.number("spark.executor.cores", cores)))
