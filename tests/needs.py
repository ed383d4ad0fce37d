# SPDX-License-Identifier: Apache-2.0
"""What a test needs that not every user or machine has. Without it the test is skipped, and tests/run adds up why."""
from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def need_root(what: str) -> None:
    """Skips what only root can do, as "to mount a small disk"; hy_need_root of the C suites says it the same way."""
    if os.geteuid() != 0:
        pytest.skip(f"needs root: {what}")


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """So many may be open in this process and in what it starts meanwhile; many users have 1024. Also a decorator."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < count:
        pytest.skip(f"needs {count} open files: ulimit -Hn is {hard}")
    if 0 <= soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
