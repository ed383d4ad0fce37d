# SPDX-License-Identifier: Apache-2.0
"""A cluster node: joins the other nodes, and calls the user's function with its context."""

import contextlib
import functools
import getpass
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import _hopyard
from .._base.errors import Error
from .._feed.data_feed import DataFeed
from . import import_hooks as _import_hooks

RANKS = ("chief", "master", "worker")  # roles that compute

NO_KERAS_3 = (
    "Keras 3 cannot {what}() under {strategy} on several workers: set TF_USE_LEGACY_KERAS=1 in the program's "
    "environment to use tf_keras, or train with hopyard.hvd; see docs/tensorflowonspark.md"
)


@dataclass(frozen=True)
class Call:
    """The function of a cluster's nodes with its arguments; pickled as the run's function."""

    function: Callable[[Any, Any], Any]
    args: Any
    default_fs: str = "file://"
    feed: str = ""  # prefix of the hubs' names; "": the cluster is not fed
    release_port: bool = True  # ctx.tmp_socket is None

    def __call__(self) -> Any:
        return _main(self)


def hub_name(feed: str, role: str, index: int) -> str:
    """The name of the hub that receives a node's rows."""
    return f"{feed}/{role}:{index}"


class Manager:
    """The `mgr` of a context: the hub that receives rows, and a small key-value store for programs."""

    def __init__(self, node: _hopyard.Node, hub: _hopyard.Hub | None) -> None:
        self._node, self._hub = node, hub
        self._values: dict[str, Any] = {"state": "running"}

    @property
    def hub(self) -> _hopyard.Hub:
        if self._hub is None:
            raise Error("this cluster is not fed; start it with input_mode=InputMode.SPARK (feed=True)")
        return self._hub

    def fileno(self) -> int:
        return self._node.fileno()

    def handle_message(self) -> None:
        if self._node.hear():
            self.hub.end()

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value

    def get_queue(self, name: str) -> Any:
        raise Error("queues are not supported; read rows with TFNode.DataFeed(ctx.mgr)")


@dataclass
class Context:
    """The `ctx` of main_fun(args, ctx)."""

    executor_id: int
    job_name: str
    task_index: int
    cluster_spec: dict[str, list[str]]
    defaultFS: str  # noqa: N815  # TensorFlowOnSpark's name
    working_dir: str
    mgr: Any = None
    tmp_socket: socket.socket | None = None  # reserves the node's port; None unless release_port=False
    cluster_info: list[dict[str, Any]] = field(default_factory=list, repr=False)
    held: socket.socket | None = field(default=None, repr=False)  # the same socket, in any case

    @property
    def worker_num(self) -> int:
        return self.executor_id

    @property
    def num_workers(self) -> int:
        return sum(len(nodes) for job, nodes in self.cluster_spec.items() if job in RANKS)

    @property
    def user(self) -> str:
        return getpass.getuser()

    def absolute_path(self, path: str) -> str:
        """A path with its scheme, on the cluster's file system; a relative path is below the user's directory."""
        return absolute_path(self, path)

    def release_port(self) -> None:
        """Releases the port reserved for TensorFlow's server. Not required: TensorFlow can share the reserved port."""
        if self.held is not None:
            self.held.close()
        self.held = self.tmp_socket = None

    def start_cluster_server(self, num_gpus: int = 1, rdma: bool = False) -> tuple[Any, Any]:
        """(ClusterSpec, Server) of tf.compat.v1, for between-graph training."""
        return start_cluster_server(self, num_gpus, rdma)

    def export_saved_model(self, *args: Any, **kwargs: Any) -> Any:
        return export_saved_model(*args, **kwargs)

    def get_data_feed(
        self, train_mode: bool = True, qname_in: str = "input", qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> DataFeed:  # fmt: skip
        return DataFeed(self.mgr, train_mode, qname_in, qname_out, input_mapping)


# ---- what a node's function calls ------------------------------------------------------------------


_SCHEMES = ("adl://", "file://", "gs://", "hdfs://", "maprfs://", "oss://", "s3://", "s3a://", "s3n://", "swift://",
            "viewfs://", "wasb://", "wasbs://", "abfs://", "abfss://")  # fmt: skip


def absolute_path(ctx: Any, path: str) -> str:
    """A path with its scheme: on the default file system, relative to the user's directory there."""
    if path.startswith(_SCHEMES):
        return path
    if path.startswith("/"):
        return f"{ctx.defaultFS}{path}" if not ctx.defaultFS.startswith("file:") else f"file://{path}"
    if ctx.defaultFS.startswith(("hdfs://", "viewfs://")):
        return f"{ctx.defaultFS}/user/{getpass.getuser()}/{path}"
    return f"file://{ctx.working_dir}/{path}"


def start_cluster_server(ctx: Any, num_gpus: int = 1, rdma: bool = False) -> tuple[Any, Any]:
    """(ClusterSpec, Server) for between-graph training with tf.compat.v1.

    A node's GPUs are assigned when it starts (`gpus=`), so num_gpus only matters as 0 or not 0.
    """
    import tensorflow as tf

    if rdma:
        raise Error("TensorFlow no longer has an RDMA server; leave rdma out to use gRPC")
    # An evaluator is not part of the cluster that trains.
    jobs = {job: nodes for job, nodes in ctx.cluster_spec.items() if job != "evaluator"}
    devices = None if num_gpus and ctx.job_name != "ps" else {"GPU": 0}
    config = tf.compat.v1.ConfigProto(device_count=devices) if devices else tf.compat.v1.ConfigProto()
    spec = tf.train.ClusterSpec(jobs)
    return spec, tf.distribute.Server(spec, job_name=ctx.job_name, task_index=ctx.task_index, config=config)


def export_saved_model(*args: Any, **kwargs: Any) -> Any:
    """TensorFlowOnSpark 1's export of a tf.Session, which no longer exists."""
    raise Error(
        "TFNode.export_saved_model wrote the graph of a tf.Session; call compat.export_saved_model(model, export_dir, "
        "is_chief) with a Keras model or tf.Module"
    )


# ---- the node ------------------------------------------------------------------------------------


def reserve_port() -> socket.socket:
    """Reserves a port on this machine. TensorFlow can still listen on it: TF_GRPC_REUSE_PORT makes it share the port,
    and this socket does not listen."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("", 0))
    return held


def _cluster_spec(nodes: list[tuple[str, int, str, int, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for role, _, address, port, _ in nodes:  # sorted by role and index
        found.setdefault(role, []).append(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
    return found


def _set_tf_config(context: Context) -> None:
    """TF_CONFIG, which TensorFlow's strategies read. An evaluator is not part of the cluster that trains."""
    cluster = {job: nodes for job, nodes in context.cluster_spec.items() if job != "evaluator"}
    task = {"type": context.job_name, "index": context.task_index}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})


