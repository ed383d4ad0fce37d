# SPDX-License-Identifier: Apache-2.0
"""Fault seams in the whole program: faults are reported, and resume continues from there.

HOPYARD_FAULT counts in each process separately, so that one position is a
different fault in the client, the driver, the agent and their reapers. A client
that fails has no driver: drivers and agents therefore have their own positions,
close together at their start.
"""
from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from conftest import Yard

GRID = ["--grid", "x=1..4", "--parallel", "2", "--max", "v", "--retries", "3", "--", "sh", "-c", "echo v={x}; echo word >&2"]
POSITIONS = {"wire": range(1, 41), "alloc": range(1, 200, 6), "sys": range(1, 200, 6)}
POSITIONS |= {f"{part}/{seam}": [n * n + n for n in range(1, 26)] for part in ("driver", "agent") for seam in ("alloc", "sys")}


Start = Callable[[dict[str, str]], "subprocess.CompletedProcess[str]"]


def survive(yard: Yard, run: int, fault: str, start: Start) -> None:
    before = len(yard.rows("SELECT id FROM runs")) if (yard.folder / "store.db").exists() else 0
    p = start({"HOPYARD_FAULT": fault})
    output = p.stdout + p.stderr
    assert "Sanitizer" not in output and "runtime error" not in output, f"{fault}: {output}"
    assert p.returncode in (0, 1, 2), f"{fault}: exit status {p.returncode}\n{output}"
    if p.returncode != 0:
        assert output.strip(), f"{fault}: failed without a message"
    runs = yard.rows("SELECT id FROM runs") if (yard.folder / "store.db").exists() else []
    if len(runs) == before:
        return  # it failed before there was a run
    yard.wait_idle()  # if only the client failed, the run continues
    if yard.state(run) != "done" or any(t["state"] != "done" for t in yard.trials(run)):
        yard.run("resume", run)
    trials = yard.trials(run)
    assert [t["value"] for t in trials] == [1, 2, 3, 4], fault
    for t in trials:
        assert [a["state"] for a in yard.attempts(run, t["number"])].count("done") == 1, fault


def survive_at(yard: Yard, fault: str, start: Start) -> None:
    runs = len(yard.rows("SELECT id FROM runs")) if (yard.folder / "store.db").exists() else 0
    survive(yard, runs + 1, fault, start)


@pytest.mark.slow
@pytest.mark.parametrize("seam", POSITIONS)
def test_every_position_is_survived(yard: Yard, seam: str) -> None:
    def start(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return yard.run("run", *GRID, rc=None, env=env, timeout=120)

    for n in POSITIONS[seam]:
        survive_at(yard, f"{seam}:{n}", start)
