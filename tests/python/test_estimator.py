# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.keras without Spark: parameters, stores, the rows of each rank, and a training with one rank."""

import json
import multiprocessing
import os
import random
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import keras
import numpy as np
import pandas
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

import hopyard
import hopyard.compat  # noqa: F401
import hopyard.hvd as hvd
import tensorflow as tf
from hopyard.compat import _spark_tasks
from hopyard.tfrecord import _files

from horovod.spark.common import _rows
from horovod.spark.common._rows import Part, Stored
from horovod.spark.common.backend import Backend
from horovod.spark.common.params import DEFAULTS, REFUSED
from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store
from horovod.spark.keras import KerasEstimator, KerasModel, _models, _prediction, _training
from horovod.spark.keras._models import Tensor

try:
    import tf_keras
except ImportError:  # TensorFlow before 2.16 has its own
    tf_keras = tf.keras

PACKAGE = ("unused", "unused", hopyard.__version__)  # hopyard is installed here


@pytest.fixture(params=["keras", "tf_keras"])
def kit(request):
    return {"keras": keras, "tf_keras": tf_keras}[request.param]


# ---- parameters -------------------------------------------------------------------------------


def test_every_parameter_has_a_setter_and_a_getter():
    estimator = KerasEstimator()
    assert {param.name for param in estimator.params} == set(DEFAULTS)
    for title, value in {
        "NumProc": 3,
        "Epochs": 7,
        "RunId": "r",
        "ShufflingBufferSize": 5,
        "InMemoryCacheAll": True,
        "FeatureCols": ["a"],
        "Validation": 0.25,
        "CustomObjects": {"f": len},
        "UseGpu": False,
    }.items():
        assert getattr(estimator, f"set{title}")(value) is estimator
        assert getattr(estimator, f"get{title}")() == value
    assert estimator.getBatchSize() == 32 and estimator.getOrDefault("epochs") == 7
    assert "number of ranks" in estimator.explainParams()


def test_a_parameter_that_is_none_keeps_its_default():
    assert KerasEstimator(batch_size=None, num_proc=None).getBatchSize() == 32


def test_unknown_parameter_is_an_error_that_lists_the_known():
    with pytest.raises(TypeError, match=r"KerasEstimator has no parameter 'batchsize' \(parameters: .*batch_size"):
        KerasEstimator(batchsize=3)


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_parameter_is_an_error(name):
    with pytest.raises(hopyard.Error, match=f"KerasEstimator does not serve {name}: hopyard reads rows with tf.data"):
        KerasEstimator(**{name: ["x"]})
    estimator = KerasEstimator(model=keras.Sequential([keras.Input((1,))]), store=Store.create("x"), label_cols=["y"])
    with pytest.raises(hopyard.Error, match=f"does not serve {name}"):
        estimator.fit(object(), {estimator.getParam(name): ["x"]})


