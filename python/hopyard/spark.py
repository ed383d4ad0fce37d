# SPDX-License-Identifier: Apache-2.0
"""Creates a SparkSession with the settings of a notebook platform.

    import hopyard.spark

    spark = hopyard.spark.session("yarn", executors=4, executor_memory=4096, executor_gpus=1)

master             "yarn", "spark://HOST:7077"
executors          the number of executors
parallel           the maximum number of trials at a time, over all executors
executor_memory    the memory of each executor's JVM, in MB. Trials use "spark.executor.memoryOverhead" instead
executor_gpus      the GPUs of each executor
parameter_servers  the number of parameter servers of a training

A setting that is not given is taken from the first of: `spark.hopyard.*` (spark.hopyard.executors, .parallel,
.executor.memory, .executor.gpus, .parameterServers), for example in spark-defaults.conf; Spark's property
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
    """Create a SparkSession. Missing settings are taken from Spark's properties or the project's hopyard.toml.

    master: "yarn" or "spark://HOST:7077"
    executors: the number of executors
    parallel: the maximum number of trials at a time, over all executors
    executor_memory: the memory of each executor's JVM, in MB; trials use "spark.executor.memoryOverhead"
    executor_gpus: the GPUs of each executor
    parameter_servers: the number of parameter servers of a training
    project: the directory of hopyard.toml; default: $HOPYARD_PROJECT, or the current directory
    conf: other Spark properties, by name
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise Error("pyspark is not installed; try: pip install pyspark") from None
    if SparkContext._active_spark_context is not None:
        raise Error("this process already has a SparkSession; stop it first with spark.stop()")
    arguments = {"executors": executors, "parallel": parallel, "executor_memory": executor_memory,
                 "executor_gpus": executor_gpus, "parameter_servers": parameter_servers}  # fmt: skip
    SparkContext._ensure_initialized()  # after this a SparkConf includes spark-defaults.conf
    spark_conf = SparkConf().setAll([(name, str(value)) for name, value in (conf or {}).items()])
    _fill(spark_conf, master, arguments, project)
    return SparkSession.builder.config(conf=spark_conf).getOrCreate()


def _fill(spark_conf: Any, master: str | None, arguments: Mapping[str, int | None], project: _session.Project) -> None:
    chosen = master or spark_conf.get("spark.master") or _session.written(project).get("master")
    if chosen:
        spark_conf.set("spark.master", chosen)
    for setting in _session.FORM:
        value = _checked(setting, arguments[setting.name])
        value = _session.find(setting, spark_conf, project) if value is None else value
        if value is not None:
            spark_conf.set(setting.ours, str(value))
        if value is not None and not str(chosen).startswith("local"):  # a local session has no executors to configure
            spark_conf.set(setting.property_name, f"{value}m" if setting is _session.MEMORY else str(value))
    _limit_cores(spark_conf)


def _checked(setting: _session.Setting, value: int | None) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise Error(f"{setting.name} must be a whole number, 0 or more, not {value!r}")
    return value


def _limit_cores(spark_conf: Any) -> None:
    """A standalone cluster limits cores, not executors: it would assign all of its cores."""
    count, cores = spark_conf.get(_session.EXECUTORS.property_name), spark_conf.get("spark.executor.cores")
    if count and cores and not spark_conf.get("spark.cores.max"):
        spark_conf.set("spark.cores.max", str(int(count) * _session.number("spark.executor.cores", cores)))
