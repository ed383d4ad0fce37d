# SPDX-License-Identifier: Apache-2.0
"""The Spark data source.

It is pickled by value for Spark's Python workers, on the driver and on executors, which may not have hopyard: it
imports pyspark and the standard library only, and loads hopyard in the worker. """

import json
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)  # fmt: skip

from .._spark.executor import ensure_package


class Records(DataSource):
    """The data source. register() sets `package` and `home`."""

    package: tuple[str, str, str]
    home: str

    @classmethod
    def name(cls) -> str:
        return "tfrecord"

    def __init__(self, options: Any) -> None:
        ensure_package(*self.package)
        from hopyard.tfrecord import _columns, _files

        said = {name.lower(): value for name, value in options.items()}
        self.kind = _columns.kind_of(said.get("recordtype", "Example"))
        self.codec = _files.codec_of(said.get("codec") or said.get("compression") or "")
        self.rows = _columns.number_of("inferRows", said.get("inferrows", "10000"))
        self.partition_by = _files.names_of(said.get("partitionby", ""))
        self.paths = json.loads(said["paths"]) if "paths" in said else [said["path"]] if "path" in said else []

    def schema(self) -> Any:
        ensure_package(*self.package)
        from hopyard.tfrecord import _columns, _files

        return _columns.schema_of(_files.find_parts(self.paths, self.home), self.kind, self.rows)

    def reader(self, schema: Any) -> "Reader":
        return Reader(self, schema)

    def writer(self, schema: Any, overwrite: bool) -> "Writer":
        return Writer(self, schema, overwrite)


class Reader(DataSourceReader):
    def __init__(self, source: Records, schema: Any) -> None:
        ensure_package(*source.package)
        from hopyard.tfrecord import _columns, _files

        self.package, self.kind, self.shape = source.package, source.kind, schema
        self.files = _files.find_parts(source.paths, source.home)
        _columns.check(schema, source.kind, self.files[0][1] if self.files else ())

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(file) for file in self.files]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches; Spark passes None if there is no file."""
        ensure_package(*self.package)
        from hopyard.tfrecord import _columns

        if not partition.value:
            return iter(())
        url, values = partition.value
        return _columns.read(url, self.shape, self.kind, values)


class Writer(DataSourceArrowWriter):
    """Each task writes a hidden file; the driver renames them when all are complete."""

    def __init__(self, source: Records, schema: Any, overwrite: bool) -> None:
        ensure_package(*source.package)
        from hopyard.tfrecord import _columns, _files

        _columns.check(schema, source.kind, _columns.in_folders(schema, source.partition_by))
        self.package, self.kind, self.codec, self.overwrite = source.package, source.kind, source.codec, overwrite
        self.partition_by = source.partition_by
        self.folder, self.job = _files.folder_of(source.paths, source.home), uuid.uuid4().hex
        _files.begin(self.folder, self.job)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        ensure_package(*self.package)
        from pyspark import TaskContext

        from hopyard.tfrecord import _columns, _files

        task = TaskContext.get()
        part = f"part-{task.partitionId():05}-{self.job}"
        said = WriterCommitMessage()
        said.files = []
        for n, (folder, batches) in enumerate(_columns.split(iterator, self.partition_by)):
            name = f"{folder}{part}{f'-{n}' if folder else ''}"
            records = (_columns.records(batch, self.kind) for batch in batches if batch.num_rows)
            said.files += _files.write(self.folder, self.job, name, task.taskAttemptId(), self.codec, records)
        return said

    def commit(self, messages: list[Any]) -> None:
        ensure_package(*self.package)
        from hopyard.tfrecord import _files

        _files.commit(self.folder, self.job, [name for message in messages for name in message.files], self.overwrite)

    def abort(self, messages: list[Any]) -> None:
        ensure_package(*self.package)
        from hopyard.tfrecord import _files

        _files.abort(self.folder, self.job, [name for message in messages if message for name in message.files])