def _multi_worker_name(strategy: Any) -> str | None:
    """The name of a strategy if it trains on several workers."""
    from tensorflow import distribute

    names = ("MultiWorkerMirroredStrategy", "ParameterServerStrategy")
    return next((name for name in names if isinstance(strategy, getattr(distribute, name))), None)


def _explain_keras_3(trainer: Any) -> None:
    """Adds advice if Keras 3 fails under a strategy of several workers; its own error is a page of PerReplica values,
    or does not name the cause."""

    def explained(name: str) -> None:
        method = getattr(trainer.TensorFlowTrainer, name)

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                strategy = _multi_worker_name(self.distribute_strategy)
                if not strategy:
                    raise
                advice = NO_KERAS_3.format(what=name, strategy=strategy)
                if "PerReplica" in str(error):
                    raise Error(advice) from None
                error.add_note(advice)
                raise

        setattr(trainer.TensorFlowTrainer, name, call)

    for name in ("fit", "evaluate", "predict"):
        explained(name)


def _watch_servers(node: _hopyard.Node, servers: list[Any]) -> _import_hooks.Hook:
    """A node that joins its TensorFlow server never ends by itself: its agent is notified, so that it can end the node
    after the last one that computes. Created servers are added to `servers`."""

    def hook(module: Any) -> None:
        original_init, original_join = module.Server.__init__, module.Server.join

        @functools.wraps(original_init)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original_init(self, *args, **kwargs)
            servers.append(self)

        @functools.wraps(original_join)
        def join(self: Any) -> None:
            node.serve()
            original_join(self)

        module.Server.__init__, module.Server.join = init, join

    return hook


def _prepare_modules(node: _hopyard.Node, servers: list[Any]) -> None:
    hooks = {
        "tensorflow.python.training.server_lib": _watch_servers(node, servers),
        "keras.src.backend.tensorflow.trainer": _explain_keras_3,
    }
    _import_hooks.run_for_imported(hooks)
    _import_hooks.run_after_import(hooks)


def _main(call: Call) -> Any:
    held = reserve_port()
    with contextlib.ExitStack() as ends:
        ends.callback(held.close)
        role, _, index = os.environ["HOPYARD_NODE"].partition(":")
        hub = None
        if call.feed and role in RANKS:  # before joining: once all nodes have joined, all can be fed
            hub = ends.enter_context(_hopyard.Hub(hub_name(call.feed, role, int(index))))
        node = _hopyard.Node(held.getsockname()[1])
        number, nodes = node.number, node.nodes
        info = [
            {"executor_id": i, "job_name": job, "task_index": task, "host": host, "addr": address, "port": port}
            for i, (job, task, address, port, host) in enumerate(nodes)
        ]
        manager, folder = Manager(node, hub), os.getcwd()
        port = None if call.release_port else held
        context = Context(
            number, role, int(index), _cluster_spec(nodes), call.default_fs, folder, manager, port, info, held
        )
        _set_tf_config(context)
        servers: list[Any] = []
        _prepare_modules(node, servers)
        if isinstance(call.args, list):
            sys.argv = call.args
        result = call.function(call.args, context)
        if servers:  # others may still start a session, which needs all servers
            node.stay()
        return result
