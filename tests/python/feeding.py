# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of feeds: a hub per test, and other processes that feed it. Tests import the fixtures."""
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


PREAMBLE = """
import os, sys, threading, time
from hopyard import _hopyard
from hopyard._feed import feeders as _feeders
name = sys.argv[1]
"""


def python(code: str, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for(condition: Callable[[], bool]) -> None:
    ticks = threading.Event()
    for _ in range(LIMIT_S * 100):
        if condition():
            return
        ticks.wait(0.01)
    raise AssertionError("timeout")