def test_a_parameter_without_effect_warns():
    with pytest.warns(UserWarning, match="train_reader_num_workers has no effect"):
        KerasEstimator(train_reader_num_workers=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KerasEstimator(reader_pool_type="thread", compress_sparse_cols=False)


def checked(kit, tmp_path, **given):
    """An estimator's parameters, as fit() checks them before it does anything."""
    model = kit.Sequential([kit.Input((2,)), kit.layers.Dense(1)])
    given = {"store": Store.create(str(tmp_path)), "model": model, "optimizer": kit.optimizers.SGD(0.1), "loss": "mse",
             "feature_cols": ["x"], "label_cols": ["y"], **given}
    estimator = KerasEstimator(**{name: value for name, value in given.items() if value is not None})
    estimator._check_required()
    estimator._check()
    return estimator


@pytest.mark.parametrize(
    "given, why",
    [
        ({"model": None}, "needs the parameter 'model'"),
        ({"store": None}, "needs the parameter 'store'"),
        ({"label_cols": None}, "needs the parameter 'label_cols'"),
        ({"loss": None}, "needs the parameter 'loss'"),
        ({"optimizer": None}, "needs an optimizer"),
        ({"feature_cols": ["a", "b"]}, "there are 2 feature columns, and the model has 1 inputs"),
        ({"label_cols": ["a", "b"]}, "there are 2 label columns, and the model has 1 outputs"),
        ({"num_proc": 2, "backend": object()}, 'at most one of "num_proc" and "backend"'),
        ({"model": object()}, "model must be a model of Keras or tf_keras, not object"),
        ({"model": keras.Sequential([keras.layers.Dense(1)])}, "the model has no inputs yet"),
        (
            {"checkpoint_callback": keras.callbacks.ModelCheckpoint("a.weights.h5", save_weights_only=True)},
            "saves weights only",
        ),
    ],
)
def test_a_wrong_parameter_is_found_before_anything_is_written(tmp_path, given, why):
    with pytest.raises(ValueError, match=why):
        checked(keras, tmp_path, **given)
    assert os.listdir(tmp_path) == []


def test_a_learning_rate_that_cannot_be_scaled_is_refused(kit, tmp_path):
    schedule = kit.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    with pytest.raises(hopyard.Error, match="the learning rate of SGD is not a number"):
        checked(kit, tmp_path, optimizer=kit.optimizers.SGD(schedule))
    checked(kit, tmp_path, optimizer="adam")


def test_a_legacy_optimizer_needs_a_file_that_keeps_its_state(tmp_path):
    optimizer = tf_keras.optimizers.legacy.SGD(0.1)
    with pytest.raises(hopyard.Error, match="checkpoint_filename='checkpoint.h5'"):
        checked(tf_keras, tmp_path, optimizer=optimizer)
    checked(tf_keras, tmp_path, optimizer=optimizer, store=Store.create(str(tmp_path), checkpoint_filename="c.h5"))


def test_a_model_has_setters_and_default_output_columns():
    model = KerasModel(label_columns=["a", "b"], history={"loss": [1.0]}, run_id="r")
    assert model.getOutputCols() == ["a__output", "b__output"] and model.getHistory() == {"loss": [1.0]}
    assert model.setOutputCols(["c"]).getOutputCols() == ["c"] and model.getRunId() == "r"
    assert model.setLabelColoumns(["d"]).getLabelColumns() == ["d"], "Horovod's spelling"


# ---- stores -----------------------------------------------------------------------------------


def test_a_store_on_this_machine(tmp_path, monkeypatch):
    store = Store.create(str(tmp_path))
    assert type(store) is FilesystemStore and store.prefix_path == f"file://{tmp_path}"
    assert store.get_train_data_path() == f"file://{tmp_path}/intermediate_train_data"
    assert store.get_val_data_path(3) == f"file://{tmp_path}/intermediate_val_data.3"
    assert store.get_test_data_path() == f"file://{tmp_path}/intermediate_test_data"
    assert store.get_checkpoint_path("r") == store.get_run_path("r") == f"file://{tmp_path}/runs/r"
    assert store.get_logs_path("r") == f"file://{tmp_path}/runs/r/logs" and store.saving_runs()
    assert store.get_checkpoint_filename() == "checkpoint.keras"
    assert store.get_localized_path(store.get_run_path("r")) == f"{tmp_path}/runs/r"
    assert not store.exists(f"file://{tmp_path}/a")
    store.write_text(f"file://{tmp_path}/a", "text")
    assert store.exists(f"{tmp_path}/a") and store.read(f"file://{tmp_path}/a") == b"text"
    assert store.fs.exists(f"{tmp_path}/a") and store.get_filesystem().protocol[0] == "file"
    monkeypatch.chdir(tmp_path)
    assert LocalStore("here", save_runs=False).prefix_path == f"file://{tmp_path}/here"
    assert LocalStore("here", save_runs=False).get_checkpoint_path("r") is None
    os.makedirs("runs/r")
    (tmp_path / "runs/r/checkpoint.keras").touch()
    assert store.get_checkpoints("r") == [f"{tmp_path}/runs/r/checkpoint.keras"]


def test_a_store_on_hdfs():
    assert type(Store.create("hdfs://name:8020/a")) is HDFSStore
    assert Store.create("hdfs://name:8020/a").get_run_path("r") == "hdfs://name:8020/a/runs/r"
    assert HDFSStore("/a").prefix_path == "hdfs:///a"
    store = HDFSStore("/a", host="name", port=8020, train_path="/t", temp_dir="/tmp", runs_path="hdfs:///r")
    assert store.get_train_data_path() == "hdfs://name:8020/t" and store.get_runs_path() == "hdfs:///r"
    assert store.get_val_data_path() == "hdfs://name:8020/a/intermediate_val_data" and store.temp_dir == "/tmp"


@pytest.mark.parametrize("make, why", [
    (lambda: Store.create("s3://bucket/a"), "'s3://bucket/a': a FilesystemStore serves file://, hdfs://, hopsfs://, not s3://"),
    (lambda: Store.create("/a", storage_options={"key": 1}), "storage_options are not served"),
    (lambda: HDFSStore("/a", user="somebody"), "does not serve user: set HADOOP_USER_NAME"),
    (lambda: HDFSStore("/a", extra_conf={"a": "b"}), "does not serve extra_conf"),
    (lambda: HDFSStore("file:///a"), "a HDFSStore serves hdfs://, hopsfs://, not file://"),
    (lambda: DBFSLocalStore("/dbfs/a"), "DBFSLocalStore is not served"),
])
def test_unsupported_store_is_an_error(make, why):
    with pytest.raises(hopyard.Error, match=why):
        make()


@pytest.mark.parametrize("make, why", [
    (lambda: Store.create("/a", checkpoint_filename="checkpoint"), "must end in '.keras' or '.h5'"),
    (lambda: HDFSStore("a"), "a path on HDFS begins with '/'"),
])
def test_a_wrong_path_is_refused(make, why):
    with pytest.raises(ValueError, match=why):
        make()


# ---- rows -------------------------------------------------------------------------------------


def test_ranks_read_every_row_and_all_the_same_number():
    rng = random.Random(1)
    for _ in range(300):
        counts = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 8))]
        part = Part([(f"f{n}", rows) for n, rows in enumerate(counts)], 0)
        rows = {f"f{n}": [f"{n}.{row}" for row in range(many)] for n, many in enumerate(counts)}
        size, read = rng.randrange(1, 7), []
        for rank in range(size):
            names, skip, count = part.window(rank, size)
            mine = [row for name in names for row in rows[name]][skip : skip + count]
            assert len(mine) == count == -(-part.rows // size)
            assert skip < len(rows[names[0]])  # no file is read in vain
            read += mine
        assert set(read) == {row for each in rows.values() for row in each} and len(read) - part.rows < size


def stored(tmp_path, columns, sizes=(5, 3)):
    """Files of rows; `columns` are arrays with a row in each line."""
    files, at = [], 0
    for size in sizes:
        path = str(tmp_path / f"part-{at}")
        with tf.io.TFRecordWriter(path) as writer:
            for row in range(at, at + size):
                feature = {name: of(values[row]) for name, values in columns.items()}
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        files.append((path, size))
        at += size
    return Part(files, sum(os.path.getsize(name) for name, _ in files))


def of(value):
    values = np.ravel(value)
    if values.dtype.kind == "S":
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=list(values)))
    if values.dtype.kind == "i":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def job(tmp_path, kit, train, **given):
    """y = 2 a + b, from a column of two floats."""
    model = kit.Sequential([kit.Input((2,), name="x"), kit.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(kit.optimizers.SGD(0.1, momentum=0.5), "mse", metrics=["mae"])
    model.save(str(tmp_path / "model.keras"))
    return _training.Job(
        **{
            **dict(
                package=kit.__name__,
                model=str(tmp_path / "model.keras"),
                run=str(tmp_path / "runs/r"),
                checkpoint="checkpoint.keras",
                logs="logs",
                saves_run=True,
                temp_dir=None,
                train=train,
                validation=None,
                features=[Tensor("x", 2, 2, [-1, 2], "float32")],
                labels=[Tensor("y", 2, 1, [-1, 1], "float32")],
                weight=None,
                custom_objects={},
                callbacks=[],
                checkpoint_callback=None,
                compression=None,
                transformation=None,
                batch_size=4,
                val_batch_size=4,
                steps=None,
                val_steps=None,
                epochs=1,
                verbose=0,
                seed=1,
                shuffle_rows=None,
                caches=False,
                uses_gpu=True,
                start_method=None,
                floatx="float32",
            ),
            **given,
        }
    )


X = np.random.default_rng(1).random((8, 2)).astype(np.float32)
COLUMNS = {
    "x": X,
    "y": X @ np.array([2, 1], np.float32),
    "n": np.arange(8),
    "s": np.array([b"%d" % n for n in range(8)]),
}


@pytest.mark.parametrize("caches", [False, True])
def test_an_epoch_of_all_ranks_has_every_row(tmp_path, monkeypatch, caches):
    part = stored(tmp_path, COLUMNS)
    given = job(tmp_path, keras, part, features=[Tensor("n", 3, 1, [-1], "int32")], caches=caches)
    read = []
    for rank in range(3):
        monkeypatch.setattr(_training.hvd, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(_training.hvd, "size", lambda: 3)
        dataset = _training._dataset(given, part, 2, None, trains=True)
        assert dataset.cardinality() == 2
        epochs = [[batch.numpy().tolist() for batch, _ in dataset] for _ in range(2)]
        assert [len(batch) for batch in epochs[0]] == [2, 1] and sorted(sum(epochs[0], [])) == sorted(
            sum(epochs[1], [])
        )
        read += sum(epochs[0], [])
    assert set(read) == set(range(8)) and len(read) == 9


def test_a_file_with_fewer_rows_than_were_written_is_an_error(tmp_path, group):
    part = stored(tmp_path, COLUMNS)
    with pytest.raises(tf.errors.FailedPreconditionError, match="expected to contain 9 elements"):
        list(_training._dataset(job(tmp_path, keras, part), Part([*part.files[:1], (part.files[1][0], 4)], 1), 4, None))


@pytest.fixture
def group():
    hvd.init()
    yield
    hvd.shutdown()


def test_rows_are_converted_to_model_inputs(tmp_path, group):
    """Inputs in their order and type, labels, and weights; shuffled only if that is wanted."""
    part = stored(tmp_path, COLUMNS)
    features = [Tensor("s", 1, 1, [-1, 1], "string"), Tensor("x", 2, 2, [-1, 1, 2], "float16")]
    given = job(tmp_path, keras, part, features=features, weight=Tensor("n", 3, 1, [-1], "float32"), shuffle_rows=0)
    (s, x), y, weight = next(iter(_training._dataset(given, part, 8, None, trains=True)))
    assert s.numpy().tolist() == [[b"%d" % n] for n in range(8)] and x.shape == (8, 1, 2) and x.dtype == tf.float16
    assert np.allclose(y, COLUMNS["y"].reshape(8, 1)) and weight.numpy().tolist() == list(range(8))
    given.labels = given.labels * 2
    *_, weights = next(iter(_training._dataset(given, part, 8, None)))
    assert len(weights) == 2
    steps = list(_training._dataset(given, part, 5, steps=7).take(7))
    assert sum(len(weight[0]) for *_, weight in steps) == 35  # repeated as the steps need


def test_a_function_transforms_every_row(tmp_path, group):
    part = stored(tmp_path, COLUMNS)

    def decoded(row):
        return {"s": [float(row["s"]), row["n"]], "y": row["y"] * 2}

    features = [Tensor("s", 1, 1, [-1, 2], "float32")]
    given = job(tmp_path, keras, part, features=features, transformation=decoded, shuffle_rows=0,
                labels=[Tensor("y", 2, 1, [-1, 1], "float32"), Tensor("n", 3, 1, [-1, 1], "int64")])
    given.transformation = lambda row: {**decoded(row), "n": row["n"]}
    x, (y, _) = next(iter(_training._dataset(given, part, 8, None, trains=True)))
    assert x.numpy().tolist() == [[n, n] for n in range(8)] and np.allclose(y[:, 0], COLUMNS["y"] * 2)
    given.transformation = lambda row: {"y": row["y"]}
    with pytest.raises(Exception, match="transformation_fn has not returned the column 's'"):
        list(_training._dataset(given, part, 8, None))


# ---- a fit: what becomes of its directories, and of a checkpoint ------------------------------


class Here(Backend):
    """A group of one, in this process."""

    def run(self, fn, args=(), kwargs=None, env=None):
        self.env = env
        return [fn(*args)]

    def num_processes(self):
        return 1


def fitted(kit, tmp_path, monkeypatch, **given):
    """A fit of rows that are there already."""
    given = {
        "backend": Here(),
        "epochs": 2,
        "batch_size": 4,
        "verbose": 1,
        "feature_cols": ["x"],
        "label_cols": ["y"],
        **given,
    }
    estimator = checked(kit, tmp_path / "store", **given)
    columns = StructType([StructField("x", ArrayType(FloatType())), StructField("y", FloatType())])

    def write(rows, folder, files, in_order, validates):
        os.makedirs(folder)
        assert files == 10 and not in_order
        return Stored(stored(Path(folder), COLUMNS), None, {"x": 2, "y": 2}, {"x": 2, "y": 1})

    monkeypatch.setattr("horovod.spark.common._rows.write", write)
    monkeypatch.setattr("hopyard.tfrecord._home", lambda context: "")
    return estimator._fit_on_rows(MagicMock(), columns, False)


def test_a_fit_with_the_run_id_of_another_continues_its_training(kit, tmp_path, monkeypatch, group, capsys):
    first = fitted(kit, tmp_path, monkeypatch, run_id="mine", optimizer=kit.optimizers.Adam(0.1))
    assert capsys.readouterr().out.startswith("8 rows to train on\n")
    again = fitted(kit, tmp_path, monkeypatch, run_id="mine", epochs=3, loss=None, optimizer=None)
    assert (
        f"Resuming training from last checkpoint: {tmp_path}/store/runs/mine/checkpoint.keras"
        in capsys.readouterr().out
    )
    optimizer = again.getModel().optimizer
    assert type(optimizer).__name__ == "Adam" and float(np.asarray(optimizer.learning_rate)) == pytest.approx(0.1)
    assert int(optimizer.iterations) == 10 and len(again.getHistory()["loss"]) == 3  # 2 epochs of 2 steps, and 3 more
    assert again.getHistory()["loss"][0] < first.getHistory()["loss"][0] and again.getRunId() == "mine"
    assert os.listdir(tmp_path / "store") == ["runs"]  # the rows are gone


def test_a_checkpoint_in_hdf5_keeps_the_state_of_legacy_optimizers(tmp_path, monkeypatch, group):
    store = Store.create(str(tmp_path / "store"), checkpoint_filename="checkpoint.h5")
    optimizer = tf_keras.optimizers.legacy.SGD(0.1, momentum=0.5)
    fitted(tf_keras, tmp_path, monkeypatch, store=store, run_id="mine", optimizer=optimizer)
    again = fitted(tf_keras, tmp_path, monkeypatch, store=store, run_id="mine").getModel().optimizer
    # And two momentums.
    assert "legacy" in type(again).__module__ and int(again.iterations) == 8 and len(again.get_weights()) == 3


def test_run_without_saving_leaves_no_files(tmp_path, monkeypatch, group):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    here = Here()
    store = Store.create(str(tmp_path / "store"), save_runs=False)
    trained = fitted(keras, tmp_path, monkeypatch, store=store, backend=here, backend_env={"A": "b"})
    assert trained.getRunId().startswith("keras_") and len(trained.getHistory()["loss"]) == 2
    assert here.env == {"A": "b", "TF_USE_LEGACY_KERAS": "0"} | {
        k: v for k, v in os.environ.items() if k == "KERAS_BACKEND"
    }
    assert [path.name for path in (tmp_path / "store").rglob("*")] == ["runs"]


def test_a_fit_that_fails_leaves_no_rows(tmp_path, monkeypatch, group):
    with pytest.raises(ValueError, match="label column 'y' has 1 values|there are 2 label_shapes"):
        fitted(keras, tmp_path, monkeypatch, label_shapes=[[-1, 1], [-1, 1]])
    assert os.listdir(tmp_path / "store") == []


def test_store_that_the_driver_does_not_see_is_an_error(tmp_path, monkeypatch, group):
    class Elsewhere(Here):
        """Ranks whose store is a directory of another machine."""

        def run(self, fn, args=(), kwargs=None, env=None):
            return [{"loss": [0.0]}]

    with pytest.raises(hopyard.Error, match=f"the trained model is not in {tmp_path}/store/runs/mine/checkpoint.keras: "
                                            "a store must be seen by the driver and all executors"):
        fitted(keras, tmp_path, monkeypatch, backend=Elsewhere(), run_id="mine")
    assert not list((tmp_path / "store").rglob("part-*")), "the rows are removed"


# ---- columns and tensors ------------------------------------------------------------------------


def tensors(tmp_path, widths, kinds=None, inputs=None, outputs=1, **given):
    """Of a model with this input, from columns x, y and w of these widths: floats, unless `kinds` has another."""
    image = keras.Input((2,)) if inputs is None else inputs
    model = keras.Model(image, keras.layers.Dense(outputs)(keras.layers.Flatten()(image)))
    estimator = KerasEstimator(store=Store.create(str(tmp_path)), model=model, feature_cols=["x"], label_cols=["y"],
                               **given)  # fmt: skip
    widths = {"x": 2, "y": 1, "w": 1, **widths}
    return estimator._tensors(Stored(Part([], 0), None, {**dict.fromkeys(widths, 2), **(kinds or {})}, widths))


def test_columns_have_the_shapes_of_the_models_tensors(tmp_path):
    [x], [y], weight = tensors(tmp_path, {}, sample_weight_col="w")
    assert x == Tensor("x", 2, 2, [-1, 2], "float32") and y == Tensor("y", 2, 1, [-1, 1], "float32")
    assert weight == Tensor("w", 2, 1, [-1], "float32")
    _, [y], weight = tensors(tmp_path, {"y": 1}, {"y": 3}, outputs=10)
    assert y == Tensor("y", 3, 1, [-1, 1], "int64") and weight is None, "the number of a class"
    _, [y], _ = tensors(tmp_path, {"y": 4}, outputs=4, label_shapes=[-1, 2, 2])
    assert y.shape == [-1, 2, 2], "a single shape needs no list around it"
    _, [y], _ = tensors(tmp_path, {"x": 5, "y": 3}, outputs=4, transformation_fn=lambda row: row)
    assert y.shape == [-1, 3], "the function may return another width"


def test_column_of_64_bits_warns(tmp_path):
    """TFRecords have floats of 32 bits."""
    with pytest.warns(UserWarning, match="feature column 'x' is stored with 32 bits, and the model's input has 64"):
        tensors(tmp_path, {}, inputs=keras.Input((2,), dtype="float64"))


@pytest.mark.parametrize(("given", "why"), [
    ({"widths": {"w": 3}, "sample_weight_col": "w"}, "sample weight column 'w' has 3 values in a row instead of one"),
    ({"widths": {"x": 3}}, "feature column 'x' has 3 values in a row, and the model's input has 2"),
    ({"widths": {}, "kinds": {"x": 1}}, "feature column 'x' holds string, and the model's input takes float32"),
    ({"widths": {"y": 3}}, "label column 'y' has 3 values in a row, and the model's output has 1; set label_shapes"),
])
def test_column_that_does_not_fit_its_tensor_is_an_error(tmp_path, given, why):
    with pytest.raises(ValueError, match=why):
        tensors(tmp_path, **given)


def test_a_fit_needs_rows(capsys):
    some, none = Part([("a", 3)], 1), Part([], 0)
    with pytest.raises(ValueError, match="the DataFrame has no rows to train on"):
        KerasEstimator()._check_rows(Stored(none, None, {}, {}))
    with pytest.raises(ValueError, match="validation=0.01 has chosen no row of the DataFrame"):
        KerasEstimator(validation=0.01)._check_rows(Stored(some, none, {}, {}))
    KerasEstimator(verbose=1)._check_rows(Stored(some, some, {}, {}))
    assert capsys.readouterr().out == "3 rows to train on, 3 to validate on\n"


def test_model_needs_its_columns():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    frame = SimpleNamespace(columns=["a", "b"])
    for given, why in (
        ({"model": model}, "KerasModel needs a model and feature_columns"),
        ({"model": model, "feature_columns": ["x"], "label_columns": ["y", "z"]},
         "there are 2 output columns, and the model has 1 outputs"),
        ({"model": model, "feature_columns": ["x"], "label_columns": ["y"]},
         r"the DataFrame has no column 'x' \(columns: a, b\)"),
    ):
        with pytest.raises(ValueError, match=why):
            KerasModel(**given).transform(frame)


# ---- training ---------------------------------------------------------------------------------


def test_a_training_leaves_its_model_checkpoints_and_logs(tmp_path, group, kit):
    part = stored(tmp_path, COLUMNS)
    board = kit.callbacks.TensorBoard("elsewhere")
    history = _training.train(job(tmp_path, kit, part, validation=part, epochs=3, val_steps=1, callbacks=[board]))
    assert set(history) == {"loss", "mae", "val_loss", "val_mae"} and len(history["loss"]) == 3
    assert history["loss"][2] < history["loss"][0] and isinstance(history["loss"][0], float)
    run = tmp_path / "runs/r"
    assert sorted(os.listdir(run)) == ["checkpoint.keras", "logs"] and not os.path.exists("elsewhere")
    assert list(run.glob("logs/train/events.*")) and list(run.glob("logs/validation/events.*"))
    model = kit.models.load_model(str(run / "checkpoint.keras"))
    assert int(model.optimizer.iterations) == 6 and type(model.optimizer).__name__ == "SGD"


def test_checkpoint_callback_keeps_the_best_model(tmp_path, group, kit, monkeypatch):
    """And checkpoints have the learning rate of one rank, whatever the number of ranks."""
    part = stored(tmp_path, COLUMNS)
    rates = []

    class Best(kit.callbacks.ModelCheckpoint):
        def on_epoch_end(self, epoch, logs=None):
            rates.append(float(np.asarray(self.model.optimizer.learning_rate)))
            super().on_epoch_end(epoch, {"made_up": [3, 1, 2][epoch]})

    best = Best("elsewhere.keras", monitor="made_up", mode="min", save_best_only=True)
    monkeypatch.setattr(_training.hvd, "size", lambda: 2)
    part = Part(part.files * 2, part.bytes)  # of which rank 0 of 2 reads the half
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=2)
    _training.train(job(tmp_path, kit, part, epochs=3, checkpoint_callback=best, saves_run=False, callbacks=[warmup],
                        compression=hvd.Compression.fp16))
    assert warmup.initial_lr == pytest.approx(0.2) and warmup.steps_per_epoch == 2
    model = kit.models.load_model(str(tmp_path / "runs/r/checkpoint.keras"))
    assert os.listdir(tmp_path / "runs/r") == ["checkpoint.keras"]
    assert int(model.optimizer.iterations) == 4  # of the second epoch
    assert rates == pytest.approx([0.1] * 3) and float(np.asarray(model.optimizer.learning_rate)) == pytest.approx(0.1)


def test_a_checkpoint_callback_that_never_saves_is_an_error(tmp_path, group):
    part = stored(tmp_path, COLUMNS)
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss", save_freq=1000)
    with pytest.raises(hopyard.Error, match="the checkpoint callback has saved no model"):
        _training.train(job(tmp_path, keras, part, checkpoint_callback=best))


def test_only_rank_0_leaves_files_and_returns_the_history(tmp_path, group, monkeypatch):
    monkeypatch.setattr(_training.hvd, "rank", lambda: 1)
    monkeypatch.setattr(_training.hvd, "size", lambda: 2)
    part = stored(tmp_path, COLUMNS)
    assert _training.train(job(tmp_path, keras, part, callbacks=[keras.callbacks.TensorBoard("elsewhere")])) is None
    assert not (tmp_path / "runs").exists() and not os.path.exists("elsewhere")


@pytest.mark.parametrize(("is_configured", "grows"), [(False, ["b"]), (True, [])])
def test_each_rank_uses_one_gpu_of_its_machine(tmp_path, monkeypatch, is_configured, grows):
    """TensorFlow would allocate all memory of all of them. hopyard may have limited the memory already."""
    given, calls = job(tmp_path, keras, None), {"visible": [], "grows": []}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a", "b"])
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda gpu: is_configured or None)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda gpus, kind: calls["visible"].append(gpus))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: calls["grows"].append(gpu))
    monkeypatch.setattr(_training.hvd, "local_rank", lambda: 3)
    _training._prepare(given)
    assert calls == {"visible": ["b"], "grows": grows}
    given.uses_gpu = False
    _training._prepare(given)
    assert calls["visible"] == ["b", []]


