# SPDX-License-Identifier: Apache-2.0
"""What a node's function calls, as TensorFlowOnSpark has it."""

import getpass
from typing import Any

from hopyard import Error
from hopyard._feed.data_feed import DataFeed

__all__ = [
    "DataFeed", "batch_results", "export_saved_model", "hdfs_path", "next_batch", "release_port", "start_cluster_server",
    "terminate",
]  # fmt: skip

_SCHEMES = ("adl://", "file://", "gs://", "hdfs://", "maprfs://", "oss://", "s3://", "s3a://", "s3n://", "swift://",
            "viewfs://", "wasb://", "wasbs://", "abfs://", "abfss://")  # fmt: skip


def hdfs_path(ctx: Any, path: str) -> str:
    """A path with its scheme: absolute ones are of the default file system, relative ones of the user's folder there."""
    if path.startswith(_SCHEMES):
        return path
    if path.startswith("/"):
        return ctx.defaultFS + path if not ctx.defaultFS.startswith("file:") else f"file://{path}"
    if ctx.defaultFS.startswith(("hdfs://", "viewfs://")):
        return f"{ctx.defaultFS}/user/{getpass.getuser()}/{path}"
    return f"file://{ctx.working_dir}/{path}"


def start_cluster_server(ctx: Any, num_gpus: int = 1, rdma: bool = False) -> tuple[Any, Any]:
    """(ClusterSpec, Server) for between-graph training with tf.compat.v1.

    Which GPUs a node has is decided when it starts (`gpus=`), so that num_gpus only says whether it wants any.
    """
    import tensorflow as tf

    if rdma:
        raise Error("TensorFlow has no RDMA server any more; leave rdma out: grpc is what there is")
    # An evaluator is no part of the cluster that trains.
    jobs = {job: nodes for job, nodes in ctx.cluster_spec.items() if job != "evaluator"}
    devices = None if num_gpus and ctx.job_name != "ps" else {"GPU": 0}
    config = tf.compat.v1.ConfigProto(device_count=devices) if devices else tf.compat.v1.ConfigProto()
    spec = tf.train.ClusterSpec(jobs)
    return spec, tf.distribute.Server(spec, job_name=ctx.job_name, task_index=ctx.task_index, config=config)


def release_port(ctx: Any) -> None:
    """The same as ctx.release_port()."""
    ctx.release_port()


def export_saved_model(*args: Any, **kwargs: Any) -> Any:
    """Of TensorFlow 1's sessions, which had no other way. `compat.export_saved_model` is what there is now."""
    raise Error(
        "TFNode.export_saved_model wrote the graph of a tf.Session; call compat.export_saved_model(model, export_dir, "
        "is_chief) with a Keras model or tf.Module"
    )


def next_batch(mgr: Any, batch_size: int, qname: str = "input") -> Any:
    """Deprecated there, too: use DataFeed.next_batch."""
    raise Error("TFNode.next_batch is TFNode.DataFeed(mgr).next_batch(batch_size) since TensorFlowOnSpark 1.0")


def batch_results(mgr: Any, results: Any, qname: str = "output") -> None:
    """Deprecated there, too: use DataFeed.batch_results."""
    raise Error("TFNode.batch_results is TFNode.DataFeed(mgr).batch_results(results) since TensorFlowOnSpark 1.0")


def terminate(mgr: Any, qname: str = "input") -> None:
    """Deprecated there, too: use DataFeed.terminate."""
    raise Error("TFNode.terminate is TFNode.DataFeed(mgr).terminate() since TensorFlowOnSpark 1.0")
