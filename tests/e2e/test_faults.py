# SPDX-License-Identifier: Apache-2.0
"""Invalid input, full disks, dead peers: one clear message each, nothing lost, nothing left."""
from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from conftest import RELEASE_BIN, Yard, small_disk_at, wait_for
from needs import need_root


def refused(yard: Yard, *args: object, rc: int = 2) -> str:
    """The one line on standard error of a command that must fail without starting a run."""
    p = yard.run(*args, rc=rc)
    lines = [line for line in p.stderr.splitlines() if line.strip()]
    assert lines and len(lines) <= 2, p.stderr
    assert not (yard.folder / "store.db").exists() or not yard.rows("SELECT * FROM runs")
    return p.stderr


def test_unknown_parameter_in_the_command(yard: Yard) -> None:
    output = refused(yard, "run", "--grid", "lr=1", "--", "echo", "{lr}", "{dropout}")
    assert "{dropout}" in output and "{lr}" in output and "{{dropout}}" in output


@pytest.mark.parametrize("grid", ["lr=", "lr=,", "=1", "lr", ""])
def test_empty_list(yard: Yard, grid: str) -> None:
    refused(yard, "run", "--grid", grid, "--", "echo")


@pytest.mark.parametrize("space", ["x=1..", "x=log:0..1", "x=nan..1", "x=log:-1..1", "x=1..inf", "x"])
def test_invalid_search_space(yard: Yard, space: str) -> None:
    refused(yard, "run", "--random", 3, "--space", space, "--", "echo")


def test_duplicate_parameter(yard: Yard) -> None:
    assert "lr" in refused(yard, "run", "--grid", "lr=1", "--grid", "lr=2", "--", "echo")


def test_missing_program(yard: Yard) -> None:
    assert "./nothing-here" in refused(yard, "run", "--", "./nothing-here")


def test_program_missing_for_one_value(yard: Yard) -> None:
    p = yard.run("run", "--grid", "p=true,nothing-here", "--", "{p}", rc=1)
    assert re.search(r"cannot start 'nothing-here': not found", p.stdout), p.stdout
    assert [t["state"] for t in yard.trials()] == ["done", "failed"]


def test_evolution_without_a_metric(yard: Yard) -> None:
    output = refused(yard, "run", "--evolve", "--space", "x=0..1", "--", "echo")
    assert "--max" in output or "--min" in output


def test_missing_metric_fails_the_trial_with_a_hint(yard: Yard) -> None:
    p = yard.run("run", "--grid", "x=1,2", "--max", "accuracy", "--", "sh", "-c", "[ {x} = 1 ] || echo accuracy=1", rc=1)
    assert "it has no accuracy; print 'accuracy=NUMBER', or write it to $HOPYARD_RESULT" in p.stdout
    assert [t["state"] for t in yard.trials()] == ["failed", "done"]


def test_nan_metric_fails_the_trial(yard: Yard) -> None:
    p = yard.run("run", "--evolve", "--population", 4, "--generations", 2, "--space", "x=0.0..1.0", "--min", "loss", "--seed", 1,
                 "--", "sh", "-c", "[ $HOPYARD_TRIAL = 2 ] && echo loss=nan || echo loss={x}", rc=1)
    trials = yard.trials()
    assert len(trials) == 8, "the search continues"
    assert trials[1]["state"] == "failed" and "NaN" in trials[1]["message"]
    assert "NaN" in p.stdout


def test_result_that_is_not_json(yard: Yard) -> None:
    yard.run("run", "--max", "accuracy", "--", "sh", "-c", "echo nonsense > $HOPYARD_RESULT", rc=1)
    assert "JSON" in yard.trials()[0]["message"]


def test_unwritable_directory(yard: Yard) -> None:
    """Root can write anywhere except on a read-only mount."""
    if os.getuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", yard.project], check=True)
    else:
        yard.project.chmod(0o500)
    try:
        p = subprocess.run(yard.command("run", "--", "true"), env=yard.env, cwd="/", text=True, capture_output=True,
                           stdin=subprocess.DEVNULL, timeout=60)
    finally:
        if os.getuid() == 0:
            subprocess.run(["umount", yard.project], check=True)
        else:
            yard.project.chmod(0o700)
    assert p.returncode in (1, 2) and str(yard.project) in p.stderr, p.stderr
    assert len(p.stderr.strip().splitlines()) == 1


