# SPDX-License-Identifier: Apache-2.0
"""Tests do not sleep for a fixed time: they wait for the condition."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(what: Callable[[], Any], why: str, seconds: float = 60) -> Any:
    """Waits until `what` returns something true, and returns it.

    It checks less often the longer it waits: `what` may copy a database or look at all processes.
    """
    start = time.monotonic()
    while True:
        answer = what()
        if answer:
            return answer
        waited = time.monotonic() - start
        if waited > seconds:
            raise AssertionError(f"timed out after {seconds:.0f} s: {why}")
        time.sleep(min(0.05, 0.01 + waited / 20))
