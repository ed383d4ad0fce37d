# SPDX-License-Identifier: Apache-2.0
"""hopyard.hdfs and the modules that use it, on this machine and on a real HDFS; and fsspec's hdfs://."""
from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import secrets
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import fsspec
import pytest

import hopyard
from hopyard import _hopyard
from hopyard import hdfs as files

MIB = 1 << 20  # the block size of the clusters
SIZES = [0, 1, 511, 512, 513, 65_535, 65_536, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 12_345]


@dataclass
class Place:
    top: str  # the directory of projects
    name: str
    shell: Any  # Hadoop's shell, or None

    @property
    def project(self) -> str:
        return f"{self.top}/{self.name}"


def pattern(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.fixture(params=["local", "hdfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(str(tmp_path / "Projects"), "demo", None)
    if request.param == "hdfs":
        found = on_hdfs(request.getfixturevalue("hdfs"), monkeypatch)
    monkeypatch.delenv("HOPYARD_TRIAL_DIR", raising=False)
    monkeypatch.setenv("HOPYARD_PROJECT", found.project)
    monkeypatch.chdir(tmp_path)
    return found


def on_hdfs(cluster: Any, monkeypatch: pytest.MonkeyPatch, user: str | None = None) -> Place:
    for name, value in cluster.env(user).items():
        monkeypatch.setenv(name, value)
    return Place(f"{cluster.url}/Projects", f"demo{secrets.token_hex(4)}", cluster.shell)


@pytest.fixture
def remote(hdfs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = on_hdfs(hdfs, monkeypatch)
    monkeypatch.delenv("HOPYARD_TRIAL_DIR", raising=False)
    monkeypatch.setenv("HOPYARD_PROJECT", place.project)
    monkeypatch.chdir(tmp_path)
    files.mkdir("Resources")
    return place


# ---- the project


def test_project_has_a_path_a_name_and_directories(place: Place) -> None:
    assert files.project_path() == f"{place.project}/" and files.project_name() == place.name
    assert files.project_user().startswith(f"{place.name}__")
    assert files.ls("") == [f"{place.project}/{name}" for name in ("Jupyter", "Logs", "Models", "Resources")]
    assert files.project_path("other") == f"{place.top}/other/"
    with pytest.raises(hopyard.Error, match="only on a Hopsworks cluster"):
        files.project_id()


def test_relative_paths_are_in_the_project(place: Place) -> None:
    full = f"{place.project}/Resources/a"
    for path in ("Resources/a", "/Resources/a", full, f"/Projects/{place.name}/Resources/a", b"Resources//x/../a"):
        assert files.abs_path(path) == full
    assert files.abs_path("a", project="other") == files.abs_path("/Projects/other/a") == f"{place.top}/other/a"
    for path in ("../../x", "/Projects/other/../../x"):
        with pytest.raises(hopyard.Error, match="is outside of"):
            files.abs_path(path)
    for path in ("", "Resources/..", f"/Projects/{place.name}", f"{place.project}/.."):
        for remove in (files.rmr, lambda p: files.delete(p, recursive=True), lambda p: files.move(p, "Logs/x")):
            with pytest.raises(hopyard.Error, match="is or contains the project"):
                remove(path)


def test_directory_shared_by_another_project_is_used_by_name(place: Place) -> None:
    _hopyard.mkdirs(f"{place.top}/{place.name}2/Shared")
    other = f"{place.name}2"
    with files.open_file("Shared/a", project=other, flags="w") as file:
        file.write("theirs")
    files.mkdir("Shared/sub", project=other)
    assert files.exists("Shared/a", project=other) and not files.exists("Shared/a")
    assert files.ls("Shared", project=other) == [f"{place.top}/{other}/Shared/{n}" for n in ("a", "sub")]
    assert files.load(f"/Projects/{other}/Shared/a") == b"theirs"
    assert files.stat("Shared/a", project=other).st_size == 6 and files.isdir("Shared/sub", project=other)
    assert files.glob("Shared/*a", project=other) == [f"{place.top}/{other}/Shared/a"]
    files.rmr("Shared", project=other)
    assert not files.exists("Shared", project=other)


# ---- contents


@pytest.mark.parametrize("size", SIZES)
def test_written_data_is_read_back(place: Place, size: int) -> None:
    data = pattern(size)
    files.dump(data, "Resources/data")
    assert files.load("Resources/data") == data and files.stat("Resources/data").st_size == size
    with files.open_file("Resources/data") as file:
        assert b"".join(iter(lambda: file.read(10_007), b"")) == data
    if place.shell:
        assert place.shell("-cat", f"{place.project}/Resources/data").out == data


def test_files_are_read_at_any_offset_and_by_many_threads(place: Place) -> None:
    data = pattern(3 * MIB + 12_345)
    files.dump(data, "Resources/data")
    with _hopyard.File(files.abs_path("Resources/data")) as file, ThreadPoolExecutor(8) as pool:
        at = [random.Random(i).randrange(len(data)) for i in range(200)]
        assert all(pool.map(lambda i: file.pread(20_000, i) == data[i : i + 20_000], at))
        whole = bytearray(len(data))
        assert file.preadinto(whole, 0) == len(data) and whole == data
    with files.open_file("Resources/data") as opened:
        opened.seek(-10, os.SEEK_END)
        assert opened.read() == data[-10:] and opened.tell() == len(data)
        opened.seek(MIB - 5)
        assert opened.read(10) == data[MIB - 5 : MIB + 5]


def test_write_and_append_bytes_and_text(place: Place) -> None:
    with files.open_file("Resources/a", flags="w") as file:
        file.write("one ")
        file.write(b"two\n")
        file.flush()
        assert files.load("Resources/a") == b"one two\n", "flushed data is visible to others"
    with files.open_file("Resources/a", flags="at") as file:
        file.write("dreiß\n")
    with files.open_file("Resources/a", flags="rt") as file:
        assert file.readlines() == ["one two\n", "dreiß\n"]
    with files.open_file("Resources/a", flags="a") as file:
        file.write(pattern(2 * MIB))
    assert files.load("Resources/a") == b"one two\ndrei\xc3\x9f\n" + pattern(2 * MIB)
    for path in ("Resources/none", "Resources/a/b"):
        with pytest.raises(OSError):
            files.open_file(path)


# ---- names


def test_directories_are_listed_and_searched(place: Place) -> None:
    files.mkdir("Resources/sub/de*ep")
    for name in ("a.csv", "sub/b.csv", "sub/de*ep/c.csv", "sub/d.txt"):
        files.dump("12345", f"Resources/{name}")
    root = f"{place.project}/Resources"
    assert files.ls("Resources") == [f"{root}/a.csv", f"{root}/sub"]
    everything = ["a.csv", "sub", "sub/b.csv", "sub/d.txt", "sub/de*ep", "sub/de*ep/c.csv"]
    assert files.ls("Resources", recursive=True) == [f"{root}/{name}" for name in everything]
    assert files.ls("Resources/a.csv") == [f"{root}/a.csv"]
    assert files.glob("Resources/*.csv") == [f"{root}/a.csv"]
    assert files.glob("Resources/{a,x}.[c]s?") == [f"{root}/a.csv"] and files.glob("Resources/x*") == []
    below = [f"{root}/{name}" for name in ("a.csv", "sub/b.csv", "sub/de*ep/c.csv")]
    assert files.glob("Resources/**/*.csv", recursive=True) == files.glob("Resources/*.csv", recursive=True) == below
    first, second = files.lsl("Resources")
    assert (first["kind"], first["name"], first["size"]) == ("file", f"{root}/a.csv", 5)
    assert (second["kind"], second["owner"]) == ("directory", first["owner"])
    with pytest.raises(FileNotFoundError):
        files.ls("Resources/none")


def test_stat_move_and_remove(place: Place) -> None:
    files.dump("x", "Resources/a")
    assert files.exists("Resources/a") and files.isfile("Resources/a") and files.isdir("Resources")
    assert not files.exists("Resources/none") and not files.isdir("Resources/a") and not files.isfile("Resources")
    assert files.access("Resources/a", os.R_OK) and not files.access("Resources/none", os.F_OK)
    for words, mode in ((0o640, 0o640), ("600", 0o600), ("go+r,u-w", 0o444), ("a=rw", 0o666)):
        files.chmod("Resources/a", words)
        assert stat.filemode(files.stat("Resources/a").st_mode) == stat.filemode(stat.S_IFREG | mode)
    with pytest.raises(ValueError, match="invalid permissions"):
        files.chmod("Resources/a", "u+z")
    files.rename("Resources/a", "Resources/b")
    files.dump("y", "Resources/c")
    with pytest.raises(FileExistsError):
        files.rename("Resources/b", "Resources/c")
    files.move("Resources/b", "Resources/c")
    files.move("Resources/c", "Logs")
    assert files.ls("Resources") == [] and files.load("Logs/c") == b"x"
    files.delete("Logs/none")
    files.mkdir("Models/m/1")
    with pytest.raises(OSError) as caught:
        files.delete("Models/m")
    assert caught.value.errno == 39
    files.delete("Models/m", recursive=True)
    files.rmr("Logs/c")
    assert files.ls("Models") == files.ls("Logs") == []
    with pytest.raises(FileNotFoundError):
        files.rmr("Logs/c")
    assert files.capacity() > 0


def test_copies_to_from_and_within_the_file_system(place: Place, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    (data / "empty").mkdir()
    (data / "a").write_bytes(pattern(MIB + 1))
    (data / "sub" / "b").write_bytes(b"b")
    files.copy_to_hdfs("data", "Resources")
    files.copy_to_project(str(data / "a"), "Resources/new/name")
    assert files.load("Resources/data/a") == files.load("Resources/new/name") == pattern(MIB + 1)
    with pytest.raises(FileExistsError, match="pass overwrite=True to replace it"):
        files.copy_to_hdfs("data", "Resources")
    files.dump("old", "Resources/data/old")
    files.copy_to_hdfs("data", "Resources", overwrite=True)
    assert files.ls("Resources/data", recursive=True) == [
        f"{place.project}/Resources/data/{n}" for n in ("a", "empty", "sub", "sub/b")
    ]
    files.cp("Resources/data", "Models/data")
    files.cp("Resources/data/sub/b", "Models")
    assert files.load("Models/data/sub/b") == files.load("Models/b") == b"b"
    (tmp_path / "here").mkdir()
    back = files.copy_to_local("Resources/data", "here")
    assert back == str(tmp_path / "here" / "data")
    assert sorted(str(p.relative_to(back)) for p in Path(back).rglob("*")) == ["a", "empty", "sub", "sub/b"]
    assert Path(back, "a").read_bytes() == pattern(MIB + 1)
    before = os.stat(f"{back}/a").st_ino
    files.copy_from_project("Resources/data", "here")
    assert os.stat(f"{back}/a").st_ino == before, "it exists already"
    files.dump("longer", "Resources/data/sub/b")
    files.copy_to_local("Resources/data", "here")
    assert Path(back, "sub", "b").read_text() == "longer"
    left = [path for path in files.ls("", recursive=True) if ".hopyard" in path or "/." in path]
    assert left == [] and os.listdir(tmp_path / "here") == ["data"], "no temporary file is left"


def test_log_of_a_trial_is_written_line_by_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = f"{place.project}/Logs/TensorFlow/local-1/1/lr=0.1"
    _hopyard.mkdirs(trial)
    monkeypatch.setenv("HOPYARD_TRIAL_DIR", trial)
    files.log("one")
    files.log(2)
    lines = files.load(f"{trial}/trial.log").decode().splitlines()
    assert [line.partition(": ")[2] for line in lines] == ["one", "2"]
    assert files.project_path() == f"{place.project}/"


def test_modules_and_notebooks_of_the_project_are_importable(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"module_{secrets.token_hex(4)}"
    files.dump("answer = 42", f"Resources/{name}.py")
    files.add_module(f"Resources/{name}.py")
    assert __import__(name).answer == 42
    files.dump("answer = 4300", f"Resources/{name}.py")
    files.add_module(f"Resources/{name}.py")
    assert __import__(name).answer == 4300, "a module that is added again is reloaded"
    cells = [{"cell_type": "code", "source": ["x = 1\n", "y = 2"]}, {"cell_type": "code", "source": "z = x + y"}]
    files.dump(json.dumps({"nbformat": 4, "cells": cells}), f"Jupyter/book_{name}.ipynb")
    assert files.add_module(f"Jupyter/book_{name}.ipynb").endswith(f"book_{name}.py")
    assert __import__(f"book_{name}").z == 3
    with pytest.raises(hopyard.Error, match="is not a .py file or a notebook"):
        files.add_module("Resources")


@pytest.fixture
def hops() -> Iterator[Any]:
    finders = list(sys.meta_path)
    import hopyard.compat
    import hops.hdfs
    import hops.model
    import hops.numpy_helper
    import hops.pandas_helper

    yield hops
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.split(".")[0] == "hops" or name.startswith("hopyard.compat")]:
        del sys.modules[name]


def test_pandas_and_numpy_read_and_write_files_of_the_project(place: Place, hops: Any) -> None:
    import numpy
    import pandas

    files.mkdir("Resources")
    frame = pandas.DataFrame({"x": [1, 2], "y": ["a", "b"]})
    for kind in ("csv", "json", "parquet"):
        given = {"index": False} if kind == "csv" else {}
        getattr(hops.pandas_helper, f"write_{kind}")(f"Resources/a.{kind}", frame, **given)
        assert getattr(hops.pandas_helper, f"read_{kind}")(f"Resources/a.{kind}").equals(frame), kind
    numbers = numpy.arange(300_000.0).reshape(3, -1)
    hops.numpy_helper.save("Resources/a.npy", numbers)
    hops.numpy_helper.savez("Resources/b", numbers=numbers)
    assert (hops.numpy_helper.load("Resources/a.npy") == numbers).all()
    assert (hops.numpy_helper.load("Resources/b.npz")["numbers"] == numbers).all()
    files.dump(numbers.tobytes(), "Resources/raw")
    assert (hops.numpy_helper.fromfile("Resources/raw") == numbers.ravel()).all()
    assert (hops.numpy_helper.memmap("Resources/raw", "d", "r") == numbers.ravel()).all()
    files.dump("1 2\n3 4\n", "Resources/text")
    assert hops.numpy_helper.loadtxt("Resources/text").tolist() == [[1, 2], [3, 4]]


def test_concurrently_exported_models_have_versions(place: Place, hops: Any, tmp_path: Path) -> None:
    (tmp_path / "exported" / "variables").mkdir(parents=True)
    (tmp_path / "exported" / "model.pb").write_bytes(b"pb")
    (tmp_path / "exported" / "variables" / "v").write_bytes(b"v")
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda i: hops.model.export(str(tmp_path / "exported"), "m", metrics={"a": i}), range(4)))
    assert sorted(made) == [f"{place.project}/Models/m/{i}" for i in range(1, 5)]
    best = hops.model.get_best_model("m", "a", "MAX")
    assert best["metrics"] == {"a": "3.0"}
    assert files.load(f"Models/m/{best['version']}/variables/v") == b"v"
    with pytest.raises(ValueError, match="pass overwrite=True to replace it"):
        hops.model.export("exported", "m", model_version=2)
    hops.model.export("exported/model.pb", "m", model_version=2, overwrite=True)
    assert files.ls("Models/m/2") == [f"{place.project}/Models/m/2/model.pb"]
    assert hops.model.download_model("m", 2) == str(tmp_path / "m2.zip")
    hops.model.export(files.abs_path("Models/m/1"), "again")
    assert files.load("Models/again/1/model.pb") == b"pb"
    assert [path for path in files.ls("Models", recursive=True) if "/." in path] == []


def test_plain_paths_have_no_scheme_and_address(remote: Place, hops: Any) -> None:
    plain = f"/Projects/{remote.name}/"
    assert hops.hdfs.project_path(exclude_nn_addr=True) == f"hdfs://{plain}"
    assert hops.hdfs.get_plain_path(hops.hdfs.project_path()) == plain
    assert hops.hdfs.ls("", exclude_nn_addr=True)[0] == f"hdfs://{plain}Jupyter"
    assert files.abs_path(f"{plain}Resources") == f"{remote.project}/Resources"
    with hops.hdfs.get_fs() as handle, handle.open_file("Resources/a", "w") as file:
        file.write("x")
    assert handle.get_path_info("Resources/a")["size"] == 1 and handle.used() > 0


# ---- exchange with Hadoop's client


def test_files_are_exchanged_with_the_hadoop_shell(remote: Place, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(pattern(2 * MIB + 77))
    remote.shell("-put", tmp_path / "theirs", f"{remote.project}/Resources/theirs")
    assert files.load("Resources/theirs") == pattern(2 * MIB + 77)
    files.mkdir("Models/deep")
    files.cp("Resources/theirs", "Models/deep/ours")
    assert remote.shell("-cat", f"{remote.project}/Models/deep/ours").out == pattern(2 * MIB + 77)
    listed = remote.shell("-ls", "-R", f"{remote.project}/Models").text
    assert f"{remote.project}/Models/deep/ours" in listed
    remote.shell("-chmod", "751", f"{remote.project}/Models/deep")
    assert stat.S_IMODE(files.stat("Models/deep").st_mode) == 0o751
    files.chown("Models/deep/ours", "alice", "staff")
    owner = remote.shell("-stat", "%u %g", f"{remote.project}/Models/deep/ours").text.strip()
    assert owner == "alice staff"
    files.chown("Models/deep/ours", None, "others")
    assert (files.stat("Models/deep/ours").st_uid, files.stat("Models/deep/ours").st_gid) == ("alice", "others")


def test_missing_permission_is_a_permission_error(
    hdfs: Any, remote: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.dump("x", "Resources/a")
    files.chmod("Resources/a", 0o600)
    for name, value in hdfs.env("bob").items():
        monkeypatch.setenv(name, value)
    for call in (
        lambda: files.load("Resources/a"), lambda: files.dump("y", "Resources/a"), lambda: files.rmr("Resources/a"),
        lambda: files.chmod("Resources/a", 0o777), lambda: files.mkdir("Resources/sub"),
    ):  # fmt: skip
        with pytest.raises(PermissionError) as caught:
            call()
        assert isinstance(caught.value, hopyard.FileForbidden)
    assert not files.access("Resources/a", os.R_OK) and files.access("Resources/a", os.F_OK)
    assert files.project_user() == f"{remote.name}__bob"


def load_in_child(path: str, pipe: Any) -> None:
    files.dump("by a child", f"{path}-of-child")
    pipe.send(files.load(path))


def test_forked_process_has_its_own_connections(remote: Place) -> None:
    files.dump("x", "Resources/a")
    context = multiprocessing.get_context("fork")
    with files.open_file("Resources/open", flags="w") as mine:  # the child does not have the cache's background thread
        mine.write(b"begun ")
        mine.flush()
        fork_three(context)
        mine.write(b"and ended")
    assert files.load("Resources/open") == b"begun and ended"
    assert files.load("Resources/a-of-child") == b"by a child"


def fork_three(context: Any) -> None:
    for _ in range(3):
        here, there = context.Pipe()
        child = context.Process(target=load_in_child, args=("Resources/a", there))
        child.start()
        assert here.poll(60) and here.recv() == b"x"
        child.join(60)
        assert child.exitcode == 0 and files.load("Resources/a") == b"x"


# ---- fsspec


def test_fsspec_opens_hdfs_with_our_client(remote: Place) -> None:
    url = f"{remote.project}/Resources/a.gz"
    with fsspec.open(url, "wt", compression="infer") as file:
        file.write("packed")
    with fsspec.open(url, "rt", compression="infer") as file:
        assert file.read() == "packed"
    fs, path = fsspec.core.url_to_fs(f"{remote.project}/Resources")
    assert type(fs).__module__ == "hopyard.fsspec" and path == f"/Projects/{remote.name}/Resources"
    assert fs.ls(path, detail=False) == [f"{path}/a.gz"] and fs.unstrip_protocol(path) == f"{remote.project}/Resources"
    assert fsspec.open_files(f"{remote.project}/Resources/*.gz")[0].path == f"{path}/a.gz"


def test_fsspec_operations_on_hdfs(remote: Place, tmp_path: Path) -> None:
    fs, top = fsspec.core.url_to_fs(f"{remote.project}/Resources")
    data = pattern(3 * MIB + 5)
    fs.pipe_file(f"{top}/data", data)
    starts = [random.Random(i).randrange(len(data)) for i in range(50)]
    parts = fs.cat_ranges([f"{top}/data"] * 50, starts, [s + 70_000 for s in starts])
    assert parts == [data[s : s + 70_000] for s in starts]
    with fs.open(f"{top}/data", "ab") as file:
        file.write(b"tail")
    assert fs.tail(f"{top}/data", 6) == data[-2:] + b"tail" and fs.du(top) == len(data) + 4
    with fs.transaction:
        with fs.open(f"{top}/data", "wb") as file:
            file.write(b"new")
        assert fs.size(f"{top}/data") == len(data) + 4
    assert fs.cat(f"{top}/data") == b"new"
    fs.mv(f"{top}/data", f"{top}/moved")
    fs.cp(f"{top}/moved", f"{top}/deep/copy")
    fs.get(f"{top}/deep", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got" / "copy").read_bytes() == b"new"
    fs.put(str(tmp_path / "got"), f"{top}/put", recursive=True)
    assert fs.find(top) == [f"{top}/{name}" for name in ("deep/copy", "moved", "put/copy")]
    fs.rm([f"{top}/deep", f"{top}/put"], recursive=True)
    assert fs.ls(top, detail=False) == [f"{top}/moved"]


def test_pandas_arrow_and_dask_read_hdfs(remote: Place) -> None:
    import pandas
    import pyarrow.dataset

    frame = pandas.DataFrame({"x": range(50_000), "y": [f"row {i}" for i in range(50_000)]})
    url = f"{remote.project}/Resources/frame"
    frame.to_csv(f"{url}.csv.gz", index=False)
    assert pandas.read_csv(f"{url}.csv.gz").equals(frame)
    frame.to_parquet(f"{url}.parquet", storage_options={}, row_group_size=5_000)
    assert pandas.read_parquet(f"{url}.parquet", storage_options={}).equals(frame)
    assert pandas.read_parquet(f"{url}.parquet".replace("hdfs:", "hopsfs:")).equals(frame)
    import fsspec

    fs, path = fsspec.core.url_to_fs(f"{url}.parquet")
    arrow = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    table = pyarrow.dataset.dataset(path, filesystem=arrow).to_table(filter=pyarrow.dataset.field("x") >= 49_990)
    assert table["x"].to_pylist() == list(range(49_990, 50_000))
    assert [f.base_name for f in arrow.get_file_info(pyarrow.fs.FileSelector(os.path.dirname(path)))] == [
        "frame.csv.gz", "frame.parquet",
    ]  # fmt: skip
    from dask import dataframe
    read = dataframe.read_parquet(f"{url}.parquet", columns=["x"])
    assert read["x"].sum().compute(scheduler="threads") == sum(range(50_000))
    dataframe.from_pandas(frame, npartitions=3).to_parquet(f"{url}-parts")
    assert len(dataframe.read_parquet(f"{url}-parts").compute(scheduler="threads")) == 50_000


def test_program_without_an_import_of_hopyard_reads_hdfs(remote: Place) -> None:
    files.dump("x,y\n1,2\n", "Resources/a.csv")
    code = "import pandas, sys; print(pandas.read_csv(sys.argv[1])['y'].tolist())"
    words = [sys.executable, "-c", code, f"{remote.project}/Resources/a.csv"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[2]\n", done.stderr


def test_buffered_file_has_the_interface_of_python_files(remote: Place) -> None:
    import zipfile

    with files.open_file("Resources/a.zip", flags="w") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("inside", pattern(MIB))
    with files.open_file("Resources/a.zip") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("inside") == pattern(MIB)
    with files.open_file("Resources/a.zip") as file:
        assert isinstance(file, io.BufferedReader) and file.size == files.stat("Resources/a.zip").st_size
