# SPDX-License-Identifier: Apache-2.0
"""The project's directory and its files: on this machine, or on HDFS (`HOPYARD_PROJECT=hdfs://…`).

A path is relative to the project (`Resources/data.csv`, with or without a leading slash), or an absolute path below the
parent directory of the project. `/Projects/NAME/…` is the sibling project NAME. A full `hdfs://…` is used as it is, but
only paths in the project and its siblings can be removed, so that a mistyped path does no harm elsewhere.
`Shared/OWNER::NAME/…` is the data set that another user has shared with this project (`hopyard share`).
"""

import datetime
import errno
import functools
import getpass
import importlib
import io
import os
import posixpath
import re
import secrets
import stat as _stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from . import _hopyard, tensorboard
from ._base.errors import Error, FileError, FileExists, FileNotFound, NotFolder
from ._base.files import open_raw, open_url
from ._hopyard import Info

__all__ = [
    "abs_path", "access", "add_module", "capacity", "chmod", "chown", "close", "copy_from_project", "copy_to_hdfs",
    "copy_to_local", "copy_to_project", "cp", "delete", "dump", "exists", "get", "get_fs", "glob", "isdir", "isfile",
    "load", "log", "ls", "lsl", "mkdir", "move", "open_file", "project_id", "project_name", "project_path",
    "project_user", "rename", "rmr", "stat",
]  # fmt: skip

Path = str | bytes | os.PathLike[str]

_FOLDERS = ("Resources", "Logs", "Jupyter", "Models")
_LOGS = "/Logs/TensorFlow/"
_BELOW_MAX = 2_000_000  # entries of a recursive listing, about 1 GB of memory


# ---- the project


def project_path(project: str | None = None) -> str:
    """The project's directory, ending in '/'; with a name, the sibling directory of that name.

    The project is the one that this trial belongs to, `$HOPYARD_PROJECT`, or the current directory. The first call
    creates its subdirectories: Resources, Logs, Jupyter and Models.
    """
    folder = _project()
    if project is not None and (project in ("", ".", "..") or "/" in project):
        raise Error(f"'{project}' is not a project name; it must be the name of a directory beside this project")
    if project is not None and project != posixpath.basename(folder):
        return posixpath.join(posixpath.dirname(folder), project, "")
    (_create_subdirectories_once if _is_remote(folder) else _create_subdirectories)(folder)
    return posixpath.join(folder, "")


def project_name() -> str:
    """The name of the project's directory."""
    return posixpath.basename(_project())


def project_user() -> str:
    """`project__user`, as hops names a member of a project."""
    user = os.environ.get("HADOOP_USER_NAME") or _user()
    return user if "__" in user else f"{project_name()}__{user}"


def project_id() -> str:
    """The id of the project in Hopsworks."""
    number = os.environ.get("HOPSWORKS_PROJECT_ID")
    if not number:
        raise Error("a project has an id only on a Hopsworks cluster, which sets HOPSWORKS_PROJECT_ID")
    return number


def log(text: object) -> None:
    """Adds a line to `trial.log` in the trial's directory, which is separate from its output.

    Outside of a trial it prints the line.
    """
    if not os.environ.get("HOPYARD_TRIAL_DIR"):
        print(text)
        return
    line = f"{datetime.datetime.now().isoformat()}: {text}\n"
    with open_raw(_hopyard.join(tensorboard.logdir(), "trial.log"), "a") as file:
        file.write(line.encode(errors="replace"))  # one write, so that lines of several processes do not mix


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user id has no name
        return str(os.getuid())


def _project() -> str:
    """The project. A trial's directory takes precedence over the environment, since --project may have set another.

    Except for a project on HDFS: trials write to a local directory, which is copied there.
    """
    trial, sep, _ = os.environ.get("HOPYARD_TRIAL_DIR", "").rpartition(_LOGS)
    named = os.environ.get("HOPYARD_PROJECT") or ""
    folder = trial if sep and not _is_remote(named) else named or os.getcwd()
    root, path = _split(folder)
    return root + _normal(path) if root else os.path.abspath(path)


def _is_remote(path: str) -> bool:
    return bool(_split(path)[0])


def _split(url: str) -> tuple[str, str]:
    """('hdfs://host:port', '/path'); for a local path ('', path)."""
    found = re.match(r"([a-z][a-z0-9+.-]+):(?://([^/]*))?(/.*)?$", url, re.DOTALL)
    if not found or not (found[2] is not None or found[3]):
        return "", url
    scheme, authority, path = found.groups()
    return ("", path or "/") if scheme == "file" else (f"{scheme}://{authority or ''}", path or "/")


