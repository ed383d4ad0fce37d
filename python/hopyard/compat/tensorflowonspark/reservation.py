# SPDX-License-Identifier: Apache-2.0
"""Nodes find each other through hopyard's driver, and need no server of Python's; what is left is how a feed is stopped."""

import os
from typing import Any

from hopyard import Error
from hopyard._run import program as _program

__all__ = ["Client"]


class Client:
    """Ends what is fed to a cluster, from another program: Client(cluster.cluster_meta["server_addr"]).request_stop().

    The address is (project, run); TensorFlowOnSpark's was a host and a port.
    """

    def __init__(self, server_addr: tuple[str, int]) -> None:
        self.server_addr = server_addr
        self._project, self._run = server_addr

    def request_stop(self) -> None:
        """No more rows are fed: nodes take what has come, and end. `hopyard stop --feed RUN` does the same."""
        _program.call("stop", "--feed", str(self._run), project=self._project or os.getcwd())

    def close(self) -> None:
        """There is nothing to close."""

    def register(self, reservation: Any) -> None:
        raise Error("nodes of hopyard find each other by themselves; nothing is to be registered")
