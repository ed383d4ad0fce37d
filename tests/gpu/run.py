#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that need a real GPU: leases and shares with NVIDIA's own library and MPS.

    tests/gpu/run.py [PROGRAM [WORD ...]]    PROGRAM: hopyard (default: the one in PATH)
                                             WORD: only tests with one of these in their names

Needs a machine with at least one unused NVIDIA GPU (Volta or newer), and only Python.
The last line is `N passed, N failed`.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from submission import submission, submitted  # noqa: E402
from ui import Ui  # noqa: E402

LOAD = [sys.executable, str(HERE / "load.py")]
PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else shutil.which("hopyard") or "hopyard"

# Waits until $2 trials have arrived at $1.
MEET = """
meet()
{
    mkdir -p "$1" && touch "$1/$HOPYARD_TRIAL"
    while [ "$(ls "$1" | wc -l)" -lt "$2" ]; do sleep 0.02; done
}
"""


class Place:
    """A project, a runtime directory, and the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "rt"
        self.runtime.mkdir(mode=0o700)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime), "HOPYARD_PROJECT": str(folder),
                    "NO_COLOR": "1"}
        self.count = 0

    def start(self, *args: object, command: str = "run") -> subprocess.Popen[str]:
        self.count += 1
        return subprocess.Popen([PROGRAM, command, *map(str, args)], env=self.env, cwd=self.folder, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *args: object, command: str = "run") -> str:
        return self.start(*args, command=command).communicate(timeout=200)[0]

    def script(self, text: str) -> Path:
        path = self.folder / f"trial-{self.count}"
        path.write_text("#!/bin/sh\n" + MEET + text)
        path.chmod(0o755)
        return path

    def trials(self, run: int | None = None) -> list[dict[str, Any]]:
        command = [PROGRAM, "show", str(run or self.count), "--json", "--trials", "all", "--by-number"]
        shown = json.loads(subprocess.check_output(command, env=self.env, cwd=self.folder, text=True))
        for t in shown["trials"]:
            t["folder"] = Path(shown["run"]["logdir"]) / t["dir"]
        return shown["trials"]

    def output(self, trial: dict[str, Any], attempt: str = "stdout") -> dict[str, Any]:
        """The values of a trial's JSON lines, merged."""
        path, words = trial["folder"] / attempt, {}
        for line in path.read_text().splitlines() if path.exists() else []:
            words.update(json.loads(line) if line.startswith("{") else {})
        return words


