# SPDX-License-Identifier: Apache-2.0
"""Failures below a run on a real cluster: workers, nodes, containers, drivers, cables. No finished trial is lost.

A test knows which trials are lost by the failure, and checks that no other was retried. The messages of a run are
checked where they are deterministic; Spark and YARN do not always report why an executor was lost.
"""
from __future__ import annotations

import os
import re
import signal
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_for
from hosts import Host, Hosts
from house import House, opened
from spark import control, held

TWO = {"executor_instances": "2", "executor_memory": "512m"}
CONTAINERS = {**TWO, "executor_memoryOverhead": "700m", "executor_cores": "2"}  # 1212 MB, which YARN rounds up to 1280


def begin_session(house: House, settings: dict[str, str]) -> None:
    house.notebook.evaluate(f"spark = session(**{settings}); sc = spark.sparkContext")


@contextmanager
def breakable(part: str, cluster: dict[str, Any], folder: Path, settings: dict[str, str]) -> Iterator[House]:
    """A house on a cluster that is repaired for later tests."""
    try:
        with opened(cluster, part, folder) as house:
            begin_session(house, settings)
            yield house
            house.close()
            wait_for(lambda: not house.executors(), "executors exit with their session, also unwatched ones")
    finally:
        again = control("start", part, cluster["state"])
        assert again.returncode == 0, again.stderr