def test_start_method_is_that_of_the_estimator(tmp_path):
    before = multiprocessing.get_start_method(allow_none=True)
    try:
        _training._prepare(job(tmp_path, keras, None, start_method="spawn"))
        assert multiprocessing.get_start_method() == "spawn"
    finally:
        multiprocessing.set_start_method(before, force=True)


def test_store_that_a_rank_cannot_read_is_an_error(tmp_path, group):
    with pytest.raises(hopyard.Error, match="rank 0 cannot read the store: .*; a store must be seen by all executors"):
        _training.train(job(tmp_path, keras, stored(tmp_path, COLUMNS), model=str(tmp_path / "not-there.keras")))


# ---- in a Spark task ----------------------------------------------------------------------------


@pytest.fixture
def task(monkeypatch):
    context = SimpleNamespace(partitionId=lambda: 3, taskAttemptId=lambda: 8)
    monkeypatch.setattr(_rows.TaskContext, "get", lambda: context)


def written(folder, partition_by, *batches):
    """What a task writes of these batches, and what it returns."""
    _files.begin(str(folder), "job")
    pickled = cloudpickle.dumps((_rows._write, (str(folder), "job", partition_by)))
    call = _spark_tasks.calling_batches(PACKAGE, pickled)
    [found] = call(iter([pa.RecordBatch.from_pydict(batch) for batch in batches]))
    return found.to_pylist()


