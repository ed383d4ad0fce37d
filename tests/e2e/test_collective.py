# SPDX-License-Identifier: Apache-2.0
"""Collectives on NumPy arrays with real processes: results, lost ranks, pauses."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import RELEASE_BIN, Yard, wait_for
from needs import need_root
from promises import HUNG_S, broken, names

HERE = Path(__file__).parent
DISAGREEMENTS = HERE / "disagreements.py"
DEATHS = 100
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # touching new memory costs more than the collective itself


def open_yard(folder: Path) -> Yard:
    """With the installed program: these tests are about ranks, with many repetitions."""
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
def test_every_collective_type_and_size_matches_numpy(fast: Yard, ranks: int) -> None:
    p = fast.run("train", "-np", ranks, "--", sys.executable, HERE / "matrix.py", env=HUGE_PAGES)
    assert p.stdout.count("all is well") == ranks


def test_ranks_on_a_machine_with_many_addresses_connect(fast: Yard) -> None:
    """A machine with containers has hundreds of addresses; an agent accepts 32 of a rank."""
    need_root("to make a network namespace")
    setup = "ip link set lo up; for i in $(seq 50); do ip address add 10.9.0.$i/32 dev lo; done; exec \"$@\""
    code = "import numpy; from hopyard import collective as c; c.init(); print(c.allreduce(numpy.ones(3), op=c.Sum))"
    train = fast.command("train", "-np", 2, "--", sys.executable, "-c", code)
    p = subprocess.run(["unshare", "--net", "sh", "-c", setup, "sh", *train], env=fast.env, cwd=fast.project, text=True,
                       capture_output=True, timeout=120)
    assert p.returncode == 0, p.stdout + p.stderr
    assert [output_of(fast, rank) for rank in range(2)] == ["[2. 2. 2.]\n"] * 2


def output_of(yard: Yard, rank: int) -> str:
    path = yard.logdir() / f"rank={rank}" / "stdout"
    return path.read_text() if path.exists() else ""


def pid_of(yard: Yard, rank: int) -> int:
    """From its environment."""
    mark = f"HOPYARD_TRIAL={rank + 1}\0".encode()
    [pid] = [pid for pid in yard.processes(r"steps\.py") if mark in Path(f"/proc/{pid}/environ").read_bytes()]
    return pid


def start_steps(yard: Yard, ranks: int, *steps: object) -> None:
    yard.run("train", "-np", ranks, "--detach", "--", sys.executable, HERE / "steps.py", yard.project, *steps)
    wait_for(lambda: len(list(yard.project.glob("ready-*"))) == ranks, "all ranks have started", 120)


def kill_one(folder: Path, seed: int) -> str:
    """One training with one killed rank; returns what the others did wrong, or nothing."""
    rng = random.Random(seed)
    yard, victim = open_yard(folder), rng.randrange(3)
    try:
        start_steps(yard, 3)
        pid = pid_of(yard, victim)
        time.sleep(rng.random() * 0.05)  # at any time
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: yard.state() == "failed", "the run continues")
        yard.wait_idle()
        for rank in {0, 1, 2} - {victim}:
            word = re.search(r"^lost (\S+) (.*)$", output_of(yard, rank), re.M)
            if not word:
                return f"seed {seed}: rank {rank} output {output_of(yard, rank)!r}"
            if f"rank {victim}" not in word[2] or "signal 9" not in word[2]:
                return f"seed {seed}: rank {victim} was killed, but rank {rank} reported: {word[2]}"
            if float(word[1]) - killed > HUNG_S:
                return f"seed {seed}: rank {rank} reported it after {float(word[1]) - killed:.1f} s"
        yard.assert_nothing_left()
        return ""
    finally:
        yard.kill_everything()
        shutil.rmtree(yard.runtime, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def shared_memory() -> set[str]:
    """Without what tests/store makes, which may run at the same time."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("hy-store-")}


def test_rank_killed_at_any_time_is_reported_to_the_others(tmp_path: Path) -> None:
    memory = shared_memory()
    with ThreadPoolExecutor(2) as pool:
        wrong = [each for each in pool.map(lambda i: kill_one(tmp_path / str(i), i), range(DEATHS)) if each]
    assert not wrong, "\n".join(wrong)
    assert shared_memory() == memory


def pause_one(folder: Path, paused: int) -> None:
    yard = open_yard(folder)
    try:
        start_steps(yard, 2, 1500)
        pid = pid_of(yard, paused)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(10)  # this long must not be too long
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: yard.state() == "done", "the run continues", 200)
        assert all("all steps done" in output_of(yard, rank) for rank in (0, 1))
        other = yard.logdir() / f"rank={1 - paused}" / "stderr"
        assert re.search(rf"rank {paused}: no (?=.*numpy\.allreduce).*for 5 s", other.read_text())
        assert f"rank {paused}: no " in yard.driver_log() + yard.run("show", 1).stdout
        yard.assert_nothing_left()
    finally:
        yard.kill_everything()
        shutil.rmtree(yard.runtime, ignore_errors=True)


def test_paused_rank_causes_a_warning_and_the_training_continues(tmp_path: Path) -> None:
    """Rank 0 (the coordinator) and another one: at the same time, since most of the time is waiting."""
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


