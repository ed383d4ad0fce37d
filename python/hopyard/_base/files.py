# SPDX-License-Identifier: Apache-2.0
"""Open files of any file system as Python file objects: buffered, with lines, seek and tell."""

import errno
import io
import os
import stat
from typing import Any

from .._hopyard import File
from . import errors as _errors
from .errors import Error

_READ = 1 << 16  # the client reads ahead itself; a larger buffer is wasted after a seek
_WRITE = 1 << 20


class Raw(io.RawIOBase):
    """Reads and writes the caller's buffer directly, without a copy."""

    def __init__(self, url: str, mode: str) -> None:
        self._file: File | None = None  # close() is called even if opening fails
        self._file = File(url, mode)
        self.name, self.mode = url, f"{mode}b"
        self._at = 0 if mode == "r" else self._file.size

    def _open(self) -> File:
        if self._file is None or self.closed:
            raise ValueError("the file is closed")
        return self._file

    @property
    def size(self) -> int:
        return self._open().size

    def readable(self) -> bool:
        return self.mode == "rb"

    def writable(self) -> bool:
        return self.mode != "rb"

    def seekable(self) -> bool:
        return self.readable()

    def readinto(self, buffer: Any) -> int:
        got = self._open().preadinto(buffer, self._at)
        self._at += got
        return got

    def readall(self) -> bytes:
        data = self._open().pread(-1, self._at)
        self._at += len(data)
        return data

    def write(self, data: Any) -> int:
        written = self._open().write(data)
        self._at += written
        return written

    def flush(self) -> None:
        """Makes written data visible to readers that open the file from now on."""
        if self._file is not None and not self.closed and self.writable():
            self._file.flush()

    def tell(self) -> int:
        self._open()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if not self.seekable():
            raise io.UnsupportedOperation("a file can only be written sequentially")
        at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence] + offset
        if at < 0:
            raise ValueError(f"cannot seek to {at}: before the beginning of the file")
        self._at = at
        return at

    def close(self) -> None:
        """Raises an error of the last writes; the file is closed in any case."""
        file, self._file = self._file, None
        super().close()
        if file is not None:
            file.close()


class Reader(io.BufferedReader):
    @property
    def size(self) -> int:
        return self.raw.size if isinstance(self.raw, Raw) else os.fstat(self.fileno()).st_size


class Writer(io.BufferedWriter):
    """Accepts text as well as bytes, as Hopsworks' guides use it; flushed data is visible to other readers."""

    def write(self, data: Any, /) -> int:
        return super().write(data.encode() if isinstance(data, str) else data)

    def flush(self) -> None:
        super().flush()
        self.raw.flush()


def open_raw(url: str, mode: str) -> io.RawIOBase:
    """A file to read ('r'), write ('w', 'x') or append to ('a'). A local file has a descriptor."""
    if "://" in url:
        return Raw(url, mode)
    try:
        return io.FileIO(url, mode)
    except OSError as error:
        raise _errors.file_error(error) from None


def open_own(path: str) -> Reader:
    """A file that will be unpickled, which can run any code: a local file only if no other user can have written it."""
    if "://" in path:
        return Reader(open_raw(path, "r"), _READ)
    try:
        file = Reader(io.FileIO(path, opener=_open_unfollowed))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Error(
                f"'{path}' is a symbolic link and is not read, because another user may have created it"
            ) from None
        raise _errors.file_error(error) from None
    why = _why_not_own(path, os.fstat(file.fileno()))
    if why:
        file.close()
        raise Error(f"'{path}' {why} and is not read, because reading it could run another user's code as you")
    return file


def _open_unfollowed(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _makes_files_of(folder: str, user: int) -> bool:
    """Whether files created there get that owner: a file server may map all its users to one."""
    path = os.path.join(folder, f".hopyard-owner-{os.getpid()}")
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        os.unlink(path)
        return os.fstat(file).st_uid == user
    finally:
        os.close(file)


def _why_not_own(path: str, found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_uid not in (os.geteuid(), 0) and not _makes_files_of(os.path.dirname(path), found.st_uid):
        return f"belongs to another user (user ID {found.st_uid})"
    if found.st_nlink != 1:
        return f"has {found.st_nlink} hard links"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by other users (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def open_url(url: str, mode: str, buffer_size: int = 0) -> Reader | Writer:
    raw = open_raw(url, mode)
    if mode == "r":
        return Reader(raw, buffer_size or _READ)
    return Writer(raw, buffer_size or _WRITE)