def test_a_task_writes_training_and_validation_apart(tmp_path, task):
    said = written(tmp_path, [_rows.FLAG], {"x": [[1.0, 2.0]], "y": [1], _rows.FLAG: [False]}, {
        "x": [[3.0, 4.0], [5.0, 6.0]], "y": [2, 3], _rows.FLAG: [False, True]},
        {"x": pa.array([], pa.list_(pa.float64())), "y": pa.array([], pa.int64()),
         _rows.FLAG: pa.array([], pa.bool_())})  # fmt: skip
    train, validation = said
    assert train["name"] == f"{_rows.FLAG}=false/part-00003-0.tfrecord.8" and train["rows"] == 2
    assert validation["name"] == f"{_rows.FLAG}=true/part-00003-1.tfrecord.8" and validation["rows"] == 1
    assert all(row["error"] == "" and row["bytes"] > 0 for row in said)
    found = [SimpleNamespace(**row) for row in said]
    assert _rows._agreed(found) == {"x": 2, "y": 1}
    part = _rows._part("/store", found, f"{_rows.FLAG}=true/")
    assert part.files == [(f"/store/{_rows.FLAG}=true/part-00003-1.tfrecord", 1)] and part.bytes == validation["bytes"]


def test_rows_that_cannot_be_trained_on_are_returned_as_an_error(tmp_path, task):
    """An exception would come with Spark's traceback."""
    for flags, batches, why in (
        ([], [{"x": [1.0, None]}], "column 'x' has rows without a value; fill them"),
        ([], [{"x": [[1.0]]}, {"x": [[1.0, 2.0]]}], "column 'x' has rows of 1 and of 2 values"),
        ([_rows.FLAG], [{"x": [1.0], _rows.FLAG: [None]}], "the validation column has rows without a value"),
    ):
        [said] = written(tmp_path, flags, *batches)
        assert said["error"].startswith(why) and said["name"] == ""
        with pytest.raises(ValueError, match=why):
            _rows._agreed([SimpleNamespace(**said)])
    tasks = [SimpleNamespace(error="", widths=json.dumps({"x": width})) for width in (2, 3)]
    with pytest.raises(ValueError, match="column 'x' has rows of 2 and of 3 values; all must have the same number"):
        _rows._agreed(tasks)


