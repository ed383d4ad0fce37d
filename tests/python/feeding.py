# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of feeds: a hub, and processes that feed it. Import the fixtures to use them."""
from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hopyard import _hopyard

LIMIT_S = 60
_numbers = itertools.count()


class Manager:
    """The part of a cluster node that a DataFeed uses."""

    def __init__(self, hub: _hopyard.Hub) -> None:
        self.hub = hub
        self.state: dict[str, Any] = {}

    def set(self, key: str, value: Any) -> None:
        self.state[key] = value


@pytest.fixture
def name() -> str:
    return f"hopyard/pytest/{os.getpid()}/{next(_numbers)}"


@pytest.fixture
def hub(name: str) -> Iterator[_hopyard.Hub]:
    with _hopyard.Hub(name) as hub:
        yield hub


def python(code: str, *args: str) -> subprocess.Popen[bytes]:
    lines = "import os, sys, threading, time\nfrom hopyard import _feed, _hopyard\nname = sys.argv[1]\n"
    return subprocess.Popen([sys.executable, "-c", lines + code, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(condition: Callable[[], bool]) -> None:
    ticks = threading.Event()
    for _ in range(LIMIT_S * 100):
        if condition():
            return
        ticks.wait(0.01)
    raise AssertionError("timeout")
