# SPDX-License-Identifier: Apache-2.0
"""Tests do not sleep for a fixed time: they wait for the condition."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(what: Callable[[], Any], why: str, seconds: float = 60) -> Any:
    """Waits until `what` returns something true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"timed out after {seconds:.0f} s: {why}")
        time.sleep(0.02)
