# SPDX-License-Identifier: Apache-2.0
"""hdfs:// and hopsfs:// for fsspec, and so for pandas, Dask, Arrow and other users of fsspec.

fsspec uses this instead of its own client, which needs a JVM; it need not be imported.

    fsspec.open("hdfs://namenode/data/a.csv")
    pandas.read_csv("hdfs://namenode/data/a.csv")
    pandas.read_parquet("hdfs://namenode/data/a.parquet", storage_options={})
    dask.dataframe.read_parquet("hdfs://namenode/data/")
    pyarrow.dataset.dataset("/data", filesystem=fsspec.filesystem("hdfs", host="namenode"))

pandas passes the URL of a Parquet file to Arrow's client first, which needs a JVM; with `storage_options`, even empty
ones, it does not.
"""

import datetime
import errno
import getpass
import io
import os
import posixpath
import secrets
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem
from fsspec.utils import infer_storage_options

from . import _hopyard
from ._base.errors import Error
from ._base.files import Writer, open_raw, open_url
from ._hopyard import File, Info

__all__ = ["HopyardFileSystem"]

_THREADS = 16


class _Draft(Writer):
    """A file of a transaction: it has a temporary name until the transaction ends."""

    def __init__(self, url: str, mode: str) -> None:
        folder, name = posixpath.split(url)
        self._url, self._replaces = url, mode != "x"
        self._draft = f"{folder}/.{name}.{secrets.token_hex(8)}"
        super().__init__(open_raw(self._draft, "x"))

    def commit(self) -> None:
        self.close()
        _hopyard.rename(self._draft, self._url, self._replaces)

    def discard(self) -> None:
        self.close()
        _hopyard.remove(self._draft)