@pytest.fixture(scope="module")
def standalone(spark_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with breakable("spark", spark_cluster, tmp_path_factory.mktemp("standalone"), TWO) as house:
        yield house


@pytest.fixture(scope="module")
def yarn(yarn_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with breakable("yarn", yarn_cluster, tmp_path_factory.mktemp("yarn"), CONTAINERS) as house:
        yield house


@pytest.fixture(scope="module")
def far() -> Iterator[Host]:
    net = Hosts("far")
    try:
        yield net["far"]
    finally:
        net.close()


@pytest.fixture(scope="module")
def spread(far: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """On a standalone Spark whose second worker is behind a cable."""
    folder = tmp_path_factory.mktemp("spread")
    where = ("--address", far.net.ip, "--away", str(far.sshd.pid), far.ip)
    with held("spark", folder / "spark", *where) as cluster, opened(cluster, "spark", folder) as house:
        begin_session(house, {**TWO, "driver_host": far.net.ip})
        yield house


@pytest.fixture(autouse=True)
def leave_no_run_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """A run that a failed test has left would occupy the executors of later tests."""
    yield
    for name in {"standalone", "yarn", "spread"} & set(request.fixturenames):
        yard = request.getfixturevalue(name).yard
        for row in yard.rows("SELECT id FROM runs WHERE state = 1"):
            yard.run("stop", row["id"], rc=None)


def finish(house: House, run: int, gate: str) -> str:
    """Opens the gate, waits for the end, and returns the notes."""
    (house.yard.project / gate).touch()
    house.notebook.evaluate(f"experiment.attach({run})")
    assert house.yard.state(run) == "done"
    return house.notes(run)


# ---- standalone ----------------------------------------------------------------------------------------------


def press_kill(page: str, job: int) -> None:
    """As a browser does: with all fields of the form next to the job."""
    with urllib.request.urlopen(f"{page}/jobs/", timeout=60) as answer:
        forms = re.findall(r'<form action="([^"]*/jobs/job/kill/)"(.*?)</form>', answer.read().decode(), re.DOTALL)
    for action, form in forms:
        fields = dict(re.findall(r'name="(\w+)" value="(\w+)"', form))
        if fields["id"] == str(job):
            urllib.request.urlopen(page + action, urllib.parse.urlencode(fields).encode(), timeout=60).close()
            return
    raise AssertionError(f"Spark's page has no form that kills job {job}: {forms}")


def test_job_killed_on_the_spark_page_is_reported(standalone: House) -> None:
    run = standalone.start_gated_run("page")
    output = standalone.notebook.evaluate(f"""
        [job] = sc.statusTracker().getJobIdsForGroup("hopyard-run-{run}-agent-1")
        emit(page=sc.uiWebUrl, job=job)
    """)
    press_kill(output["page"], output["job"])
    wait_for(lambda: standalone.count(run, "lost") == 2, "the trials of its agent are lost")
    standalone.wait_for_gated_run(run)
    shown = finish(standalone, run, "page")
    standalone.check_gated_run(run, lost=2)
    assert re.search(rf"agent executor-\d+@\S+: Spark: Job {output['job']} cancelled killed via Web UI", shown), shown


def test_killed_worker_loses_only_its_trials(standalone: House) -> None:
    """No other executor is started: the remaining one runs all remaining trials."""
    run = standalone.start_gated_run("worker")
    worker, _ = standalone.on_cluster(r"deploy\.worker\.Worker")
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: standalone.count(run, "lost") == 2, "the trials of its executor are lost")
    wait_for(lambda: len(standalone.executors()) == 1, "its executor has exited")
    shown = finish(standalone, run, "worker")
    standalone.check_gated_run(run, lost=2)
    assert re.search(r"agent executor-(\d+)@\S+: executor \1 on \S+ was lost: worker lost", shown), shown


# ---- YARN ------------------------------------------------------------------------------------------------------


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def agent_of(trial: int) -> int:
    while Path(f"/proc/{trial}/comm").read_text() != "hopyard-agent\n":
        trial = parent(trial)
    return trial


def exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_container_killed_for_its_memory_is_reported_with_the_message_of_yarn(yarn: House) -> None:
    """The agent would kill the trial earlier, so it is stopped. It continues when its parents are killed."""
    folder = yarn.yard.project / "growing"
    folder.mkdir()
    run = yarn.notebook.evaluate(f"""
        def growing(x, folder):
            Path(folder, f"{{x}}.{{os.getpid()}}").touch()
            while not os.path.exists(f"{{folder}}/go"):
                time.sleep(0.02)
            held = os.urandom(1) * (1100 << 20) if x == 1 and os.environ["HOPYARD_ATTEMPT"] == "1" else b""
            while held:
                time.sleep(0.1)
            return x

        emit(run=experiment.grid_search(growing, {{"x": [1, 2, 3, 4], "folder": [{str(folder)!r}]}}, spark=spark,
                                       tensorboard=False, detach=True).run)
    """)["run"]
    [trial] = wait_for(lambda: len(list(folder.iterdir())) == 4 and list(folder.glob("1.*")), "all trials run")
    agent = agent_of(int(trial.suffix[1:]))
    os.kill(agent, signal.SIGSTOP)
    (folder / "go").touch()
    wait_for(lambda: not exists(agent), "YARN kills the container")
    yarn.notebook.evaluate(f"experiment.attach({run})")
    assert yarn.yard.state(run) == "done"
    assert [a["state"] for a in yarn.yard.attempts(run, trial=1)] == ["lost", "done"]
    assert sorted(a["trial"] for a in yarn.yard.attempts(run) if a["state"] == "done") == [1, 2, 3, 4]
    words = r"agent executor-(\d+)@\S+: executor \1 on \S+ was lost: Container killed by YARN for exceeding physical memory limits"
    assert re.search(words, yarn.notes(run)), yarn.notes(run)


@pytest.mark.full  # make test: on Spark, in test_spark.py
def test_run_on_yarn_is_resumed_in_another_session_after_its_driver_was_killed(yarn: House) -> None:
    run = yarn.start_gated_run("driver")
    os.kill(yarn.yard.process("driver"), signal.SIGKILL)
    wait_for(lambda: not yarn.on_cluster(r"hopyard agent\b|-m hopyard\._trial"), "its agents and trials are gone")
    (yarn.yard.project / "driver").touch()
    yarn.notebook.evaluate("spark.stop()")
    resume_on_another_session(yarn, run)


@pytest.mark.full  # make test: on Spark, in test_spark.py
def test_run_on_yarn_is_resumed_by_another_process_after_its_process_was_killed(yarn: House) -> None:
    run = yarn.start_gated_run("process")
    yarn.notebook.kill()
    wait_for(lambda: yarn.count(run, "lost") == 4, "its trials are lost")
    wait_for(lambda: not yarn.executors(), "its executors are gone")
    (yarn.yard.project / "process").touch()
    yarn.open()
    resume_on_another_session(yarn, run)


def resume_on_another_session(house: House, run: int) -> None:
    begin_session(house, CONTAINERS)
    output = house.notebook.evaluate(f"emit(state=experiment.resume({run}, spark=spark, tensorboard=False).state)")
    assert output["state"] == "done"
    house.check_gated_run(run, lost=4)


def node_of(container: int) -> str:
    """The node in whose directory it works."""
    found = re.search(r"/(nodemanager\d)/", os.readlink(f"/proc/{container}/cwd"))
    assert found
    return found[1]


def manager_of(house: House, node: str) -> int:
    managers = house.on_cluster(r"nodemanager\.NodeManager$")
    return next(pid for pid in managers if f"DAEMON={node}".encode() in Path(f"/proc/{pid}/environ").read_bytes())


def test_killed_nodemanager_loses_only_the_trials_of_its_node(yarn: House) -> None:
    """Its containers live on until the ResourceManager has given up the node and Spark is notified."""
    run = yarn.start_gated_run("node")
    executors = {pid: node_of(pid) for pid in yarn.on_cluster(r"^\S*java .*YarnCoarseGrainedExecutorBackend")}
    [master] = yarn.on_cluster(r"^\S*java .*deploy\.yarn\.ExecutorLauncher")
    # A lost application master takes all executors with it: that is Spark's behavior.
    node = next((node for node in executors.values() if node != node_of(master)), node_of(master))
    lost = [pid for pid in executors if node in (executors[pid], node_of(master))]
    os.kill(manager_of(yarn, node), signal.SIGKILL)
    wait_for(lambda: yarn.count(run, "lost") == 2 * len(lost), "the trials of its node are lost", 120)
    wait_for(lambda: not any(map(exists, lost)), "its executors are gone")
    finish(yarn, run, "node")
    yarn.check_gated_run(run, lost=2 * len(lost))


# ---- a cable -----------------------------------------------------------------------------------------------------


class Gated:
    """A run of six trials, each of which ends when its gate opens."""

    def __init__(self, house: House) -> None:
        self.house, self.gates = house, house.yard.project / "gates"
        self.gates.mkdir()
        self.run = int(house.notebook.evaluate(f"""
            def gated(x, gates):
                while not os.path.exists(f"{{gates}}/{{x}}"):
                    time.sleep(0.02)
                return x

            emit(run=experiment.grid_search(gated, {{"x": list(range(1, 7)), "gates": [{str(self.gates)!r}]}}, spark=spark,
                                           tensorboard=False, detach=True).run)
        """)["run"])

    def open(self, trials: list[int]) -> None:
        for trial in trials:
            (self.gates / str(trial)).touch()

    def trials(self, state: str, host: str = "") -> list[int]:
        return [a["trial"] for a in self.house.yard.attempts(self.run)
                if a["state"] == state and (not host or a["host"] == host)]


@pytest.mark.full  # make test: on hosts, in test_hosts.py
def test_agent_without_network(spread: House, far: Host) -> None:
    """For 5 s: nothing happens. For 60 s: its lease expires, and its trials run elsewhere, and only there."""
    run = Gated(spread)
    wait_for(lambda: len(run.trials("running")) == 4 and len(run.trials("running", "far")) == 2, "two run on each host")

    far.cut()
    run.open(run.trials("running", "far")[:1])
    time.sleep(5)  # time without a cable: less than the lease
    far.repair()
    wait_for(lambda: len(run.trials("done", "far")) == 1, "the trial that ended meanwhile is reported")
    wait_for(lambda: len(run.trials("running", "far")) == 2, "the agent gets another trial")
    assert not run.trials("lost")

    cut_off, since = run.trials("running", "far"), time.monotonic()
    far.cut()
    wait_for(lambda: run.trials("lost") == cut_off, "the agent is given up")
    assert not far.processes(r"hopyard agent\b|-m hopyard\._trial"), "the agent has killed its trials before"
    run.open([t for t in range(1, 7) if t not in cut_off])
    wait_for(lambda: set(run.trials("running")) >= set(cut_off), "its trials run elsewhere")
    time.sleep(max(0, since + 60 - time.monotonic()))  # time without a cable: Spark may have given it up, too
    far.repair()
    run.open(cut_off)
    spread.notebook.evaluate(f"experiment.attach({run.run})")
    assert spread.yard.state(run.run) == "done" and sorted(run.trials("done")) == list(range(1, 7))
    assert run.trials("lost") == cut_off
    shown = spread.notes(run.run)
    assert re.search(r"agent executor-\d+@far is lost \(nothing received from", shown), shown