@pytest.fixture
def small_disk(yard: Yard) -> Iterator[Path]:
    """A project on a disk of 4 MB."""
    with small_disk_at(yard, yard.project, "size=4m") as disk:
        yield disk


def test_full_disk_loses_no_finished_trial(yard: Yard, small_disk: Path) -> None:
    ballast, once = small_disk / "ballast", yard.project.parent / "once"
    p = yard.run("run", "--disk-timeout", "2s", "--grid", "i=1..40", "--parallel", 1, "--max", "v", "--", "sh", "-c",
                 f"[ {{i}} != 5 ] || [ -e {once} ] || {{{{ touch {once}; head -c 3500000 /dev/zero > {ballast}; }}}}; head -c 200000 /dev/zero; echo; echo v={{i}}", rc=1)
    assert "disk full" in p.stdout + p.stderr and "hopyard resume 1" in p.stdout + p.stderr
    done = {t["number"]: t["value"] for t in yard.trials() if t["state"] == "done"}
    assert done and len(done) < 40
    yard.assert_nothing_left()
    ballast.unlink()
    for d in yard.logdir().iterdir():  # room for the rest
        if (d / "stdout").exists():
            (d / "stdout").unlink()
    yard.run("resume", "1", rc=None)  # 40 * 200 KB do not fit either
    after = {t["number"]: t["value"] for t in yard.trials() if t["state"] == "done"}
    assert {n: after[n] for n in done} == done
    for n in done:
        assert len(yard.attempts(1, n)) == 1, "a finished trial is not repeated"


def test_running_run_cannot_be_resumed(yard: Yard) -> None:
    yard.run("run", "--detach", "--", "sleep", "1000")
    p = yard.run("resume", "1", rc=None)
    assert p.returncode != 0 and re.search(r"attach", p.stderr), p.stderr
    yard.run("stop", "1")


