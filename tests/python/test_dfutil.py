# SPDX-License-Identifier: Apache-2.0
"""`from tensorflowonspark import dfutil`, as programs for TensorFlowOnSpark use it."""
from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, cloudpickle
from pyspark.sql import Row, SparkSession

import hopyard
import hopyard.compat  # noqa: F401  (tensorflowonspark is ours)
import tensorflow as tf

from tensorflowonspark import compat, dfutil


def feature(*values: Any) -> Any:
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(**features: Any) -> Any:
    return tf.train.Example(features=tf.train.Features(feature=features))


EXAMPLE = example(z=feature(1), a=feature(0.5), l=feature(1, 2), s=feature(b"text"), b=feature(b"\xff"),
                  f=feature(0.5, 1.5), w=feature(b"x", b"y"), e=tf.train.Feature())  # fmt: skip
TYPES = {"a": "double", "b": "binary", "e": "string", "f": "array<double>", "l": "array<bigint>", "s": "string",
         "w": "array<string>", "z": "bigint"}  # fmt: skip


def test_dfutil_is_hopyards() -> None:
    assert dfutil.__file__.startswith(hopyard.__path__[0]) and dfutil.__name__ == "tensorflowonspark.dfutil"


def test_data_frames_are_not_sent_with_a_function_that_refers_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are pickled with the module's variables; a DataFrame cannot be."""
    monkeypatch.setitem(dfutil.loadedDF, threading.Lock(), "/records")
    assert cloudpickle.loads(cloudpickle.dumps(dfutil.loadedDF)) == {}


def test_inferred_schema_is_sorted_and_marks_binary_features() -> None:
    schema = dfutil.infer_schema(EXAMPLE, ["b"])
    assert {field.name: field.dataType.simpleString() for field in schema} == TYPES
    assert schema.names == sorted(schema.names) and all(field.nullable for field in schema)
    assert dfutil.infer_schema(EXAMPLE)["b"].dataType.simpleString() == "string"


def test_examples_become_rows() -> None:
    [row] = dfutil.fromTFExample([(bytearray(EXAMPLE.SerializeToString()), None)], ["b"])
    assert row == Row(a=0.5, b=bytearray(b"\xff"), e=None, f=[0.5, 1.5], l=[1, 2], s="text", w=["x", "y"], z=1)


def test_rows_become_examples() -> None:
    dtypes = [("n", "int"), ("t", "boolean"), ("d", "double"), ("s", "string"), ("b", "binary"), ("l", "array<bigint>"),
              ("f", "array<float>"), ("w", "array<string>"), ("missing", "int")]  # fmt: skip
    row = Row(n=1, t=True, d=0.5, s="ü", b=bytearray(b"\xff"), l=[1, 2], f=[0.5], w=["x"], missing=None)
    [(data, nothing)] = dfutil.toTFExample(dtypes)([row])
    assert isinstance(data, bytearray) and nothing is None
    assert tf.train.Example.FromString(bytes(data)) == example(
        n=feature(1), t=feature(1), d=feature(0.5), s=feature("ü".encode()), b=feature(b"\xff"), l=feature(1, 2),
        f=feature(0.5), w=feature(b"x"))  # fmt: skip
    with pytest.raises(Exception, match="Unsupported dtype: map<int,int>"):
        list(dfutil.toTFExample([("m", "map<int,int>")])([Row(m={})]))


class Doubling(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def __call__(self, x: Any) -> Any:
        return 2 * x


def test_only_the_chief_exports_a_model(tmp_path: Path) -> None:
    """Under a strategy all nodes must take part."""
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Rescaling(3.0)])
    for name, given in (("module", Doubling()), ("keras", model)):
        compat.export_saved_model(given, str(tmp_path / name), is_chief=False)
        assert list(tmp_path.glob(name)) == []
        compat.export_saved_model(given, str(tmp_path / name), is_chief=True)
    assert tf.saved_model.load(str(tmp_path / "module"))(tf.constant([2.0])).numpy() == [4.0]
    served = tf.saved_model.load(str(tmp_path / "keras")).signatures["serving_default"]
    assert next(iter(served(tf.constant([[2.0]])).values())).numpy() == [[6.0]]
    with pytest.raises(hopyard.Error, match="a str is not a model; a Keras model or a tf.Module is required"):
        compat.export_saved_model("model", str(tmp_path / "other"), is_chief=True)


def test_nodes_have_separate_shards_already() -> None:
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    assert options.experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    assert compat.is_gpu_available() == bool(tf.config.list_physical_devices("GPU"))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.delenv("SPARK_CONF_DIR", raising=False)
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(
            "spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark"))).getOrCreate()  # fmt: skip
        yield session
        gateway = session.sparkContext._gateway
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # by which its JVM ends; other tests wait for every child of this process
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None


def test_a_data_frame_is_saved_and_loaded(spark: Any, tmp_path: Path) -> None:
    df = spark.createDataFrame([(n, n / 2, f"row {n}", [n, -n], bytearray([255, n])) for n in range(20)],
                               "n int, d double, s string, l array<int>, b binary")
    folder = str(tmp_path / "out")
    dfutil.saveAsTFRecords(df, folder)
    assert "_SUCCESS" in os.listdir(folder)
    with pytest.raises(hopyard.FileExists, match="already exists"):
        dfutil.saveAsTFRecords(df, folder)
    found = dfutil.loadTFRecords(spark.sparkContext, folder, binary_features=["b"])
    assert found.dtypes == [("b", "binary"), ("d", "double"), ("l", "array<bigint>"), ("n", "bigint"), ("s", "string")]
    assert sorted(found.select(*df.columns).collect()) == sorted(df.collect())
    assert dfutil.isLoadedDF(found) and not dfutil.isLoadedDF(df) and dfutil.loadedDF[found] == folder


def test_files_written_by_tensorflow_are_loaded(spark: Any, tmp_path: Path) -> None:
    """Of binary features with several values all are kept."""
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecords")) as file:
        file.write(EXAMPLE.SerializeToString())
        file.write(example(z=feature(2), b=feature(b"\xfe", b"\xfd")).SerializeToString())
    found = dfutil.loadTFRecords(spark.sparkContext, str(tmp_path), ["b"])
    assert dict(found.dtypes) == {**TYPES, "b": "array<binary>"}
    first, second = sorted(found.collect(), key=lambda row: row.z)
    assert first == Row(a=0.5, b=[b"\xff"], e=None, f=[0.5, 1.5], l=[1, 2], s="text", w=["x", "y"], z=1)
    assert second.b == [b"\xfe", b"\xfd"] and second.a is None and second.l is None


def test_directory_without_records_is_an_error(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(hopyard.Error, match="there is no record in .* to infer a schema from"):
        dfutil.loadTFRecords(spark.sparkContext, str(tmp_path))
