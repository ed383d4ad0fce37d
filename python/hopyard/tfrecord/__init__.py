# SPDX-License-Identifier: Apache-2.0
"""Files of TFRecords as Spark's data source `tfrecord`, here and on HDFS.

    import hopyard.tfrecord

    hopyard.tfrecord.register(spark)                       # once for a session; nothing is registered by an import
    df = spark.read.format("tfrecord").load("hdfs://namenode:8020/train")
    df.write.format("tfrecord").mode("overwrite").option("codec", "gzip").save("/data/again")

    df = hopyard.tfrecord.load(spark, "/data/train")       # the same, registered by itself
    hopyard.tfrecord.save(df, "/data/again", mode="error")

recordType   "Example" (as it is without), "SequenceExample", or "ByteArray": the records as they are, in a column
             `byteArray`
codec        of what is written: "" (none), "gzip" or "zlib"; `compression` is the same, and Hadoop's names of its
             codecs are understood. What is read tells it itself
inferRows    how many records are looked at for a schema, where none is given: 10000
partitionBy  of what is written: columns, with commas between, that become folders (p=0/), and are columns again when the
             folder above them is read

A path is a file, a folder, a pattern, or a list of them; one without a scheme is where `fs.defaultFS` of the session
says. Files and folders whose names begin with '_' or '.' are passed over. Executors need pyarrow, and no hopyard: it
goes there with the session.
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

_known: "weakref.WeakSet[Any]" = weakref.WeakSet()  # sessions that have it


def register(spark: Any) -> None:
    """From here on this session knows the format `tfrecord`. Again: with what `fs.defaultFS` says now."""
    from pyspark import cloudpickle

    from .._spark import executor as _executor
    from . import _source

    session = _session_of(spark)
    for module in (_executor, _source):  # Spark's workers need not have hopyard
        cloudpickle.register_pickle_by_value(module)
    given = {"package": _package_archive.send(session.sparkContext), "home": _home(session.sparkContext)}
    session.dataSource.register(type("TFRecord", (_source.Records,), given))
    _known.add(session)


def load(
    spark: Any, path: Path | list[Path], schema: Any = None, columns: Iterable[str] | None = None, **options: object
) -> Any:
    """A DataFrame of what is there; `schema` as `spark.read.schema` takes it.

    `columns`: only these are read and decoded. Spark does not tell a data source like this which columns a later select()
    leaves, and has all of them read.
    """
    session = _knowing(spark)
    paths = [os.fspath(p) for p in path] if isinstance(path, list) else os.fspath(path)
    reader = session.read.format("tfrecord").options(**options)
    reader = reader if schema is None else reader.schema(schema)
    frame = reader.load(paths)
    return frame if columns is None else reader.schema(_only(frame.schema, list(columns))).load(paths)


def _only(schema: Any, columns: list[str]) -> Any:
    from pyspark.sql.types import StructType

    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise Error(f"there is no column '{missing[0]}'; there are {', '.join(schema.names)}")
    return StructType([schema[name] for name in columns])


def save(
    df: Any, path: Path, mode: str = "error", partition_by: str | Iterable[str] = (), **options: object
) -> None:  # fmt: skip
    """Writes a DataFrame, with a folder for each value of the columns in `partition_by`.

    Spark's own writer lets a data source like this have neither partitionBy() nor the modes "error" and "ignore"."""
    if mode not in ("append", "overwrite", "error", "errorifexists", "ignore"):
        raise Error(f"mode is 'append', 'overwrite', 'error' or 'ignore', not {mode!r}")
    url = _files.resolve(os.fspath(path), _home(_knowing(df.sparkSession).sparkContext))
    if mode not in ("append", "overwrite") and _files.exists(url):
        if mode == "ignore":
            return
        raise FileExists(17, f"{url} is there already; mode='overwrite' replaces it, mode='append' adds to it", url)
    folders = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    if folders:
        _columns.in_folders(df.schema, folders)
        df = df.sortWithinPartitions(*folders)  # so that each task has one file for each folder
        options["partitionBy"] = json.dumps(folders)
    writer = df.write.format("tfrecord").mode("overwrite" if mode == "overwrite" else "append")
    writer.options(**options).save(os.fspath(path))


def features(spark: Any, path: Path) -> dict[str, _columns.Feature]:
    """What the first records of files of tf.Examples have, by name."""
    return _columns.look(_files.find([os.fspath(path)], _home(_session_of(spark).sparkContext)), "example")


def _knowing(spark: Any) -> Any:
    session = _session_of(spark)
    if session not in _known:
        register(session)
    return session


def _session_of(spark: Any) -> Any:
    """Of a SparkContext, too, which is what TensorFlowOnSpark takes."""
    from pyspark.sql import SparkSession

    _session.context_of(spark)
    return spark if isinstance(spark, SparkSession) else SparkSession.builder.getOrCreate()


def _home(context: Any) -> str:
    """Where relative paths begin: a URL, or '' for a file system of this machine."""
    default = context._jsc.hadoopConfiguration().get("fs.defaultFS") or ""
    return "" if default.startswith("file:") else f"{default.rstrip('/')}/user/{context.sparkUser()}"