def daemons() -> list[str]:
    """Running MPS processes of this user."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                found += [f"{entry.name}: {command}"] if command.startswith("nvidia-cuda-mps") else []
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def wait_for(what: Callable[[], Any], why: str, seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < end, f"timed out: {why}"
        time.sleep(0.05)
    return answer


def gpu_count() -> int:
    listed = subprocess.run([PROGRAM, "agent", "--list-gpus"], capture_output=True, text=True)
    print(listed.stdout.strip(), flush=True)
    return sum(line.startswith("gpu ") for line in listed.stdout.splitlines())


# ---- the tests: each in its own directory ---------------------------------------------------


def test_five_shares_of_a_fifth_run_at_once_and_a_sixth_waits(p: Place) -> None:
    script = p.script("""
        mkdir -p running && touch running/$1
        [ $1 = 6 ] || meet five 5
        ls running | wc -l >count-$1
        "$2" "$3" 1000 1
        status=$?
        rm running/$1
        exit $status""")
    out = p.run("--grid", "x=1..6", "--gpus", 0.2, "--parallel", 8, "--", script, "{x}", *LOAD)
    trials = p.trials()
    assert [t["state"] for t in trials] == ["done"] * 6, out
    counts = [int((p.folder / f"count-{x}").read_text()) for x in range(1, 7)]
    assert max(counts) == 5, counts
    outputs = [p.output(t) for t in trials]
    print(f"    {outputs[0]}; at once: {counts}")
    assert all(s["devices"] == 1 and s["free_mb"] <= s["total_mb"] * 0.2 for s in outputs)
    assert outputs[0]["cores"] < 0.3 * 132 or outputs[0]["total_mb"] < 40000  # a fifth of an H200's 132


def test_trial_over_its_share_fails_alone(p: Place) -> None:
    script = p.script("""
        meet four 4
        mb=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -1)
        [ $1 = 2 ] && exec "$2" "$3" $((mb / 2)) 0.1
        exec "$2" "$3" 1000 4""")
    p.run("--grid", "x=1..4", "--gpus", 0.2, "--parallel", 4, "--", script, "{x}", *LOAD)
    trials = p.trials()
    print(f"    {[t['state'] for t in trials]}, {p.output(trials[1])}")
    assert [t["state"] for t in trials] == ["done", "failed", "done", "done"]
    assert p.output(trials[1])["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert [t["attempt"] for t in trials] == [1] * 4


def test_victims_of_a_fault_are_retried_and_its_cause_fails(p: Place) -> None:
    script = p.script("""
        [ $HOPYARD_ATTEMPT -ge 3 ] || meet four-$HOPYARD_ATTEMPT 4
        [ $1 = 2 ] && exec "$2" "$3" 500 1 fault
        exec "$2" "$3" 500 3""")
    out = p.run("--grid", "x=1..4", "--gpus", 0.25, "--parallel", 4, "--", script, "{x}", *LOAD)
    trials = p.trials()
    print("    " + "\n    ".join(line for line in out.splitlines() if "fault" in line or "failed" in line))
    print(f"    {[(t['state'], t['attempt']) for t in trials]}, first: {p.output(trials[0], 'stdout.1')}")
    assert [t["state"] for t in trials] == ["done", "failed", "done", "done"]
    assert all(t["attempt"] == 3 for t in trials)
    for t in trials:
        for attempt in ("stdout.1", "stdout.2"):
            assert p.output(t, attempt)["error"] == "CUDA_ERROR_ILLEGAL_ADDRESS"
            assert p.output(t, attempt)["logged"], "the server's log was late"


def test_failure_without_a_gpu_fault_is_charged_to_the_trial(p: Place) -> None:
    script = p.script("""meet two 2; "$2" "$3" 500 1; exit $1""")
    p.run("--grid", "x=0,7", "--gpus", 0.5, "--parallel", 2, "--", script, "{x}", *LOAD)
    assert [(t["state"], t["attempt"]) for t in p.trials()] == [("done", 1), ("failed", 1)]


def test_two_runs_with_whole_gpus_never_overlap(p: Place) -> None:
    script = p.script("""
        mkdir lock-$CUDA_VISIBLE_DEVICES || exit 9
        "$2" "$3" 1000 0.2; status=$?
        rmdir lock-$CUDA_VISIBLE_DEVICES
        exit $status""")
    options = ["--grid", "x=1..4", "--gpus", 1, "--parallel", 4]
    runs = [p.start(*options, "--", script, "{x}", *LOAD) for _ in range(2)]
    outs = [run.communicate(timeout=120)[0] for run in runs]
    print("    " + "\n    ".join(line for line in "\n".join(outs).splitlines() if "waits" in line))
    for run in (1, 2):
        assert [t["state"] for t in p.trials(run)] == ["done"] * 4, outs


def test_shares_of_two_runs_add_up_and_share_one_daemon(p: Place) -> None:
    script = p.script("""
        mkdir -p running && touch running/$HOPYARD_RUN-$1
        ls running | wc -l >count-$HOPYARD_RUN-$1
        "$2" "$3" 500 1; status=$?
        rm running/$HOPYARD_RUN-$1
        exit $status""")
    options = ["--grid", "x=1..4", "--gpus", 0.4, "--parallel", 4]
    runs = [p.start(*options, "--", script, "{x}", *LOAD) for _ in range(2)]
    outs = [run.communicate(timeout=120)[0] for run in runs]
    counts = [int(f.read_text()) for f in p.folder.glob("count-*")]
    print(f"    at once: {sorted(counts)}")
    assert [t["state"] for run in (1, 2) for t in p.trials(run)] == ["done"] * 8, outs
    assert max(counts) <= 2 * max(1, gpu_count())
    assert len(list((p.runtime / "hopyard").glob("mps-*"))) <= gpu_count()


def test_foreign_client_does_not_keep_the_daemon_alive(p: Place) -> None:
    script = p.script("""echo "$CUDA_MPS_PIPE_DIRECTORY" >folder; "$2" "$3" 100 2""")
    run = p.start("--gpus", 0.5, "--", script, "x", *LOAD)
    written = p.folder / "folder"
    folder = wait_for(lambda: written.exists() and written.read_text().strip(), "the trial runs")
    other_client = subprocess.Popen([*LOAD, "100", "60"], env={**p.env, "CUDA_MPS_PIPE_DIRECTORY": folder},
                                    stdout=subprocess.PIPE, text=True)
    assert other_client.stdout and "devices" in other_client.stdout.readline()
    run.communicate(timeout=60)
    wait_for(lambda: not daemons(), f"the daemon is gone: {daemons()}", 20)
    other_client.kill()
    other_client.communicate()


def test_jax_stays_within_its_share(p: Place) -> None:
    if subprocess.run([sys.executable, "-c", "import jax"], capture_output=True).returncode:
        print("    no JAX here")
        return
    code = ("import jax, json; x = jax.numpy.ones((1000, 1000)); (x @ x).block_until_ready(); "
            "print(json.dumps({'limit_mb': jax.devices()[0].memory_stats()['bytes_limit'] >> 20}))")
    out = p.run("--gpus", 0.1, "--", sys.executable, "-c", code)
    (trial,) = p.trials()
    print(f"    {p.output(trial)}")
    assert trial["state"] == "done", out + (trial["folder"] / "stderr").read_text()[-2000:]


def test_each_rank_of_a_training_has_its_share_and_all_run_at_once(p: Place) -> None:
    script = p.script("""
        meet both 2
        exec "$1" "$2" 1000 1""")
    out = p.run("-np", 2, "--gpus", 0.5, "--", script, *LOAD, command="train")
    trials = p.trials()
    assert [t["state"] for t in trials] == ["done"] * 2, out
    outputs = [p.output(t) for t in trials]
    print(f"    {outputs[0]}")
    assert all(s["devices"] == 1 and s["free_mb"] <= s["total_mb"] * 0.51 for s in outputs)


def test_workers_of_a_cluster_have_shares_and_servers_none(p: Place) -> None:
    """One serves the others; its output would have the number of visible GPUs."""
    script = p.script("""
        case $HOPYARD_NODE in
        ps:*) "$1" "$2" 1000 1; exec sleep 600 ;;
        esac
        meet both 2
        exec "$1" "$2" 1000 1""")
    message = submission([("gpus", 0.1)], [script, *LOAD], command="train", roles=[("ps", 1), ("worker", 2)])
    answer = subprocess.run([PROGRAM, "driver", "--submit"], input=message, env=p.env, cwd=p.folder,
                            stdout=subprocess.PIPE)
    assert submitted(answer.stdout).get("run") == 1, answer
    out = p.run(1, command="attach")
    server, *workers = p.trials()
    assert [t["state"] for t in (server, *workers)] == ["done"] * 3, out
    outputs = [p.output(t) for t in workers]
    print(f"    {outputs[0]}, the server: {p.output(server)}")
    assert all(s["devices"] == 1 and s["free_mb"] <= s["total_mb"] * 0.11 for s in outputs)
    assert not p.output(server).get("devices"), "a parameter server sees a GPU"


class Server:
    """What tests/e2e/ui.py starts `hopyard ui` with."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def start(self, command: str, *args: object) -> subprocess.Popen[str]:
        return self.place.start(*args, command=command)


