# SPDX-License-Identifier: Apache-2.0
"""TensorFlowOnSpark's TFCluster: clusters on Spark executors, implemented by hopyard.cluster."""

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hopyard import Error, _hopyard
from hopyard import cluster as _cluster
from hopyard import tensorboard as _tensorboard
from hopyard._feed import feeders as _feeders
from hopyard._run import display as _display
from hopyard._spark import feed_tasks as _feed_tasks
from hopyard._spark import package_archive as _package_archive
from hopyard._spark import session as _session

__all__ = ["InputMode", "TFCluster", "run"]

STREAM_S = 1  # between checks of a stream; Spark needs whole seconds
POLL_S = 0.2  # between checks whether a task has timed out

_tags = itertools.count(1)


class InputMode:
    """How nodes get their rows."""

    TENSORFLOW = 0
    """Nodes read files themselves."""
    SPARK = 1
    """Spark feeds the nodes."""


class TFCluster:
    """A cluster that was started by run()."""

    def __init__(
        self, cluster: _cluster.Cluster, sc: Any, input_mode: int, tensorboard: str | None = None, log_dir: str = "",
        patience: float = 600,
    ) -> None:  # fmt: skip
        """`tensorboard`: the address of the TensorBoard on `log_dir`; `patience`: seconds until all nodes must have
        joined."""
        self.cluster, self.sc, self.input_mode = cluster, sc, input_mode
        self._tensorboard, self._log_dir, self._patience = tensorboard, log_dir, patience
        self._has_had_enough = False
        self._timeouts = sc.accumulator(0)  # tasks that timed out; updated when such a task ends

    @property
    def cluster_id(self) -> int:
        return self.cluster.run

    @property
    def cluster_meta(self) -> dict[str, Any]:
        """`server_addr` is the argument of reservation.Client, which stops a feed from another program."""
        return {"id": self.cluster.run, "server_addr": (_session.directory_of(self.cluster.project), self.cluster.run)}

    @property
    def cluster_info(self) -> list[dict[str, Any]]:
        """The addresses of the nodes, by number, once all have joined.

        `addr` and `authkey` were those of TensorFlowOnSpark's queues, and `tb_port` that of a node's TensorBoard:
        hopyard does not have them.
        """
        self.cluster.wait_for_nodes(self._patience)
        return [
            {"executor_id": i, "job_name": role, "task_index": index, "host": host, "port": port,
             "tb_pid": 0, "tb_port": 0, "addr": None, "authkey": b""}
            for i, (role, index, host, port) in enumerate(self.cluster.addresses())
        ]  # fmt: skip

    def train(self, dataRDD: Any, num_epochs: int = 0, feed_timeout: float = 600, qname: str = "input") -> None:  # noqa: N803
        """Feeds the rows of an RDD or DataFrame to chief and workers; returns when all are taken, or no more are
        wanted.

        num_epochs=0 is ten, as it is there. A DStream's batches are fed once each, when they come; those of Structured
        Streaming by its foreachBatch(lambda batch, _: cluster.train(batch, num_epochs=1)). When nodes take no rows for
        `feed_timeout` seconds, hopyard.FeedTimeout is raised.
        """
        self._is_fed("train")
        if num_epochs < 0:
            raise Error(f"num_epochs is {num_epochs}; it must not be negative")
        names = self.cluster.hubs()
        if hasattr(dataRDD, "foreachRDD"):
            dataRDD.foreachRDD(lambda rdd: self._feed(rdd, names, feed_timeout, qname) and None)  # Spark expects None
            threading.Thread(
                target=self._end_with_nodes, args=(dataRDD.context(),), name="hopyard-stream", daemon=True
            ).start()
            return
        with self.cluster.feeding():
            for _ in range(num_epochs or 10):
                if self._feed(dataRDD, names, feed_timeout, qname):
                    return

    def _feed(self, data: Any, names: list[str], timeout: float, queue: str) -> bool:
        """True if a node wants no more rows."""
        with self._cancelled_on_timeout(timeout):
            outcomes = self._run_feed(data, names, timeout, queue)
        if _feeders.NO_NODE in outcomes:
            self.cluster.check_missing_node()
        self._has_had_enough |= any(outcomes)
        return any(outcomes)

    def _run_feed(self, data: Any, names: list[str], timeout: float, queue: str) -> list[int]:
        """The outcome of each partition."""
        given = _package_archive.prepare(self.sc), names, queue, timeout, self._timeouts
        if hasattr(data, "mapInArrow"):
            feed_batches = _feed_tasks.feeding_batches(*given)
            return [row.outcome for row in data.mapInArrow(feed_batches, "outcome int").collect()]
        pickles = _pickles_of(data)
        feed = _feed_tasks.feeding(*given) if pickles is None else _feed_tasks.feeding_pickles(*given)
        return (data if pickles is None else pickles).mapPartitionsWithIndex(feed).collect()

    @contextlib.contextmanager
    def _cancelled_on_timeout(self, timeout: float) -> Iterator[None]:
        """Cancels jobs in this context as soon as one task has waited `timeout` seconds: each of the following tasks
        would wait as long."""
        tag, is_over, before = f"hopyard-feed-{next(_tags)}", threading.Event(), self._timeouts.value

        def look() -> None:
            while not is_over.wait(POLL_S):
                if self._timeouts.value > before:
                    self.sc.cancelJobsWithTag(tag)
                    return

        self.sc.addJobTag(tag)
        threading.Thread(target=look, name=tag, daemon=True).start()
        try:
            yield
        except Exception:
            if self._timeouts.value == before:
                raise
        finally:
            is_over.set()
            self.sc.removeJobTag(tag)
        if self._timeouts.value > before:
            raise self.cluster.unread(timeout)

    def inference(self, dataRDD: Any, feed_timeout: float = 600, qname: str = "input") -> Any:  # noqa: N803
        """An RDD of results, one for each row; evaluated lazily."""
        self._is_fed("inference")
        rows = dataRDD.rdd if hasattr(dataRDD, "mapInArrow") else dataRDD
        infer = _feed_tasks.inferring(_package_archive.prepare(self.sc), self.cluster.hubs(), qname, feed_timeout)
        return rows.mapPartitionsWithIndex(infer)

    def _is_fed(self, what: str) -> None:
        if self.input_mode != InputMode.SPARK:
            raise Error(f"{what} feeds rows from Spark; start the cluster with input_mode=InputMode.SPARK")

    def tensorboard_url(self) -> str | None:
        return self._tensorboard or self.cluster.tensorboard_url()

    def shutdown(self, ssc: Any = None, grace_secs: float = 0, timeout: float = 259200) -> None:
        """Waits until the nodes have ended. If one has failed, its traceback is raised.

        `ssc` is a StreamingContext or a StreamingQuery that feeds them: it must end first, on its own or through its
        stop(). If nodes want no more rows, or reservation.Client has ended the feed, it is stopped here.
        """
        try:
            if ssc is not None:
                with self.cluster.feeding():
                    self._await_stream(ssc)
            self.cluster.shutdown(grace_secs, timeout)
        finally:
            if self._tensorboard:
                _tensorboard.end(self._log_dir)

    def _await_stream(self, stream: Any) -> None:
        is_context = hasattr(stream, "awaitTerminationOrTimeout")
        ends_in = stream.awaitTerminationOrTimeout if is_context else stream.awaitTermination
        while not ends_in(STREAM_S):
            if self._has_had_enough or not self.cluster.is_running():
                self._stop_stream(stream)
                return

    def _stop_stream(self, stream: Any) -> None:
        """Keeps the SparkContext. Received data is fed, unless nodes have failed: a StreamingContext would wait for its
        next batch, for example a minute, before the error is raised."""
        if hasattr(stream, "awaitTerminationOrTimeout"):
            stream.stop(False, not self.cluster.has_failed())
        else:
            stream.stop()

    def _end_with_nodes(self, context: Any) -> None:
        """Stops a StreamingContext when nodes have failed, so that a program that awaits its end does not wait
        forever."""
        _display.wait(self.cluster.run, self.cluster.project)
        if self.cluster.has_failed():
            self._stop_stream(context)


