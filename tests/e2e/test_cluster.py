# SPDX-License-Identifier: Apache-2.0
"""The clusters that other tests rely on: they work, use their ports, and leave nothing behind.

JVMs start slowly: one cluster serves all tests here, and the last test stops it
while programs are still running.
"""
from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark import GPU_SCRIPT, Session, control, held
from waiting import wait_for

TASKS = """
    def task(number):
        from pyspark import TaskContext
        context = TaskContext.get()
        time.sleep(%(seconds)s)
        return {"executor": os.getppid(), "python": sys.executable, "gpus": context.resources()["gpu"].addresses}

    emit(master=sc.master, tasks=sc.parallelize(range(%(tasks)d), %(tasks)d).map(task).collect())
"""
GPUS = {"spark.executor.resource.gpu.amount": 2, "spark.task.resource.gpu.amount": 1}
# Tasks wait for all executors, or the first one might take all tasks.
ALL_THERE = {"spark.scheduler.minRegisteredResourcesRatio": 1, "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with held("all", tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def programs(cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """One program per part, which reports its tasks and then keeps its executors busy."""
    found = {part: Session(part, cluster, tmp_path_factory.mktemp(part)) for part in ("spark", "yarn")}
    try:
        yield found
    finally:
        for session in found.values():
            session.end()


def report(session: Session, tasks: int, conf: dict[str, Any]) -> dict[str, Any]:
    """The first line of a program whose next tasks take long."""
    code = TASKS % {"tasks": tasks, "seconds": 0.2} + TASKS % {"tasks": tasks, "seconds": 600}
    program = session.start(code, {**conf, **ALL_THERE})
    assert program.stdout
    line = program.stdout.readline()
    assert line, session.errors()
    return json.loads(line)


def recorded(cluster: dict[str, Any], part: str) -> dict[str, int]:
    daemons = json.loads((cluster["state"] / part / "daemons.json").read_text())["daemons"]
    return {name: pid for name, (pid, _) in daemons.items()}


def processes() -> dict[int, tuple[int, int, int]]:
    """Parent, session and start time of all processes that have not ended."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in "ZX":
            found[int(pid)] = (int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def descendants(pids: set[int]) -> set[tuple[int, int]]:
    """They and their descendants, as (process id, start time)."""
    known = processes()
    found, new = set[int](), pids
    while new:
        found |= new
        new = {pid for pid, (parent, _, _) in known.items() if parent in new} - found
    return {(pid, known[pid][2]) for pid in found}


# ---- operation ---------------------------------------------------------------------------


@pytest.mark.full
def test_standalone_job_runs_on_both_workers_and_gets_gpus(cluster: dict[str, Any], programs: dict[str, Session]) -> None:
    output = report(programs["spark"], 4, {**GPUS, "spark.cores.max": 4})
    assert output["master"] == cluster["spark"]
    assert len({t["executor"] for t in output["tasks"]}) == 2
    assert len({(t["executor"], *t["gpus"]) for t in output["tasks"]}) == 4, "a GPU was given twice"
    assert {t["python"] for t in output["tasks"]} == {programs["spark"].env["PYSPARK_PYTHON"]}


@pytest.mark.full
def test_yarn_job_in_client_mode_runs_in_two_containers_with_staging_on_hdfs(
        cluster: dict[str, Any], programs: dict[str, Session]) -> None:
    output = report(programs["yarn"], 2, {**GPUS, **GPU_SCRIPT, "spark.task.resource.gpu.amount": 2})
    assert output["master"] == "yarn"
    assert len({t["executor"] for t in output["tasks"]}) == 2
    assert all(len(t["gpus"]) == 2 for t in output["tasks"])
    assert {t["python"] for t in output["tasks"]} == {programs["yarn"].env["PYSPARK_PYTHON"]}
    assert staged(cluster) == programs["yarn"].applications() != []


def staged(cluster: dict[str, Any]) -> list[str]:
    path = f"/webhdfs/v1/user/{getpass.getuser()}/.sparkStaging?op=LISTSTATUS"
    with urllib.request.urlopen(cluster["yarn_hdfs_page"] + path, timeout=60) as listing:
        return [f["pathSuffix"] for f in json.load(listing)["FileStatuses"]["FileStatus"]]


# ---- start ---------------------------------------------------------------------------------


@pytest.mark.full
def test_starting_twice_changes_nothing(cluster: dict[str, Any]) -> None:
    before = {part: recorded(cluster, part) for part in ("spark", "yarn")}
    again = control("start", "all", cluster["state"])
    assert again.returncode == 0, again.stderr
    assert [line.split(":")[0] for line in again.stdout.splitlines()] == ["spark is running already", "yarn is running already"]
    assert {part: recorded(cluster, part) for part in ("spark", "yarn")} == before


@pytest.mark.full
def test_start_restarts_killed_daemons(cluster: dict[str, Any]) -> None:
    before = recorded(cluster, "spark")
    os.kill(before["worker2"], signal.SIGKILL)
    wait_for(lambda: before["worker2"] not in processes(), "the worker exits")
    status = control("status", "spark", cluster["state"])
    assert status.returncode == 3 and status.stdout.startswith("spark has lost worker2;")
    again = control("start", "spark", cluster["state"])
    assert again.returncode == 0 and again.stdout.startswith("spark: starting worker2 again\nspark is ready:"), again.stderr
    after = recorded(cluster, "spark")
    assert after.pop("worker2") != before.pop("worker2") and after == before
    assert control("status", "spark", cluster["state"]).returncode == 0


@pytest.mark.full
def test_start_fails_on_a_used_port_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        start = control("start", "spark", tmp_path, "--ports", str(port))
    assert start.returncode == 1 and start.stdout == ""
    assert "cluster.py: spark did not start: master ended before it was ready." in start.stderr
    assert "Address already in use" in start.stderr
    assert not {session for _, session, _ in processes().values()} & set(recorded({"state": tmp_path}, "spark").values())
    assert not (tmp_path / "cluster.json").exists()


def test_foreign_directory_is_not_cleared(tmp_path: Path) -> None:
    document = tmp_path / "spark/thesis.txt"
    document.parent.mkdir()
    document.write_text("years of work")
    start = control("start", "spark", tmp_path)
    assert start.returncode == 1 and "is not a cluster's; choose another --state" in start.stderr
    assert document.read_text() == "years of work"


@pytest.mark.full
def test_cluster_stops_with_the_process_that_holds_it(tmp_path: Path) -> None:
    code = f"import pathlib, spark\nwith spark.held('spark', pathlib.Path({str(tmp_path)!r})):\n    print(input())"
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent, stdin=subprocess.PIPE) as holder:
        wait_for((tmp_path / "cluster.json").exists, "the cluster starts")
        holder.kill()
    there = set(recorded({"state": tmp_path}, "spark").values())
    wait_for(lambda: not there & {session for _, session, _ in processes().values()}, "the cluster stops")


# ---- stop: last, because the cluster is gone then --------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("part", ["spark", "yarn"])
def test_stop_leaves_no_process_behind(cluster: dict[str, Any], programs: dict[str, Session], part: str) -> None:
    daemons = set(recorded(cluster, part).values())
    there = descendants(daemons)
    assert len(there) >= len(daemons) + 4, "two executors and their Python processes should be there"
    stop = control("stop", part, cluster["state"])
    assert stop.returncode == 0 and stop.stdout == f"{part} is stopped\n", stop.stderr
    left = processes()
    assert not there & {(pid, born) for pid, (_, _, born) in left.items()}
    assert not daemons & {session for _, session, _ in left.values()}
    assert control("stop", part, cluster["state"]).stdout == f"{part} was not running\n"
    assert f"{part}_env" not in json.loads((cluster["state"] / "cluster.json").read_text())
