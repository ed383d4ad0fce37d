# SPDX-License-Identifier: Apache-2.0
"""What a test needs that not every user or machine has. Without it the test is skipped, and tests/run adds up why."""
from __future__ import annotations

import os

import pytest


def need_root(what: str) -> None:
    """Skips what only root can do, as "to mount a small disk"; hy_need_root of the C suites says it the same way."""
    if os.geteuid() != 0:
        pytest.skip(f"needs root: {what}")
