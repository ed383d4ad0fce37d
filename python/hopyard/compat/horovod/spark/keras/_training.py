# SPDX-License-Identifier: Apache-2.0
"""What a rank of a KerasEstimator does."""

import importlib
import importlib.util
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

import tensorflow as tf
from hopyard import Error, FileError, _hopyard
from hopyard.hvd.callbacks import LearningRateScheduleCallback, _Callback

import horovod.tensorflow.keras as hvd
from horovod.spark.common._rows import Part

from . import _models
from ._models import Tensor

SHUFFLE_MAX = 1 << 30  # bytes of rows among which the next one is drawn, unless the user sets the number of rows
READ = 1 << 20  # bytes of a file at a time
_graph = tf.autograph.experimental.do_not_convert  # our functions are graphs as they are
_TYPES = {1: tf.string, 2: tf.float32, 3: tf.int64}  # of a feature, by its kind


@dataclass
class Job:
    """All that a rank needs; URLs are those of hopyard's file functions."""

    package: str
    model: str  # URL of the model to begin with
    run: str  # URL of the directory for checkpoints and logs
    checkpoint: str  # the name of the file there
    logs: str  # the name of the directory there
    saves_run: bool
    temp_dir: str | None
    train: Part
    validation: Part | None
    features: list[Tensor]
    labels: list[Tensor]
    weight: Tensor | None
    custom_objects: Mapping[str, Any]
    callbacks: list[Any]
    checkpoint_callback: Any
    compression: Any
    transformation: Callable[[dict[str, Any]], dict[str, Any]] | None
    batch_size: int
    val_batch_size: int
    steps: int | None
    val_steps: int | None
    epochs: int
    verbose: int
    seed: int | None
    shuffle_rows: int | None  # None: by SHUFFLE_MAX; 0: not at all
    caches: bool
    uses_gpu: bool
    start_method: str | None
    floatx: str


def train(job: Job) -> dict[str, list[float]] | None:
    """Trains; rank 0 leaves the model in the store and returns the history."""
    hvd.init()
    _prepare(job)
    keras = importlib.import_module(job.package)
    model = _load(job, keras)
    rate = _rate(model) * hvd.size()
    model.optimizer.learning_rate = rate
    validation = {}
    if job.validation is not None:
        rows = _dataset(job, job.validation, job.val_batch_size, job.val_steps)
        validation = {"validation_data": rows, "validation_steps": job.val_steps}
    with tempfile.TemporaryDirectory(prefix="hopyard-run-", dir=job.temp_dir) as folder:
        history = model.fit(
            _dataset(job, job.train, job.batch_size, job.steps, trains=True), epochs=job.epochs,
            steps_per_epoch=job.steps, callbacks=_callbacks(job, keras, folder, rate), **validation,
            shuffle=False, verbose=job.verbose if hvd.rank() == 0 else 0,  # the rows are shuffled already
        )  # fmt: skip
        if hvd.rank() != 0:
            return None
        _leave_model(job, folder)
    return {name: [numpy.asarray(value).tolist() for value in values] for name, values in history.history.items()}


def _leave_model(job: Job, folder: str) -> None:
    path = os.path.join(folder, job.checkpoint)
    if not os.path.exists(path):
        raise Error("the checkpoint callback has saved no model in any epoch; look at its monitor and its save_freq")
    if not job.saves_run:  # else Upload has done it
        _put(path, job.run, job.checkpoint)


def _prepare(job: Job) -> None:
    if job.start_method:
        multiprocessing.set_start_method(job.start_method, force=True)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and job.uses_gpu:
        mine = gpus[hvd.local_rank() % len(gpus)]
        if tf.config.get_logical_device_configuration(mine) is None:  # else hopyard has limited its memory
            tf.config.experimental.set_memory_growth(mine, True)
        tf.config.set_visible_devices(mine, "GPU")
    elif gpus:
        tf.config.set_visible_devices([], "GPU")


def _load(job: Job, keras: Any) -> Any:
    keras.backend.set_floatx(job.floatx)
    if job.seed is not None:
        keras.utils.set_random_seed(job.seed + hvd.rank())  # ranks begin with the weights of rank 0 in any case
    (keras.config if hasattr(keras, "config") else keras.__internal__).enable_unsafe_deserialization()  # Lambda layers
    try:
        data = _models.read(job.model)
    except FileError as error:
        raise Error(
            f"rank {hvd.rank()} cannot read the store: {error}; a store must be seen by all executors"
        ) from error
    return _models.load(
        data, job.package, job.custom_objects, os.path.basename(job.model),
        lambda path: hvd.load_model(path, compression=job.compression or hvd.Compression.none, keras=keras),
    )  # fmt: skip


def _rate(model: Any) -> float:
    return float(numpy.asarray(model.optimizer.learning_rate))


# ---- rows -------------------------------------------------------------------------------------


def _dataset(job: Job, part: Part, batch_size: int, steps: int | None, trains: bool = False) -> Any:
    """This rank's rows. Where the number of steps is given, they are repeated as often as that needs."""
    names, skip, count = part.window(hvd.rank(), hvd.size())
    rows = tf.data.TFRecordDataset(names, buffer_size=READ).skip(skip).take(count)
    rows = rows.apply(tf.data.experimental.assert_cardinality(count))  # fails where a file has fewer
    if job.caches:
        rows = rows.cache()
    if trains and job.shuffle_rows != 0:
        rows = rows.shuffle(
            job.shuffle_rows or _shuffle_rows(part, count), None if job.seed is None else job.seed + hvd.rank()
        )
    if steps is not None:
        rows = rows.repeat()
    tensors = [*job.features, *job.labels, *([job.weight] if job.weight else [])]
    if job.transformation is None:
        batches = rows.batch(batch_size).map(_graph(lambda records: _parsed(records, tensors)), tf.data.AUTOTUNE)
    else:
        batches = rows.map(_graph(lambda record: _transformed(job, record, tensors)), tf.data.AUTOTUNE).batch(
            batch_size
        )
    return batches.map(_graph(lambda *columns: _arranged(job, list(columns)))).prefetch(tf.data.AUTOTUNE)


