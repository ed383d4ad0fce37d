# SPDX-License-Identifier: Apache-2.0
"""Attempts, their waits and their resource usage: in the store, and in the API of `hopyard ui`."""
from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, Yard, wait_for
from house import Notebook
from test_standby import kernel, start_gated_run  # noqa: F401  (a fixture)
from ui import Ui, end

CORES = os.cpu_count() or 1
MB = 1 << 20
GROWS = """\
import sys, time
gate, kept = sys.argv[1], []
while len(kept) < 80:
    kept.append(bytearray(b"x") * (1 << 20))
    time.sleep(0.04)
import os
while not os.path.exists(gate):
    time.sleep(0.02)
"""


@pytest.fixture
def inside(yard: Yard) -> Iterator[Ui]:
    """A server, and a client that has logged in."""
    server = Ui(yard)
    server.log_in()
    yield server
    end(server)


@pytest.fixture
def gpus(yard: Yard) -> Yard:
    """A yard with two fake GPUs, 40 % of each busy and used."""
    fakes = Path(__file__).absolute().parents[1] / "fakes"
    library = Path(BIN).absolute().parents[2] / "tests" / "fakes"
    yard.env.update(LD_LIBRARY_PATH=f"{library}:{yard.env.get('LD_LIBRARY_PATH', '')}", PATH=f"{fakes}:{yard.env['PATH']}",
                    FAKE_NVML_DEVICES="2", FAKE_NVML_USE="40", FAKE_NVML_SEED=uuid.uuid4().hex)
    yard.env.pop("CUDA_VISIBLE_DEVICES", None)
    return yard


def grow(yard: Yard, *options: object) -> Path:
    """Starts a run with a trial whose memory grows by 80 MB; it ends when the path exists."""
    gate = yard.project / "gate"
    (yard.project / "grows.py").write_text(GROWS)
    yard.run("run", "--detach", *options, "--", "python3", "grows.py", gate)
    return gate


def usage_of(inside: Ui, run: int = 1, trial: int = 1) -> dict[str, list[int]] | None:
    reply = inside.request(f"/api/v1/runs/{run}/trials/{trial}")
    attempts = reply.json()["attempts"] if reply.status == 200 else []  # 404: the trial has not been created yet
    return attempts[0]["usage"] if attempts else None


def has_grown(usage: dict[str, list[int]] | None) -> bool:
    return bool(usage) and max(usage["memory"]) - usage["memory"][0] > 30 * MB


@pytest.mark.parametrize("options", [(), ("--memory", "2G")])
def test_a_trial_that_grows_shows_it_while_it_runs_and_later(yard: Yard, inside: Ui, options: tuple[str, ...]) -> None:
    gate = grow(yard, *options)
    wait_for(lambda: has_grown(usage_of(inside)), "its growth is seen while it runs")
    assert yard.state() == "running"
    gate.touch()
    wait_for(lambda: yard.state() == "done", "the run ends")
    usage = usage_of(inside)
    assert usage and has_grown(usage) and 70 * MB < max(usage["memory"]) < 500 * MB
    assert usage["time_ms"] == sorted(set(usage["time_ms"])) and usage["cpu_ms"] == sorted(usage["cpu_ms"])
    attempt = yard.attempts()[0]
    assert usage["cpu_ms"][-1] == attempt["cpu_ms"]  # the last point is its end
    assert abs(usage["time_ms"][-1] - (attempt["ended"] - attempt["started"])) < 30_000
    assert usage["gpu_memory"] is None and usage["gpu_use"] is None
    total = inside.get("/api/v1/runs/1/usage?points=50")
    assert len(total["time"]) == len(total["memory"]) == 50
    assert max(total["memory"]) > 70 * MB and max(total["running"]) > 0.9


def test_samples_survive_the_death_of_a_driver(yard: Yard, inside: Ui) -> None:
    yard.may_kill_anything()
    grow(yard)
    wait_for(lambda: has_grown(usage_of(inside)), "samples are in the store")
    os.kill(yard.process("driver"), signal.SIGKILL)
    yard.wait_idle()
    assert has_grown(usage_of(inside))
    total = inside.get("/api/v1/runs/1/usage")  # of a run without a driver and without an end
    assert max(total["memory"]) > 30 * MB


