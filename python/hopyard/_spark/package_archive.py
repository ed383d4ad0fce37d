# SPDX-License-Identifier: Apache-2.0
"""Packs hopyard for executors, which need not have it installed."""

import functools
import gzip
import hashlib
import importlib.util
import io
import os
import tarfile
from typing import Any

from .. import _hopyard
from .._run import program as _program
from . import executor as _executor
from . import feed_tasks as _feed_tasks


@functools.cache
def archive() -> tuple[bytes, str]:
    """The program, this package, its extension and TensorFlow's plugin as a tar archive; and a digest of it."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = {"bin/hopyard": _program.find(), f"site/hopyard/{os.path.basename(_hopyard.__file__)}": _hopyard.__file__}
    plugin = os.path.join(os.path.dirname(package), "tensorflow-plugins", "hopyard_ops.so")
    if os.path.exists(plugin):
        files["site/tensorflow-plugins/hopyard_ops.so"] = plugin
    for directory, _, names in os.walk(package, followlinks=True):
        for name in names:
            if name.endswith((".py", ".pyi", ".typed")):
                path = os.path.join(directory, name)
                files[f"site/hopyard/{os.path.relpath(path, package)}"] = path
    cloudpickle = importlib.util.find_spec("cloudpickle")
    if cloudpickle and cloudpickle.submodule_search_locations:
        for directory in cloudpickle.submodule_search_locations:
            for name in os.listdir(directory):
                if name.endswith(".py"):
                    files[f"site/cloudpickle/{name}"] = os.path.join(directory, name)
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", dereference=True) as tar,
    ):
        for name, path in sorted(files.items()):
            tar.add(path, name, recursive=False, filter=_without_owner)
    data = buffer.getvalue()
    return data, hashlib.sha256(data).hexdigest()[:16]


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file without owner or time that everybody may read, so that the digest depends on contents only."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode |= 0o444
    return info


def send(context: Any) -> tuple[str, str, str]:
    """Sends hopyard to every executor, once per application; returns the arguments of executor.ensure_package."""
    data, digest = archive()
    name = f"hopyard-{digest}.package"  # Spark unpacks files called .tar.gz
    if not any(file.endswith(f"/{name}") for file in context.listFiles):
        path = os.path.join(context._temp_dir, name)
        with open(path, "wb") as file:
            file.write(data)
        context.addFile(path)
    return name, digest, _hopyard.version


def prepare(context: Any) -> _feed_tasks.PackageRef:
    """Prepares tasks for workers without hopyard; returns the reference by which they load it."""
    from pyspark import cloudpickle

    for module in (_executor, _feed_tasks):
        cloudpickle.register_pickle_by_value(module)
    return send(context)
