# SPDX-License-Identifier: Apache-2.0
"""No test sleeps for luck: it waits for the thing itself."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(what: Callable[[], Any], why: str, seconds: float = 60) -> Any:
    """Waits until `what` answers something true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {why}")
        time.sleep(0.02)