def test_task_on_a_full_store_is_retried(tmp_path, task):
    """Spark retries what raises."""
    pickled = cloudpickle.dumps((_rows._write, (str(tmp_path / "gone"), "job", [])))
    with pytest.raises(hopyard.FileError):
        list(_spark_tasks.calling_batches(PACKAGE, pickled)(iter([pa.RecordBatch.from_pydict({"x": [1.0]})])))


def predicted(model, frames, **given):
    """A model's predictions for DataFrames, as a worker of Spark computes them."""
    described = _prediction.Description(**{
        "key": str(random.random()), "package": _models.package_of(model), "floatx": "float32", "custom_objects": {},
        "columns": ["a"], "shapes": _models.input_shapes(model), "types": _models.input_types(model), "outputs": 1,
        **given,
    })  # fmt: skip
    sent = SimpleNamespace(value=_models.to_bytes(model))
    return list(_spark_tasks.predicting(PACKAGE, sent, cloudpickle.dumps(described))(iter(frames)))


def test_predictions_are_flat_rows_for_each_partition(kit):
    image = kit.Input((2, 2))
    model = kit.Model(image, kit.layers.Rescaling(2.0)(image))
    frames = [pandas.DataFrame({"i0": [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]}), pandas.DataFrame({"i0": []})]
    first, second = predicted(model, frames)
    assert [list(row) for row in first["o0"]] == [[2.0, 4.0, 6.0, 8.0], [10.0, 12.0, 14.0, 16.0]]
    assert list(second.columns) == ["o0"] and len(second) == 0