def _normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def _create_subdirectories(folder: str) -> None:
    for name in _FOLDERS:
        path = _hopyard.join(folder, name)
        try:
            _hopyard.mkdirs(path)
        except FileError as error:
            reason = str(error).rpartition(f"{path}: ")[2]
            raise Error(
                f"cannot create the directory '{name}' of the project '{folder}': {reason}; "
                "set HOPYARD_PROJECT to a directory that you can write"
            ) from error


_create_subdirectories_once = functools.cache(_create_subdirectories)  # requests to a NameNode are slow


# ---- paths


def abs_path(hdfs_path: Path, project: str | None = None) -> str:
    """The full path of a file of the project, `hdfs://…` if the project is on HDFS; of a share, the real path."""
    return _hopyard.resolve_share(_full_path(hdfs_path, project))[0]


def _full_path(hdfs_path: Path, project: str | None) -> str:
    root, text = _split(os.fsdecode(hdfs_path))
    if root:
        return root + _normal(text)
    home, folder = _split(project_path(project))
    if home and os.fsdecode(hdfs_path).startswith("file:"):
        raise Error(f"'{text}' is a local file, but the project is on HDFS; copy it there with copy_to_hdfs")
    is_full = text.startswith(_split(_reach())[1])
    if not is_full and text.startswith("/") and _is_in_share(_normal(text)):
        return _normal(text)
    if text.startswith("/Projects/") and not is_full:
        name, _, text = text.removeprefix("/Projects/").partition("/")
        folder = _split(project_path(name))[1]
    full = home + _normal(text if is_full else folder + text.lstrip("/"))
    if not posixpath.join(full, "").startswith((_reach(), home + folder)):
        raise Error(f"'{full}' is outside of '{_reach()}', the directory of the project and its siblings")
    return full


def _reach() -> str:
    """The directory below which paths are used as they are: the parent of the project."""
    root, path = _split(_project())
    above = posixpath.dirname(path)
    return posixpath.join(root + (path if above == "/" else above), "")


def _is_in_share(full: str) -> bool:
    """Whether it is below a data set that is shared with this project: a path that `ls` has returned."""
    return any(full.startswith(posixpath.join(target, "")) for target in _hopyard.share_targets(_project()))


def _removable(path: Path, project: str | None = None) -> str:
    full, is_data_set = _hopyard.resolve_share(_full_path(path, project))
    if is_data_set:
        raise Error(f"'{full}' is a data set of another project; `hopyard share remove` removes only the share")
    if posixpath.join(_project(), "").startswith(posixpath.join(full, "")):
        raise Error(f"'{full}' is or contains the project, and is not removed")
    if not full.startswith((_reach(), project_path(project))) and not _is_in_share(full):
        raise Error(
            f"'{full}' is outside of '{_reach()}', the directory of the project and its siblings, and is not removed"
        )
    return full


# ---- queries


