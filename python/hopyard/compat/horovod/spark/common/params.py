# SPDX-License-Identifier: Apache-2.0
"""The parameters of estimators and their models, as Spark ML has them: a Param, a setter and a getter each."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.ml.param.shared import HasOutputCols, Param, Params, TypeConverters

from hopyard import Error

__all__ = ["EstimatorParams", "ModelParams"]

_INT, _BOOL, _TEXT, _TEXTS = (
    TypeConverters.toInt, TypeConverters.toBoolean, TypeConverters.toString, TypeConverters.toListString,
)  # fmt: skip

_Row = tuple[str, str, Callable[[Any], Any] | None, str]
"""A parameter: its name, that in setNAME and getNAME, its type, and what it is."""


def having(rows: Iterable[_Row]) -> Callable[[type], type]:
    """Gives a class these parameters."""

    def decorate(cls: type) -> type:
        for name, title, converter, doc in rows:
            setattr(cls, name, Param(Params._dummy(), name, doc, converter or TypeConverters.identity))
            setattr(cls, f"set{title}", lambda self, value, name=name: self._set(**{name: value}))
            setattr(cls, f"get{title}", lambda self, name=name: self.getOrDefault(name))
        return cls

    return decorate


_NO_PETASTORM = "hopyard reads rows with tf.data, not with Petastorm"
REFUSED = {
    "data_module": f"{_NO_PETASTORM} or NVTabular",
    "transformation_edit_fields": f"{_NO_PETASTORM}; let transformation_fn return the columns as the model takes them",
    "transformation_removed_fields": f"{_NO_PETASTORM}; leave the columns out of feature_cols",
}
"""Parameters that would change the result, and what to do instead."""
WITHOUT_EFFECT = {
    "compress_sparse_cols": "sparse vectors are stored as dense rows",
    "train_reader_num_workers": _NO_PETASTORM,
    "val_reader_num_workers": _NO_PETASTORM,
    "reader_pool_type": _NO_PETASTORM,
}
"""Parameters that change only how rows are stored and read."""

DEFAULTS: dict[str, Any] = dict(
    num_proc=None, backend=None, store=None, model=None, optimizer=None, loss=None, loss_weights=None, metrics=[],
    sample_weight_col=None, gradient_compression=None, feature_cols=None, label_cols=None, label_shapes=None,
    validation=None, callbacks=[], batch_size=32, val_batch_size=None, epochs=1, verbose=1, random_seed=None,
    shuffle_buffer_size=None, shuffle=True, partitions_per_process=10, run_id=None, train_steps_per_epoch=None,
    validation_steps_per_epoch=None, transformation_fn=None, inmemory_cache_all=False, use_gpu=True,
    mp_start_method=None, custom_objects={}, checkpoint_callback=None, backend_env={}, data_module=None,
    transformation_edit_fields=None, transformation_removed_fields=None, compress_sparse_cols=False,
    train_reader_num_workers=2, val_reader_num_workers=2, reader_pool_type="thread",
)  # fmt: skip


@having([
    ("num_proc", "NumProc", _INT, "number of ranks; spark.default.parallelism if not set"),
    ("backend", "Backend", None, "Backend that runs the ranks, instead of num_proc"),
    ("store", "Store", None, "Store for rows, checkpoints and logs"),
    ("model", "Model", None, "Keras model to train"),
    ("optimizer", "Optimizer", None, "optimizer, with the learning rate of one rank; that of the model if not set"),
    ("loss", "Loss", None, "loss, or one for each output"),
    ("loss_weights", "LossWeights", None, "weight of each output's loss"),
    ("metrics", "Metrics", None, "metrics to record"),
    ("sample_weight_col", "SampleWeightCol", _TEXT, "column with the weight of each row"),
    ("gradient_compression", "GradientCompression", None, "hvd.Compression for gradients"),
    ("feature_cols", "FeatureCols", _TEXTS, "columns for the model's inputs, in their order"),
    ("label_cols", "LabelCols", _TEXTS, "columns with the labels of the model's outputs, in their order"),
    ("label_shapes", "LabelShapes", None, "shape of each label; that of the model's outputs if not set"),
    ("validation", "Validation", None, "fraction of rows for validation, or a column that marks them"),
    ("callbacks", "Callbacks", None, "Keras callbacks"),
    ("batch_size", "BatchSize", _INT, "rows in a batch of one rank"),
    ("val_batch_size", "ValBatchSize", _INT, "the same for validation; batch_size if not set"),
    ("epochs", "Epochs", _INT, "epochs to train"),
    ("verbose", "Verbose", _INT, "verbosity of rank 0: 0, 1 or 2"),
    ("random_seed", "RandomSeed", _INT, "seed for the validation split, shuffling and Keras"),
    ("shuffle_buffer_size", "ShufflingBufferSize", _INT, "rows among which the next one is drawn; 0: no shuffling"),
    ("shuffle", "Shuffle", _BOOL, "whether to shuffle the rows of training"),
    ("partitions_per_process", "PartitionsPerProcess", _INT, "files of rows for each rank"),
    ("run_id", "RunId", _TEXT, "name of the run in the store; with a checkpoint there, training continues from it"),
    ("train_steps_per_epoch", "TrainStepsPerEpoch", _INT, "steps of an epoch; all rows once if not set"),
    ("validation_steps_per_epoch", "ValidationStepsPerEpoch", _INT, "steps of a validation; all rows if not set"),
    ("transformation_fn", "TransformationFn", None, "function from a row, a dict of values, to a row"),
    ("inmemory_cache_all", "InMemoryCacheAll", _BOOL, "keep the rows in the ranks' memory after the first epoch"),
    ("use_gpu", "UseGpu", _BOOL, "whether ranks use GPUs"),
    ("mp_start_method", "MpStartMethod", _TEXT, "start method of multiprocessing in the ranks"),
    ("custom_objects", "CustomObjects", None, "names of the model's own classes and functions"),
    ("checkpoint_callback", "CheckpointCallback", None, "ModelCheckpoint that decides which model is kept"),
    ("backend_env", "BackendEnv", None, "variables for the ranks' environment"),
    ("data_module", "DataModule", None, "not served"),
    ("transformation_edit_fields", "TransformationEditFields", None, "not served"),
    ("transformation_removed_fields", "TransformationRemovedFields", None, "not served"),
    ("compress_sparse_cols", "CompressSparseCols", _BOOL, "no effect"),
    ("train_reader_num_workers", "TrainReaderNumWorker", _INT, "no effect"),
    ("val_reader_num_workers", "ValReaderNumWorker", _INT, "no effect"),
    ("reader_pool_type", "ReaderPoolType", _TEXT, "no effect"),
])  # fmt: skip
class EstimatorParams(Params):
    """The parameters of an estimator, with Horovod's defaults."""

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(**DEFAULTS)

    def setParams(self, **given: Any) -> Any:  # noqa: N802  # Spark's naming
        """None leaves a parameter as it is."""
        return self._set(**{name: value for name, value in given.items() if value is not None})

    def _set(self, **given: Any) -> Any:
        unknown = [name for name in given if not self.hasParam(name)]
        if unknown:
            known = ", ".join(param.name for param in self.params if param.name not in REFUSED)
            raise TypeError(f"{type(self).__name__} has no parameter '{unknown[0]}' (parameters: {known})")
        for name, value in given.items():
            self._check_served(name, value)
        return super()._set(**given)

    def _check_served(self, name: str, value: Any) -> None:
        if name in REFUSED and value is not None:
            raise Error(f"{type(self).__name__} does not serve {name}: {REFUSED[name]}")
        if name in WITHOUT_EFFECT and value not in (None, DEFAULTS[name]):
            warnings.warn(f"{name} has no effect: {WITHOUT_EFFECT[name]}", stacklevel=4)