def test_use_and_memory_of_a_gpu_are_shown_in_the_page(p: Place) -> None:
    run = p.start("--gpus", 1, "--", *LOAD, 3000, 14, "busy")
    ui = Ui(Server(p))
    try:
        ui.log_in()

        def gpus() -> list[dict[str, Any]]:
            runs = ui.get("/api/v1/cluster")["runs"]
            return [gpu for each in runs for agent in each.get("agents", []) for gpu in agent["gpus"]]

        now = wait_for(lambda: [g for g in gpus() if (g["memory_used"] or 0) >= 3000 << 20 and (g["use"] or 0) > 0.3],
                       "a busy GPU is shown")
        print(f"    {now[0]}")
        out = run.communicate(timeout=60)[0]
        [attempt] = ui.get("/api/v1/runs/1/trials/1")["attempts"]
        used = attempt["usage"]
        most = max(used["gpu_memory"]) >> 20
        print(f"    {len(used['time_ms'])} points, at most {most} MB, use {max(used['gpu_use'])}")
        assert 3000 <= most < 9000 and max(used["gpu_use"]) > 0.3, out
    finally:
        ui.process.terminate()
        ui.process.communicate()


def main() -> int:
    passed, failed = 0, []
    if not gpu_count():
        print("this machine has no GPU")
        return 1
    for name, test in list(globals().items()):
        if not name.startswith("test_") or not any(word in name for word in sys.argv[2:] or [name]):
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="hy-") as folder:
            place = Place(Path(folder))
            try:
                test(place)
                wait_for(lambda: not daemons(), "the MPS daemon is gone at the end")
                passed += 1
                print(f"ok     {name} ({time.monotonic() - started:.1f} s)", flush=True)
            except Exception:
                failed.append(name)
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
                for log in (Path(folder) / ".hopyard").glob("run-*.log"):
                    print("    " + "\n    ".join(log.read_text(errors="replace").splitlines()[-40:]))
                print(f"    {daemons()}", flush=True)
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
