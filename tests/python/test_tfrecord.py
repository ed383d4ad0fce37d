# SPDX-License-Identifier: Apache-2.0
"""hopyard.tfrecord without Spark: paths, files that come all or not at all, and hopyard where there is none."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hopyard
from hopyard import _hopyard
from hopyard._spark import executor as _executor
from hopyard._spark import package_archive as _package_archive
from hopyard.tfrecord import _files


@pytest.mark.parametrize(("path", "home", "url"), [
    ("/a/b", "", "/a/b"), ("file:/a", "", "/a"), ("file:///a", "hdfs://n:1/user/u", "/a"),
    ("/a", "hdfs://n:1/user/u", "hdfs://n:1/a"), ("a/b", "hdfs://n:1/user/u", "hdfs://n:1/user/u/a/b"),
    ("hdfs:///a", "hdfs://n:1/user/u", "hdfs://n:1/a"), ("hdfs:/a", "hdfs://n:1/user/u", "hdfs://n:1/a"),
    ("hdfs://m/a", "hdfs://n:1/user/u", "hdfs://m/a"), ("hdfs:///a", "", "hdfs:///a"), ("/a:b", "", "/a:b"),
])
def test_relative_path_follows_the_sessions_file_system(path: str, home: str, url: str) -> None:
    assert _files.resolve(path, home) == url
    assert _files.resolve("x", "") == os.path.abspath("x")


def test_codecs_have_many_names() -> None:
    for name, codec in {"": "", "none": "", "GZIP": "gzip", "org.apache.hadoop.io.compress.GzipCodec": "gzip",
                        "org.apache.hadoop.io.compress.DefaultCodec": "zlib", "deflate": "zlib"}.items():
        assert _files.codec_of(name) == codec
    with pytest.raises(hopyard.Error, match="invalid codec 'snappy'"):
        _files.codec_of("snappy")


def written(folder: Path, job: str, *parts: bytes) -> list[str]:
    _files.begin(str(folder), job)
    return [name for n, part in enumerate(parts)
            for name in _files.write(str(folder), job, f"part-{n}-{job}", n, "", [[part]] if part else [])]


def visible(folder: Path) -> dict[str, bytes]:
    return {Path(p).name: Path(p).read_bytes() for p in _files.find([str(folder)], "")}


def test_files_become_visible_together(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    first = written(folder, "j", b"a", b"", b"c")
    assert len(first) == 2 and visible(folder) == {} and not (folder / "_SUCCESS").exists()
    _files.commit(str(folder), "j", first, False)
    assert visible(folder) == {"part-0-j.tfrecord": b"a", "part-2-j.tfrecord": b"c"}
    _files.commit(str(folder), "k", written(folder, "k", b"d"), False)
    assert len(visible(folder)) == 3
    other = written(folder, "other", b"x")  # which is not done yet
    _files.commit(str(folder), "l", written(folder, "l", b"e"), True)
    assert visible(folder) == {"part-0-l.tfrecord": b"e"}
    _files.commit(str(folder), "other", other, False)
    assert sorted(os.listdir(folder)) == ["_SUCCESS", "part-0-l.tfrecord", "part-0-other.tfrecord"]


def test_aborted_job_leaves_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    _files.abort(str(folder), "j", written(folder, "j", b"a", b"b"))
    assert not folder.exists()
    with pytest.raises(hopyard.FileNotFound):  # of a task that comes too late
        _files.write(str(folder), "j", "part-3-j", 3, "", [[b"late"]])
    assert not folder.exists()


def test_interrupted_commit_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of its names the new files go, and in the midst of what they replace they stay."""
    folder = tmp_path / "out"
    _files.commit(str(folder), "old", written(folder, "old", b"a", b"b"), False)
    before = visible(folder)

    def broken(what: str, at: int) -> None:
        names, calls, true = written(folder, f"{what}{at}", b"c", b"d"), iter(range(at)), getattr(_hopyard, what)

        def call(*args: object) -> None:
            if "part-" in str(args[0]) and next(calls, None) is None:
                raise OSError("as it was told")
            true(*args)

        with monkeypatch.context() as patched:
            patched.setattr(_hopyard, what, call)
            with pytest.raises(OSError, match="as it was told"):
                _files.commit(str(folder), f"{what}{at}", names, True)
        _files.abort(str(folder), f"{what}{at}", names)

    broken("rename", 1)
    assert visible(folder) == before
    broken("remove", 1)
    assert set(visible(folder)) == {"part-1-old.tfrecord", "part-0-remove1.tfrecord", "part-1-remove1.tfrecord"}