@dataclass(frozen=True)
class Stat:
    """The result of os.stat, as far as it is known; users and groups are names."""

    st_mode: int
    st_uid: str
    st_gid: str
    st_size: int
    st_mtime: float
    st_atime: float
    st_blksize: int
    kind: str
    name: str
    replication: int
    st_ino: int = 0
    st_dev: int = 0
    st_nlink: int = 1

    @property
    def st_ctime(self) -> float:
        return self.st_mtime

    @property
    def st_blocks(self) -> int:
        return -(-self.st_size // 512)


def exists(hdfs_path: Path, project: str | None = None) -> bool:
    return _look(abs_path(hdfs_path, project)) is not None


def isdir(hdfs_path: Path, project: str | None = None) -> bool:
    return _is_folder(abs_path(hdfs_path, project))


def isfile(hdfs_path: Path, project: str | None = None) -> bool:
    info = _look(abs_path(hdfs_path, project))
    return info is not None and not info.is_dir


def stat(hdfs_path: Path, project: str | None = None) -> Stat:
    full = abs_path(hdfs_path, project)
    info = _hopyard.stat(full)
    return Stat(
        st_mode=info.mode | (_stat.S_IFDIR if info.is_dir else _stat.S_IFREG), st_uid=info.owner, st_gid=info.group,
        st_size=info.size, st_mtime=info.modified_ms / 1000, st_atime=info.accessed_ms / 1000,
        st_blksize=info.block_size, kind=_kind(info), name=full, replication=info.replication,
    )  # fmt: skip


def access(hdfs_path: Path, mode: int, project: str | None = None) -> bool:
    """Whether it can be read (os.R_OK), written (os.W_OK), executed (os.X_OK), or exists (os.F_OK)."""
    if not 0 <= mode <= 7:
        raise ValueError(
            f"mode is {mode}; it must be a sum of os.R_OK, os.W_OK and os.X_OK (7: all three); the permissions of a "
            "file are in stat(path).st_mode"
        )
    try:
        return _hopyard.access(abs_path(hdfs_path, project), mode)
    except (FileNotFound, NotFolder):
        return False


def capacity() -> int:
    """The capacity in bytes of the project's file system."""
    return _hopyard.room(abs_path("")).capacity


def ls(hdfs_path: Path, recursive: bool = False, project: str | None = None) -> list[str]:
    """The full paths of the entries of a directory, or of everything below it."""
    return [path for path, _ in _entries(abs_path(hdfs_path, project), recursive)]


def lsl(hdfs_path: Path, recursive: bool = False, project: str | None = None) -> list[dict[str, Any]]:
    """The same with attributes: name, kind, size, owner, group, permissions, last_mod."""
    return [describe(path, info) for path, info in _entries(abs_path(hdfs_path, project), recursive)]


def glob(hdfs_path: Path, recursive: bool = False, project: str | None = None) -> list[str]:
    """The full paths that match a shell pattern.

    With `recursive` the last component is matched in all directories below; ** matches those directories anywhere.
    """
    full = abs_path(hdfs_path, project)
    if not recursive:
        return _hopyard.glob(full)
    above, sep, last = full.partition("/**/")
    if not sep:
        above, _, last = full.removesuffix("/**").rpartition("/")
    folders = [f for top in _hopyard.glob(above) if _is_folder(top) for f in (top, *_folders_below(top))]
    return sorted({found for folder in folders for found in _hopyard.glob(f"{_literally(folder)}/{last}")})


def _look(full: str) -> Info | None:
    try:
        return _hopyard.stat(full)
    except (FileNotFound, NotFolder):
        return None


def _is_folder(full: str) -> bool:
    info = _look(full)
    return info is not None and info.is_dir


def _kind(info: Info) -> str:
    return "directory" if info.is_dir else "file"


def _entries(full: str, recursive: bool) -> list[tuple[str, Info]]:
    info = _hopyard.stat(full)
    if not info.is_dir:
        return [(full, info)]
    return sorted(_below(full) if recursive else ((_hopyard.join(full, e.name), e) for e in _hopyard.list(full)))


def _below(top: str) -> Iterator[tuple[str, Info]]:
    """In any order. _hopyard.list bounds the depth; the number is bounded because callers keep all entries."""
    folders, count = [top], 0
    while folders:
        folder = folders.pop()
        for entry in _hopyard.list(folder):
            path = _hopyard.join(folder, entry.name)
            if entry.is_dir and not entry.is_link:
                folders.append(path)
            count += 1
            if count > _BELOW_MAX:
                many = f"'{top}' has more than {_BELOW_MAX:,} files and directories"
                raise FileError(errno.E2BIG, f"{many}; list its subdirectories one by one", top)
            yield path, entry


def _folders_below(folder: str) -> Iterator[str]:
    return (path for path, info in _below(folder) if info.is_dir)


def _literally(path: str) -> str:
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def describe(full: str, info: Info | None = None) -> dict[str, Any]:
    """The attributes of one path, as in lsl."""
    info = info or _hopyard.stat(full)
    return {
        "name": full,
        "path": full,
        "kind": _kind(info),
        "size": info.size,
        "owner": info.owner,
        "group": info.group,
        "permissions": info.mode,
        "last_mod": info.modified_ms // 1000,
        "last_access": info.accessed_ms // 1000,
        "replication": info.replication,
        "block_size": info.block_size,
    }


# ---- changes


def mkdir(hdfs_path: Path, project: str | None = None) -> None:
    """Creates a directory and its parents."""
    _hopyard.mkdirs(abs_path(hdfs_path, project))


def rmr(hdfs_path: Path, project: str | None = None) -> None:
    """Removes a file, or a directory and its contents."""
    _hopyard.remove(_removable(hdfs_path, project), True)


def delete(hdfs_path: Path, recursive: bool = False) -> None:
    """Removes a file or an empty directory, or with `recursive` any directory; does nothing if it does not exist."""
    full = _removable(hdfs_path)
    if _look(full) is not None:
        _hopyard.remove(full, recursive)


def move(src: Path, dest: Path) -> None:
    """Moves a file or directory into a directory, or to a new name, where it replaces a file."""
    source, target = _removable(src), abs_path(dest)
    into = _is_folder(target)
    target = _within(source, target) if into else target
    try:
        _hopyard.rename(source, target, not into)
    except FileError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, target, overwrite=not into)
        _hopyard.remove(source, True)


