# SPDX-License-Identifier: Apache-2.0
"""The project's folder, and the files in it.

A path is relative to the project (`Resources/data.csv`, with a slash before it or without), or is one
that `project_path` begins: any absolute path below the folder in which this project and its neighbours
lie. `/Projects/NAME/…` is the neighbour NAME. Nothing else can be reached, so that no mistyped path
removes anything but the project's own.
"""

import datetime
import errno
import getpass
import glob as _glob
import grp
import io
import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from . import tensorboard
from ._errors import Error

__all__ = [
    "abs_path", "access", "capacity", "chmod", "chown", "copy_to_hdfs", "copy_to_local", "cp", "delete",
    "dump", "exists", "glob", "isdir", "isfile", "load", "log", "ls", "lsl", "mkdir", "move", "open_file",
    "project_name", "project_path", "project_user", "rename", "rmr", "stat",
]  # fmt: skip

Path = str | bytes | os.PathLike[str]

_FOLDERS = ("Resources", "Logs", "Jupyter", "Models")
_LOGS = "/Logs/TensorFlow/"


# ---- the project


def project_path(project: str | None = None) -> str:
    """The project's folder, ending in '/'; with a name, the folder of that name beside it.

    The project is the one that this trial belongs to, `$HOPYARD_PROJECT`, or the folder we are in. When
    it is first asked for it gets its folders: Resources, Logs, Jupyter and Models.
    """
    folder = _project()
    if project is not None and (project in ("", ".", "..") or "/" in project):
        raise Error(f"'{project}' is no name of a project; that is a folder's beside this project")
    if project is not None and project != os.path.basename(folder):
        return os.path.join(os.path.dirname(folder), project, "")
    if not _is_remote(folder):
        _furnish(folder)
    return os.path.join(folder, "")


def project_name() -> str:
    """The name of the project's folder."""
    return os.path.basename(_project())


def project_user() -> str:
    """`project__user`, as hops names a member of a project."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # nobody of this number is known here
        user = str(os.getuid())
    return f"{project_name()}__{user}"


def log(text: object) -> None:
    """Adds a line to the trial's own log, `trial.log` in its folder; what it prints is kept elsewhere."""
    line = f"{datetime.datetime.now().isoformat()}: {text}\n"
    with open(os.path.join(tensorboard.logdir(), "trial.log"), "ab", buffering=0) as file:
        file.write(line.encode(errors="replace"))  # one write, so that two processes' lines do not mix


def _project() -> str:
    """A trial's folder tells its project better than the environment: --project may have chosen another."""
    trial, sep, _ = os.environ.get("HOPYARD_TRIAL_DIR", "").rpartition(_LOGS)
    folder = trial if sep else os.environ.get("HOPYARD_PROJECT") or os.getcwd()
    return folder.rstrip("/") if _is_remote(folder) else os.path.abspath(folder)


def _is_remote(path: str) -> bool:
    return "://" in path


def _furnish(folder: str) -> None:
    for name in _FOLDERS:
        try:
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        except OSError as error:
            raise Error(
                f"cannot make the folder '{name}' of the project '{folder}': {error.strerror}; "
                "set HOPYARD_PROJECT to a folder of yours"
            ) from error


# ---- paths


def abs_path(path: Path, project: str | None = None) -> str:
    """The path of a file of the project."""
    text = os.fsdecode(path).removeprefix("file://")
    folder = project_path(project)
    if _is_remote(text) or _is_remote(folder):
        raise Error(
            f"'{text if _is_remote(text) else folder}' is not on this machine, and HDFS is not here yet; "
            "set HOPYARD_PROJECT to a local folder"
        )
    is_full = os.path.isabs(text) and text.startswith(_reach())
    if text.startswith("/Projects/"):
        name, _, text = text.removeprefix("/Projects/").partition("/")
        folder, is_full = project_path(name), False
    full = os.path.normpath(text if is_full else folder + text.lstrip("/"))
    if not os.path.join(full, "").startswith((_reach(), folder)):
        raise Error(f"'{full}' is beyond '{_reach()}', in which the project and its neighbours lie")
    return full