def _shuffle_rows(part: Part, count: int) -> int:
    return max(1, min(count, SHUFFLE_MAX * part.rows // max(1, part.bytes)))


def _parsed(records: Any, tensors: list[Tensor]) -> tuple[Any, ...]:
    """Batches of serialized rows, a tensor for each column."""
    wanted = {t.column: tf.io.FixedLenFeature([t.width], _TYPES[t.kind]) for t in tensors}
    found = tf.io.parse_example(records, wanted)
    return tuple(found[t.column] for t in tensors)


def _transformed(job: Job, record: Any, tensors: list[Tensor]) -> tuple[Any, ...]:
    """One row, by the user's function: it takes and returns {column: value}, with arrays where the column has one."""
    columns = list({t.column: t for t in tensors}.values())

    def call(*values: Any) -> list[Any]:
        row = {t.column: value[0] if t.width == 1 else value for t, value in zip(columns, values)}
        found = job.transformation(row)  # type: ignore[misc]
        missing = [t.column for t in tensors if t.column not in found]
        if missing:
            raise Error(f"transformation_fn has not returned the column '{missing[0]}'")
        return [numpy.asarray(found[t.column], tf.as_dtype(t.dtype).as_numpy_dtype) for t in tensors]

    given = _parsed(tf.reshape(record, [1]), columns)
    found = tf.numpy_function(call, [value[0] for value in given], [tf.as_dtype(t.dtype) for t in tensors])
    return tuple(found)


def _arranged(job: Job, columns: list[Any]) -> tuple[Any, ...]:
    """As `fit` takes them: inputs, labels and weights."""
    inputs = [_tensor(t, columns.pop(0)) for t in job.features]
    labels = [_tensor(t, columns.pop(0)) for t in job.labels]
    if job.weight is None:
        return _one_or_all(inputs), _one_or_all(labels)
    weight = _tensor(job.weight, columns.pop(0))
    return _one_or_all(inputs), _one_or_all(labels), _one_or_all([weight] * len(labels))


def _tensor(tensor: Tensor, values: Any) -> Any:
    values = tf.cast(values, tensor.dtype) if tensor.dtype != "string" else values
    return values if tensor.shape is None else tf.reshape(values, tensor.shape)


def _one_or_all(tensors: list[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


# ---- callbacks --------------------------------------------------------------------------------


def _callbacks(job: Job, keras: Any, folder: str, rate: float) -> list[Any]:
    """Horovod's, the user's, and on rank 0 those that write files."""
    board = keras.callbacks.TensorBoard
    boards = [callback for callback in job.callbacks if isinstance(callback, board)]
    others = [callback for callback in job.callbacks if not isinstance(callback, board)]
    for callback in others:
        if isinstance(callback, LearningRateScheduleCallback):
            callback.initial_lr = rate
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(), *others]
    if hvd.rank() != 0:
        return callbacks
    path = os.path.join(folder, job.checkpoint)
    inner = job.checkpoint_callback or keras.callbacks.ModelCheckpoint(path)
    inner.filepath = path
    callbacks.append(Checkpoint(inner))
    if job.saves_run:
        callbacks += [*_boards(job, board, boards, folder), Upload(folder, job.run)]
    return callbacks


def _boards(job: Job, board: Any, boards: list[Any], folder: str) -> list[Any]:
    """TensorBoard's events go to the store; without TensorBoard no events are written."""
    logs = os.path.join(folder, job.logs)
    if not boards:
        return [board(logs)] if importlib.util.find_spec("tensorboard") else []
    for callback in boards:
        callback.log_dir = logs
    return boards


class Checkpoint(_Callback):
    """A ModelCheckpoint that saves models with the learning rate of one rank: the next fit may have another number."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner

    def set_params(self, params: Any) -> None:
        super().set_params(params)
        self._inner.set_params(params)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self._inner.set_model(model)

    def _at_rate_of_one(self, call: Callable[..., Any], *args: Any) -> None:
        optimizer = self.model.optimizer
        rate = _rate(self.model)
        optimizer.learning_rate = rate / hvd.size()
        try:
            call(*args)
        finally:
            optimizer.learning_rate = rate

    def on_train_begin(self, logs: Any = None) -> None:
        self._inner.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._inner.on_epoch_begin(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._inner.save_freq != "epoch":
            self._at_rate_of_one(self._inner.on_train_batch_end, batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._at_rate_of_one(self._inner.on_epoch_end, epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        self._inner.on_train_end(logs)


class Upload(_Callback):
    """Uploads changed files of a directory to the store, after every epoch and at the end."""

    def __init__(self, folder: str, to: str) -> None:
        super().__init__()
        self._folder, self._to = folder, to
        self._known: dict[str, tuple[int, int]] = {}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._upload()

    def on_train_end(self, logs: Any = None) -> None:
        self._upload()

    def _upload(self) -> None:
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)
                stat = os.stat(path)
                state = stat.st_mtime_ns, stat.st_size
                if self._known.get(path) != state:
                    _put(path, self._to, os.path.relpath(path, self._folder))
                    self._known[path] = state


def _put(path: str, to: str, name: str) -> None:
    """Writes to a temporary name first, so that readers see a complete file."""
    url = _hopyard.join(to, name)
    _hopyard.mkdirs(os.path.dirname(url))
    _hopyard.copy(path, f"{url}.part", True)
    _hopyard.rename(f"{url}.part", url, True)
