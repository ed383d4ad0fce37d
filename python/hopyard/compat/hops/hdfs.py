# SPDX-License-Identifier: Apache-2.0
"""Files of the project, in the words of every version of hops; and what pydoop's handle is used for."""

import os
import re
import sys
from typing import IO, Any

from hopyard import Error, hdfs
from hopyard.hdfs import *  # noqa: F403
from hopyard.hdfs import Path

from ._calls import needs_hopsworks

copy_from_project = hdfs.copy_to_local
copy_to_project = hdfs.copy_to_hdfs


def project_path(  # type: ignore[no-redef]
    project: str | None = None, exclude_nn_addr: bool = False
) -> str:
    return hdfs.project_path(project)


def ls(  # type: ignore[no-redef]
    hdfs_path: Path, recursive: bool = False, exclude_nn_addr: bool = False, project: str | None = None
) -> list[str]:
    return hdfs.ls(hdfs_path, recursive, project)


def open_file(  # type: ignore[no-redef]
    hdfs_path: Path, project: str | None = None, flags: str = "rw", buff_size: int = 0
) -> IO[Any]:
    return hdfs.open_file(hdfs_path, project, flags, buff_size)


def get_plain_path(abs_path: str) -> str:
    """A path without scheme and host."""
    return re.sub(r"^[a-z]+://[^/]*", "", abs_path)


def add_module(hdfs_path: Path, project: str | None = None) -> str:
    """Makes a .py file of the project importable; its path."""
    full = hdfs.abs_path(hdfs_path, project)
    if not (os.path.isfile(full) and full.endswith(".py")):
        raise Error(f"'{full}' is no .py file; write a notebook out by 'jupyter nbconvert --to python' first")
    if os.path.dirname(full) not in sys.path:
        sys.path.append(os.path.dirname(full))
    return full


def is_tls_enabled() -> bool:
    return False


def close() -> None:
    """Files of this machine need no connection."""


class Handle:
    """What get() and get_fs() give: pydoop's handle, for what the guides do with it."""

    def open_file(
        self, path: Path, mode: str = "r", flags: str | None = None, buff_size: int = 0, **ignored: Any
    ) -> IO[Any]:
        return hdfs.open_file(path, flags=flags or mode)

    def list_directory(self, path: Path) -> list[dict[str, Any]]:
        return hdfs.lsl(path)

    def get_path_info(self, path: Path) -> dict[str, Any]:
        return hdfs.describe(hdfs.abs_path(path))

    def delete(self, path: Path, recursive: bool = True) -> None:
        hdfs.delete(path, recursive)

    def copy(self, from_path: Path, to_hdfs: Any, to_path: Path) -> None:
        hdfs.cp(from_path, to_path)

    def move(self, from_path: Path, to_hdfs: Any, to_path: Path) -> None:
        hdfs.move(from_path, to_path)

    exists = staticmethod(hdfs.exists)
    create_directory = staticmethod(hdfs.mkdir)
    rename = staticmethod(hdfs.rename)
    chmod = staticmethod(hdfs.chmod)
    chown = staticmethod(hdfs.chown)
    capacity = staticmethod(hdfs.capacity)
    close = staticmethod(close)

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def get() -> Handle:
    return Handle()


get_fs = get


def __getattr__(name: str) -> Any:
    return needs_hopsworks(__name__, name, {"get_webhdfs_host", "get_webhdfs_port", "project_id"})
