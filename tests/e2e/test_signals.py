# SPDX-License-Identifier: Apache-2.0
"""What happens to a run if the command that started it gets a signal or dies."""
from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Yard, wait_for
from test_terminal import Terminal, terminal  # noqa: F401  (a fixture)

FOREVER = ["sh", "-c", "echo here; exec sleep 1000"]


@pytest.fixture
def horovodrun(yard: Yard) -> Yard:
    """A yard whose program is the script that the package installs."""
    folder = yard.project / "bin"
    folder.mkdir()
    (folder / "hopyard").symlink_to(yard.bin)
    (folder / "horovodrun").write_bytes((ROOT / "src/cli/horovodrun").read_bytes())
    (folder / "horovodrun").chmod(0o755)
    yard.bin = str(folder / "horovodrun")
    return yard


def sleepers(yard: Yard) -> dict[int, str]:
    return yard.processes(r"^sleep 1000")


def wait_for_processes(yard: Yard, count: int) -> None:
    wait_for(lambda: len(sleepers(yard)) == count, f"{count} processes run\n{yard.driver_log()}")


def enable_sighup() -> None:
    """Also if the tests run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def end(p: subprocess.Popen[str], number: int) -> int:
    p.send_signal(number)
    print(*p.communicate(timeout=120))  # pytest shows it if the test fails
    return p.returncode


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)])
def test_ranks_of_horovodrun_end_with_it(horovodrun: Yard, number: int, status: int) -> None:
    p = horovodrun.start("-np", 2, *FOREVER, preexec_fn=enable_sighup)
    wait_for_processes(horovodrun, 2)
    assert end(p, number) == status
    if number != signal.SIGKILL:
        assert not sleepers(horovodrun), "it waits until its ranks have ended"
    wait_for(lambda: horovodrun.state() == "stopped", "the run is stopped")
    horovodrun.assert_nothing_left()


def test_timeout_ends_the_ranks_of_horovodrun(horovodrun: Yard) -> None:
    """`timeout` signals its child and the process group, so the signal arrives twice."""
    command = ["timeout", "3", *horovodrun.command("-np", 2, "sh", "-c", "trap 'sleep 1; exit 0' TERM; sleep 1000 & wait")]
    p = subprocess.run(command, env=horovodrun.env, cwd=horovodrun.project, text=True, capture_output=True, timeout=120)
    assert p.returncode == 124, p.stderr
    assert horovodrun.state() == "stopped" and not sleepers(horovodrun), p.stderr


def test_closed_pipe_ends_horovodrun_and_its_ranks(horovodrun: Yard) -> None:
    p = horovodrun.start("-np", 2, "sh", "-c", "while sleep 0.1; do echo x; done")
    assert p.stdout and p.stderr and p.stdout.readline()
    p.stdout.close()
    assert "stopping run 1, because its output cannot be printed" in p.stderr.read()
    assert p.wait(60) == 141
    assert horovodrun.state() == "stopped" and not sleepers(horovodrun)


def test_horovodrun_detaches_only_on_request(horovodrun: Yard, terminal: Terminal) -> None:  # noqa: F811
    horovodrun.run("-np", 2, "--detach", *FOREVER)
    wait_for_processes(horovodrun, 2)
    hopyard = str(Path(horovodrun.bin).parent / "hopyard")
    subprocess.run([hopyard, "stop", "1"], env=horovodrun.env, cwd=horovodrun.project, check=True, capture_output=True)
    terminal.type("-np", 2, *FOREVER)
    wait_for_processes(horovodrun, 2)
    terminal.key("C-c")
    terminal.see(r"\(d\)")
    terminal.key("d")
    terminal.see("run 2 continues")
    wait_for(lambda: not horovodrun.processes(r"hopyard horovodrun"), "the command ends")
    assert len(sleepers(horovodrun)) == 2 and horovodrun.state(2) == "running"
    subprocess.run([hopyard, "stop", "2"], env=horovodrun.env, cwd=horovodrun.project, check=True, capture_output=True)


@pytest.mark.parametrize("command", [["run", "--"], ["run", "--json", "--"], ["train", "-np", 1]])
def test_sigterm_stops_the_run_that_a_command_started(yard: Yard, command: list[object]) -> None:
    p = yard.start(*command, *FOREVER)
    wait_for_processes(yard, 1)
    assert end(p, signal.SIGTERM) == 143
    assert yard.state() == "stopped" and not sleepers(yard)
    p = yard.start("resume", 1)
    wait_for_processes(yard, 1)
    assert end(p, signal.SIGTERM) == 143
    assert yard.state() == "stopped" and not sleepers(yard)


def test_job_cancelled_with_its_reader_is_stopped(yard: Yard) -> None:
    """`hopyard run … | tee log`, if the job system ends `tee` first."""
    p = yard.start("run", "--grid", "i=1..1000", "--parallel", 1, "--", "sleep", "0.05")
    assert p.stdout and p.stderr and p.stdout.readline()
    p.stdout.close()
    p.send_signal(signal.SIGTERM)
    p.stderr.read()
    assert p.wait(60) == 143 and yard.state() == "stopped"


def test_run_continues_after_a_watching_client_is_terminated(yard: Yard) -> None:
    yard.run("run", "--detach", "--", *FOREVER)
    wait_for_processes(yard, 1)
    for number, words in ((signal.SIGTERM, ["attach"]), (signal.SIGTERM, ["attach", "--json"]), (signal.SIGHUP, ["attach"])):
        p = yard.start(*words, 1, preexec_fn=enable_sighup)
        assert p.stdout and p.stdout.readline()
        assert end(p, number) == 0
    yard.run("stop", 1)


@pytest.mark.parametrize("number, status, words", [
    (signal.SIGHUP, 0, []), (signal.SIGKILL, -9, []), (signal.SIGTERM, 0, ["--html"])], ids=["hangup", "death", "notebook"])
def test_run_outlives_its_terminal_its_client_and_its_notebook(yard: Yard, number: int, status: int, words: list[str]) -> None:
    p = yard.start("run", *words, "--", *FOREVER, preexec_fn=enable_sighup)
    wait_for_processes(yard, 1)
    assert end(p, number) == status
    assert len(sleepers(yard)) == 1 and yard.state() == "running"
    assert os.path.exists(f"/proc/{yard.process('driver')}")
    yard.run("stop", 1)