class HopyardFileSystem(AbstractFileSystem):
    """HDFS and HopsFS through hopyard's client. Without a host, the cluster is fs.defaultFS.

    All other settings are those of Hadoop's client, from $HADOOP_CONF_DIR; the user is $HADOOP_USER_NAME.
    """

    protocol = ("hdfs", "hopsfs")
    root_marker = "/"

    def __init__(self, host: str = "", port: int | None = None, user: str | None = None, **options: Any) -> None:
        super().__init__(host=host, port=port, user=user, **options)
        if user and user != (os.environ.get("HADOOP_USER_NAME") or getpass.getuser()):
            raise Error(f"a process can use hdfs:// as one user only; set HADOOP_USER_NAME to '{user}'")
        self.root = f"hdfs://{'' if host == 'default' else host}{f':{port}' if port else ''}"

    # ---- names

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """'hdfs://namenode/a/b/' is '/a/b'."""
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        text = os.fspath(path)
        scheme, sep, rest = text.partition("://")
        if sep and scheme in (cls.protocol if isinstance(cls.protocol, tuple) else (cls.protocol,)):
            text = rest.partition("/")[2]
        return cls.root_marker + text.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        found = infer_storage_options(path)
        names = {"host": "host", "port": "port", "username": "user"}
        return {ours: found[theirs] for theirs, ours in names.items() if found.get(theirs)}

    def unstrip_protocol(self, name: str) -> str:
        return self._url(name)

    def _url(self, path: str) -> str:
        return self.root + self._strip_protocol(path)

    # ---- queries

    def info(self, path: str, **ignored: Any) -> dict[str, Any]:
        return _described(self._strip_protocol(path), _hopyard.stat(self._url(path)))

    def ls(self, path: str, detail: bool = True, **ignored: Any) -> list[Any]:
        name, info = self._strip_protocol(path), _hopyard.stat(self._url(path))
        found = [_described(name, info)]
        if info.is_dir:
            found = [_described(posixpath.join(name, e.name), e) for e in _hopyard.list(self._url(path))]
        return found if detail else [entry["name"] for entry in found]

    def du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **given: Any
    ) -> Any:
        if total and maxdepth is None and not withdirs:
            return _hopyard.usage(self._url(path)).bytes
        return super().du(path, total=total, maxdepth=maxdepth, withdirs=withdirs, **given)

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(_hopyard.stat(self._url(path)).modified_ms / 1000, datetime.UTC)

    def created(self, path: str) -> datetime.datetime:
        """HDFS stores the time of the last change only."""
        return self.modified(path)

    # ---- changes

    def mkdir(self, path: str, create_parents: bool = True, **ignored: Any) -> None:
        self.makedirs(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if not exist_ok and self.exists(path):
            raise _hopyard.FileExists(errno.EEXIST, f"{self._url(path)} already exists", self._url(path))
        _hopyard.mkdirs(self._url(path))

    def rmdir(self, path: str) -> None:
        if not _hopyard.stat(self._url(path)).is_dir:
            raise _hopyard.NotFolder(errno.ENOTDIR, f"{self._url(path)} is a file, not a directory", self._url(path))
        _hopyard.remove(self._url(path))

    def _rm(self, path: str) -> None:
        _hopyard.remove(self._url(path))

    rm_file = _rm

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for found in self.expand_path(path):
            _hopyard.remove(self._url(found), recursive)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **given: Any) -> None:
        """Moves into a directory, or to a new name, by renaming: nothing is copied."""
        target = self._url(path2)
        if self.isdir(path2):
            target = _hopyard.join(target, posixpath.basename(self._strip_protocol(path1)))
        _hopyard.rename(self._url(path1), target, True)

    mv_file = mv

    def cp_file(self, path1: str, path2: str, **ignored: Any) -> None:
        if self.isdir(path1):
            return self.makedirs(path2, exist_ok=True)
        _hopyard.mkdirs(posixpath.dirname(self._url(path2)))
        _hopyard.copy(self._url(path1), self._url(path2), True)

    def touch(self, path: str, truncate: bool = True, **ignored: Any) -> None:
        if not truncate and self.exists(path):
            raise NotImplementedError("HDFS sets the time of a file when it is written")
        File(self._url(path), "w").close()

    # ---- contents

    def _open(
        self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None,
        **ignored: Any,
    ) -> io.BufferedIOBase:  # fmt: skip
        """Without a cache: the client reads ahead, and large reads go directly to the caller's buffer."""
        how = mode.replace("b", "")
        if how not in ("r", "w", "x", "a"):
            raise ValueError(f"invalid mode '{mode}': it must be 'rb', 'wb', 'xb' or 'ab'")
        if how == "r" or autocommit:
            return open_url(self._url(path), how, block_size if isinstance(block_size, int) else 0)
        if how == "a":
            raise ValueError("cannot append in a transaction, which creates new files; append outside of it")
        return _Draft(self._url(path), how)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **ignored: Any) -> bytes:
        with File(self._url(path)) as file:
            return _part(file, start, end)

    def cat_ranges(
        self, paths: Any, starts: Any, ends: Any, max_gap: Any = None, on_error: str = "return", **ignored: Any
    ) -> list[Any]:
        """Reads ranges in parallel: each file is opened once, and several threads read its parts."""
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts, ends = (v if isinstance(v, list) else [v] * len(paths) for v in (starts, ends))
        if not len(paths) == len(starts) == len(ends):
            raise ValueError(f"there are {len(paths)} paths, but {len(starts)} starts and {len(ends)} ends")
        with ThreadPoolExecutor(max(1, min(_THREADS, len(paths)))) as pool:
            files = dict(zip(set(paths), pool.map(lambda p: _try(File, self._url(p)), set(paths))))
            found = list(pool.map(lambda p, s, e: _try(_part, files[p], s, e), paths, starts, ends))
        _close(files.values())
        _raise_first(found if on_error == "raise" else ())
        return found

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **ignored: Any) -> None:
        if self._intrans:
            super().pipe_file(path, value, mode=mode)
            return
        with File(self._url(path), "x" if mode == "create" else "w") as file:
            file.write(value)

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **given: Any
    ) -> None:
        if outfile is not None or not isinstance(lpath, str | os.PathLike) or self.isdir(rpath):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **given)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        _hopyard.copy(self._url(rpath), os.path.abspath(lpath), True)
        _tell(callback, os.path.getsize(lpath))

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **ignored: Any
    ) -> None:
        if os.path.isdir(lpath):
            return self.makedirs(rpath, exist_ok=True)
        _hopyard.mkdirs(posixpath.dirname(self._url(rpath)))
        _hopyard.copy(os.path.abspath(lpath), self._url(rpath), mode == "overwrite")
        _tell(callback, os.path.getsize(lpath))


def _described(name: str, info: Info) -> dict[str, Any]:
    return {
        "name": name,
        "size": info.size,
        "type": "directory" if info.is_dir else "file",
        "islink": info.is_link,
        "mode": info.mode,
        "owner": info.owner,
        "group": info.group,
        "mtime": info.modified_ms / 1000,
        "replication": info.replication,
        "block_size": info.block_size,
    }


def _part(file: File | Exception, start: int | None, end: int | None) -> bytes:
    """Negative positions count from the end."""
    if isinstance(file, Exception):
        raise file
    first, last, _ = slice(start, end).indices(file.size)
    return file.pread(max(0, last - first), first)


def _try(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:  # returned, because the caller may want the other results
        return error


def _close(files: Iterable[File | Exception]) -> None:
    for file in files:
        if isinstance(file, File):
            file.close()


def _raise_first(found: Sequence[Any]) -> None:
    for result in found:
        if isinstance(result, Exception):
            raise result


def _tell(callback: Any, size: int) -> None:
    callback.set_size(size)
    callback.absolute_update(size)
