# SPDX-License-Identifier: Apache-2.0
"""A Keras model as an estimator of Spark ML: `fit` trains it on the ranks of a Horovod job, `transform` predicts.

    estimator = KerasEstimator(num_proc=4, store=Store.create("hdfs:///user/me/experiments"), model=model,
                               optimizer=keras.optimizers.Adam(0.001), loss="mse", feature_cols=["features"],
                               label_cols=["y"], batch_size=32, epochs=10)
    predictions = estimator.fit(train_df).transform(test_df)
"""

import contextlib
import numbers
import os
import secrets
import time
import typing
import warnings
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.ml.base import Estimator, Model
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from hopyard import Error, _hopyard
from hopyard import tfrecord as _tfrecord
from hopyard._spark import package_archive as _package_archive
from hopyard.compat import _spark_tasks
from hopyard.tfrecord import _files

from horovod.spark.common import _rows
from horovod.spark.common.backend import Backend, SparkBackend
from horovod.spark.common.params import REFUSED, EstimatorParams, ModelParams

from . import _models, _training
from ._kept import Kept
from ._models import Tensor

__all__ = ["KerasEstimator", "KerasModel"]

_BYTES = 1  # the kind of a column of strings
_TYPES = {1: "string", 2: "float32", 3: "int64"}  # what a column has in a TFRecord, by its kind