def _reach() -> str:
    """The folder below which absolute paths are what they are: the project's and its neighbours'."""
    folder = _project()
    above = os.path.dirname(folder)
    return os.path.join(folder if above == "/" else above, "")


def _removable(path: Path, project: str | None = None) -> str:
    full = abs_path(path, project)
    if os.path.join(_project(), "").startswith(os.path.join(full, "")):
        raise Error(f"'{full}' is the project itself, and is not removed from within")
    return full


# ---- looking


def exists(path: Path, project: str | None = None) -> bool:
    return os.path.exists(abs_path(path, project))


def isdir(path: Path, project: str | None = None) -> bool:
    return os.path.isdir(abs_path(path, project))


def isfile(path: Path, project: str | None = None) -> bool:
    return os.path.isfile(abs_path(path, project))


def stat(path: Path, project: str | None = None) -> os.stat_result:
    return os.stat(abs_path(path, project))


def access(path: Path, mode: int, project: str | None = None) -> bool:
    return os.access(abs_path(path, project), mode)


def capacity() -> int:
    """The size in bytes of the disk on which the project lies."""
    return shutil.disk_usage(abs_path("")).total


def ls(path: Path, recursive: bool = False, project: str | None = None) -> list[str]:
    """The full paths of what is in a folder, or of all below it."""
    full = abs_path(path, project)
    if not os.path.isdir(full):
        return [full] if os.stat(full) else []
    return sorted(_below(full) if recursive else (os.path.join(full, name) for name in os.listdir(full)))


def lsl(path: Path, recursive: bool = False, project: str | None = None) -> list[dict[str, Any]]:
    """The same with what is to be known of each: name, kind, size, owner, group, permissions, last_mod."""
    return [describe(entry) for entry in ls(path, recursive, project)]


def glob(path: Path, recursive: bool = False, project: str | None = None) -> list[str]:
    """The full paths that match a pattern of the shell's; `recursive` lets ** stand for any folders."""
    return sorted(_glob.glob(abs_path(path, project), recursive=recursive))


