# SPDX-License-Identifier: Apache-2.0
"""NumPy on files of the project: load, loadtxt, genfromtxt, fromregex, fromfile, memmap, save, savez."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

from hopyard import hdfs

_READ = {"load", "loadtxt", "genfromtxt", "fromregex"}
_WRITTEN = {"save": ".npy", "savez": ".npz", "savez_compressed": ".npz"}
_MAPPED = {"fromfile", "memmap"}


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in {*_READ, *_WRITTEN, *_MAPPED}:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

    def call(hdfs_filename: str, *args: Any, **given: Any) -> Any:
        import numpy

        path, function = hdfs.abs_path(hdfs_filename), getattr(numpy, name)
        if "://" not in path:
            return function(path, *args, **given)
        return _remotely(name, function, path, *args, **given)

    return call


def _remotely(name: str, function: Callable[..., Any], path: str, *args: Any, **given: Any) -> Any:
    if name in _MAPPED:  # NumPy needs a descriptor, and keeps the mapping after the copy is removed
        with tempfile.TemporaryDirectory() as folder:
            return function(hdfs.copy_to_local(path, folder), *args, **given)
    if name in _WRITTEN and not path.endswith(_WRITTEN[name]):
        path += _WRITTEN[name]
    file = hdfs.open_file(path, flags="w" if name in _WRITTEN else "r")
    if name == "load" and os.path.splitext(path)[1] == ".npz":
        return function(file, *args, **given)  # it reads from it as long as it lives
    with file:
        return function(file, *args, **given)
