# SPDX-License-Identifier: Apache-2.0
"""What ranks do together, with NumPy arrays and real processes: results, deaths, pauses."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import RELEASE_BIN, Yard, wait_for
from promises import broken, names

HERE = Path(__file__).parent
DISAGREEMENTS = HERE / "disagreements.py"
DEATHS = 100
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # to touch new memory costs more than all that is done with it


def open_yard(folder: Path) -> Yard:
    """With the program that was installed: what is tried here is what ranks do, many times over."""
    folder.mkdir(exist_ok=True)
    return Yard(folder, RELEASE_BIN)


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Yard]:
    yard = open_yard(tmp_path)
    try:
        yield yard
        yard.assert_nothing_left()
    finally:
        yard.kill_everything()
        shutil.rmtree(yard.runtime, ignore_errors=True)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_every_collective_of_every_type_and_size_is_what_numpy_says(fast: Yard, ranks: int) -> None:
    p = fast.run("train", "-np", ranks, "--", sys.executable, HERE / "matrix.py", env=HUGE_PAGES)
    assert p.stdout.count("all is well") == ranks


def said(yard: Yard, rank: int) -> str:
    path = yard.logdir() / f"rank={rank}" / "stdout"
    return path.read_text() if path.exists() else ""


def pid_of(yard: Yard, rank: int) -> int:
    """By what is in its environment."""
    mark = f"HOPYARD_TRIAL={rank + 1}\0".encode()
    [pid] = [pid for pid in yard.processes(r"steps\.py") if mark in Path(f"/proc/{pid}/environ").read_bytes()]
    return pid


def start_steps(yard: Yard, ranks: int, *steps: object) -> None:
    yard.run("train", "-np", ranks, "--detach", "--", sys.executable, HERE / "steps.py", yard.project, *steps)
    wait_for(lambda: len(list(yard.project.glob("ready-*"))) == ranks, "not all ranks have begun", 120)


def kill_one(folder: Path, seed: int) -> str:
    """One training, one death; what is wrong with how the others took it, or nothing."""
    chance = random.Random(seed)
    yard, victim = open_yard(folder), chance.randrange(3)
    try:
        start_steps(yard, 3)
        pid = pid_of(yard, victim)
        time.sleep(chance.random() * 0.05)  # any moment will do
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: yard.state() == "failed", "the run goes on")
        yard.wait_idle()
        for rank in {0, 1, 2} - {victim}:
            word = re.search(r"^lost (\S+) (.*)$", said(yard, rank), re.M)
            if not word:
                return f"seed {seed}: rank {rank} said {said(yard, rank)!r}"
            if f"rank {victim}" not in word[2] or "signal 9" not in word[2]:
                return f"seed {seed}: rank {victim} was killed, but rank {rank} heard: {word[2]}"
            if float(word[1]) - killed > 2:
                return f"seed {seed}: rank {rank} heard of it after {float(word[1]) - killed:.1f} s"
        yard.assert_nothing_left()
        return ""
    finally:
        yard.kill_everything()
        shutil.rmtree(yard.runtime, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_rank_killed_at_any_moment_is_named_to_the_others_within_two_seconds(tmp_path: Path) -> None:
    memory = len(os.listdir("/dev/shm"))
    with ThreadPoolExecutor(2) as pool:
        wrong = [each for each in pool.map(lambda i: kill_one(tmp_path / str(i), i), range(DEATHS)) if each]
    assert not wrong, "\n".join(wrong)
    assert len(os.listdir("/dev/shm")) == memory


def pause_one(folder: Path, paused: int) -> None:
    yard = open_yard(folder)
    try:
        start_steps(yard, 2, 1500)
        pid = pid_of(yard, paused)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(10)  # what is tested is that this long is not too long
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: yard.state() == "done", "the run goes on", 200)
        assert all("all steps done" in said(yard, rank) for rank in (0, 1))
        other = yard.logdir() / f"rank={1 - paused}" / "stderr"
        assert re.search(rf"rank {paused}: not heard for 5 s .*numpy\.allreduce", other.read_text())
        assert f"rank {paused}: not heard" in yard.driver_log() + yard.run("show", 1).stdout
        yard.assert_nothing_left()
    finally:
        yard.kill_everything()
        shutil.rmtree(yard.runtime, ignore_errors=True)


def test_a_rank_that_is_paused_is_warned_about_and_work_goes_on(tmp_path: Path) -> None:
    """The first one, which leads, and another: at the same time, since most of it is waiting."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rank: pause_one(tmp_path / str(rank), rank), (0, 1)))


CHILD = """
import os, subprocess, sys
import numpy as np
import hopyard.collective as hvd
hvd.init()
if hvd.rank() == 0:
    child = subprocess.run([sys.executable, "-c", "import hopyard.collective as hvd; hvd.init()"], text=True,
                           stderr=subprocess.PIPE)
    print(child.stderr)
print("sum", hvd.allreduce(np.array(1.0), op=hvd.Sum))
"""


def test_a_child_process_that_joins_is_refused_and_harms_nobody(fast: Yard) -> None:
    p = fast.run("train", "-np", 2, "--", sys.executable, "-c", CHILD)
    assert "another process of this rank is in the group already" in p.stdout
    assert p.stdout.count("sum 2.0") == 2


@pytest.fixture(scope="module")
def disagreements(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("disagreements")
    yard = open_yard(folder)
    try:
        yard.run("train", "-np", 3, "--", sys.executable, DISAGREEMENTS, folder)
        yield folder
        yard.assert_nothing_left()
    finally:
        yard.kill_everything()
        shutil.rmtree(yard.runtime, ignore_errors=True)


@pytest.mark.parametrize("promise", names(DISAGREEMENTS))
def test_ranks_that_disagree_are_told_within_two_seconds(disagreements: Path, promise: str) -> None:
    assert not (said := broken(disagreements, 3, promise)), said
