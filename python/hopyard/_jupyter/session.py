# SPDX-License-Identifier: Apache-2.0
"""The SparkSession of a notebook, with the settings of its form, which are environment variables of the kernel."""

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import spark as _spark
from .._base.errors import Error
from .._spark import session as _session
from .._spark import supplier as _supplier


def get() -> Any:
    """The session of this process; created if there is none."""
    pyspark = sys.modules.get("pyspark.sql")
    session = pyspark.SparkSession.getActiveSession() if pyspark else None
    return session or _create()


def on_cluster() -> Any:
    """The session, if this process is a kernel whose form selects a cluster; else None."""
    return None if _session.engine() in (None, "local") else get()


def _create() -> Any:
    engine = _session.engine() or "local"
    executors, parallel, memory, gpus, servers = (_session.from_environment(setting) for setting in _session.FORM)
    print(f"Starting Spark ({engine}{f', {executors} executors' if executors else ''}) …", flush=True)
    master = f"local[{max(os.cpu_count() or 1, executors or 1)}]" if engine == "local" else engine
    conf = {"spark.app.name": "hopyard notebook", "spark.ui.showConsoleProgress": "false"}
    if memory:  # the part of a YARN container that trials may use, in addition to the JVM
        conf["spark.executor.memoryOverhead"] = f"{memory}m"
    if engine == "local":  # other machines need not reach its web page
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log = _log_file()
    try:
        with _java_output(log), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of pyspark, about other packages' versions
            session = _spark.session(master, executors, parallel, memory, gpus, servers, conf=conf)
    except Error:
        raise
    except Exception as error:  # whatever Spark or Java raise
        reason = _supplier.error_text(error)
        raise Error(f"cannot create a Spark session at '{engine}': {reason}; its log is {log}") from None
    context = session.sparkContext
    print(f"Spark {context.version} is ready: {context.applicationId}, {context.uiWebUrl}; log: {log}", flush=True)
    return session


def _log_file() -> str:
    folder = os.path.join(_session.directory_of(None), "Logs", "Spark")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, f"notebook-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log")


@contextmanager
def _java_output(path: str) -> Iterator[None]:
    """Redirects the output of the JVM that the block starts to a file: in a notebook, its warnings hide the results."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    before = os.dup(2)
    os.dup2(log, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(log)