def run(
    sc: Any, map_fun: Callable[[Any, Any], Any], tf_args: Any, num_executors: int, num_ps: int = 0,
    tensorboard: bool = False, input_mode: int = InputMode.TENSORFLOW, log_dir: str | None = None,
    driver_ps_nodes: bool = False, master_node: str | None = None, reservation_timeout: float = 600,
    queues: Sequence[str] = ("input", "output", "error"), eval_node: bool = False, release_port: bool = True,
    **settings: Any,
) -> TFCluster:  # fmt: skip
    """Starts a node on each of `num_executors` executors: parameter servers, master or chief, evaluator, workers.

    TensorBoard shows `log_dir`, which may be on HDFS, or else the run's directory. In addition to TensorFlowOnSpark's
    arguments it accepts those of hopyard.cluster.run: gpus, memory, name, project …
    """
    sc = _session.context_of(sc)
    if driver_ps_nodes and input_mode != InputMode.TENSORFLOW:
        raise Error("parameter servers can run on the driver only with input_mode=InputMode.TENSORFLOW")
    if master_node not in (None, "master", "chief"):
        raise Error(f"master_node must be 'chief' or 'master', not {master_node!r}")
    head = (1 if master_node else 0) + (1 if eval_node else 0)
    workers = num_executors - num_ps - head
    if workers < 0 or (workers == 0 and not master_node):
        raise Error(
            f"{num_executors} executors are too few for {num_ps} parameter servers"
            f"{f', a {master_node}' if master_node else ''}{', an evaluator' if eval_node else ''} and a worker"
        )
    shown = _show_folder(log_dir) if tensorboard and log_dir else None
    started = _cluster.run(
        map_fun, tf_args, workers, num_ps, chief=master_node or False, evaluator=eval_node, release_port=release_port,
        feed=input_mode == InputMode.SPARK, default_fs=default_fs(sc), spark=sc, tensorboard=tensorboard and not shown,
        **settings,
    )  # fmt: skip
    if input_mode == InputMode.SPARK:
        started.wait_for_nodes(reservation_timeout)
    return TFCluster(started, sc, input_mode, shown, log_dir or "", reservation_timeout)


def _show_folder(log_dir: str) -> str:
    """Starts a TensorBoard on a directory that nodes will write to; returns its address."""
    _hopyard.mkdirs(log_dir if "://" in log_dir else os.path.abspath(log_dir))
    return _tensorboard.visualize(log_dir)


def _pickles_of(rdd: Any) -> Any:
    """The RDD as Spark stores it, batches of pickled rows, if it is cached or read by the JVM. None if Python functions
    create the rows in the task that feeds them."""
    from pyspark import RDD
    from pyspark.serializers import AutoBatchedSerializer, BatchedSerializer, CPickleSerializer, NoOpSerializer

    how = rdd._jrdd_deserializer
    if hasattr(rdd, "_is_pipelinable") and rdd._is_pipelinable():
        return None
    if type(how) not in (AutoBatchedSerializer, BatchedSerializer) or type(how.serializer) is not CPickleSerializer:
        return None
    return RDD(rdd._jrdd, rdd.ctx, NoOpSerializer())


def default_fs(sc: Any) -> str:
    """The file system of paths without a scheme: "hdfs://namenode:8020", or "file://" if HDFS is not configured."""
    found = str(sc._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///")
    return "file://" if found.startswith("file:") else found.rstrip("/")
