# SPDX-License-Identifier: Apache-2.0
"""Files of the project, with the functions of every version of hops."""

import os
import re
from typing import IO, Any
from xml.etree import ElementTree

from hopyard import hdfs
from hopyard.hdfs import *  # noqa: F403
from hopyard.hdfs import Path

from ._calls import needs_hopsworks


def project_path(  # type: ignore[no-redef]
    project: str | None = None, exclude_nn_addr: bool = False
) -> str:
    return _without_address(hdfs.project_path(project)) if exclude_nn_addr else hdfs.project_path(project)


def project_id() -> str:  # type: ignore[no-redef]
    if not os.environ.get("HOPSWORKS_PROJECT_ID"):
        needs_hopsworks(__name__, "project_id", {"project_id"})()
    return hdfs.project_id()


def ls(  # type: ignore[no-redef]
    hdfs_path: Path, recursive: bool = False, exclude_nn_addr: bool = False, project: str | None = None
) -> list[str]:
    found = hdfs.ls(hdfs_path, recursive, project)
    return [_without_address(path) for path in found] if exclude_nn_addr else found


def open_file(  # type: ignore[no-redef]
    hdfs_path: Path, project: str | None = None, flags: str = "rw", buff_size: int = 0
) -> IO[Any]:
    return hdfs.open_file(hdfs_path, project, flags, buff_size)


def get_plain_path(abs_path: str) -> str:
    """A path without scheme and host."""
    return re.sub(r"^[a-z]+://[^/]*", "", abs_path)


def is_tls_enabled() -> bool:
    """The value of ipc.server.ssl.enabled in core-site.xml."""
    file = os.path.join(os.environ.get("HADOOP_CONF_DIR", ""), "core-site.xml")
    if not os.path.exists(file):
        return False
    settings = {p.findtext("name"): p.findtext("value") for p in ElementTree.parse(file).iter("property")}
    return settings.get("ipc.server.ssl.enabled") == "true"


def _without_address(path: str) -> str:
    return re.sub(r"^([a-z]+://)[^/]*", r"\1", path)


def __getattr__(name: str) -> Any:
    return needs_hopsworks(__name__, name, {"get_webhdfs_host", "get_webhdfs_port"})