PACKAGE = """
import importlib.util, sys, types
sys.modules["pyspark"] = types.ModuleType("pyspark")
sys.modules["pyspark"].SparkFiles = types.SimpleNamespace(getRootDirectory=lambda: {root!r})
spec = importlib.util.spec_from_file_location("executor", {executor!r})
executor = importlib.util.module_from_spec(spec)
spec.loader.exec_module(executor)
assert importlib.util.find_spec("hopyard") is None
executor._may_execute = lambda path: {may_execute}
executor.ensure_package("archive", "d1", {version!r})
import hopyard
from hopyard import _hopyard, hdfs
with open("/proc/self/maps") as maps:
    print(hopyard.__file__, next(line.split()[5] for line in maps if "_hopyard.abi3" in line))
executor.ensure_package("archive", "d1", "0.0.0")
"""


@pytest.mark.parametrize("may_execute", [True, False])
def test_hopyard_is_shipped_to_a_python_without_it(tmp_path: Path, may_execute: bool) -> None:
    """From a folder, or from memory where no folder may execute; twice, and one of another version is named."""
    (tmp_path / "archive").write_bytes(_package_archive.archive()[0])
    code = PACKAGE.format(root=str(tmp_path), executor=_executor.__file__, may_execute=may_execute,
                          version=hopyard.__version__)
    python = os.path.realpath(sys.executable)  # outside of the environment in which hopyard is
    done = subprocess.run([python, "-I", "-c", code], text=True, capture_output=True, cwd=tmp_path)
    site = tmp_path / ".hopyard-d1/site"
    library = f"{site}/hopyard/_hopyard.abi3.so" if may_execute else "/memfd:_hopyard.abi3.so"
    assert done.stdout.split()[:2] == [f"{site}/hopyard/__init__.py", library], done.stderr
    assert f"hopyard {hopyard.__version__} is installed for " in done.stderr
    assert done.stderr.endswith("but the session has 0.0.0; install that version there, or remove it\n")


# ---- directories that are columns ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("0", "p=0"),
        ("a b", "p=a b"),
        ("a/b=c%d:*", "p=a%2Fb%3Dc%25d%3A%2A"),
        (None, "p=__HIVE_DEFAULT_PARTITION__"),
        ("ü", "p=ü"),
    ],
)
def test_directory_name_has_a_column_value(tmp_path: Path, value: str | None, name: str) -> None:
    assert _files.folder_name("p", value) == name
    (tmp_path / name / "q=1").mkdir(parents=True)
    (tmp_path / name / "q=1" / "f").write_text("x")
    assert _files.find_parts([str(tmp_path)], "") == [(str(tmp_path / name / "q=1" / "f"), {"p": value, "q": "1"})]
    assert _files.find_parts([str(tmp_path / name)], "")[0][1] == {"q": "1"}, "those below what was named"


def test_directories_with_different_columns_are_an_error(tmp_path: Path) -> None:
    for name in ("p=1", "q=1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("x")
    with pytest.raises(hopyard.Error, match="have the columns 'p', but those of .* have 'q'; read them one by one"):
        _files.find_parts([str(tmp_path)], "")


def test_an_overwrite_replaces_the_files_of_a_directory_that_both_have(tmp_path: Path) -> None:
    def put(job: str, *folders: str) -> list[str]:
        _files.begin(str(tmp_path), job)
        return [
            name
            for folder in folders
            for name in _files.write(str(tmp_path), job, f"{folder}part-{job}", 1, "", [[b"x"]])
        ]

    _files.commit(str(tmp_path), "a", put("a", "p=0/q=0/", "p=1/q=0/", "p=2/q=0/"), False)
    _files.commit(str(tmp_path), "b", put("b", "p=0/q=0/", "p=1/q=1/"), True)
    found = sorted(os.path.relpath(url, tmp_path) for url in _files.find([str(tmp_path)], ""))
    assert found == ["p=0/q=0/part-b.tfrecord", "p=1/q=1/part-b.tfrecord"]
    names = put("c", "p=3/")
    _files.abort(str(tmp_path), "c", names)
    assert not (tmp_path / "p=3").exists() and len(_files.find([str(tmp_path)], "")) == 2
