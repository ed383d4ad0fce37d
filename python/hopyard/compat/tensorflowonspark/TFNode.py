# SPDX-License-Identifier: Apache-2.0
"""TensorFlowOnSpark's TFNode: functions that a node's function calls."""

from typing import Any

from hopyard import Error
from hopyard._feed.data_feed import DataFeed
from hopyard._trial.cluster_node import absolute_path as hdfs_path
from hopyard._trial.cluster_node import export_saved_model, start_cluster_server

__all__ = [
    "DataFeed", "batch_results", "export_saved_model", "hdfs_path", "next_batch", "release_port",
    "start_cluster_server", "terminate",
]  # fmt: skip

def release_port(ctx: Any) -> None:
    """The same as ctx.release_port()."""
    ctx.release_port()


def next_batch(mgr: Any, batch_size: int, qname: str = "input") -> Any:
    """Deprecated in TensorFlowOnSpark, too: use DataFeed.next_batch."""
    raise Error("TFNode.next_batch is TFNode.DataFeed(mgr).next_batch(batch_size) since TensorFlowOnSpark 1.0")


def batch_results(mgr: Any, results: Any, qname: str = "output") -> None:
    """Deprecated in TensorFlowOnSpark, too: use DataFeed.batch_results."""
    raise Error("TFNode.batch_results is TFNode.DataFeed(mgr).batch_results(results) since TensorFlowOnSpark 1.0")


def terminate(mgr: Any, qname: str = "input") -> None:
    """Deprecated in TensorFlowOnSpark, too: use DataFeed.terminate."""
    raise Error("TFNode.terminate is TFNode.DataFeed(mgr).terminate() since TensorFlowOnSpark 1.0")
