# SPDX-License-Identifier: Apache-2.0
"""Files of a data set: finds them, and writes new ones atomically, all or none.

A task writes `_temporary/JOB/part-00000-JOB.tfrecord.ATTEMPT` in the directory, which readers ignore like all names
that begin with '_'. When every task is done the driver renames these files into the directory, removes the files that
they replace, and creates `_SUCCESS`. The file of a task that failed or was killed is removed with `_temporary/JOB`. """

import contextlib
import gzip
import io
import json
import os
import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

from .. import _hopyard
from .._base.errors import Error, FileError, FileNotFound
from .._base.files import open_url

CODECS = {"": "", "gzip": ".gz", "zlib": ".zlib"}
_NAMES = {
    "none": "", "uncompressed": "", "gzipcodec": "gzip", "defaultcodec": "zlib", "deflatecodec": "zlib",
    "deflate": "zlib",
}  # fmt: skip
_TEMPORARY, _DONE, _RENAMED = "_temporary", "_SUCCESS", "renamed"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_UNSAFE = r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]"  # characters that Spark escapes

Values = dict[str, str | None]
"""Columns in the names of directories, and their values."""


# ---- paths


def resolve(path: str, home: str) -> str:
    """A URL, or a local path. `home` is the base of relative paths of a session on another file system."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?$", path, re.DOTALL)
    root = re.sub(r"^(\w+://[^/]*).*", r"\1", home)
    if found and found[1] == "file":
        return posixpath.normpath(found[3] or "/")
    if found and found[1] == "hdfs" and not found[2] and root.startswith("hdfs://"):
        return root + (found[3] or "/")
    if found:
        return path
    if home:
        return root + path if path.startswith("/") else f"{home}/{path}"
    return os.path.abspath(path)


def exists(url: str) -> bool:
    try:
        _hopyard.stat(url)
    except FileNotFound:
        return False
    return True


def folder_of(paths: list[str], home: str) -> str:
    """The path to write to."""
    if len(paths) != 1:
        raise Error("records must be written to one directory: .save(path)")
    return resolve(paths[0], home).rstrip("/") or "/"


def find(paths: list[str], home: str) -> list[str]:
    """All files at or below the paths; a file given by name may have any name."""
    return [url for url, _ in find_parts(paths, home)]


def find_parts(paths: list[str], home: str) -> list[tuple[str, Values]]:
    """The same, with the columns in the names of the directories below each path (p=0)."""
    if not paths:
        raise Error("no path to read records from is given: .load(path)")
    found: list[tuple[str, Values]] = []
    for path in paths:
        url = resolve(path, home)
        named = _hopyard.glob(url) if re.search(r"[*?\[{]", url) and not exists(url) else [url]
        if not named:
            raise FileNotFound(2, f"{url} matches no files", url)
        for place in named:
            found += _below(place, {}) if _hopyard.stat(place).is_dir else [(place, {})]
    _check_alike(found)
    return found


def _check_alike(found: list[tuple[str, Values]]) -> None:
    for url, values in found:
        if list(values) != list(found[0][1]):
            columns = [", ".join(f"'{name}'" for name in v) or "none" for v in (found[0][1], values)]
            raise Error(
                f"the directories of {found[0][0]} have the columns {columns[0]}, but those of {url} have "
                f"{columns[1]}; read them one by one"
            )


def _below(folder: str, values: Values) -> Iterator[tuple[str, Values]]:
    for info in sorted(_hopyard.list(folder), key=lambda info: info.name):
        if info.name.startswith(("_", ".")):
            continue
        url = _hopyard.join(folder, info.name)
        if info.is_dir:
            yield from _below(url, {**values, **_value_of(info.name)})
        elif info.size:
            yield url, values


def _value_of(name: str) -> Values:
    """The column of a directory p=0; {} for others."""
    column, sep, value = name.partition("=")
    return {_unescaped(column): None if value == _NULL else _unescaped(value)} if column and sep else {}


def _unescaped(text: str) -> str:
    return re.sub("%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), text)


def _escaped(text: str) -> str:
    return re.sub(_UNSAFE, lambda found: f"%{ord(found[0]):02X}", text)


def names_of(text: str) -> list[str]:
    """Columns, as a JSON list or separated by commas."""
    return (
        list(json.loads(text)) if text.startswith("[") else [name.strip() for name in text.split(",") if name.strip()]
    )


def folder_name(column: str, value: str | None) -> str:
    """Escapes characters that a path cannot have as %2F, like Spark and Hive."""
    return f"{_escaped(column)}={_NULL if value is None or value == '' else _escaped(value)}"


# ---- writing


def codec_of(name: str) -> str:
    """The codec for a common or Hadoop name: "gzip", "org.apache.hadoop.io.compress.GzipCodec"."""
    word = name.rpartition(".")[2].lower()
    word = _NAMES.get(word, word)
    if word not in CODECS:
        raise Error(f"invalid codec {name!r}: TensorFlow reads '', 'gzip' and 'zlib' only")
    return word


class _Zlib(io.RawIOBase):
    """The equivalent of gzip.GzipFile for zlib."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._zip = file, zlib.compressobj()

    def write(self, data: Any) -> int:
        self._file.write(self._zip.compress(data))
        return len(data)

    def finish(self) -> None:
        self._file.write(self._zip.flush())


