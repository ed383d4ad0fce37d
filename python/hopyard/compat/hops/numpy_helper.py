# SPDX-License-Identifier: Apache-2.0
"""NumPy on files of the project: load, loadtxt, genfromtxt, fromregex, fromfile, memmap, save, savez."""

from collections.abc import Callable
from typing import Any

from hopyard import hdfs

_NAMES = {
    "load",
    "loadtxt",
    "genfromtxt",
    "fromregex",
    "fromfile",
    "memmap",
    "save",
    "savez",
    "savez_compressed",
}


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _NAMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

    def call(hdfs_filename: str, *args: Any, **given: Any) -> Any:
        import numpy

        return getattr(numpy, name)(hdfs.abs_path(hdfs_filename), *args, **given)

    return call
