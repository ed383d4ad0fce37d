# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's file operations on HDFS: test_gfile.py runs this file with the installed TensorFlow and with the oldest one.

No import of hopyard: TensorFlow has to find hdfs:// by itself. GFILE_FOLDER is an empty directory of the user.
"""
from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

ROOT = os.environ["GFILE_FOLDER"]
CLOSED = os.environ["GFILE_CLOSED"]  # belongs to another user
CONTENT = random.Random(1).randbytes(3 * (1 << 20) + 7)  # three blocks and a bit
gfile, errors = tf.io.gfile, tf.errors


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    path = f"{ROOT}/{request.node.name}"
    gfile.mkdir(path)
    return path


@contextmanager
def refused(kind: type[Exception], words: str) -> Iterator[None]:
    with pytest.raises(kind, match=words):
        yield


def write(path: str, content: bytes | str = b"x") -> str:
    with gfile.GFile(path, "wb" if isinstance(content, bytes) else "w") as f:
        f.write(content)
    return path


def read(path: str) -> bytes:
    with gfile.GFile(path, "rb") as f:
        return bytes(f.read())


# ---- open files ------------------------------------------------------------------------------------------------------


def test_files_of_any_size_round_trip(folder: str) -> None:
    for size in (0, 1, 511, 512, 513, 65023, 65024, 65537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, len(CONTENT)):
        path = write(f"{folder}/{size}", CONTENT[:size])
        assert gfile.stat(path).length == size
        assert read(path) == CONTENT[:size]
    assert tf.io.read_file(f"{folder}/{len(CONTENT)}").numpy() == CONTENT


def test_text_is_read_by_lines_and_from_any_offset(folder: str) -> None:
    path = write(f"{folder}/text", "erste Zeile\nzweite: äöü\ndritte\n")
    with gfile.GFile(path) as f:
        assert list(f) == ["erste Zeile\n", "zweite: äöü\n", "dritte\n"]
    with gfile.GFile(path, "rb") as f:
        assert f.read(5) == b"erste" and f.tell() == 5
        f.seek(12)
        assert f.readline() == "zweite: äöü\n".encode()
        f.seek(0)
        assert f.read(5) == b"erste" and f.size() == gfile.stat(path).length


def test_many_threads_read_one_file_at_random_offsets(folder: str) -> None:
    path = write(f"{folder}/large", CONTENT)
    draw = random.Random(2)
    places = [(draw.randrange(len(CONTENT)), draw.choice([1, 100, 5000, 300_000])) for _ in range(80)]

    def pieces(every: int) -> list[bytes]:
        got = []
        with gfile.GFile(path, "rb") as f:
            for at, n in places[every::4]:
                f.seek(at)
                got.append(f.read(n))
        return got

    with ThreadPoolExecutor(4) as threads:
        for every, got in enumerate(threads.map(pieces, range(4))):
            assert got == [CONTENT[at : at + n] for at, n in places[every::4]]


def test_append_continues_at_the_end_of_the_file(folder: str) -> None:
    path = f"{folder}/grows"
    with gfile.GFile(path, "a") as f:  # on a file that does not exist
        f.write("eins ")
        assert f.tell() == 5
    with gfile.GFile(path, "ab") as f:
        f.write(b"zwei ")
    with gfile.GFile(path, "a+") as f:
        f.write("drei")
    assert read(path) == b"eins zwei drei"


def test_write_replaces_an_existing_file(folder: str) -> None:
    path = write(f"{folder}/file", "long text")
    write(path, "short")
    assert read(path) == b"short"


def test_flushed_data_is_visible_to_other_readers(folder: str) -> None:
    path = f"{folder}/open"
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(b"first")
        writer.flush()
        reader = tf.compat.v1.io.tf_record_iterator(path)
        assert next(reader) == b"first"
        assert next(reader, None) is None
        for word in (b"second", CONTENT[:100_000], b"third"):
            writer.write(word)
            writer.flush()
            assert next(reader) == word, "the reader keeps the file open, and it has grown"
            assert next(reader, None) is None
    assert [r.numpy() for r in tf.data.TFRecordDataset(path)] == [b"first", b"second", CONTENT[:100_000], b"third"]


def test_open_errors_have_a_reason(folder: str) -> None:
    write(f"{folder}/file")
    with refused(errors.NotFoundError, "nothing"):
        read(f"{folder}/nothing")
    with refused(errors.FailedPreconditionError, folder):
        read(folder)
    with refused(errors.FailedPreconditionError, folder):
        write(folder)
    with refused(errors.FailedPreconditionError, "file"):
        read(f"{folder}/file/below")
    with refused(errors.FailedPreconditionError, "file"):
        write(f"{folder}/file/below")
    with refused(errors.PermissionDeniedError, "Permission denied: user="):
        write(f"{CLOSED}/mine")
    with refused(errors.PermissionDeniedError, "Permission denied: user="):
        gfile.listdir(CLOSED)


# ---- names -----------------------------------------------------------------------------------------------------------


def test_stat_and_exists(folder: str) -> None:
    path = write(f"{folder}/file", b"12345")
    gfile.makedirs(f"{folder}/a/b/c")
    assert gfile.exists(path) and gfile.exists(folder) and not gfile.exists(f"{path}.not")
    assert gfile.isdir(folder) and gfile.isdir(f"{folder}/") and not gfile.isdir(path)
    assert not gfile.isdir(f"{folder}/nothing") and not gfile.isdir(f"{path}/below")
    assert not gfile.exists(f"{path}/below")
    found = gfile.stat(path)
    assert (found.length, found.is_directory) == (5, False)
    assert abs(found.mtime_nsec - gfile.stat(folder).mtime_nsec) < 60e9
    assert gfile.stat(f"{folder}/a").is_directory
    assert sorted(gfile.listdir(folder)) == ["a", "file"] and gfile.listdir(f"{folder}/a/b/c") == []
    assert [(at[len(folder) :], sorted(d), f) for at, d, f in gfile.walk(folder)] == [
        ("", ["a"], ["file"]), ("/a", ["b"], []), ("/a/b", ["c"], []), ("/a/b/c", [], [])]
    with refused(errors.NotFoundError, "nothing"):
        gfile.stat(f"{folder}/nothing")
    with refused(errors.NotFoundError, "nothing"):
        gfile.listdir(f"{folder}/nothing")


def test_paths_with_unusual_characters(folder: str) -> None:
    write(f"{folder}//a/./b/../file one %20 ü", b"odd")
    assert gfile.listdir(f"{folder}/a/") == ["file one %20 ü"]
    assert read(f"{folder}/a/file one %20 ü") == b"odd"


def test_other_schemes_and_the_default_cluster_reach_the_same_files(folder: str) -> None:
    write(f"{folder}/file", b"same")
    path = folder.split("/", 3)[3]
    assert read(f"hopsfs://{folder.split('/')[2]}/{path}/file") == b"same"
    assert read(f"hdfs:///{path}/file") == b"same"


def test_glob_matches_as_on_the_local_file_system(folder: str, tmp_path: Path) -> None:
    names = ["a.txt", "b.txt", "b.csv", "{a,b}.txt", ".hidden", "sub/a.txt", "sub/deep/c.txt", "sub2/a.txt", "ü.txt"]
    for name in names:
        gfile.makedirs(os.path.dirname(f"{folder}/{name}"))
        write(f"{folder}/{name}")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for pattern in ("*", "*.txt", "?.txt", "[ab].*", "[^a].txt", "sub*/*", "*/a.txt", "{a,b}.txt", "sub/deep", "none*",
                    "*/*/*", "a.txt", "nothing", "*a*"):
        here = {os.path.relpath(p, tmp_path) for p in gfile.glob(f"{tmp_path}/{pattern}")}
        there = {p.removeprefix(f"{folder}/") for p in gfile.glob(f"{folder}/{pattern}")}
        assert there == here, pattern
    both = gfile.glob([f"{folder}/a*", f"{folder}/b*"])
    assert sorted(both) == [f"{folder}/{name}" for name in ("a.txt", "b.csv", "b.txt")]


# ---- changes ---------------------------------------------------------------------------------------------------------


def test_mkdir_and_makedirs(folder: str) -> None:
    with refused(errors.NotFoundError, "does not exist"):
        gfile.mkdir(f"{folder}/a/b")
    gfile.mkdir(f"{folder}/a")
    gfile.mkdir(f"{folder}/a")  # TensorFlow treats ALREADY_EXISTS as success
    gfile.makedirs(f"{folder}/a/b/c")
    gfile.makedirs(f"{folder}/a/b/c")
    write(f"{folder}/file")
    with refused(errors.FailedPreconditionError, "file"):
        gfile.makedirs(f"{folder}/file/below")
    with refused(errors.FailedPreconditionError, "file"):
        gfile.mkdir(f"{folder}/file/below")


def test_remove_distinguishes_files_and_directories(folder: str) -> None:
    gfile.makedirs(f"{folder}/full/deep")
    write(f"{folder}/full/deep/file")
    with refused(errors.FailedPreconditionError, "is a directory"):
        gfile.remove(f"{folder}/full/deep")
    with refused(errors.NotFoundError, "does not exist"):
        gfile.remove(f"{folder}/nothing")
    with refused(errors.FailedPreconditionError, "is not a directory"):
        gfile.rmtree(f"{folder}/full/deep/file")
    with refused(errors.NotFoundError, "does not exist"):
        gfile.rmtree(f"{folder}/nothing")
    gfile.remove(f"{folder}/full/deep/file")
    write(f"{folder}/full/again")
    gfile.rmtree(f"{folder}/full")
    assert gfile.listdir(folder) == []


def test_rename_replaces_only_with_overwrite(folder: str) -> None:
    old, new = write(f"{folder}/old", b"old"), write(f"{folder}/new", b"new")
    with refused(errors.AlreadyExistsError, "exists"):
        gfile.rename(old, new)
    gfile.rename(old, new, overwrite=True)
    assert read(new) == b"old" and gfile.listdir(folder) == ["new"]
    gfile.makedirs(f"{folder}/a/b")
    gfile.rename(f"{folder}/a", f"{folder}/c")
    assert gfile.isdir(f"{folder}/c/b")
    with refused(errors.NotFoundError, "nothing"):
        gfile.rename(f"{folder}/nothing", f"{folder}/something")


def test_copy_within_and_between_file_systems(folder: str, tmp_path: Path) -> None:
    source = write(f"{folder}/source", CONTENT)
    gfile.copy(source, f"{folder}/copy")
    assert read(f"{folder}/copy") == CONTENT
    with refused(errors.AlreadyExistsError, "exists"):
        gfile.copy(source, f"{folder}/copy")
    write(source, b"other")
    gfile.copy(source, f"{folder}/copy", overwrite=True)
    assert read(f"{folder}/copy") == b"other"
    (tmp_path / "up").write_bytes(CONTENT)
    gfile.copy(str(tmp_path / "up"), f"{folder}/up")
    gfile.copy(f"{folder}/up", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == CONTENT
    assert sorted(gfile.listdir(folder)) == ["copy", "source", "up"]


# ---- typical uses ----------------------------------------------------------------------------------------------------


def test_dataset_reads_records(folder: str) -> None:
    records = [CONTENT[i * 3000 : (i + 1) * 3000] for i in range(1000)]
    for part in range(4):
        with tf.io.TFRecordWriter(f"{folder}/part-{part}", "GZIP" if part == 3 else "") as writer:
            for record in records[part * 250 : (part + 1) * 250]:
                writer.write(record)
    files = tf.data.Dataset.list_files(f"{folder}/part-[0-2]", shuffle=False)
    found = files.interleave(tf.data.TFRecordDataset, cycle_length=3, num_parallel_calls=3).batch(64)
    assert sorted(r for batch in found for r in batch.numpy()) == sorted(records[:750])
    last = tf.data.TFRecordDataset(f"{folder}/part-3", "GZIP")
    assert [r.numpy() for r in last] == records[750:]
    write(f"{folder}/lines", "a\nb\nc\n")
    assert [line.numpy() for line in tf.data.TextLineDataset(f"{folder}/lines")] == [b"a", b"b", b"c"]


def model() -> tf.keras.Model:
    made = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(64), tf.keras.layers.Dense(1)])
    made.compile("adam", "mse")
    return made


def test_models_are_saved_and_loaded(folder: str) -> None:
    made, x = model(), np.ones((2, 4), np.float32)
    expected = made.predict(x, verbose=0)
    kept = f"{folder}/model.keras" if tf.keras.__version__ >= "3" else f"{folder}/model"  # Keras 2: .keras only on local file systems
    made.save(kept)
    loaded = tf.keras.models.load_model(kept)
    assert np.array_equal(loaded.predict(x, verbose=0), expected)
    tf.saved_model.save(made, f"{folder}/saved")
    served = tf.saved_model.load(f"{folder}/saved").signatures["serving_default"](tf.constant(x))
    assert np.allclose(next(iter(served.values())).numpy(), expected)
    assert "saved_model.pb" in gfile.listdir(f"{folder}/saved")


def test_training_continues_from_a_checkpoint(folder: str) -> None:
    value, step = tf.Variable(tf.random.normal([500, 500])), tf.Variable(7)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=value, step=step), folder, max_to_keep=2)
    for _ in range(3):
        step.assign_add(1)
        manager.save()
    assert tf.train.latest_checkpoint(folder) == f"{folder}/ckpt-3"
    assert not gfile.exists(f"{folder}/ckpt-1.index") and gfile.exists(f"{folder}/ckpt-2.index")
    other, count = tf.Variable(tf.zeros([500, 500])), tf.Variable(0)
    tf.train.Checkpoint(value=other, step=count).restore(tf.train.latest_checkpoint(folder)).assert_consumed()
    assert np.array_equal(other.numpy(), value.numpy()) and int(count) == 10


def test_files_are_exchanged_with_hadoop() -> None:
    assert read(f"{ROOT}/from-hadoop") == CONTENT
    write(f"{ROOT}/for-hadoop", CONTENT)
