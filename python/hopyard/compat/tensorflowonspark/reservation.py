# SPDX-License-Identifier: Apache-2.0
"""Nodes find each other through hopyard's driver, so there is no reservation server; Client can stop a feed."""

import os
from typing import Any

from hopyard import Error
from hopyard._run import program as _program

__all__ = ["Client"]


class Client:
    """Ends the feed of a cluster from another program: Client(cluster.cluster_meta["server_addr"]).request_stop().

    The address is (project, run); TensorFlowOnSpark's was a host and a port.
    """

    def __init__(self, server_addr: tuple[str, int]) -> None:
        self.server_addr = server_addr
        self._project, self._run = server_addr

    def request_stop(self) -> None:
        """Ends the feed: nodes process the rows they have, and end. The same as `hopyard stop --feed RUN`."""
        _program.call("stop", "--feed", str(self._run), project=self._project or os.getcwd())

    def close(self) -> None:
        """Does nothing."""

    def register(self, reservation: Any) -> None:
        raise Error("hopyard's nodes find each other through its driver; they need not be registered")