def test_child_process_that_joins_is_refused_without_side_effects(fast: Yard) -> None:
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
def test_mismatched_ranks_get_an_error(disagreements: Path, promise: str) -> None:
    assert not (output := broken(disagreements, 3, promise)), output


# ---- ranks that leave -----------------------------------------------------------------------------

LEAVING = """
import sys
import numpy as np
import hopyard.collective as hvd

hvd.init()
hvd.allreduce(np.ones(2), name="first")
if hvd.rank() == int(sys.argv[1]):
    sys.exit(0)
for step in range(1000):
    hvd.allreduce(np.ones(2), name="second")
"""


@pytest.mark.parametrize(("ranks", "leaving_rank"), [(2, 1), (2, 0), (3, 2), (3, 0)])
def test_rank_that_exits_with_0_while_others_need_it_fails(yard: Yard, ranks: int, leaving_rank: int) -> None:
    (yard.project / "train.py").write_text(LEAVING)
    p = yard.run("train", "-np", ranks, sys.executable, "train.py", leaving_rank, rc=1)
    why = yard.rows("SELECT message FROM runs")[0]["message"]
    assert re.fullmatch(rf"rank {leaving_rank} left the group \(its program ended or called shutdown\) while rank \d still "
                        "needed it", why), why
    assert why in p.stdout + p.stderr
    trials = yard.trials()
    assert (trials[leaving_rank]["state"], trials[leaving_rank]["message"]) == (
        "failed", "exit status 0, but the others still needed it")
    assert all(t["state"] == "stopped" and t["message"] == f"ended because {why}"
               for rank, t in enumerate(trials) if rank != leaving_rank), trials


@pytest.mark.smoke
def test_own_failure_of_a_rank_is_reported_after_another_has_left(yard: Yard) -> None:
    (yard.project / "train.py").write_text(LEAVING.split("for step")[0] + "sys.exit(3)\n")
    yard.run("train", "-np", 2, sys.executable, "train.py", 1, rc=1)
    why = yard.rows("SELECT message FROM runs")[0]["message"]
    assert re.fullmatch(r"rank 0 on \S+ ended with exit status 3", why), why
    assert [t["state"] for t in yard.trials()] == ["failed", "done"]


# ---- process sets, and a timeline -------------------------------------------------------------------

SETS = """
import json
import numpy as np
import hopyard.collective
import hopyard.hvd as hvd

def trying(sets):
    try:
        hvd.init(process_sets=sets)
    except Exception as error:
        return type(error).__name__, hvd.is_initialized(), [s.process_set_id for s in sets if hasattr(s, "ranks")]

one, two = hvd.ProcessSet([0]), hvd.ProcessSet([1])
tried = [trying(sets) for sets in (
    [one, hvd.ProcessSet([0])], [one, hvd.ProcessSet([0, 1])], [one, [1]], [one, hvd.ProcessSet([1, 9])])]
hvd.init(process_sets=[one, two])
print(json.dumps({"rank": hvd.rank(), "tried": tried, "sizes": [one.size(), two.size()], "ids": sorted(
    [one.process_set_id, two.process_set_id]), "gathered": hopyard.collective.allgather(np.array([hvd.rank()])).tolist()}))
"""


def test_failed_init_leaves_nothing_behind(yard: Yard) -> None:
    (yard.project / "train.py").write_text(SETS)
    yard.run("train", "-np", 2, sys.executable, "train.py")
    for rank in range(2):
        words = json.loads(output_of(yard, rank))
        assert [(t[1], set(t[2])) for t in words["tried"]] == [(False, {None})] * 4
        assert [t[0] for t in words["tried"][:3]] == ["ValueError"] * 3, words
        assert words["sizes"] == [1, 1] and words["ids"] == [1, 2] and words["gathered"] == [0, 1]


STALLED = """
import os, signal
import numpy as np
import hopyard.collective as hvd

hvd.init()
for i in range(100):
    hvd.allreduce(np.ones(2), name=f"step.{i}")
open(f"ready-{hvd.rank()}", "w").close()
if hvd.rank() == 1:
    signal.pause()
hvd.allreduce(np.ones(2), name="never")
"""


def test_timeline_is_written_immediately_and_valid_after_a_kill(yard: Yard) -> None:
    (yard.project / "train.py").write_text(STALLED)
    yard.run("train", "-np", 2, "--detach", "--timeline-filename", "trace.json", "--timeline-mark-cycles", sys.executable,
             "train.py")
    wait_for(lambda: len(list(yard.project.glob("ready-*"))) == 2, "both ranks have started", 120)

    def rows(rank: int) -> list[str]:
        events = json.loads((yard.project / ("trace.rank-1.json" if rank else "trace.json")).read_text())
        return [event["args"]["name"] for event in events if event["name"] == "thread_name"]

    assert rows(0)[-1] == rows(1)[-1] == "step.99", "while they still run"
    for pid in yard.processes(r"train\.py$"):
        if b"HOPYARD_GROUP=1" in Path(f"/proc/{pid}/environ").read_bytes():
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: yard.state() == "failed", "the run continues")
    assert len(rows(0)) == len(rows(1)) == 100
