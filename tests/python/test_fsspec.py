# SPDX-License-Identifier: Apache-2.0
"""hopyard's file system for fsspec, over files of this machine; over HDFS it is tests/e2e/test_hdfs_module.py's."""

import datetime
import os
import pickle
import subprocess
import sys

import fsspec
import pytest

import hopyard
from hopyard.fsspec import HopyardFileSystem


class Local(HopyardFileSystem):
    """The same over files of this machine."""

    protocol = "local-yard"

    def __init__(self, **options):
        super().__init__(**options)
        self.root = "file://"


@pytest.fixture
def fs():
    return Local(skip_instance_cache=True)


@pytest.fixture
def top(tmp_path):
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "a.csv").write_bytes(b"0123456789")
    (tmp_path / "sub" / "b.csv").write_bytes(b"b")
    (tmp_path / "sub" / "deep" / "c.txt").write_bytes(b"cc")
    return str(tmp_path)


def test_fsspec_uses_it_instead_of_its_own_without_an_import():
    code = (
        "import fsspec, sys\n"
        "print('hopyard' in sys.modules)\n"
        "fs, path = fsspec.core.url_to_fs('hdfs://namenode:8020/a/b')\n"
        "print(type(fs).__module__, fs.root, path)\n"
        "print(type(fsspec.filesystem('hopsfs')).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    found = ["False", "hopyard.fsspec hdfs://namenode:8020 /a/b", "HopyardFileSystem"]
    assert done.stdout.splitlines() == found, done.stderr


def test_urls_select_their_cluster():
    fs = HopyardFileSystem(host="nn", port=8020)
    assert fs._strip_protocol(["hdfs://nn:8020/a/b/", "hopsfs://nn/a", "/a", "a"]) == ["/a/b", "/a", "/a", "/a"]
    assert fs.unstrip_protocol("/a") == "hdfs://nn:8020/a" and fs._parent("hdfs://nn:8020/a") == "/"
    for default in (HopyardFileSystem(), HopyardFileSystem(host="default")):
        assert default.unstrip_protocol("/a") == "hdfs:///a"
    assert pickle.loads(pickle.dumps(fs)).root == fs.root
    with pytest.raises(hopyard.Error, match="set HADOOP_USER_NAME to 'somebody'"):
        HopyardFileSystem(host="nn", user="somebody")


def test_files_are_listed_and_found(fs, top):
    assert fs.ls(top, detail=False) == [f"{top}/a.csv", f"{top}/sub"]
    assert fs.ls(f"{top}/a.csv", detail=False) == [f"{top}/a.csv"]
    assert fs.find(top) == [f"{top}/a.csv", f"{top}/sub/b.csv", f"{top}/sub/deep/c.txt"]
    assert fs.glob(f"{top}/**/*.csv") == [f"{top}/a.csv", f"{top}/sub/b.csv"]
    assert [(folder, sorted(folders), sorted(files)) for folder, folders, files in fs.walk(top)][0] == (
        top, ["sub"], ["a.csv"],
    )  # fmt: skip
    info = fs.info(f"{top}/a.csv")
    assert (info["name"], info["size"], info["type"]) == (f"{top}/a.csv", 10, "file")
    assert fs.info(top)["type"] == "directory" and fs.isdir(top) and not fs.isfile(top)
    assert fs.du(top) == 13 and fs.du(top, total=False)[f"{top}/sub/b.csv"] == 1
    assert not fs.exists(f"{top}/none")
    for call in (fs.ls, fs.info, fs.cat_file, fs.rm, fs.open, fs.modified):
        with pytest.raises(FileNotFoundError):
            call(f"{top}/none")
    changed = datetime.datetime.fromtimestamp(int(os.stat(f"{top}/a.csv").st_mtime), datetime.UTC)
    for told in (fs.modified(f"{top}/a.csv"), fs.created(f"{top}/a.csv")):
        assert told.replace(microsecond=0) == changed


def test_parts_of_files_are_read(fs, top):
    path = f"{top}/a.csv"
    assert fs.cat_file(path) == fs.cat(path) == b"0123456789"
    assert fs.cat_file(path, 2, 4) == b"23" and fs.cat_file(path, -2) == b"89" and fs.cat_file(path, 1, -8) == b"1"
    assert fs.cat_file(path, 8, 100) == b"89" and fs.cat_file(path, 20, 30) == fs.cat_file(path, 5, 3) == b""
    assert fs.cat([path, f"{top}/sub/b.csv"]) == {path: b"0123456789", f"{top}/sub/b.csv": b"b"}
    assert fs.head(path, 3) == b"012" and fs.tail(path, 3) == b"789" and fs.read_block(path, 4, 2) == b"45"


def test_many_ranges_are_read_in_parallel_and_fail_separately(fs, top):
    path, none = f"{top}/a.csv", f"{top}/none"
    starts = [i % 9 for i in range(100)]
    assert fs.cat_ranges([path] * 100, starts, [s + 2 for s in starts]) == [b"0123456789"[s : s + 2] for s in starts]
    found = fs.cat_ranges([path, none, path], 0, 1)
    assert found[0] == found[2] == b"0" and isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([path, none], 0, 1, on_error="raise")
    assert fs.cat_ranges([], [], []) == []
    with pytest.raises(ValueError):
        fs.cat_ranges([path], [0, 1], [1])


def test_files_are_written_appended_and_created_exclusively(fs, top):
    with fs.open(f"{top}/new", "wb") as file:
        file.write(b"1" * 3_000_000)
    with fs.open(f"{top}/new", "ab") as file:
        file.write(b"23")
    assert fs.size(f"{top}/new") == 3_000_002 and fs.tail(f"{top}/new", 3) == b"123"
    with fs.open(f"{top}/text", "w", encoding="utf-8") as file:
        file.write("ä\nö")
    with fs.open(f"{top}/text", "r", encoding="utf-8") as file:
        assert file.readlines() == ["ä\n", "ö"]
    fs.pipe_file(f"{top}/text", b"x")
    fs.pipe({f"{top}/p1": b"1", f"{top}/p2": b"2"})
    assert fs.cat([f"{top}/p1", f"{top}/p2"]) == {f"{top}/p1": b"1", f"{top}/p2": b"2"}
    for call in (lambda: fs.pipe_file(f"{top}/text", b"y", mode="create"), lambda: fs.open(f"{top}/text", "xb")):
        with pytest.raises(FileExistsError):
            call()
    with pytest.raises(ValueError, match="'rb', 'wb', 'xb' or 'ab'"):
        fs.open(f"{top}/text", "r+b")
    fs.touch(f"{top}/text")
    assert fs.size(f"{top}/text") == 0
    with fs.open(f"{top}/z.gz", "wb", compression="infer") as file:
        file.write(b"packed")
    assert fs.cat(f"{top}/z.gz")[:2] == b"\x1f\x8b"
    assert fs.open(f"{top}/z.gz", compression="infer").read() == b"packed"


def test_files_and_directories_are_moved_copied_and_removed(fs, top):
    fs.mv(f"{top}/a.csv", f"{top}/sub")
    fs.mv(f"{top}/sub/b.csv", f"{top}/b.csv")
    assert fs.find(top) == [f"{top}/b.csv", f"{top}/sub/a.csv", f"{top}/sub/deep/c.txt"]
    fs.cp(f"{top}/b.csv", f"{top}/copies/b2.csv")
    fs.copy(f"{top}/sub", f"{top}/all", recursive=True)
    assert fs.cat(f"{top}/copies/b2.csv") == b"b" and fs.cat(f"{top}/all/deep/c.txt") == b"cc"
    fs.makedirs(f"{top}/x/y")
    fs.makedirs(f"{top}/x/y", exist_ok=True)
    for make in (fs.mkdir, fs.makedirs):
        with pytest.raises(FileExistsError):
            make(f"{top}/x/y")
    fs.rmdir(f"{top}/x/y")
    with pytest.raises(NotADirectoryError):
        fs.rmdir(f"{top}/b.csv")
    with pytest.raises(OSError):
        fs.rm(f"{top}/all")
    fs.rm([f"{top}/all", f"{top}/x"], recursive=True)
    fs.rm(f"{top}/*.csv")
    assert fs.ls(top, detail=False) == [f"{top}/copies", f"{top}/sub"]


def test_files_are_uploaded_and_downloaded(fs, top, tmp_path_factory):
    here = tmp_path_factory.mktemp("here")
    fs.get(f"{top}/sub", str(here / "got"), recursive=True)
    assert (here / "got" / "deep" / "c.txt").read_bytes() == b"cc"
    fs.put(str(here / "got"), f"{top}/put", recursive=True)
    assert fs.cat(f"{top}/put/b.csv") == b"b" and fs.cat(f"{top}/put/deep/c.txt") == b"cc"
    told = fsspec.callbacks.Callback()
    fs.put_file(str(here / "got" / "deep" / "c.txt"), f"{top}/c", callback=told)
    assert (told.size, told.value) == (2, 2)
    with pytest.raises(FileExistsError):
        fs.put_file(str(here / "got" / "b.csv"), f"{top}/c", mode="create")


def test_a_transaction_shows_all_its_files_at_its_end_or_none(fs, top):
    with fs.transaction:
        with fs.open(f"{top}/t1", "wb") as file:
            file.write(b"1")
        fs.pipe_file(f"{top}/a.csv", b"new")
        assert not fs.exists(f"{top}/t1") and fs.cat(f"{top}/a.csv") == b"0123456789"
        with pytest.raises(ValueError, match="append outside of it"):
            fs.open(f"{top}/a.csv", "ab")
    assert fs.cat(f"{top}/t1") == b"1" and fs.cat(f"{top}/a.csv") == b"new"
    before = os.listdir(top)
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open(f"{top}/t2", "wb") as file:
            file.write(b"2")
        raise ZeroDivisionError
    assert os.listdir(top) == before, "nothing of it is left"


def test_pandas_and_arrow_read_and_write_through_fsspec(fs, top):
    import pandas
    from pyarrow import dataset
    frame = pandas.DataFrame({"x": range(1000), "y": [str(i) for i in range(1000)]})
    frame.to_parquet(f"{top}/frame.parquet", filesystem=fs)
    assert pandas.read_parquet(f"{top}/frame.parquet", filesystem=fs).equals(frame)
    table = dataset.dataset(f"{top}/frame.parquet", filesystem=fs).to_table(filter=dataset.field("x") > 990)
    assert table["x"].to_pylist() == list(range(991, 1000))
    dataset.write_dataset(table, f"{top}/parts", filesystem=fs, format="parquet")
    assert dataset.dataset(f"{top}/parts", filesystem=fs).count_rows() == 9
