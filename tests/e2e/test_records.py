# SPDX-License-Identifier: Apache-2.0
"""`hopyard records` on files written by TensorFlow, local and on HDFS."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard
from hdfs import Hdfs

WRITE = """
import sys
import tensorflow as tf

def feature(*values):
    kind = type(values[0])
    if kind is float:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if kind is int:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

def example(n):
    features = {"pixels": feature(*[n + i / 8 for i in range(8)]), "label": feature(n), "name": feature(b"row %d" % n)}
    if n % 3:
        features["more"] = feature(*range(-n, 0))
        features["raw"] = feature(bytes([0, 255, n]))
    return tf.train.Example(features=tf.train.Features(feature=features))

for name, way in (("plain", ""), ("zipped", "GZIP"), ("zlib", "ZLIB")):
    with tf.io.TFRecordWriter(f"{sys.argv[1]}/{name}.tfrecords", way) as file:
        for n in range(10):
            file.write(example(n).SerializeToString())
steps = tf.train.FeatureLists(feature_list={"words": tf.train.FeatureList(feature=[feature(b"a", b"b"), feature(b"c")])})
context = tf.train.Features(feature={"length": feature(2)})
with tf.io.TFRecordWriter(f"{sys.argv[1]}/steps.tfrecords") as file:
    file.write(tf.train.SequenceExample(context=context, feature_lists=steps).SerializeToString())
    file.write(b"no example")
with tf.io.TFRecordWriter(f"{sys.argv[1]}/odd.tfrecords") as file:
    file.write(bytes.fromhex("0a0c0a0a0a01ff12051a030a0107"))  # a name that is no UTF-8
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    subprocess.run([sys.executable, "-c", WRITE, folder], check=True, capture_output=True, timeout=240)
    return folder


def lines(yard: Yard, *args: object, **kw: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in yard.run("records", *args, **kw).stdout.splitlines()]


@pytest.mark.parametrize("name", ["plain", "zipped", "zlib"])
def test_records_are_counted_checked_and_shown(yard: Yard, files: Path, name: str) -> None:
    path = files / f"{name}.tfrecords"
    assert yard.run("records", "count", path).stdout.split() == ["10", str(path)]
    assert "10 records" in (output := yard.run("records", "verify", path).stdout) and "all checksums are correct" in output
    first, second = lines(yard, "head", "-n", 2, "--json", path)
    assert first == {"pixels": [i / 8 for i in range(8)], "label": [0], "name": ["row 0"]}
    assert (second["more"], second["raw"]) == ([-1], [{"hex": "00ff01"}])
    shown = yard.run("records", "head", path).stdout
    assert shown.count("record at byte") == 5 and "'row 4'" in shown and "float × 8" in shown
    features = {f["name"]: f for f in lines(yard, "schema", "--json", path)}
    assert features["pixels"] == {"name": "pixels", "type": "float", "steps": False, "records": 10, "least": 8, "most": 8}
    assert features["more"] == {"name": "more", "type": "int64", "steps": False, "records": 6, "least": 1, "most": 8}
    assert "1 to 8" in yard.run("records", "schema", path).stdout


def test_steps_and_records_that_are_not_examples(yard: Yard, files: Path) -> None:
    path = files / "steps.tfrecords"
    [first] = lines(yard, "head", "-n", 1, "--json", path)
    assert first == {"length": [2], "words": ["a", "b", "c"]}
    assert "not a tf.Example" in yard.run("records", "head", path).stdout
    done = yard.run("records", "schema", path, rc=1)
    assert "words (in steps)" in done.stdout and f"{path}: the record at byte" in done.stderr and "is not a tf." in done.stderr


def test_feature_name_may_be_any_bytes(yard: Yard, files: Path) -> None:
    assert lines(yard, "head", "--json", files / "odd.tfrecords") == [{"\\xff": [7]}]
    assert "\\xff" in yard.run("records", "schema", files / "odd.tfrecords").stdout


def test_every_flipped_bit_and_every_truncation_is_detected(yard: Yard, files: Path, tmp_path: Path) -> None:
    """Of a small file: one command gets all damaged copies."""
    whole = (files / "steps.tfrecords").read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / f"bit{bit:05}").write_bytes(damaged)
    for length in range(1, len(whole)):
        (tmp_path / f"cut{length:05}").write_bytes(whole[:length])
    done = yard.run("records", "verify", f"{tmp_path}/bit*", f"{tmp_path}/cut*", rc=1)
    left = {Path(line.partition(": ")[0]).name for line in done.stdout.splitlines()}
    records = len(whole) - (16 + len(b"no example"))
    assert left == {f"cut{records:05}"}, "a file that ends after a record is valid"
    assert len(done.stderr.splitlines()) == 9 * len(whole) - 2


def test_files_on_hdfs_are_read(yard: Yard, files: Path, hdfs: Hdfs, tmp_path: Path) -> None:
    yard.env |= hdfs.env()
    url = f"{hdfs.url}/{tmp_path.name}"
    yard.run("fs", "mkdir", url)
    yard.run("fs", "put", files / "plain.tfrecords", files / "zipped.tfrecords", url)
    assert yard.run("records", "count", f"{url}/*.tfrecords").stdout.splitlines()[-1].split() == ["20", "in", "all"]
    assert lines(yard, "head", "-n", 1, "--json", f"{url}/zipped.tfrecords")[0]["name"] == ["row 0"]


def test_usage_errors(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no records at all\n")
    (tmp_path / "empty").touch()
    assert yard.run("records", "count", tmp_path / "empty").stdout.split()[0] == "0"
    for words, output in (
        (["count", tmp_path / "text"], "text is not a TFRecord file: its first bytes are not a length with a checksum"),
        (["count", tmp_path / "none"], "none does not exist"),
        (["verify", f"{tmp_path}/*.nothing"], "*.nothing matches no files"),
    ):
        done = yard.run("records", *words, rc=1)
        assert output in done.stderr and done.stderr.startswith(f"hopyard records {words[0]}: "), done.stderr
    assert "-n takes a number greater than 0, not '0'" in yard.run("records", "head", "-n", 0, tmp_path / "text", rc=2).stderr
    assert "did you mean 'schema'?" in yard.run("records", "schem", rc=2).stderr
    assert "records verify" in yard.run("records", "--help").stdout and "-n, --number N" in yard.run("records", "head", "--help").stdout
