# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="valid-type,misc"
# The mix-ins are created by a function, so mypy does not recognize them as classes.
"""TensorFlow in a pyspark.ml.Pipeline: TFEstimator trains on a cluster, TFModel infers on every executor.

An estimator's parameters, and its `tf_args`, reach train_fn(args, ctx) as one namespace. The model that comes of it is
the SavedModel in `export_dir`; it is read once by each of Spark's Python workers.
"""

import argparse
import base64
import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.ml.base import Estimator, Model
from pyspark.ml.param.shared import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLWritable

from hopyard import Error
from hopyard._spark import feed_tasks as _feed_tasks
from hopyard._spark import package_archive as _package_archive
from hopyard.compat import _spark_tasks

from . import TFCluster, dfutil, util


class TFTypeConverters:
    @staticmethod
    def toDict(value: Any) -> dict[str, Any]:  # noqa: N802  # pyspark's naming
        if isinstance(value, dict):
            return value
        raise TypeError(f"{value!r:.60} is not a dict")


# ---- parameters --------------------------------------------------------------------------------


def _has(name: str, param: str, doc: str, converter: Callable[[Any], Any], title: str = "") -> type[Params]:
    """A mix-in with the parameter, and its setter and getter."""
    title = title or name.removeprefix("Has")

    def put(self: Any, value: Any) -> Any:
        return self._set(**{param: value})

    def get(self: Any) -> Any:
        return self.getOrDefault(param)

    body = {param: Param(Params._dummy(), param, doc, typeConverter=converter), f"set{title}": put, f"get{title}": get}
    return type(name, (Params,), {**body, "__module__": __name__, "__doc__": doc})


HasBatchSize = _has("HasBatchSize", "batch_size", "rows in a batch", TypeConverters.toInt)
HasClusterSize = _has("HasClusterSize", "cluster_size", "how many nodes the cluster has", TypeConverters.toInt)
HasEpochs = _has("HasEpochs", "epochs", "how often the rows are fed", TypeConverters.toInt)
HasExportDir = _has("HasExportDir", "export_dir", "folder of the SavedModel", TypeConverters.toString)
HasGraceSecs = _has(
    "HasGraceSecs", "grace_secs", "seconds for work after the last row", TypeConverters.toInt
)
HasInputMapping = _has("HasInputMapping", "input_mapping", "column -> tensor that takes it", TFTypeConverters.toDict)
HasInputMode = _has("HasInputMode", "input_mode", "TFCluster.InputMode", TypeConverters.toInt)
HasMasterNode = _has("HasMasterNode", "master_node", "'chief', 'master', or None", TypeConverters.toString)
HasModelDir = _has("HasModelDir", "model_dir", "folder of checkpoints", TypeConverters.toString)
_HasNumPS = _has("HasNumPS", "num_ps", "how many parameter servers there are", TypeConverters.toInt)
_HasDriverPSNodes = _has(
    "HasDriverPSNodes", "driver_ps_nodes", "parameter servers on the driver", TypeConverters.toBoolean
)
HasOutputMapping = _has(
    "HasOutputMapping", "output_mapping", "tensor -> column that it becomes", TFTypeConverters.toDict
)
HasProtocol = _has("HasProtocol", "protocol", "grpc", TypeConverters.toString)
HasReaders = _has("HasReaders", "readers", "threads that read, if train_fn has any", TypeConverters.toInt)
HasSignatureDefKey = _has("HasSignatureDefKey", "signature_def_key", "which signature infers", TypeConverters.toString)
HasSteps = _has("HasSteps", "steps", "steps to train at most", TypeConverters.toInt)
HasTagSet = _has("HasTagSet", "tag_set", "tags of the graph, with commas between", TypeConverters.toString)
HasTensorboard = _has("HasTensorboard", "tensorboard", "with a TensorBoard", TypeConverters.toBoolean)
HasTFRecordDir = _has(
    "HasTFRecordDir", "tfrecord_dir", "where the rows are written as TFRecords", TypeConverters.toString
)