@contextlib.contextmanager
def _packed(file: IO[bytes], codec: str) -> Iterator[Any]:
    if codec == "gzip":
        with gzip.GzipFile("", "wb", 6, file, 0) as zipped:
            yield zipped
    elif codec == "zlib":
        stream = _Zlib(file)
        yield stream
        stream.finish()
    else:
        yield file


def _temporary(folder: str, job: str) -> str:
    return _hopyard.join(_hopyard.join(folder, _TEMPORARY), job)


def begin(folder: str, job: str) -> None:
    """Called by the driver: a late task of a finished job then finds no directory to write to."""
    _hopyard.mkdirs(_temporary(folder, job))


def write(folder: str, job: str, part: str, attempt: int, codec: str, batches: Iterable[Iterable[bytes]]) -> list[str]:
    """Writes a task's file, if it has records; yields its name in _temporary/JOB. `part` may have directories:
    p=0/part-0."""
    pieces = (piece for batch in batches for piece in batch)
    first = next(pieces, None)
    if first is None:
        return []
    name = f"{part}.tfrecord{CODECS[codec]}.{attempt}"
    _hopyard.stat(_temporary(folder, job))  # HDFS would create it
    if "/" in name:
        _hopyard.mkdirs(posixpath.dirname(_hopyard.join(_temporary(folder, job), name)))
    with open_url(_hopyard.join(_temporary(folder, job), name), "w") as file, _packed(file, codec) as stream:
        stream.write(first)
        for piece in pieces:
            stream.write(piece)
    return [name]


def commit(folder: str, job: str, names: list[str], overwrite: bool) -> None:
    """Once the file `renamed` exists, the new files are valid, and replaced ones are removed; before, nothing is
    lost."""
    temporary = _temporary(folder, job)
    old = list(_old(folder, {name.partition("/")[0] for name in names})) if overwrite else []
    _gone(_hopyard.join(folder, _DONE))
    for part in {posixpath.dirname(name) for name in names} - {""}:
        _hopyard.mkdirs(_hopyard.join(folder, part))
    for name in names:
        _hopyard.rename(_hopyard.join(temporary, name), _hopyard.join(folder, final(name)))
    _touch(_hopyard.join(temporary, _RENAMED))
    for url in old:
        _gone(url)
    _clear(folder, job)
    _touch(_hopyard.join(folder, _DONE))


def _old(folder: str, shared: set[str]) -> Iterator[str]:
    """What an overwrite replaces: everything; in directories that also get new files, only the files."""
    for info in _hopyard.list(folder):
        url = _hopyard.join(folder, info.name)
        if info.name in shared and info.is_dir:
            yield from _files_below(url)
        elif not info.name.startswith((".", _TEMPORARY)):
            yield url


def _files_below(folder: str) -> Iterator[str]:
    for info in _hopyard.list(folder):
        url = _hopyard.join(folder, info.name)
        if info.is_dir:
            yield from _files_below(url)
        else:
            yield url


def abort(folder: str, job: str, names: list[str]) -> None:
    if not exists(_hopyard.join(_temporary(folder, job), _RENAMED)):
        for name in names:
            _gone(_hopyard.join(folder, final(name)))
    _clear(folder, job)
    with contextlib.suppress(FileError):  # it is not empty
        _hopyard.remove(folder)


def final(name: str) -> str:
    """The name without the attempt."""
    return name.rpartition(".")[0]


def _clear(folder: str, job: str) -> None:
    _gone(_temporary(folder, job))
    with contextlib.suppress(FileError):  # another job is writing there
        _hopyard.remove(_hopyard.join(folder, _TEMPORARY))


def _gone(url: str) -> None:
    with contextlib.suppress(FileNotFound):
        _hopyard.remove(url, True)


def _touch(url: str) -> None:
    with open_url(url, "w"):
        return
