# SPDX-License-Identifier: Apache-2.0
"""Suites that depend on the user pass without root, too; tests that need root are skipped with a reason."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BIN
from needs import need_root

NOBODY = 65534
BUILT = Path(BIN).absolute().parents[2] / "tests"


@pytest.fixture
def home() -> Iterator[Path]:
    """Directly below /tmp: pytest's own directories are accessible only to root."""
    folder = Path(tempfile.mkdtemp(prefix="hy-user-"))
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("suite", ["access", "disk", "file", "fs", "helper", "snapshot", "standby", "wire_links", "wire_local"])
def test_suite_passes_for_an_ordinary_user(suite: str, home: Path) -> None:
    need_root("to become another user")
    program = shutil.copy(BUILT / f"test_{suite}", home)  # without root the build directory may be inaccessible
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "CMOCKA_MESSAGE_OUTPUT": "TAP"}
    p = subprocess.run([program], env=env, cwd=home, user=NOBODY, group=NOBODY, extra_groups=[], text=True,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    assert p.returncode == 0, f"{p.stdout[-6000:]}\n{p.stderr[-6000:]}"
    reasons = re.findall(r"^skipped: (.*)\n(?:not )?ok \d+ # SKIP", p.stdout, re.M)
    assert len(reasons) == p.stdout.count("# SKIP"), p.stdout
    assert all(reason.startswith(("needs root: ", "no cgroup")) for reason in reasons), reasons
