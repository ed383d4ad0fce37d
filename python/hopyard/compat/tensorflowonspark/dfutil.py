# SPDX-License-Identifier: Apache-2.0
"""TFRecords as DataFrames, with hopyard's data source `tfrecord` (hopyard.tfrecord), which needs no jar.

Executors need neither hopyard nor, for saveAsTFRecords and loadTFRecords, TensorFlow. What was an error is served:
arrays of strings, columns that are null in some rows, features that some records lack.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyspark import cloudpickle

__all__ = ["fromTFExample", "infer_schema", "isLoadedDF", "loadTFRecords", "loadedDF", "saveAsTFRecords", "toTFExample"]


class _Loaded(dict[Any, str]):
    """DataFrames exist on the driver only: elsewhere it is empty."""

    def __reduce__(self) -> Any:
        return dict, ()


loadedDF = _Loaded()
"""The paths that DataFrames were loaded from."""

# Functions for mapPartitions are pickled by value, since executors may not have hopyard: do not import it here.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def isLoadedDF(df: Any) -> bool:
    """Whether loadTFRecords has created it."""
    return df in loadedDF


def saveAsTFRecords(df: Any, output_dir: str) -> None:
    """Writes a directory of TFRecords, which must not exist."""
    from hopyard import tfrecord

    tfrecord.save(df, output_dir, "error")


def loadTFRecords(sc: Any, input_dir: str, binary_features: Sequence[str] = ()) -> Any:
    """A DataFrame of a directory's tf.Examples, with columns sorted by name.

    int64 is bigint, float is double, and bytes are strings, but for `binary_features`; where records have several
    values of a feature, it is an array of these.
    """
    from pyspark.sql.types import ArrayType, BinaryType, DoubleType, LongType, StringType, StructField, StructType

    from hopyard import tfrecord

    def type_of(name: str, feature: Any) -> Any:
        bytes_type = BinaryType() if name in binary_features else StringType()
        inner = {2: DoubleType(), 3: LongType()}.get(feature.kind, bytes_type)
        return ArrayType(inner) if feature.is_list else inner

    seen = sorted(tfrecord.features(sc, input_dir).items())
    df = tfrecord.load(sc, input_dir, StructType([StructField(name, type_of(name, feature)) for name, feature in seen]))
    loadedDF[df] = input_dir
    return df


def toTFExample(dtypes: Sequence[tuple[str, str]]) -> Callable[[Iterable[Any]], Iterator[tuple[bytearray, None]]]:
    """For mapPartitions: rows of a DataFrame with these `dtypes` to (serialised tf.Example, None)."""

    def feature_of(dtype: str, value: Any) -> Any:
        from tensorflow.train import BytesList, Feature, FloatList, Int64List

        inner = dtype.removeprefix("array<").removesuffix(">")
        values = value if dtype.startswith("array<") else [value]
        if inner in ("float", "double"):
            return Feature(float_list=FloatList(value=values))
        if inner in ("boolean", "tinyint", "smallint", "int", "bigint", "long"):
            return Feature(int64_list=Int64List(value=[int(v) for v in values]))
        if inner in ("string", "binary"):
            encoded = [bytes(v) if inner == "binary" else str(v).encode() for v in values]
            return Feature(bytes_list=BytesList(value=encoded))
        raise Exception(f"Unsupported dtype: {dtype}")

    def convert(rows: Iterable[Any]) -> Iterator[tuple[bytearray, None]]:
        from tensorflow.train import Example, Features

        for row in rows:
            features = {name: feature_of(dtype, row[name]) for name, dtype in dtypes if row[name] is not None}
            yield bytearray(Example(features=Features(feature=features)).SerializeToString()), None

    return convert


def infer_schema(example: Any, binary_features: Sequence[str] = ()) -> Any:
    """The schema of a DataFrame of such tf.train.Examples."""
    from pyspark.sql.types import ArrayType, BinaryType, DoubleType, LongType, StringType, StructField, StructType

    def type_of(name: str, feature: Any) -> Any:
        if name in binary_features:
            return BinaryType()
        held = getattr(feature, feature.WhichOneof("kind") or "bytes_list")
        inner = {"Int64List": LongType(), "FloatList": DoubleType()}.get(type(held).__name__, StringType())
        return ArrayType(inner) if len(held.value) > 1 else inner if held.value else StringType()

    features = sorted(example.features.feature.items())
    return StructType([StructField(name, type_of(name, feature), True) for name, feature in features])


def fromTFExample(iter: Iterable[Any], binary_features: Sequence[str] = ()) -> list[Any]:
    """For mapPartitions: (serialised tf.Example, anything) to rows."""
    from pyspark.sql import Row
    from tensorflow.train import Example

    def value_of(name: str, feature: Any) -> Any:
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        if kind == "bytes_list" and name in binary_features:
            return bytearray(values[0]) if values else None  # infer_schema allows one value only
        values = [v.decode() for v in values] if kind == "bytes_list" else values
        return values if len(values) > 1 else values[0] if values else None

    def row_of(record: Any) -> Any:
        example = Example.FromString(bytes(record[0]))
        return Row(**{name: value_of(name, feature) for name, feature in sorted(example.features.feature.items())})

    return [row_of(record) for record in iter]
