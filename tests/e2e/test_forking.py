# SPDX-License-Identifier: Apache-2.0
"""Fork servers and trials that misbehave, and the resulting messages of the run."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard, wait_for
from test_experiment import Lab, lab  # noqa: F401  (a fixture)
from test_seams import survive_at

# A fork server without hopyard (the protocol is in src/supervise/fork_server.c). Its arguments are a line of Python that
# it runs at its start, and one that it runs when a trial is requested; without --serve it is such a trial itself.
SERVER = '''\
#!{python} -I
import json, os, select, signal, socket, subprocess, sys, time

def trial():
    {trial}
    print("v=%s" % json.loads(os.environ["HOPYARD_PARAMS"])["x"], flush=True)

def be_trial(fds):
    cwd, _, _, *words = os.pread(fds[0], 1 << 20, 0).decode().split("\\0")[:-1]
    os.setsid()
    os.chdir(cwd)
    os.write(fds[3], b"pid %d\\n" % os.getpid())
    if os.read(fds[3], 1) != b"g":
        os._exit(0)
    os.dup2(fds[1], 1)
    os.dup2(fds[2], 2)
    os.closerange(3, 100)
    os.environ.update(word.split("=", 1) for word in words)
    trial()
    sys.stdout.flush()
    os._exit(0)

def fork_trial(fds):
    helper = os.fork()
    if helper == 0:
        gone = os.pidfd_open(os.getpid())
        if os.fork() == 0:
            select.select([gone], [], [])
            be_trial(fds)
        os._exit(0)
    os.waitpid(helper, 0)

def first(name):
    """Whether it is for the first time that this is asked."""
    try:
        open(name, "x").close()
    except FileExistsError:
        return False
    return True

if sys.argv[1:] != ["--serve"]:
    trial()
    sys.exit()
agent = socket.socket(fileno=int(os.environ["HOPYARD_SERVER"]))
{start}
agent.send(b"ready\\n")
while True:
    word, fds, _, _ = socket.recv_fds(agent, 16, 64)
    if not word:
        break
    {asked}
    for fd in fds:
        os.close(fd)
'''


GATE = """while not os.path.exists("gate"): time.sleep(0.02)"""


def open_gate(yard: Yard) -> None:
    (yard.project / "gate").touch()
    yard.run("attach", "1")


def write_server(yard: Yard, start: str = "", asked: str = "fork_trial(fds)", trial: str = "") -> Path:
    server = yard.project / "server"
    server.write_text(SERVER.format(python=sys.executable, start=start, asked=asked, trial=trial))
    server.chmod(0o755)
    return server


def start_with(yard: Yard, *options: tuple[str, object], **lines: str) -> None:
    """A run with an arbitrary function whose trials this server forks."""
    given = [("max", "v"), ("grid", "x=1..2"), ("parallel", 2), *options]
    started = yard.submit(given, [write_server(yard, **lines)], function=b"{}\nanything")
    assert "run" in started, started


def run_with(yard: Yard, *options: tuple[str, object], **lines: str) -> Any:
    start_with(yard, *options, **lines)
    return yard.run("attach")


def outcomes(yard: Yard) -> list[tuple[str, float, int]]:
    return [(t["state"], t["value"], t["attempts"]) for t in yard.trials()]


# ---- servers --------------------------------------------------------------------------------


def test_this_fork_server_works(yard: Yard) -> None:
    run_with(yard)
    assert outcomes(yard) == [("done", 1, 1), ("done", 2, 1)]


def test_trials_wait_for_the_next_server_during_cleanup_of_a_dead_one(yard: Yard) -> None:
    """Its processes must be removed first; meanwhile no server is used, and no attempt is lost."""
    run_with(yard, start='subprocess.Popen(["sleep", "60"])',
             asked='os.kill(os.getpid(), signal.SIGKILL) if first("died") else fork_trial(fds)')
    assert outcomes(yard) == [("done", 1, 1), ("done", 2, 1)]


def test_server_that_refuses_to_fork_is_stopped(yard: Yard) -> None:
    """It holds all imported modules, and will not be used again."""
    start_with(yard, asked='os.write(fds[3], b"refuse it has threads\\n")', trial=GATE)
    wait_for(lambda: len(yard.processes(r"/server$")) == 2, "both trials run in fresh interpreters")
    wait_for(lambda: not yard.processes(r"/server --serve$"), "the server is gone")
    open_gate(yard)
    assert outcomes(yard) == [("done", 1, 1), ("done", 2, 1)]
    assert "it has threads" in yard.driver_log()


def test_trials_start_cold_if_every_server_dies(yard: Yard) -> None:
    """Not again and again for the whole run; and no attempt is lost by it."""
    run_with(yard, asked="os.kill(os.getpid(), signal.SIGKILL)")
    assert outcomes(yard) == [("done", 1, 1), ("done", 2, 1)]
    assert yard.driver_log().count("the fork server is over") == 3
    assert yard.driver_log().count("trials are not forked") == 1


def test_server_that_exits_when_ready_is_not_restarted_forever(yard: Yard) -> None:
    run_with(yard, start='agent.send(b"ready\\n"); os._exit(0)')
    assert outcomes(yard) == [("done", 1, 1), ("done", 2, 1)]
    assert yard.driver_log().count("the fork server is over") == 3


def test_imports_longer_than_the_trial_timeout_are_given_up(yard: Yard) -> None:
    run_with(yard, ("timeout", "2s"), start="time.sleep(600)")
    assert outcomes(yard) == [("done", 1, 1), ("done", 2, 1)]
    assert "were not imported within a trial's time limit" in yard.driver_log()


# ---- trials ---------------------------------------------------------------------------------


def test_trial_cannot_change_the_function_of_later_trials(yard: Yard, lab: Lab) -> None:
    """It is in a file of the agent, and a trial has the same user."""
    output = lab.evaluate("""
        def training(x):
            path = os.environ["HOPYARD_FUNCTION"]
            for way in ("write", "truncate"):
                try:
                    fd = os.open(path, os.O_RDWR)
                    os.write(fd, b"spoiled") if way == "write" else os.ftruncate(fd, 3)
                    raise SystemExit(f"{way} was possible")
                except PermissionError:
                    pass
            return x
        r = experiment.grid_search(training, {"x": [1, 2, 3]}, parallel=1, tensorboard=False)
        emit(values=[t.metric for t in r.trials], errors=[t.error for t in r.trials])
    """)
    assert output["values"] == [1, 2, 3], output["errors"]


@pytest.mark.parametrize("limits", ["", "watch"])
def test_trial_over_its_memory_limit_fails_alone(yard: Yard, lab: Lab, limits: str) -> None:
    """With a cgroup, if there is one, and with the memory watcher."""
    if limits:
        lab.env["HOPYARD_TEST_LIMITS"] = limits
    output = lab.evaluate("""
        import numpy

        def training(x):
            import numpy
            taken = bytearray(b"x") * (x << 20)
            time.sleep(1)
            return len(taken) >> 20
        r = experiment.grid_search(training, {"x": [10, 400, 20]}, parallel=3, memory="100M", tensorboard=False)
        emit(states=[t.state for t in r.trials], values=[t.metric for t in r.trials], errors=[t.error for t in r.trials])
    """)
    assert output["states"] == ["done", "failed", "done"] and output["values"] == [10, None, 20], output
    assert re.fullmatch(r"killed: used \d+\.\d [MG]B of the 100\.0 MB it may use; raise the memory limit", output["errors"][1])
    assert limits == "" or "limits=watch" in yard.driver_log()


# ---- stopped --------------------------------------------------------------------------------


def stop_and_resume(yard: Yard) -> None:
    """What has not started is stopped at once, leaves nothing, and is run by the resumed run."""
    yard.run("stop", "1")
    yard.wait_idle()
    assert yard.state() == "stopped" and not yard.processes()
    assert [(t["state"], t["attempts"]) for t in yard.trials()] == [("stopped", 1), ("stopped", 1)]
    yard.run("resume", "1")
    assert outcomes(yard) == [("done", 1, 2), ("done", 2, 2)]


def test_trials_that_wait_for_imports_can_be_stopped(yard: Yard) -> None:
    start_with(yard, start='first("late") and time.sleep(600)')
    wait_for(lambda: (yard.project / "late").exists(), "the server imports")
    stop_and_resume(yard)


def test_trials_can_be_stopped_during_the_fork(yard: Yard) -> None:
    start_with(yard, asked='time.sleep(600) if first("late") else fork_trial(fds)')
    wait_for(lambda: (yard.project / "late").exists(), "the server is asked")
    stop_and_resume(yard)


# ---- seams ----------------------------------------------------------------------------------

# From where there is an agent that receives the function; earlier positions are tested elsewhere.
POSITIONS = {
    "agent/wire": range(4, 24, 4), "agent/alloc": range(96, 220, 12), "agent/sys": [60, *range(74, 140, 5)],
    "driver/wire": range(4, 24, 4), "driver/alloc": [*range(3216, 3250, 3), *range(3300, 4300, 100)], "driver/sys": range(430, 760, 25),
}


@pytest.mark.parametrize("seam", POSITIONS)
def test_faults_in_the_transfer_of_a_function(yard: Yard, seam: str) -> None:
    """Its bytes fill the stream's window more than once."""
    options = [("max", "v"), ("grid", "x=1..4"), ("parallel", 2), ("retries", 3)]
    server, function = write_server(yard), b"{}\n" + os.urandom(400_000)

    def start(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        started = yard.submit(options, [server], env=env, function=function)
        if "run" in started:
            return yard.run("attach", started["run"], rc=None, env=env, timeout=120)
        return subprocess.CompletedProcess([], 1, "", started.get("text", ""))

    for n in POSITIONS[seam]:
        survive_at(yard, f"{seam}:{n}", start)