def test_short_trials_are_not_sampled_and_count_with_their_means(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--grid", "x=1..20", "--", "true")
    assert yard.rows("SELECT * FROM usage") == []
    total = inside.get("/api/v1/runs/1/usage?points=1")
    assert total["running"][0] > 0 and total["memory"][0] > 0
    timeline = inside.get("/api/v1/runs/1/timeline")
    assert timeline["trial"] == list(range(1, 21)) and timeline["state"] == "d" * 20 and timeline["is_complete"]
    for queued, started, begun, ended in zip(*(timeline[name] for name in ("queued", "started", "begun", "ended"))):
        assert 0 <= queued <= started == begun <= ended <= timeline["to"]


def test_a_timeline_has_the_attempts_of_its_window_or_the_longest(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--parallel", "1", "--grid", "x=1..6", "--", "sh", "-c", "[ {x} != 4 ] || sleep 0.5")
    whole = inside.get("/api/v1/runs/1/timeline")
    longest = inside.get("/api/v1/runs/1/timeline?limit=1")
    assert longest["trial"] == [4] and not longest["is_complete"]
    third = whole["trial"].index(3)
    window = inside.get(f"/api/v1/runs/1/timeline?from={whole['started'][third]}&to={whole['started'][third] + 1}")
    assert 3 in window["trial"] and 6 not in window["trial"] and 1 not in window["trial"]
    for query in ("from=5&to=5", "from=-1", "to=99999999999999", "limit=20001", "points=2001"):
        path = "usage" if query.startswith("points") else "timeline"
        assert inside.request(f"/api/v1/runs/1/{path}?{query}").status == 400


def held(timeline: dict[str, Any]) -> list[tuple[str | None, int | None]]:
    return list(zip(timeline["held"], timeline["begun"]))


def test_a_held_trial_shows_why_and_until_when(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--detach", "--grid", f"x=1..{CORES}", "--", "sleep", "1000")
    wait_for(lambda: len(yard.processes("^sleep 1000$")) == CORES, "every core has a trial")
    yard.run("run", "--detach", "--", "sleep", "0.1")
    reason = f"by run 1 in '{yard.project}'"
    wait_for(lambda: any(why and begun is None for why, begun in held(inside.get("/api/v1/runs/2/timeline"))), "it is held")
    timeline = inside.get("/api/v1/runs/2/timeline")
    assert reason in timeline["held"][0]
    assert inside.get("/api/v1/runs/2/usage?points=1")["running"] == [0]
    cluster = {run["run"]: run for run in inside.get("/api/v1/cluster")["runs"]}
    agent = cluster[2]["agents"][0]
    assert (agent["running"], agent["held"]) == (1, 1) and reason in agent["held_why"]
    assert cluster[1]["agents"][0]["held"] == 0 and cluster[1]["slots_used"] == CORES
    yard.run("stop", "1")
    wait_for(lambda: yard.state(2) == "done", "it runs then")
    timeline = inside.get("/api/v1/runs/2/timeline")
    assert reason in timeline["held"][0]  # it is kept
    assert timeline["started"][0] < timeline["begun"][0] <= timeline["ended"][0]


def test_the_gpus_of_a_trial_and_their_use_are_shown(gpus: Yard) -> None:
    gate = gpus.project / "gate"
    server = Ui(gpus)
    server.log_in()
    gpus.run("run", "--detach", "--gpus", "1", "--parallel", "1", "--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    wait_for(lambda: (usage_of(server) or {}).get("gpu_use"), "the use of its GPU is sampled")
    wait_for(lambda: server.get("/api/v1/cluster")["runs"][0]["agents"][0]["gpus"][0]["use"], "and that of the machine's")
    devices = server.get("/api/v1/cluster")["runs"][0]["agents"][0]["gpus"]
    assert [(d["name"], d["trials"], d["use"]) for d in devices] == [("Fake GPU 0", 1, 0.4), ("Fake GPU 1", 0, 0.4)]
    assert all(abs(d["memory_used"] / d["memory_total"] - 0.4) < 0.001 for d in devices)
    gate.touch()
    wait_for(lambda: gpus.state() == "done", "the run ends")
    attempt = server.get("/api/v1/runs/1/trials/1")["attempts"][0]
    assert attempt["gpus"] == [0] and max(attempt["usage"]["gpu_use"]) == 0.4
    assert server.get("/api/v1/runs/1/timeline")["gpus"] == [[0]]
    assert max(server.get("/api/v1/runs/1/usage")["gpu_use"]) > 0.3
    end(server)


def test_fork_servers_and_agents_on_standby_are_listed(yard: Yard, inside: Ui, kernel: Notebook) -> None:
    gate, agent = start_gated_run(yard, kernel)
    wait_for(lambda: [a["fork_server"] for a in inside.get("/api/v1/cluster")["runs"][0]["agents"]] == ["ready"],
             "the agent reports its fork server")
    assert inside.get("/api/v1/cluster")["standby"] == []  # it is in use
    gate.touch()
    wait_for(lambda: inside.get("/api/v1/cluster")["standby"], "the agent is on standby")
    assert inside.get("/api/v1/cluster")["standby"] == [{"pid": agent, "client_pid": kernel.process.pid}]


def test_the_cluster_is_shown_although_a_driver_does_not_answer(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--detach", "--name", "asleep", "--", "sleep", "1000")
    stopped = yard.process("driver")
    os.kill(stopped, signal.SIGSTOP)
    try:
        yard.run("run", "--detach", "--name", "awake", "--oversubscribe", "--grid", "x=1..9", "--parallel", "2", "--", "sleep", "500")
        wait_for(lambda: len(yard.processes("^sleep 500$")) == 2, "its trials run")
        runs = {run["name"]: run for run in inside.get("/api/v1/cluster")["runs"]}
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert runs["asleep"]["answers"] is False and "agents" not in runs["asleep"]
    assert runs["awake"]["answers"] and (runs["awake"]["running"], runs["awake"]["queued"]) == (2, 7)
    assert [(a["name"], a["slots"], a["running"]) for a in runs["awake"]["agents"]] == [("local", 2, 2)]
    for run in (1, 2):
        yard.run("stop", run)
    yard.wait_idle()
    assert inside.get("/api/v1/cluster") == {"runs": [], "standby": [], "failures": []}