class HasNumPS(_HasNumPS, _HasDriverPSNodes):
    """The number of parameter servers, and whether they run on the driver."""


class Namespace:
    """Arguments by name, or a list of them (`argv`)."""

    argv: list[str] | None = None

    def __init__(self, d: Any) -> None:
        if isinstance(d, list):
            self.argv = d
        elif isinstance(d, dict):
            self.__dict__.update(d)
        elif isinstance(d, argparse.Namespace | Namespace):
            self.__dict__.update(vars(d))
        else:
            raise Error(f"arguments must be a dict, a list or a namespace, not {d!r:.60}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.argv if self.argv else list(self.__dict__))

    def __repr__(self) -> str:
        if self.argv:
            return repr(self.argv)
        return f"Namespace({', '.join(f'{name}={value!r}' for name, value in sorted(vars(self).items()))})"

    def __eq__(self, other: object) -> bool:
        return self.argv == other if self.argv else self.__dict__ == getattr(other, "__dict__", None)

    __hash__ = None  # type: ignore[assignment]


class TFParams(Params):
    """Arguments, overridden by parameters."""

    args: Any = None

    def merge_args_params(self) -> Any:
        merged = copy.copy(self.args)
        vars(merged).update({p.name: self.getOrDefault(p.name) for p in self.params})
        return merged


# ---- persistence --------------------------------------------------------------------------


class _Writer(DefaultParamsWriter):
    """Saves the constructor's arguments, cloudpickled, beside the parameters."""

    def saveImpl(self, path: str) -> None:  # noqa: N802
        made_of = base64.b64encode(cloudpickle.dumps(self.instance._made_of())).decode()
        DefaultParamsWriter.saveMetadata(self.instance, path, self.sparkSession, extraMetadata={"madeOf": made_of})


class _Reader(DefaultParamsReader):
    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        instance = self.cls(*cloudpickle.loads(base64.b64decode(metadata["madeOf"])))
        instance._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(instance, metadata)
        return instance


class _Kept(MLReadable, MLWritable):
    """Loading unpickles: only load from trusted sources."""

    def write(self) -> _Writer:
        return _Writer(self)

    @classmethod
    def read(cls) -> _Reader:
        return _Reader(cls)


# ---- training ----------------------------------------------------------------------------------


class TFEstimator(
    Estimator, TFParams, HasInputMapping, HasClusterSize, HasNumPS, HasInputMode, HasMasterNode, HasProtocol,
    HasGraceSecs, HasTensorboard, HasModelDir, HasExportDir, HasTFRecordDir, HasBatchSize, HasEpochs, HasReaders,
    HasSteps, _Kept,
):  # fmt: skip  # type: ignore[misc, valid-type]
    """Trains with train_fn(args, ctx) on the nodes of a cluster; then calls export_fn(args), if given, on one
    executor."""

    def __init__(
        self, train_fn: Callable[[Any, Any], Any], tf_args: Any, export_fn: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__()
        self.train_fn, self.export_fn, self.args = train_fn, export_fn, Namespace(tf_args)
        self._setDefault(
            input_mapping={}, cluster_size=1, num_ps=0, driver_ps_nodes=False, master_node="chief", protocol="grpc",
            input_mode=TFCluster.InputMode.SPARK, grace_secs=30, tensorboard=False, model_dir=None, export_dir=None,
            tfrecord_dir=None, batch_size=100, epochs=1, readers=1, steps=1000,
        )  # fmt: skip

    def _made_of(self) -> tuple[Any, ...]:
        return self.train_fn, self.args, self.export_fn

    def _fit(self, dataset: Any) -> "TFModel":
        sc, args = dataset.sparkSession.sparkContext, self.merge_args_params()
        if args.input_mode == TFCluster.InputMode.TENSORFLOW:
            args.tfrecord_dir = self._records_of(dataset, args.tfrecord_dir)
        given = self.args.argv or args
        cluster = TFCluster.run(
            sc, self.train_fn, given, args.cluster_size, args.num_ps, args.tensorboard, args.input_mode,
            driver_ps_nodes=args.driver_ps_nodes, master_node=args.master_node,
        )  # fmt: skip
        if args.input_mode == TFCluster.InputMode.SPARK:
            # By its RDD, not by Arrow: train_fn expects Rows of Python values.
            cluster.train(dataset.select(sorted(args.input_mapping) or dataset.columns).rdd, args.epochs)
        cluster.shutdown(grace_secs=args.grace_secs)
        if self.export_fn is not None:
            self._export(sc, given, args.export_dir)
        return self._copyValues(TFModel(self.args))

    def _records_of(self, dataset: Any, folder: str | None) -> str:
        """The directory of the rows as TFRecords: where they were loaded from, or where they are written now."""
        if dfutil.isLoadedDF(dataset):
            return str(dfutil.loadedDF[dataset])
        if not folder:
            raise Error(
                "nodes read TFRecords in InputMode.TENSORFLOW; call setTFRecordDir to set where to write them"
            )
        columns = list(self.getInputMapping())
        dfutil.saveAsTFRecords(dataset.select(columns) if columns else dataset, folder)
        return folder

    def _export(self, sc: Any, args: Any, folder: str | None) -> None:
        if not folder:
            raise Error("export_fn writes a model; call setExportDir to set where")
        call = _spark_tasks.calling(_package_archive.prepare(sc), cloudpickle.dumps((self.export_fn, args)))
        sc.parallelize([0], 1).foreachPartition(call)


# ---- inference ---------------------------------------------------------------------------------


class TFModel(
    Model, TFParams, HasInputMapping, HasOutputMapping, HasBatchSize, HasModelDir, HasExportDir, HasSignatureDefKey,
    HasTagSet, _Kept,
):  # fmt: skip  # type: ignore[misc, valid-type]
    """Inference with a SavedModel on the rows of a DataFrame: a column for each tensor of the output mapping."""

    def __init__(self, tf_args: Any) -> None:
        super().__init__()
        self.args = Namespace(tf_args)
        self._setDefault(
            input_mapping={}, output_mapping={}, batch_size=100, model_dir=None, export_dir=None,
            signature_def_key="serving_default", tag_set="serve",
        )  # fmt: skip

    def _made_of(self) -> tuple[Any, ...]:
        return (self.args,)

    def _transform(self, dataset: Any) -> Any:
        from hopyard._tensorflow import saved_model as _saved_model

        args = self.merge_args_params()
        if not args.export_dir:
            raise Error("no model is given; call setExportDir with the directory that it was exported to")
        model = _saved_model.Description(
            str(args.export_dir), str(args.tag_set or "serve"), str(args.signature_def_key or "serving_default"),
            dict(sorted(args.input_mapping.items())), dict(sorted(args.output_mapping.items())), int(args.batch_size),
        )  # fmt: skip
        infer = _feed_tasks.inferring_batches(_package_archive.prepare(dataset.sparkSession.sparkContext), tuple(model))
        return dataset.select(list(model.inputs)).mapInArrow(infer, _saved_model.schema(model))


# ---- helpers that programs import ----------------------------------------------------------------


def single_node_env(args: Any) -> None:
    """Prepares this process to use TensorFlow alone: sys.argv, and `args.num_gpus` GPUs (default: one)."""
    argv = args if isinstance(args, list) else getattr(args, "argv", None)
    if argv:
        sys.argv = argv
    util.single_node_env(getattr(args, "num_gpus", 1))


def yield_batch(iterable: Iterable[Any], batch_size: int, num_tensors: int = 1) -> Iterator[list[list[Any]]]:
    """Batches of rows as lists of columns: `num_tensors` lists of up to `batch_size` values each."""
    columns: list[list[Any]] = [[] for _ in range(num_tensors)]
    for row in iterable:
        if row is None:
            break
        for column, value in zip(columns, row):
            column.append(bytes(value) if isinstance(value, bytearray) else value)
        if len(columns[0]) >= batch_size:
            yield columns
            columns = [[] for _ in range(num_tensors)]
    if columns[0]:
        yield columns
