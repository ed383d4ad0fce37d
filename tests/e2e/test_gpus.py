# SPDX-License-Identifier: Apache-2.0
"""GPUs, leased and shared: the real program with fakes of NVIDIA's library and MPS (tests/fakes)."""
from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Iterator

import pytest
from conftest import BIN, Yard, wait_for

FAKES = Path(__file__).absolute().parents[1] / "fakes"
LIBRARY = Path(BIN).absolute().parents[2] / "tests" / "fakes"

# Log of an MPS server of driver 580 after one of three clients made an illegal access.
FAULT = """\
[2026-11-15 07:45:32.837 Server   466] Server is handling a fatal GPU error.
[2026-11-15 07:45:32.837 Server   466] The following client process have a sticky error set:
[2026-11-15 07:45:32.837 Server   466] 578
[2026-11-15 07:45:32.837 Server   466] 604
[2026-11-15 07:45:32.877 Server   466] Destroy server context on device 0 (NVIDIA H200)
"""


@pytest.fixture
def gpus(yard: Yard) -> Iterator[Yard]:
    """A yard with two fake GPUs."""
    assert (LIBRARY / "libnvidia-ml.so.1").exists(), f"build the tests: no libnvidia-ml.so.1 in {LIBRARY}"
    yard.env.update(
        LD_LIBRARY_PATH=f"{LIBRARY}:{yard.env.get('LD_LIBRARY_PATH', '')}",
        PATH=f"{FAKES}:{yard.env['PATH']}",
        FAKE_NVML_DEVICES="2",
        FAKE_NVML_SEED=uuid.uuid4().hex,
    )
    yard.env.pop("CUDA_VISIBLE_DEVICES", None)
    yield yard


def device(yard: Yard, index: int) -> str:
    return f"GPU-{0xa0 + index:08x}-fake-{yard.env['FAKE_NVML_SEED']}"