def rename(src: Path, dest: Path) -> None:
    """Renames a file or directory; an existing target is an error."""
    _hopyard.rename(_removable(src), abs_path(dest))


def chmod(hdfs_path: Path, mode: int | str, project: str | None = None) -> None:
    """Sets the permissions: 0o640, '640' or 'u+rw,go-w'."""
    full = abs_path(hdfs_path, project)
    if isinstance(mode, int):
        _check_mode(mode)
    _hopyard.chmod(full, mode if isinstance(mode, int) else _rights(mode, _hopyard.stat(full)))


def chown(hdfs_path: Path, user: str | None, group: str | None, project: str | None = None) -> None:
    """Sets owner and group; '' or None leaves them unchanged."""
    _hopyard.chown(abs_path(hdfs_path, project), user or None, group or None)


def _check_mode(mode: int) -> None:
    """Rejects 777 for 0o777. It is 0o1411; all such numbers are above 0o1000: sticky, without rights for the owner.
    Smaller ones may be intended: 400 is 0o620."""
    looks_octal = set(str(mode)) <= set("01234567")
    if looks_octal and (0o1000 <= mode <= 777 or mode == 1777):
        raise ValueError(f"mode is {mode}, which is 0o{mode:o}; write 0o{mode} or '{mode}' for the permissions {mode}")
    if not 0 <= mode <= 0o7777:
        raise ValueError(f"mode is {mode}; permissions are 0 to 0o7777")


def _rights(text: str, info: Info) -> int:
    """Parses permissions like chmod(1)."""
    if re.fullmatch("[0-7]+", text):
        return int(text, 8)
    mode = info.mode
    for clause in text.split(","):
        found = re.fullmatch("([ugoa]*)([-+=])([rwx]*)", clause)
        if not found:
            raise ValueError(f"invalid permissions '{text}'; examples: 'u+rw,go-w', '640'")
        bits = sum({"r": 4, "w": 2, "x": 1}[c] for c in set(found[3]))
        whose = "ugo" if not found[1] or "a" in found[1] else found[1]
        shifts = [{"u": 6, "g": 3, "o": 0}[who] for who in set(whose)]
        if found[2] == "=":
            mode &= ~sum(7 << shift for shift in shifts)
        given = sum(bits << shift for shift in shifts)
        mode = mode & ~given if found[2] == "-" else mode | given
    return mode


# ---- contents


def open_file(hdfs_path: Path, project: str | None = None, flags: str = "r", buff_size: int = 0) -> IO[Any]:
    """Opens a file to read ('r', 'rw'), write ('w') or append ('a') bytes; with a final 't', text."""
    full, mode = abs_path(hdfs_path, project), flags[:1]
    if mode not in ("r", "w", "a"):
        raise ValueError(f"flags is '{flags}'; it must begin with 'r', 'w' or 'a'")
    file = open_url(full, mode, buff_size)
    return io.TextIOWrapper(file, encoding="utf-8") if "t" in flags else file


def dump(data: str | bytes, hdfs_path: Path) -> None:
    """Writes a whole file."""
    with _hopyard.File(abs_path(hdfs_path), "w") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def load(hdfs_path: Path) -> bytes:
    """Reads a whole file."""
    with _hopyard.File(abs_path(hdfs_path)) as file:
        return file.pread(-1, 0)


def copy_to_hdfs(
    local_path: Path, relative_hdfs_path: Path, overwrite: bool = False, project: str | None = None
) -> None:
    """Copies a local file or directory into a directory of the project, or to a new name there."""
    source, target = os.path.abspath(os.fsdecode(local_path)), os.fsdecode(relative_hdfs_path)
    full = abs_path(target, project)
    _copy(source, _within(source, full) if target.endswith("/") or _is_folder(full) else full, overwrite)


def copy_to_local(
    hdfs_path: Path, local_path: Path = "", overwrite: bool = False, project: str | None = None
) -> str:
    """Copies a file or directory of the project into a local directory, or to a new name; returns the copy's full path.

    An existing copy with files of the same sizes is kept unless `overwrite` is set.
    """
    source, target = abs_path(hdfs_path, project), os.path.abspath(os.fsdecode(local_path))
    full = _within(source, target) if os.path.isdir(target) else target
    if overwrite or not os.path.exists(full) or _sizes(full) != _sizes(source):
        _check_room(source, os.path.dirname(full))
        _copy(source, full, overwrite=True)
    return full


