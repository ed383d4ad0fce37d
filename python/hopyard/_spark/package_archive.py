# SPDX-License-Identifier: Apache-2.0
"""hopyard itself, packed for executors, which need not have it installed."""

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
    """The program, this package, its extension and TensorFlow's plugin, as a tar; and a name for these bytes."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = {"bin/hopyard": _program.find(), f"site/hopyard/{os.path.basename(_hopyard.__file__)}": _hopyard.__file__}
    plugin = os.path.join(os.path.dirname(package), "tensorflow-plugins", "hopyard_ops.so")
    if os.path.exists(plugin):
        files["site/tensorflow-plugins/hopyard_ops.so"] = plugin
    for folder, _, names in os.walk(package, followlinks=True):
        for name in names:
            if name.endswith((".py", ".pyi", ".typed")):
                path = os.path.join(folder, name)
                files[f"site/hopyard/{os.path.relpath(path, package)}"] = path
    cloudpickle = importlib.util.find_spec("cloudpickle")
    if cloudpickle and cloudpickle.submodule_search_locations:
        for folder in cloudpickle.submodule_search_locations:
            for name in os.listdir(folder):
                if name.endswith(".py"):
                    files[f"site/cloudpickle/{name}"] = os.path.join(folder, name)
    held = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=held, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", dereference=True) as tar,
    ):
        for name, path in sorted(files.items()):
            tar.add(path, name, recursive=False, filter=_nobody)
    data = held.getvalue()
    return data, hashlib.sha256(data).hexdigest()[:16]


def _nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file of nobody's, which all may read."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode |= 0o444
    return info


def send(context: Any) -> tuple[str, str, str]:
    """hopyard itself, to every executor, once for an application: what _executor.package takes there."""
    data, digest = archive()
    name = f"hopyard-{digest}.package"  # of one that is called .tar.gz Spark makes folders
    if not any(file.endswith(f"/{name}") for file in context.listFiles):
        path = os.path.join(context._temp_dir, name)
        with open(path, "wb") as file:
            file.write(data)
        context.addFile(path)
    return name, digest, _hopyard.version


def luggage(context: Any) -> _feed_tasks.Luggage:
    """What Spark's workers, which need not have hopyard, fetch it by."""
    from pyspark import cloudpickle

    for module in (_executor, _feed_tasks):
        cloudpickle.register_pickle_by_value(module)
    return send(context)