def _below(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        yield from (os.path.join(parent, name) for name in folders + files)


def describe(full: str) -> dict[str, Any]:
    """What lsl says of one path."""
    seen = os.lstat(full)
    return {
        "name": full,
        "path": full,
        "kind": "directory" if os.path.isdir(full) else "file",
        "size": seen.st_size,
        "owner": _name_of(pwd.getpwuid, seen.st_uid),
        "group": _name_of(grp.getgrgid, seen.st_gid),
        "permissions": seen.st_mode & 0o7777,
        "last_mod": int(seen.st_mtime),
        "last_access": int(seen.st_atime),
        "replication": 1,
        "block_size": seen.st_blksize,
    }


def _name_of(lookup: Callable[[int], Sequence[Any]], number: int) -> str:
    try:
        return str(lookup(number)[0])
    except KeyError:
        return str(number)


# ---- changing


def mkdir(path: Path, project: str | None = None) -> None:
    os.makedirs(abs_path(path, project), exist_ok=True)


def rmr(path: Path, project: str | None = None) -> None:
    """Removes a file, or a folder and all in it."""
    _remove(_removable(path, project))


def delete(path: Path, recursive: bool = False) -> None:
    """Removes a file or an empty folder, or with `recursive` any; nothing, where there is nothing."""
    full = _removable(path)
    if not os.path.lexists(full):
        return
    if os.path.isdir(full) and not os.path.islink(full) and not recursive:
        os.rmdir(full)
    else:
        _remove(full)


def move(src: Path, dest: Path) -> None:
    shutil.move(_removable(src), abs_path(dest))


def rename(src: Path, dest: Path) -> None:
    os.rename(_removable(src), abs_path(dest))


def chmod(path: Path, mode: int, project: str | None = None) -> None:
    os.chmod(abs_path(path, project), mode)


def chown(path: Path, user: str, group: str, project: str | None = None) -> None:
    shutil.chown(abs_path(path, project), user, group)


def _remove(full: str) -> None:
    if os.path.isdir(full) and not os.path.islink(full):
        shutil.rmtree(full)
    else:
        os.unlink(full)


# ---- contents


class _Writer(io.BufferedWriter):
    """Takes text as well as bytes, as the guides write it."""

    def write(self, data: Any, /) -> int:
        return super().write(data.encode() if isinstance(data, str) else data)


def open_file(path: Path, project: str | None = None, flags: str = "r", buff_size: int = 0) -> IO[Any]:
    """Opens a file to read ('r', 'rw'), write ('w') or append ('a') bytes; with a 't' behind it, text."""
    full, mode = abs_path(path, project), flags[:1]
    if mode not in ("r", "w", "a"):
        raise ValueError(f"flags is '{flags}'; it begins with 'r', 'w' or 'a'")
    if "t" in flags:
        return open(full, mode, encoding="utf-8")
    if mode == "r":
        return open(full, "rb")
    return _Writer(io.FileIO(full, mode))


def dump(data: str | bytes, path: Path) -> None:
    """Writes a file, all of it."""
    with open_file(path, flags="w") as file:
        file.write(data)


def load(path: Path) -> bytes:
    """Reads a file, all of it."""
    with open(abs_path(path), "rb") as file:
        return file.read()


def copy_to_hdfs(
    local_path: Path, relative_hdfs_path: Path, overwrite: bool = False, project: str | None = None
) -> None:
    """Copies a file or folder into a folder of the project, or to a new name there."""
    source, target = os.path.abspath(os.fsdecode(local_path)), os.fsdecode(relative_hdfs_path)
    full = abs_path(target, project)
    _copy(source, _within(source, full) if target.endswith("/") or os.path.isdir(full) else full, overwrite)


def copy_to_local(
    hdfs_path: Path, local_path: Path = "", overwrite: bool = False, project: str | None = None
) -> str:
    """Copies a file or folder of the project into a local folder, or to a new name; the copy's full path.

    What is there already, with files of the same sizes, stays unless `overwrite` is set.
    """
    source, target = abs_path(hdfs_path, project), os.path.abspath(os.fsdecode(local_path))
    full = _within(source, target) if os.path.isdir(target) else target
    if overwrite or not os.path.exists(full) or _sizes(full) != _sizes(source):
        _copy(source, full, overwrite=True)
    return full


def cp(src_hdfs_path: Path, dest_hdfs_path: Path, overwrite: bool = False) -> None:
    """Copies a file or folder within the project."""
    source, target = abs_path(src_hdfs_path), abs_path(dest_hdfs_path)
    _copy(source, _within(source, target) if os.path.isdir(target) else target, overwrite)


def _within(source: str, folder: str) -> str:
    return os.path.join(folder, os.path.basename(source))


def _sizes(full: str) -> dict[str, int]:
    files = (path for path in ([full] if os.path.isfile(full) else _below(full)) if os.path.isfile(path))
    return {os.path.relpath(path, full): os.path.getsize(path) for path in files}


def _copy(source: str, target: str, overwrite: bool) -> None:
    """Copies beside the target first: nobody, not another trial, sees half of it."""
    if os.path.exists(target) and os.path.samefile(source, target):
        return
    if os.path.lexists(target) and not overwrite:
        raise FileExistsError(errno.EEXIST, "it is there already; overwrite=True replaces it", target)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hopyard-", dir=os.path.dirname(target)) as beside:
        copy = os.path.join(beside, "copy")
        (shutil.copytree if os.path.isdir(source) else shutil.copy2)(source, copy)
        if os.path.isdir(target) and not os.path.islink(target):
            os.rename(target, os.path.join(beside, "old"))
        os.replace(copy, target)
