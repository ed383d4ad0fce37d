# SPDX-License-Identifier: Apache-2.0
"""pandas on files of the project: read_csv, _json, _parquet and _excel, write_csv, _json and _parquet."""

import functools
from collections.abc import Callable
from typing import Any

from hopyard import hdfs

_FORMATS = {"read": ("csv", "json", "parquet", "excel"), "write": ("csv", "json", "parquet")}


def _read(kind: str, hdfs_filename: str, **given: Any) -> Any:
    import pandas

    return getattr(pandas, f"read_{kind}")(hdfs.abs_path(hdfs_filename), **given)


def _write(kind: str, hdfs_filename: str, dataframe: Any, **given: Any) -> None:
    getattr(dataframe, f"to_{kind}")(hdfs.abs_path(hdfs_filename), **given)


def __getattr__(name: str) -> Callable[..., Any]:
    verb, _, kind = name.partition("_")
    if kind not in _FORMATS.get(verb, ()):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return functools.partial(_read if verb == "read" else _write, kind)
