# SPDX-License-Identifier: Apache-2.0
"""pandas on files of the project: read_csv, _json, _parquet and _excel, write_csv, _json and _parquet.

What is on HDFS pandas reads by fsspec, which has to be installed.
"""

import functools
from collections.abc import Callable
from typing import Any

from hopyard import hdfs

_FORMATS = {"read": ("csv", "json", "parquet", "excel"), "write": ("csv", "json", "parquet")}


def _read(kind: str, hdfs_filename: str, **given: Any) -> Any:
    import pandas

    path = hdfs.abs_path(hdfs_filename)
    return getattr(pandas, f"read_{kind}")(path, **_by_fsspec(path), **given)


def _write(kind: str, hdfs_filename: str, dataframe: Any, **given: Any) -> None:
    path = hdfs.abs_path(hdfs_filename)
    getattr(dataframe, f"to_{kind}")(path, **_by_fsspec(path), **given)


def _by_fsspec(path: str) -> dict[str, Any]:
    """Without them, pandas would open hdfs:// with a client that needs a JVM."""
    return {"storage_options": {}} if "://" in path else {}


def __getattr__(name: str) -> Callable[..., Any]:
    verb, _, kind = name.partition("_")
    if kind not in _FORMATS.get(verb, ()):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return functools.partial(_read if verb == "read" else _write, kind)