def test_predictions_of_many_inputs_and_outputs():
    a, b = keras.Input((1,)), keras.Input((2,))
    model = keras.Model([a, b], [keras.layers.Rescaling(2.0)(a), keras.layers.Rescaling(3.0)(b)])
    [found] = predicted(model, [pandas.DataFrame({"i0": [1.0], "i1": [[1.0, 2.0]]})], columns=["a", "b"], outputs=2)
    assert [list(found[name][0]) for name in ("o0", "o1")] == [[2.0], [3.0, 6.0]]


def test_prediction_of_a_missing_value_is_an_error():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Rescaling(2.0)])
    with pytest.raises(hopyard.Error, match="column 'a' has rows without a value; fill them"):
        predicted(model, [pandas.DataFrame({"i0": [1.0, None]})])


def test_inputs_have_the_types_and_shapes_of_the_model():
    described = _prediction.Description("", "keras", "float32", {}, ["s", "x"], [[-1, 2], [-1, -1, -1]],
                                        ["string", "int32"], 1)  # fmt: skip
    text = _prediction._input(described, 0, pandas.Series([["a", "b"], ["c", "d"]]))
    assert text.dtype == tf.string and text.numpy().tolist() == [[b"a", b"b"], [b"c", b"d"]]
    open_shape = _prediction._input(described, 1, pandas.Series([[1.0, 2.0]]))
    assert open_shape.dtype == np.int32 and open_shape.tolist() == [[1, 2]], "its shape is the column's"


def test_an_optimizer_is_kept_without_its_state(kit):
    package, config = _models.optimizer_to_config(kit.optimizers.SGD(0.25, momentum=0.5))
    found = _models.optimizer_from_config(package, config)
    assert type(found) is kit.optimizers.SGD
    assert found.get_config()["momentum"] == 0.5 and float(found.learning_rate) == 0.25