def copy_from_project(
    relative_hdfs_path: Path, local_path: Path = "", overwrite: bool = False, project: str | None = None
) -> str:
    """copy_to_local under the name of early guides."""
    return copy_to_local(relative_hdfs_path, local_path, overwrite, project)


copy_to_project = copy_to_hdfs


def cp(src_hdfs_path: Path, dest_hdfs_path: Path, overwrite: bool = False) -> None:
    """Copies a file or directory within the project."""
    source, target = abs_path(src_hdfs_path), abs_path(dest_hdfs_path)
    _copy(source, _within(source, target) if _is_folder(target) else target, overwrite)


def _within(source: str, folder: str) -> str:
    return _hopyard.join(folder, posixpath.basename(source))


def _sizes(full: str) -> dict[str, int]:
    return {path[len(full) :]: info.size for path, info in _entries(full, recursive=True) if not info.is_dir}


def _check_room(source: str, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    wanted, room = _hopyard.usage(source).bytes, _hopyard.room(folder).free
    if wanted > room:
        raise FileError(errno.ENOSPC, f"'{source}' has {wanted} bytes, but only {room} are free in '{folder}'", folder)


def _copy(source: str, target: str, overwrite: bool) -> None:
    """Copies atomically for readers such as other trials: a directory is replaced when its copy is complete."""
    there = _look(target)
    if source == target:
        return
    if there is not None and not overwrite:
        raise FileExists(errno.EEXIST, f"'{target}' already exists; pass overwrite=True to replace it", target)
    _hopyard.mkdirs(posixpath.dirname(target))
    if there is None or not (there.is_dir or _is_folder(source)):
        return _hopyard.copy(source, target, overwrite)
    beside = f"{posixpath.dirname(target)}/.hopyard-{secrets.token_hex(8)}"
    try:
        _hopyard.copy(source, beside)
        _hopyard.remove(target, True)
        _hopyard.rename(beside, target)
    finally:
        if _look(beside) is not None:
            _hopyard.remove(beside, True)


# ---- modules, and a handle like pydoop's


def add_module(hdfs_path: Path, project: str | None = None) -> str:
    """Makes a .py file or a notebook of the project importable; returns the path of the imported file.

    Files on HDFS are copied to the local directory `localized_deps`, and a notebook's code is written there.
    """
    full = abs_path(hdfs_path, project)
    name, kind = posixpath.splitext(posixpath.basename(full))
    if kind not in (".py", ".ipynb") or not isfile(full):
        raise Error(f"'{full}' is not a .py file or a notebook (.ipynb)")
    if kind == ".ipynb":
        full = _write_code(full, name)
    elif _is_remote(full):
        full = copy_to_local(full, _modules(), overwrite=True)
    if os.path.dirname(full) not in sys.path:
        sys.path.append(os.path.dirname(full))
    importlib.invalidate_caches()
    if name in sys.modules:
        importlib.reload(sys.modules[name])
    return full


def _modules() -> str:
    folder = os.path.abspath("localized_deps")
    os.makedirs(folder, exist_ok=True)
    return folder


def _write_code(full: str, name: str) -> str:
    from ._code import notebook as _notebook

    code = _notebook.code(copy_to_local(full, _modules(), overwrite=True) if _is_remote(full) else full)
    path = os.path.join(_modules(), f"{name}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(code)
    return path


def close() -> None:
    """Does nothing: connections are shared, and end with the process."""


class Handle:
    """The handle of get() and get_fs(), with the methods of pydoop's that Hopsworks' guides use."""

    def open_file(
        self, path: Path, mode: str = "r", flags: str | None = None, buff_size: int = 0, **ignored: Any
    ) -> IO[Any]:
        return open_file(path, flags=flags or mode, buff_size=buff_size)

    def list_directory(self, path: Path) -> list[dict[str, Any]]:
        return lsl(path)

    def get_path_info(self, path: Path) -> dict[str, Any]:
        return describe(abs_path(path))

    def delete(self, path: Path, recursive: bool = True) -> None:
        delete(path, recursive)

    def copy(self, from_path: Path, to_hdfs: Any, to_path: Path) -> None:
        cp(from_path, to_path)

    def move(self, from_path: Path, to_hdfs: Any, to_path: Path) -> None:
        move(from_path, to_path)

    def used(self) -> int:
        return _hopyard.room(abs_path("")).used

    exists = staticmethod(exists)
    create_directory = staticmethod(mkdir)
    rename = staticmethod(rename)
    chmod = staticmethod(chmod)
    chown = staticmethod(chown)
    capacity = staticmethod(capacity)
    close = staticmethod(close)

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def get() -> Handle:
    return Handle()


get_fs = get