def test_store_in_use_by_another_program(yard: Yard) -> None:
    yard.run("run", "--", "true")
    db = sqlite3.connect(yard.folder / "store.db", isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    try:
        p = yard.run("run", "--", "true", rc=None)
    finally:
        db.execute("ROLLBACK")
        db.close()
    assert p.returncode != 0 and "in use" in p.stderr, p.stderr
    assert len(p.stderr.strip().splitlines()) == 1


def test_newer_store_is_refused(yard: Yard) -> None:
    yard.run("run", "--", "true")
    db = sqlite3.connect(yard.folder / "store.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    for command in (["run", "--", "true"], ["ls"], ["show", "1"]):
        p = yard.run(*command, rc=None)
        assert p.returncode != 0 and "newer hopyard" in p.stderr, p.stderr


def test_project_on_a_network_file_system(yard: Yard) -> None:
    """The kernel here has no NFS: the test build is configured to treat the project as on NFS."""
    state = yard.project.parent / "state"
    env = {"HOPYARD_TEST_FS_TYPE": f"0x6969:{yard.project}", "XDG_STATE_HOME": str(state)}
    yard.run("run", "--grid", "x=1,2", "--max", "v", "--", "sh", "-c", "echo v={x}", env=env)
    assert not (yard.project / ".hopyard").exists()
    assert list(state.rglob("store.db"))
    snapshots = list(yard.project.rglob("run.db"))
    assert len(snapshots) == 1
    other = yard.project.parent / "other"
    other.mkdir()
    yard.run("import", snapshots[0], "--project", other)
    assert "x=2" in yard.run("best", "--project", other).stdout


@pytest.mark.slow
def test_grid_of_100000_trials(yard: Yard) -> None:
    yard.run("run", "--detach", "--grid", "a=1..1000", "--grid", "b=1..100", "--parallel", 2, "--", "true")
    wait_for(lambda: yard.state() and len(yard.trials()) > 20, "the run has started")
    assert yard.rows("SELECT total FROM runs")[0]["total"] == 100_000
    yard.run("show", "1")
    yard.run("stop", "1")


@pytest.mark.slow
def test_trial_that_prints_1_gb_does_not_delay_others(yard: Yard) -> None:
    size = 1 << 30
    yard.bin = RELEASE_BIN  # the sanitizers' memory would hide ours
    p = yard.start("run", "--grid", f"n={size},1", "--parallel", 2, "--", "sh", "-c", "head -c {n} /dev/zero")
    agent = None
    peak = 0
    while p.poll() is None:
        try:
            agent = agent or yard.process("agent")
            rss = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{agent}/status").read_text())
            peak = max(peak, int(rss[1]) if rss else 0)
        except (FileNotFoundError, ProcessLookupError, AssertionError):
            pass
        try:
            p.wait(0.2)
        except subprocess.TimeoutExpired:
            pass
    p.communicate()
    assert p.returncode == 0
    sizes = sorted((yard.logdir() / t["dir"] / "stdout").stat().st_size for t in yard.trials())
    assert sizes == [1, size]
    assert 0 < peak < 20_000, "in bounded memory"
    assert "gone" not in yard.driver_log(), "no heartbeat was late"
    shutil.rmtree(yard.logdir())


def test_concurrent_runs_of_a_project_do_not_block_each_other(yard: Yard) -> None:
    ps = [yard.start("run", "--grid", "i=1..20", "--parallel", 1, "--", "true") for _ in range(4)]
    for p in ps:
        out, err = p.communicate(timeout=240)
        assert p.returncode == 0, out + err
    assert len(yard.rows("SELECT * FROM trials WHERE state = 2")) == 80


def test_killed_client_does_not_affect_the_run(yard: Yard) -> None:
    p = yard.start("run", "--grid", "i=1..5", "--parallel", 1, "--", "sleep", "0.2")
    wait_for(lambda: yard.state() == "running", "the trial runs")
    p.send_signal(signal.SIGKILL)
    p.communicate()
    wait_for(lambda: yard.state() == "done", "the run ends without its client")
    assert [t["state"] for t in yard.trials()] == ["done"] * 5


def test_interrupt_of_a_client_without_a_terminal_stops_the_run(yard: Yard) -> None:
    p = yard.start("run", "--", "sleep", "1000")
    wait_for(lambda: yard.state() == "running" and yard.trials(), "the trial runs")
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=60)
    assert p.returncode == 130
    assert yard.state() == "stopped"


def test_memory_limit_above_the_memory_of_the_machine(yard: Yard) -> None:
    p = yard.run("run", "--memory", "900T", "--", "true", rc=1)
    assert "lower the memory limit" in p.stdout + p.stderr


def test_few_open_files_are_enough(yard: Yard) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    p = yard.start("run", "--grid", "i=1..20", "--parallel", 10, "--", "sh", "-c", "echo {i}; ulimit -n", preexec_fn=limit)
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0, out + err
    assert (yard.logdir() / "i=1" / "stdout").read_text() == "1\n64\n", "trials keep the user's limit"


def test_watcher_that_disconnects_at_the_end_does_not_delay_the_driver(yard: Yard) -> None:
    yard.run("run", "--detach", "--grid", "i=0..599", "--parallel", 4, "--", "sh", "-c", "[ {i} != 599 ] || sleep 1")
    wait_for(lambda: len(yard.trials()) > 300, "most are done")
    watchers = [yard.start("attach", "--json", "1") for _ in range(5)]
    for w in watchers:
        w.kill()
        w.communicate()
    wait_for(lambda: yard.state() == "done", "the run ends")
    yard.wait_idle()


def test_long_values_are_sent_to_a_watcher_in_chunks(yard: Yard) -> None:
    big = "x" * 60_000
    events = yard.events("run", "--grid", f"c={big},y", "--grid", "i=1..200", "--parallel", 2, "--", "true")
    assert sum(e["event"] == "trial" for e in events) == 400 and events[-1]["event"] == "end"


def test_run_description_larger_than_a_pipe(yard: Yard) -> None:
    yard.run("run", "--", "sh", "-c", "echo ${{#BIG}}", env={"BIG": "x" * 100_000})
    assert (yard.logdir() / "trial-1" / "stdout").read_text() == "100000\n"


def test_trial_that_damages_its_directory_affects_no_other(yard: Yard) -> None:
    out = yard.run("run", "--grid", "i=1,2", "--", "sh", "-c", "[ {i} = 2 ] || mkdir -p $HOPYARD_TRIAL_DIR/stdout; sleep 0.2; echo hi").stdout
    assert [t["state"] for t in yard.trials()] == ["done", "done"]
    assert "cannot write its output" in out
    assert (yard.logdir() / "i=2" / "stdout").read_text() == "hi\n"


def test_flood_of_reports_does_not_kill_the_agent(yard: Yard) -> None:
    """A report of any size is answered, and the trial continues."""
    code = ("import os, socket, struct\n"
            "s = socket.socket(socket.AF_UNIX); s.connect(os.environ['HOPYARD_SOCKET'])\n"
            "for body in b'', b'\\x1a\\x00' * (7 << 20):\n"  # no token, and then millions of empty metrics
            "    s.sendall(struct.pack('<IBBHI', len(body), 1, 6, 0, 0) + body)\n"
            "    print(s.recv(1000))\n"
            "print('m=1')\n")
    yard.run("run", "--max", "m", "--", "python3", "-c", code.replace("{", "{{").replace("}", "}}"))
    assert [a["state"] for a in yard.attempts()] == ["done"]


def test_gc_leaves_other_pid_namespaces_alone(yard: Yard) -> None:
    need_root("to make a PID namespace")
    p = subprocess.Popen(["unshare", "-p", "-f", "--mount-proc", "--kill-child", *yard.command("run", "--", "sleep", "3")], env=yard.env,
                         cwd=yard.project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: yard.state() == "running" and yard.attempts(), "the trial runs")
    yard.run("gc")
    out, _ = p.communicate(timeout=60)
    assert p.returncode == 0, out
    assert [t["state"] for t in yard.trials()] == ["done"]
    yard.wait_idle()
    yard.run("gc", "--all")  # the namespace was gone before its driver's reaper could clean up


def test_stopped_agent_is_replaced(yard: Yard) -> None:
    """SIGSTOP: it neither answers nor exits. After 30 s it is given up and killed, and another one runs its trials."""
    yard.run("run", "--detach", "--", "sh", "-c", "sleep 1")
    wait_for(lambda: yard.state() and yard.attempts(), "the trial runs")
    os.kill(yard.process("agent"), signal.SIGSTOP)
    wait_for(lambda: yard.state() == "done", "another agent runs it", 120)
    assert [a["state"] for a in yard.attempts()] == ["lost", "done"]
    assert not any(a["charge"] for a in yard.attempts()), "an unresponsive agent is not charged to a trial"


def test_agent_without_a_driver_exits_although_its_trial_prints(yard: Yard) -> None:
    """Nothing reads the output any more: it is discarded, and the agent can exit when its lease expires."""
    yard.run("run", "--detach", "--listen", "127.0.0.1:0", "--parallel", 2, "--grid", "i=1,2", "--", "sh", "-c",
             "while :; do head -c 4000 /dev/zero; sleep 0.01; done")
    note = wait_for(lambda: re.search(r"--join HOST:(\d+) --key-file (\S+)", yard.driver_log()), "how to join")
    agent = yard.start("agent", "--join", f"127.0.0.1:{note[1]}", "--key-file", note[2], "--slots", 1)
    wait_for(lambda: len({a["agent"] for a in yard.attempts()}) == 2 or len(yard.attempts()) == 2, "both run")
    driver = yard.process("driver")
    reaper = int(Path(f"/proc/{driver}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(reaper, signal.SIGKILL)
    os.kill(driver, signal.SIGKILL)
    agent.wait(60)
    agent.communicate()
    wait_for(lambda: not yard.processes("hopyard"), "all exit when their lease expires", 60)
    yard.run("gc", "--all")


def test_commands_beyond_the_send_limit_of_an_agent_are_sent_later(yard: Yard) -> None:
    """320 commands of 58 KB are more than the 16 MB that may be queued for an agent."""
    yard.run("run", "--grid", "i=1..320", "--parallel", 320, "--", "true", "{i}", "x" * 58_000)
    assert [t["state"] for t in yard.trials()] == ["done"] * 320


def test_too_few_file_descriptors_fail_no_trial(yard: Yard) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    p = yard.start("run", "--grid", "i=1..24", "--parallel", 24, "--", "sleep", "0.3", preexec_fn=limit)
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0, out + err
    assert [t["state"] for t in yard.trials()] == ["done"] * 24
    assert any(a["state"] == "lost" for a in yard.attempts()), "some had to wait for room"
