# SPDX-License-Identifier: Apache-2.0
"""Requirements of tests that not every user or machine meets. Without them a test is skipped; tests/run lists why."""
from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def need_root(what: str) -> None:
    """Skips what only root can do, e.g. "to mount a small disk"; hy_need_root of the C suites prints the same."""
    if os.geteuid() != 0:
        pytest.skip(f"needs root: {what}")


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Raises the limit of open files for this process and its children; many users have 1024. Also a decorator."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < count:
        pytest.skip(f"needs {count} open files: ulimit -Hn is {hard}")
    if 0 <= soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