@having([
    ("history", "History", None, "metrics of training, a list of values for each"),
    ("model", "Model", None, "the trained Keras model"),
    ("feature_columns", "FeatureColumns", None, "columns for the model's inputs, in their order"),
    ("label_columns", "LabelColumns", None, "columns of the labels"),
    ("custom_objects", "CustomObjects", None, "names of the model's own classes and functions"),
    ("run_id", "RunId", _TEXT, "name of the run in the store"),
    ("_metadata", "_Metadata", None, "types of the label columns"),
    ("_floatx", "_Floatx", _TEXT, "Keras's default type of floats"),
])  # fmt: skip
class ModelParams(HasOutputCols):
    """The parameters of a trained model."""

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            history=None, model=None, feature_columns=None, label_columns=None, custom_objects={}, run_id=None,
            _metadata={},
            _floatx="float32",
        )  # fmt: skip

    def setParams(self, **given: Any) -> Any:  # noqa: N802
        return self._set(**{name: value for name, value in given.items() if value is not None})

    def setOutputCols(self, value: list[str]) -> Any:  # noqa: N802
        """Columns for the model's outputs; LABEL__output if not set."""
        return self._set(outputCols=value)

    def setLabelColoumns(self, value: list[str]) -> Any:  # noqa: N802
        """Horovod's own spelling."""
        return self._set(label_columns=value)