def lock(yard: Yard, index: int, part: str = "whole") -> socket.socket | None:
    """Locks a device as another user's agent would; None: it is in use."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        s.bind(f"\0hopyard-gpu/{device(yard, index)}/{part}")
        return s
    except OSError:
        s.close()
        return None


def is_free(yard: Yard, index: int) -> bool:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with probe:
        for part in ("whole", *range(100)):
            try:
                probe.connect(f"\0hopyard-gpu/{device(yard, index)}/{part}")
                return False
            except ConnectionRefusedError:
                pass
    return True


def printed(yard: Yard, run: int = 1) -> list[str]:
    """Output of each trial, by number."""
    return [(yard.logdir(run) / t["dir"] / "stdout").read_text().strip() for t in yard.trials(run)]


# Waits until $2 trials have arrived at $1.
MEET = """
meet()
{
    mkdir -p "$1" && touch "$1/$HOPYARD_TRIAL"
    while [ "$(ls "$1" | wc -l)" -lt "$2" ]; do sleep 0.02; done
}
"""


@pytest.mark.smoke
def test_concurrent_trials_have_different_devices(gpus: Yard) -> None:
    script = gpus.script("train", MEET + 'meet here 2; echo "$CUDA_VISIBLE_DEVICES $HOPYARD_GPUS"')
    gpus.run("run", "--grid", "x=1,2", "--gpus", 1, "--parallel", 2, "--", script, "{x}")
    assert sorted(printed(gpus)) == [f"{device(gpus, 0)} 1", f"{device(gpus, 1)} 1"]
    assert is_free(gpus, 0) and is_free(gpus, 1)


def test_trial_with_two_devices_sees_both(gpus: Yard) -> None:
    script = gpus.script("train", 'echo "$CUDA_VISIBLE_DEVICES $HOPYARD_GPUS"')
    gpus.run("run", "--gpus", 2, "--", script)
    assert printed(gpus) == [f"{device(gpus, 0)},{device(gpus, 1)} 2"]


def test_cuda_visible_devices_of_the_user_is_respected(gpus: Yard) -> None:
    script = gpus.script("train", 'echo "$CUDA_VISIBLE_DEVICES"')
    gpus.env["CUDA_VISIBLE_DEVICES"] = "1"
    gpus.run("run", "--grid", "x=1..4", "--gpus", 1, "--parallel", 4, "--", script, "{x}")
    assert set(printed(gpus)) == {device(gpus, 1)}


def test_five_shares_of_a_fifth_run_at_once_and_a_sixth_waits(gpus: Yard) -> None:
    script = gpus.script("train", MEET + """
        mkdir -p running && touch running/$1
        [ $1 = 6 ] || meet five 5
        echo "$(ls running | wc -l)"
        rm running/$1""")
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    gpus.run("run", "--grid", "x=1..6", "--gpus", 0.2, "--parallel", 8, "--", script, "{x}")
    seen = [int(n) for n in printed(gpus)]
    assert max(seen) == 5 and [t["state"] for t in gpus.trials()] == ["done"] * 6
    assert is_free(gpus, 0)


def test_share_sets_its_limits_and_mps_exits_with_the_run(gpus: Yard) -> None:
    script = gpus.script("train", 'env | grep -E "^(CUDA|HOPYARD_GPU|TF_FORCE|XLA)" | sort')
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    gpus.run("run", "--gpus", 0.25, "--", script)
    words = dict(line.split("=", 1) for line in printed(gpus)[0].splitlines())
    folder = Path(words.pop("CUDA_MPS_PIPE_DIRECTORY"))
    assert folder.parent == gpus.runtime / "hopyard"
    assert words == {
        "CUDA_VISIBLE_DEVICES": device(gpus, 0), "HOPYARD_GPUS": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4095M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.225"}
    gpus.wait_idle()
    assert (folder / "control.log").read_text().split() == ["start", "quit"]


def test_workers_of_a_cluster_have_shares_and_servers_none(gpus: Yard) -> None:
    """A server never ends by itself: it has to start before the workers end."""
    script = gpus.script("node", MEET + """
        echo "$HOPYARD_NODE ${CUDA_VISIBLE_DEVICES-all} $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
        meet all 3
        case $HOPYARD_NODE in ps:*) exec sleep 3600 ;; esac""")
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    gpus.submit([("gpus", 0.2)], [script], command="train", roles=[("ps", 1), ("worker", 2)])
    gpus.run("attach")
    assert [line.split() for line in printed(gpus)] == [
        ["ps:0"], ["worker:0", device(gpus, 0), "20"], ["worker:1", device(gpus, 0), "20"]]
    assert is_free(gpus, 0)


def test_without_mps_the_trial_gets_its_share_in_the_environment(gpus: Yard) -> None:
    script = gpus.script("train", 'echo "$HOPYARD_GPU_SHARE $HOPYARD_GPU_MEMORY $CUDA_MPS_PIPE_DIRECTORY"')
    gpus.env["FAKE_MPS_FAIL"] = "start"
    gpus.run("run", "--grid", "x=1..3", "--gpus", 0.5, "--parallel", 1, "--", script, "{x}")
    assert printed(gpus) == ["0.5 8589934500"] * 3
    assert gpus.driver_log().count("no MPS") == 1


def test_two_runs_never_have_the_same_device(gpus: Yard) -> None:
    script = gpus.script("train", f"""
        lock={gpus.project}/lock-$CUDA_VISIBLE_DEVICES
        mkdir $lock || exit 9
        sleep 0.$1
        rmdir $lock""")
    options = ["--grid", "x=05,1,15,2", "--gpus", 1, "--parallel", 4]
    runs = [gpus.start("run", *options, "--", script, "{x}") for _ in range(3)]
    for run in runs:
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0, out + err
    for run in (1, 2, 3):
        assert [t["state"] for t in gpus.trials(run)] == ["done"] * 4


def test_more_gpus_than_exist_are_refused_without_a_run(gpus: Yard) -> None:
    text = gpus.run("run", "--gpus", 4, "--", "true", rc=1).stderr
    assert "each trial needs 4 GPUs, but this machine has 2; request fewer GPUs per trial" in text
    gpus.env["FAKE_NVML_DEVICES"] = "0"
    text = gpus.run("run", "--gpus", 0.1, "--", "true", rc=1).stderr
    assert "each trial needs 0.1 of a GPU, but this machine has no GPU; do not request GPUs" in text
    assert "This project has no runs yet" in gpus.run("ls").stdout


def test_error_in_python_uses_python_parameter_names(gpus: Yard) -> None:
    gpus.env["FAKE_NVML_DEVICES"] = "0"
    code = "from hopyard import experiment; experiment.grid_search(lambda x: x, {'x': [1]}, gpus=1)"
    p = subprocess.run([sys.executable, "-c", code], env={**gpus.env, "HOPYARD_PROGRAM": gpus.bin}, cwd=gpus.project, text=True,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert p.stderr.splitlines()[-1] == "hopyard.Error: each trial needs 1 GPU, but this machine has no GPU; do not request GPUs"
    assert "This project has no runs yet" in gpus.run("ls").stdout


@pytest.mark.parametrize("bad", ["1.5", "-1", "0.001", "many", "65", "nan"])
def test_invalid_number_of_gpus_is_an_error(gpus: Yard, bad: str) -> None:
    text = gpus.run("run", f"--gpus={bad}", "--", "true", rc=2).stderr
    assert "--gpus takes an integer up to 64, or a share of one GPU from 0.01 to 0.99" in text
    assert f"not '{bad}'" in text


def test_zero_hides_gpus_and_no_option_leaves_them_visible(gpus: Yard) -> None:
    script = gpus.script("train", 'echo "${CUDA_VISIBLE_DEVICES-unset} ${HOPYARD_GPUS-unset}"')
    gpus.env["CUDA_VISIBLE_DEVICES"] = "0,1"
    gpus.run("run", "--gpus", 0, "--", script)
    text = gpus.run("run", "--grid", "x=1,2", "--parallel", 2, "--", script, "{x}").stdout
    assert printed(gpus, 1) == ["0"]
    assert printed(gpus, 2) == ["0,1 unset"] * 2
    assert text.count("2 GPUs here are not leased: with gpus=1 (--gpus 1) each trial has its own") == 1


def test_waiting_for_a_device_is_shown_and_not_counted_as_run_time(gpus: Yard) -> None:
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    foreign_lock = lock(gpus, 0)
    assert foreign_lock
    with foreign_lock:
        run = gpus.start("run", "--gpus", 1, "--timeout", "1s", "--", "true")
        wait_for(lambda: "waits" in gpus.driver_log(), "the trial waits")
        time.sleep(1.2)  # longer than its timeout
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    assert f"trial 1 waits: {device(gpus, 0)} is leased by another run" in out


def test_the_table_shows_what_a_trial_waits_for(gpus: Yard) -> None:
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    foreign_lock = lock(gpus, 0)
    assert foreign_lock
    with foreign_lock:
        gpus.run("run", "--detach", "--gpus", 1, "--", "true")
        wait_for(lambda: "waits" in gpus.driver_log(), "the trial waits")
        watcher = gpus.start("attach", 1, "--html")
        assert watcher.stdout
        rows = (re.sub(r"<[^>]*>", " ", line) for line in watcher.stdout)
        assert any(re.search(rf"waiting .*{device(gpus, 0)} is leased by another run", row) for row in rows)
    assert watcher.communicate(timeout=60) and watcher.returncode == 0


def test_run_can_be_stopped_while_its_trial_waits(gpus: Yard) -> None:
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    foreign_lock = lock(gpus, 0, "17")
    assert foreign_lock
    with foreign_lock:
        run = gpus.start("run", "--gpus", 1, "--", "true")
        wait_for(lambda: "waits" in gpus.driver_log(), "the trial waits")
        gpus.run("stop", 1)
        run.communicate(timeout=60)
    assert gpus.state() == "stopped" and gpus.trials()[0]["state"] == "stopped"
    assert is_free(gpus, 0)


def test_lease_ends_with_the_last_process_of_its_trial(gpus: Yard) -> None:
    script = gpus.script("train", "[ $HOPYARD_ATTEMPT = 1 ] || exit 0; setsid sleep 1000 & touch here; wait")
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    run = gpus.start("run", "--gpus", 1, "--", script)
    wait_for((gpus.project / "here").exists, "the trial runs")
    agent = gpus.process("agent")
    reaper = int(re.search(r"^PPid:\s*(\d+)", Path(f"/proc/{agent}/status").read_text(), re.M)[1])
    os.kill(reaper, signal.SIGSTOP)  # it would kill the rest at once
    try:
        os.kill(agent, signal.SIGKILL)
        wait_for(lambda: not gpus.processes("^/bin/sh"), "the trial's first process dies with its agent")
        assert gpus.processes("sleep 1000") and not is_free(gpus, 0)
    finally:
        os.kill(reaper, signal.SIGCONT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    assert [a["state"] for a in gpus.attempts()] == ["lost", "done"]
    assert is_free(gpus, 0)


def test_trial_failed_by_the_fault_of_another_client_is_retried_and_then_runs_alone(gpus: Yard) -> None:
    (gpus.project / "fault").write_text(FAULT)
    script = gpus.script("train", MEET + """
        if [ $HOPYARD_ATTEMPT -lt 3 ]; then
            meet $HOPYARD_ATTEMPT 2
            [ $1 = 2 ] || cat fault >>$CUDA_MPS_PIPE_DIRECTORY/server.log
            meet failed-$HOPYARD_ATTEMPT 2
            exit 3
        fi
        echo "share ${CUDA_MPS_PIPE_DIRECTORY-whole}" """)
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    text = gpus.run("run", "--grid", "x=1,2", "--gpus", 0.5, "--parallel", 2, "--", script, "{x}").stdout
    assert [a["state"] for a in gpus.attempts()] == ["lost", "lost", "done"] * 2
    assert printed(gpus) == ["share whole"] * 2
    assert "a fault of its GPU, which it shares with other trials; retried" in text
    assert "retried, with a GPU to itself" in text


def test_failure_without_a_gpu_fault_is_charged_to_the_trial(gpus: Yard) -> None:
    script = gpus.script("train", MEET + "meet here 2; exit 3")
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    gpus.run("run", "--grid", "x=1,2", "--gpus", 0.5, "--parallel", 2, "--", script, "{x}", rc=1)
    assert [a["state"] for a in gpus.attempts()] == ["failed"] * 2


def mps_directory(yard: Yard) -> Path:
    """The MPS directory that a trial has written to `here`."""
    here = yard.project / "here"
    return Path(wait_for(lambda: here.exists() and here.read_text().strip(), "the trial runs"))


def test_mps_of_a_killed_agent_is_reused_by_the_next_one_and_then_exits(gpus: Yard) -> None:
    script = gpus.script("train", """
        [ $HOPYARD_ATTEMPT = 1 ] || exit 0
        echo $CUDA_MPS_PIPE_DIRECTORY >here
        sleep 1000""")
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    run = gpus.start("run", "--gpus", 0.5, "--", script)
    folder = mps_directory(gpus)
    os.kill(gpus.process("agent"), signal.SIGKILL)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    gpus.wait_idle()
    assert (folder / "control.log").read_text().split() == ["start", "quit"]


def test_gc_stops_unused_mps(gpus: Yard) -> None:
    script = gpus.script("train", "echo $CUDA_MPS_PIPE_DIRECTORY >here; sleep 1000")
    gpus.env["FAKE_NVML_DEVICES"] = "1"
    gpus.run("run", "--detach", "--gpus", 0.5, "--", script)
    folder = mps_directory(gpus)
    assert "nothing to clean up" in gpus.run("gc", "--all").stdout
    for pid in gpus.processes(r"hopyard (driver|agent)"):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not gpus.processes(r"hopyard"), "they are gone")
    assert gpus.processes("sleep 3600")
    assert "would stop 1 MPS daemon that agents had left behind" in gpus.run("gc", "--all", "--dry-run").stdout
    assert "MPS" not in gpus.run("gc").stdout and gpus.processes("sleep 3600"), "other projects may have started it"
    assert "stopped 1 MPS daemon that agents had left behind" in gpus.run("gc", "--all").stdout
    assert (folder / "control.log").read_text().split() == ["start", "quit"]


def test_unresponsive_nvidia_driver_means_no_gpus_and_does_not_block(gpus: Yard) -> None:
    gpus.env["FAKE_NVML_FAIL"] = "init"
    gpus.run("run", "--", "true")
    assert "GPUs cannot be listed and are not used" in gpus.driver_log()
