# SPDX-License-Identifier: Apache-2.0
"""TFRecord files as the Spark data source `tfrecord`, on this machine and on HDFS.

    import hopyard.tfrecord

    hopyard.tfrecord.register(spark)                       # once per session; importing registers nothing
    df = spark.read.format("tfrecord").load("hdfs://namenode:8020/train")
    df.write.format("tfrecord").mode("overwrite").option("codec", "gzip").save("/data/again")

    df = hopyard.tfrecord.load(spark, "/data/train")       # the same; registers if necessary
    hopyard.tfrecord.save(df, "/data/again", mode="error")

recordType   "Example" (default), "SequenceExample", or "ByteArray": the unparsed records, in a column `byteArray`
codec        compression of written files: "" (none), "gzip" or "zlib"; `compression` is a synonym, and Hadoop's codec
             names are accepted. It is detected when reading
inferRows    the number of records that are read to infer a schema, if none is given: 10000
partitionBy  for writing: comma-separated columns that become directories (p=0/), and columns again when the directory
             above them is read

A path is a file, a directory, a pattern, or a list of them; without a scheme it is on the session's `fs.defaultFS`.
Files and directories whose names begin with '_' or '.' are ignored. Executors need pyarrow, but not hopyard, which is
sent with the session.
"""

import json
import os
import weakref
from collections.abc import Iterable
from typing import Any

from .._base.errors import Error, FileExists
from .._spark import package_archive as _package_archive
from .._spark import session as _session
from . import _columns, _files

__all__ = ["load", "register", "save"]

Path = str | os.PathLike[str]

_sessions: "weakref.WeakSet[Any]" = weakref.WeakSet()  # sessions in which it is registered


def register(spark: Any) -> None:
    """Registers the format `tfrecord` in this session; call it again after a change of `fs.defaultFS`."""
    from pyspark import cloudpickle

    from .._spark import executor as _executor
    from . import _source

    session = _session_of(spark)
    for module in (_executor, _source):  # Spark's workers need not have hopyard
        cloudpickle.register_pickle_by_value(module)
    given = {"package": _package_archive.send(session.sparkContext), "home": _home(session.sparkContext)}
    session.dataSource.register(type("TFRecord", (_source.Records,), given))
    _sessions.add(session)


def load(
    spark: Any, path: Path | list[Path], schema: Any = None, columns: Iterable[str] | None = None, **options: object
) -> Any:
    """A DataFrame of the records; `schema` as for `spark.read.schema`.

    `columns`: read and decode only these. Spark does not pass the columns of a later select() to Python data sources,
    so otherwise all of them are read.
    """
    session = _registered(spark)
    paths = [os.fspath(p) for p in path] if isinstance(path, list) else os.fspath(path)
    reader = session.read.format("tfrecord").options(**options)
    reader = reader if schema is None else reader.schema(schema)
    frame = reader.load(paths)
    return frame if columns is None else reader.schema(_only(frame.schema, list(columns))).load(paths)


def _only(schema: Any, columns: list[str]) -> Any:
    from pyspark.sql.types import StructType

    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise Error(f"there is no column '{missing[0]}' (columns: {', '.join(schema.names)})")
    return StructType([schema[name] for name in columns])


def save(
    df: Any, path: Path, mode: str = "error", partition_by: str | Iterable[str] = (), **options: object
) -> None:  # fmt: skip
    """Writes a DataFrame, with a directory for each value of the columns in `partition_by`.

    Spark's writer does not support partitionBy() and the modes "error" and "ignore" for Python data sources."""
    if mode not in ("append", "overwrite", "error", "errorifexists", "ignore"):
        raise Error(f"invalid mode {mode!r}: it must be 'append', 'overwrite', 'error' or 'ignore'")
    url = _files.resolve(os.fspath(path), _home(_registered(df.sparkSession).sparkContext))
    if mode not in ("append", "overwrite") and _files.exists(url):
        if mode == "ignore":
            return
        raise FileExists(17, f"{url} already exists; mode='overwrite' replaces it, mode='append' adds to it", url)
    folders = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    if folders:
        _columns.in_folders(df.schema, folders)
        df = df.sortWithinPartitions(*folders)  # so that each task writes one file per directory
        options["partitionBy"] = json.dumps(folders)
    writer = df.write.format("tfrecord").mode("overwrite" if mode == "overwrite" else "append")
    writer.options(**options).save(os.fspath(path))


def features(spark: Any, path: Path) -> dict[str, _columns.Feature]:
    """The features of the first records of tf.Example files, by name."""
    return _columns.look(_files.find([os.fspath(path)], _home(_session_of(spark).sparkContext)), "example")


def _registered(spark: Any) -> Any:
    session = _session_of(spark)
    if session not in _sessions:
        register(session)
    return session


def _session_of(spark: Any) -> Any:
    """The session; also for a SparkContext, which TensorFlowOnSpark's functions take."""
    from pyspark.sql import SparkSession

    _session.context_of(spark)
    return spark if isinstance(spark, SparkSession) else SparkSession.builder.getOrCreate()


def _home(context: Any) -> str:
    """The base of relative paths: a URL, or '' for the local file system."""
    default = context._jsc.hadoopConfiguration().get("fs.defaultFS") or ""
    return "" if default.startswith("file:") else f"{default.rstrip('/')}/user/{context.sparkUser()}"