class KerasEstimator(Estimator, EstimatorParams, Kept):
    """Trains a Keras model on a DataFrame. Parameters are keywords; `explainParams()` describes them."""

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self.setParams(**params)

    # ---- rows: a DataFrame's, or those of Parquet files

    def _fit(self, dataset: Any) -> "KerasModel":
        self._check_required()
        validation = self.getValidation()
        _rows.check_validation(validation)
        if self.getFeatureCols() is None:
            return self.copy({self.feature_cols: self._features(dataset.columns)})._fit(dataset)
        self._check()
        rows = _rows.flagged(dataset, self._columns(), validation, self.getRandomSeed())
        return self._fit_on_rows(rows, dataset.schema, bool(validation))

    def fit_on_parquet(self, params: Any = None, dataset_idx: Any = None) -> "KerasModel":
        """Trains on the Parquet files in the store's directory for training data, and validates on those in its
        directory for validation data, if it exists."""
        if params:
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        self._check_required()
        store, spark = self.getStore(), SparkSession.builder.getOrCreate()
        train = spark.read.parquet(store.get_train_data_path(dataset_idx))
        if self.getFeatureCols() is None:
            params = {self.feature_cols: self._features(train.columns)}
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        self._check()
        validates = store.exists(store.get_val_data_path(dataset_idx))
        if self.getValidation() and not validates:
            raise ValueError(f"there is no validation data in {store.get_val_data_path(dataset_idx)}")
        rows = _rows.flagged(train, self._columns(), None, None)
        if validates:
            others = _rows.flagged(
                spark.read.parquet(store.get_val_data_path(dataset_idx)), self._columns(), None, None
            )
            rows = rows.unionByName(others.withColumn(_rows.FLAG, F.lit(True)))
        return self._fit_on_rows(rows, train.schema, validates)

    def _features(self, there: list[str]) -> list[str]:
        """All columns that are nothing else."""
        others = {*self.getLabelCols(), self.getSampleWeightCol(), self.getValidation()}
        return [name for name in there if name not in others]

    def _columns(self) -> list[str]:
        weight = self.getSampleWeightCol()
        return [*self.getFeatureCols(), *self.getLabelCols(), *([weight] if weight else [])]

    # ---- parameters

    def _check_required(self) -> None:
        for name in ("model", "store", "label_cols"):
            if not self.getOrDefault(name):
                raise ValueError(f"KerasEstimator needs the parameter '{name}'")
        for name in REFUSED:  # fit(df, params) sets parameters without a setter
            self._check_served(name, self.getOrDefault(name))

    def _check(self) -> None:
        """Finds what is wrong before anything is written, and compiles the model."""
        if self.getNumProc() is not None and self.getBackend() is not None:
            raise ValueError(
                'at most one of "num_proc" and "backend" may be set: the backend has its own number of ranks'
            )
        if getattr(self.getCheckpointCallback(), "save_weights_only", False):
            raise ValueError(
                "checkpoint_callback saves weights only, and fit() returns whole models: save_weights_only=False"
            )
        _models.package_of(self.getModel())
        self._check_count("feature", self.getFeatureCols(), "inputs", _models.input_shapes(self.getModel()))
        self._check_count("label", self.getLabelCols(), "outputs", _models.output_shapes(self.getModel()))
        if not self._has_checkpoint():
            self._compile()

    def _check_count(self, what: str, columns: list[str], tensors: str, shapes: list[list[int]]) -> None:
        if len(columns) != len(shapes):
            raise ValueError(f"there are {len(columns)} {what} columns, and the model has {len(shapes)} {tensors}")

    def _compile(self) -> None:
        model = self.getModel()
        optimizer = self.getOptimizer() or getattr(model, "optimizer", None)
        if not self.getLoss():
            raise ValueError("KerasEstimator needs the parameter 'loss'")
        if optimizer is None:
            raise ValueError("KerasEstimator needs an optimizer: as a parameter, or with a model that is compiled")
        optimizer = _models.copy_unless_built(optimizer)
        model.compile(
            optimizer=optimizer, loss=self.getLoss(), loss_weights=self.getLossWeights(), metrics=self.getMetrics()
        )
        self._check_optimizer(getattr(model.optimizer, "inner_optimizer", model.optimizer))

    def _check_optimizer(self, optimizer: Any) -> None:
        kind = type(optimizer)
        if not isinstance(optimizer.get_config().get("learning_rate"), numbers.Real):
            raise Error(
                f"the learning rate of {kind.__name__} is not a number, so it cannot be multiplied by the number of "
                "ranks; use a number, and a callback that changes it"
            )
        if "legacy" in kind.__module__ and self.getStore().get_checkpoint_filename().endswith(".keras"):
            raise Error(
                f"the state of {kind.__module__}.{kind.__name__} is not kept in '.keras' files; "
                "use Store.create(..., checkpoint_filename='checkpoint.h5'), or an optimizer that is not a legacy one"
            )

    def _backend(self) -> Backend:
        return self.getBackend() or SparkBackend(self.getNumProc(), verbose=self.getVerbose())

    def _tensors(self, stored: _rows.Stored) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Which column becomes which tensor of the model."""
        model, weight = self.getModel(), self.getSampleWeightCol()
        inputs, outputs = _models.input_shapes(model), _models.output_shapes(model)
        features = [
            self._feature(name, shape, dtype, stored)
            for name, shape, dtype in zip(self.getFeatureCols(), inputs, _models.input_types(model))
        ]
        labels = [
            self._label(*each, stored) for each in zip(self.getLabelCols(), outputs, self._label_shapes(len(outputs)))
        ]
        if weight and stored.widths[weight] != 1:
            raise ValueError(
                f"sample weight column '{weight}' has {stored.widths[weight]} values in a row instead of one"
            )
        return features, labels, Tensor(weight, stored.kinds[weight], 1, [-1], "float32") if weight else None

    def _label_shapes(self, outputs: int) -> list[Any]:
        """One for each label; a single shape may be given without a list around it."""
        shapes = list(self.getLabelShapes() or [None] * outputs)
        shapes = [shapes] if all(isinstance(n, int) for n in shapes) else shapes
        if len(shapes) != outputs:
            raise ValueError(f"there are {len(shapes)} label_shapes, and the model has {outputs} outputs")
        return shapes

    def _feature(self, name: str, shape: list[int], dtype: str, stored: _rows.Stored) -> Tensor:
        kind, width, size = stored.kinds[name], stored.widths[name], _models.size_of(shape)
        if self.getTransformationFn() is None:
            if size not in (None, width):
                raise ValueError(
                    f"feature column '{name}' has {width} values in a row, and the model's input has {size}"
                )
            if (kind == _BYTES) != (dtype == "string"):
                raise ValueError(f"feature column '{name}' holds {_TYPES[kind]}, and the model's input takes {dtype}")
        if dtype == "float64":
            warnings.warn(f"feature column '{name}' is stored with 32 bits, and the model's input has 64", stacklevel=2)
        return Tensor(name, kind, width, shape if shape.count(-1) == 1 else None, dtype)

    def _label(self, name: str, output: list[int], given: Any, stored: _rows.Stored) -> Tensor:
        kind, width, size = stored.kinds[name], stored.widths[name], _models.size_of(output)
        if given is not None:
            shape = list(given)
        elif width == size:
            shape = output
        elif width == 1:
            shape = [-1, 1]  # the number of a class, as the sparse losses take it
        elif self.getTransformationFn() is None and size is not None:
            raise ValueError(
                f"label column '{name}' has {width} values in a row, and the model's output has {size}; "
                "set label_shapes"
            )
        else:
            shape = [-1, width]
        return Tensor(name, kind, width, shape, _TYPES[kind])

    # ---- training

    def _fit_on_rows(self, rows: Any, schema: Any, validates: bool) -> "KerasModel":
        store, backend = self.getStore(), self._backend()
        run_id = self.getRunId() or f"keras_{int(time.time())}_{secrets.token_hex(3)}"
        home = _tfrecord._home(rows.sparkSession.sparkContext)
        folder = _files.resolve(store.get_train_data_path(secrets.token_hex(8)), home)
        run = _files.resolve(store.get_run_path(run_id), home)
        with _removed(folder), _removed(None if store.saving_runs() else run):
            files = backend.num_processes() * self.getPartitionsPerProcess()
            in_order = not self.getShuffle() or self.getShufflingBufferSize() == 0
            stored = _rows.write(rows, folder, files, in_order, validates)
            self._check_rows(stored)
            model = _hopyard.join(folder, f"_model{os.path.splitext(store.get_checkpoint_filename())[1]}")
            self._begin(model, run)
            job = self._job(stored, model, run)
            history = backend.run(_training.train, args=(job,), env=self._env())[0]
            trained = self._trained(run, store.get_checkpoint_filename())
        labels = {name: schema[name].dataType.simpleString() for name in self.getLabelCols()}
        return KerasModel(
            history=history, model=trained, feature_columns=self.getFeatureCols(), label_columns=self.getLabelCols(),
            custom_objects=self.getCustomObjects(), run_id=run_id, _metadata=labels, _floatx=job.floatx,
        )  # fmt: skip

    def _env(self) -> dict[str, str]:
        """For the ranks: callbacks are of the Keras that tf.keras is here."""
        chosen = {name: os.environ[name] for name in ("KERAS_BACKEND", "TF_USE_LEGACY_KERAS") if name in os.environ}
        return {**chosen, **(self.getBackendEnv() or {})}

    def _check_rows(self, stored: _rows.Stored) -> None:
        if not stored.train.rows:
            raise ValueError("the DataFrame has no rows to train on")
        if stored.validation is not None and not stored.validation.rows:
            raise ValueError(f"validation={self.getValidation()!r} has chosen no row of the DataFrame")
        if self.getVerbose():
            rows = f"{stored.train.rows} rows to train on"
            print(rows if stored.validation is None else f"{rows}, {stored.validation.rows} to validate on", flush=True)

    def _has_checkpoint(self) -> bool:
        store, run_id = self.getStore(), self.getRunId()
        path = store.get_checkpoint_path(run_id) if store and run_id else None
        return path is not None and store.exists(os.path.join(path, store.get_checkpoint_filename()))

    def _begin(self, url: str, run: str) -> None:
        """Puts the model to begin with where all ranks read it: that of the run's checkpoint, or the user's."""
        if not self._has_checkpoint():
            _models.save(self.getModel(), url)
            return
        checkpoint = _hopyard.join(run, self.getStore().get_checkpoint_filename())
        if self.getVerbose():
            print(f"Resuming training from last checkpoint: {checkpoint}", flush=True)
        _hopyard.copy(checkpoint, url, True)

    def _job(self, stored: _rows.Stored, model: str, run: str) -> _training.Job:
        store, keras = self.getStore(), _models.package_of(self.getModel())
        features, labels, weight = self._tensors(stored)
        return _training.Job(
            package=keras, model=model, run=run, checkpoint=store.get_checkpoint_filename(),
            logs=store.get_logs_subdir(),
            saves_run=store.saving_runs(), temp_dir=getattr(store, "temp_dir", None), train=stored.train,
            validation=stored.validation, features=features, labels=labels, weight=weight,
            custom_objects=self.getCustomObjects(), callbacks=list(self.getCallbacks()),
            checkpoint_callback=self.getCheckpointCallback(), compression=self.getGradientCompression(),
            transformation=self.getTransformationFn(), batch_size=self.getBatchSize(),
            val_batch_size=self.getValBatchSize() or self.getBatchSize(), steps=self.getTrainStepsPerEpoch(),
            val_steps=self.getValidationStepsPerEpoch(), epochs=self.getEpochs(), verbose=self.getVerbose(),
            seed=self.getRandomSeed(), shuffle_rows=self.getShufflingBufferSize() if self.getShuffle() else 0,
            caches=self.getInMemoryCacheAll(), uses_gpu=self.getUseGpu(), start_method=self.getMpStartMethod(),
            floatx=_models.floatx(keras),
        )  # fmt: skip

    def _trained(self, run: str, name: str) -> Any:
        """What rank 0 has left."""
        url = _hopyard.join(run, name)
        if not _files.exists(url):
            raise Error(f"the trained model is not in {url}: a store must be seen by the driver and all executors")
        return _models.load(_models.read(url), _models.package_of(self.getModel()), self.getCustomObjects(), name)


@contextlib.contextmanager
def _removed(url: str | None) -> Iterator[None]:
    """Removes a directory in the end."""
    try:
        yield
    finally:
        if url is not None and _files.exists(url):
            _hopyard.remove(url, True)


class KerasModel(Model, ModelParams, Kept):
    """A trained model: `transform` adds its outputs to a DataFrame, `getModel()` is the Keras model itself."""

    def __init__(self, **params: Any) -> None:
        super().__init__()
        labels = params.get("label_columns")
        if labels:
            self.setOutputCols([f"{name}__output" for name in labels])
        self.setParams(**params)

    def _transform(self, dataset: Any) -> Any:
        """An output of one value has the type of its label; others are vectors."""
        model, columns = self.getModel(), self.getFeatureColumns()
        if model is None or not columns:
            raise ValueError("KerasModel needs a model and feature_columns")
        outputs = _models.output_shapes(model)
        if len(self.getOutputCols()) != len(outputs):
            raise ValueError(
                f"there are {len(self.getOutputCols())} output columns, and the model has {len(outputs)} outputs"
            )
        missing = [name for name in columns if name not in dataset.columns]
        if missing:
            raise ValueError(f"the DataFrame has no column '{missing[0]}' (columns: {', '.join(dataset.columns)})")
        given = F.struct(*(_rows.column(dataset.schema[name]).alias(f"i{n}") for n, name in enumerate(columns)))
        held = f"__hopyard_{secrets.token_hex(4)}"
        frame = dataset.withColumn(held, self._predict(dataset.sparkSession.sparkContext, columns, len(outputs))(given))
        for n, (name, shape) in enumerate(zip(self.getOutputCols(), outputs)):
            frame = frame.withColumn(name, self._output(F.col(held)[f"o{n}"], n, _models.size_of(shape)))
        return frame.drop(held)

    def _predict(self, context: Any, columns: list[str], outputs: int) -> Any:
        import pandas
        from pyspark.sql.functions import pandas_udf

        from ._prediction import Description

        model = self.getModel()
        described = Description(
            secrets.token_hex(8), _models.package_of(model), self.getOrDefault("_floatx"), self.getCustomObjects(),
            columns,
            _models.input_shapes(model), _models.input_types(model), outputs,
        )  # fmt: skip
        call = _spark_tasks.predicting(
            _package_archive.prepare(context), context.broadcast(_models.to_bytes(model)), cloudpickle.dumps(described)
        )
        frames = typing.Iterator[pandas.DataFrame]  # by which Spark sees that the model is loaded once for a partition
        call.__annotations__ = {"batches": frames, "return": frames}
        return pandas_udf(call, ", ".join(f"o{n} array<double>" for n in range(outputs)))

    def _output(self, values: Any, number: int, size: int | None) -> Any:
        """A column of a model's output, which comes as an array."""
        from pyspark.ml.functions import array_to_vector

        labels = self.getLabelColumns() or []
        kind = self.getOrDefault("_metadata").get(labels[number], "double") if number < len(labels) else "double"
        if size != 1 or kind in ("vector", "string", "binary") or kind.startswith("array"):
            return array_to_vector(values)
        if kind in ("float", "double") or kind.startswith("decimal"):
            return values[0].cast(kind)
        return F.round(values[0]).cast(kind)
