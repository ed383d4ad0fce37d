# SPDX-License-Identifier: Apache-2.0
"""`hopyard train` and `horovodrun`: trainings of programs that do not use a group."""
from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Yard, wait_for
from test_terminal import Terminal, terminal  # noqa: F401

WHO = 'echo "rank $HOROVOD_RANK of $HOROVOD_SIZE, $HOROVOD_LOCAL_RANK of $HOROVOD_LOCAL_SIZE here"'


@pytest.mark.smoke
def test_program_without_ranks_is_a_training(yard: Yard) -> None:
    p = yard.run("train", "-np", 3, "sh", "-c", f"{WHO}; echo aside >&2")
    assert sorted(p.stdout.splitlines()) == [f"[{i}] rank {i} of 3, {i} of 3 here" for i in range(3)], "stdout has only output of the ranks"
    assert {f"[{i}] aside" for i in range(3)} <= set(p.stderr.splitlines())
    assert "run 1: 3 ranks, " in p.stderr and "run 1 done: 3 done in " in p.stderr
    assert [t["params"] for t in yard.trials()] == [{"rank": i} for i in range(3)]
    assert {t["state"] for t in yard.trials()} == {"done"}


def test_all_ranks_run_at_the_same_time_with_any_number_of_cores(yard: Yard) -> None:
    ranks = 2 * (os.cpu_count() or 1) + 1
    yard.script("meet", f'touch "here.$HOROVOD_RANK"\nwhile [ $(ls here.* | wc -l) -lt {ranks} ]; do sleep 0.02; done\n')
    p = yard.run("train", "-np", ranks, "./meet")
    assert f"note: {ranks} ranks share this machine's {os.cpu_count()} core" in p.stderr


def test_failed_rank_is_reported_with_its_last_lines(yard: Yard) -> None:
    yard.script("work", 'echo working\n[ "$HOROVOD_RANK" = 1 ] || exit 0\necho "no data" >&2\nexit 3\n')
    p = yard.run("train", "-np", 3, "--name", "wine", "./work", rc=1)
    output = p.stderr.splitlines()
    at = next(i for i, line in enumerate(output) if re.search(r"rank 1 on .* ended with exit status 3", line))
    assert output[at + 1] == "      no data", p.stderr
    assert re.match(r"run 1 failed: 2 done, 1 failed in ", output[at + 2]), p.stderr
    assert yard.state() == "failed"


def test_braces_in_the_command_are_not_replaced(yard: Yard) -> None:
    assert yard.run("train", "-np", 1, "--", "printf", "%s\n", "{rank} {x} {{}}").stdout == "[0] {rank} {x} {{}}\n"


def test_ranks_are_shown_by_number(yard: Yard) -> None:
    yard.run("train", "-np", 3, "sh", "-c", "echo I am $HOROVOD_RANK")
    assert yard.run("logs", 1, 0).stdout == "I am 0\n"
    assert yard.run("logs", 1, "rank=2").stdout == "I am 2\n"
    assert yard.run("logs", "rank=1").stdout == "I am 1\n"
    assert yard.run("logs").stdout == "0 | I am 0\n1 | I am 1\n2 | I am 2\n"
    assert "run 1 has no rank 3; its ranks are 0 to 2" in yard.run("logs", 1, 3, rc=1).stderr


def test_listings_show_ranks(yard: Yard) -> None:
    yard.run("train", "-np", 3, "--max", "accuracy", "sh", "-c", 'echo "accuracy=0.2$HOROVOD_RANK"')
    yard.run("run", "--", "true")
    assert re.search(r"^ +1 .* 3 ranks +accuracy=0.2 +", yard.run("ls").stdout, re.M)
    shown = yard.run("show", 1).stdout
    assert re.search(r"^  training  3 ranks  max accuracy  seed ", shown, re.M), shown
    assert re.search(r"^  ranks     3: 3 done$", shown, re.M) and "trial" not in shown.split("versions")[0], shown
    assert re.search(r"^rank +state +accuracy +time\n +0 .*\n +1 .*\n +2 ", shown, re.M), shown
    assert "accuracy=0.2  rank 0 of run 1" in yard.run("best", 1).stdout
    assert [r["ranks"] for r in json.loads(yard.run("ls", "--json").stdout)] == [None, 3]
    events = yard.events("train", "-np", 2, "true")
    assert events[0]["event"] == "run" and events[0]["ranks"] == 2
    assert sorted(e["params"]["rank"] for e in events if e["event"] == "trial") == [0, 1]


def test_horovodrun_is_hopyard_train(yard: Yard) -> None:
    """Through a link of that name, and through the script that the package installs with the program."""
    bin = yard.project / "bin"
    bin.mkdir()
    (bin / "hopyard").symlink_to(yard.bin)
    (bin / "horovodrun").write_bytes((ROOT / "src/cli/horovodrun").read_bytes())
    (bin / "horovodrun").chmod(0o755)
    yard.bin = str(bin / "horovodrun")
    p = yard.run("-np", 2, "--mpi", "--cycle-time-ms", 3, "--tcp", "sh", "-c", WHO)
    assert len(p.stdout.splitlines()) == 2
    assert "note: --mpi, --tcp: no effect; " in p.stderr and "note: --cycle-time-ms: no effect; " in p.stderr
    built = yard.run("--check-build").stdout
    assert "[X] TensorFlow" in built
    assert built.count("[X] Gloo") == built.count("[ ] MPI") == 2, "as in hvd.gloo_built() and hvd.mpi_built()"
    assert "package horovod" not in p.stderr
    (yard.project / "lib/python3.11/site-packages/horovod-0.28.1.dist-info").mkdir(parents=True)
    assert "note: this is hopyard's horovodrun" in yard.run("-np", 1, "true").stderr
    (bin / "horovodrun").unlink()
    (bin / "horovodrun").symlink_to(bin / "hopyard")
    assert yard.run("-np", 1, "echo", "hi").stdout == "[0] hi\n"


def test_output_files_are_those_of_horovodrun(yard: Yard) -> None:
    for text in ("one", "two"):  # the second training replaces those of the first
        yard.run("train", "-np", 2, "--output-filename", "out", "sh", "-c", f"echo {text}; echo aside >&2")
        assert [(yard.project / f"out/rank.{i}/stdout").read_text() for i in range(2)] == [f"{text}\n"] * 2
        assert (yard.project / "out/rank.1/stderr").read_text() == "aside\n"


def test_ranks_share_the_cores_by_default(yard: Yard) -> None:
    output = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    yard.env = {k: v for k, v in yard.env.items() if k not in output}
    print_it = ("train", "-np", 2, "sh", "-c", "echo threads=$TF_NUM_INTRAOP_THREADS ops=$TF_NUM_INTEROP_THREADS")
    each = max(1, len(os.sched_getaffinity(0)) // 2)
    assert set(yard.run(*print_it).stdout.splitlines()) == {f"[{i}] threads={each} ops={each}" for i in range(2)}
    assert "[0] threads=7 ops=\n" in yard.run(*print_it, env={"TF_NUM_INTRAOP_THREADS": "7"}).stdout
    assert f"[0] threads={each} ops=9\n" in yard.run(*print_it, env={"TF_NUM_INTEROP_THREADS": "9"}).stdout
    assert "[0] threads= ops=\n" in yard.run(*print_it, env={"OMP_NUM_THREADS": "3"}).stdout


def test_ranks_are_bound_to_an_even_share_of_the_cores(yard: Yard) -> None:
    all_cores = os.sched_getaffinity(0)
    python = "import os; print(*sorted(os.sched_getaffinity(0)), os.environ.get('HOPYARD_CORES'))"

    def cores(*options: object) -> list[tuple[set[int], str]]:
        output = yard.run("train", *options, sys.executable, "-c", python, env={"HOPYARD_BIND_TO": ""}).stdout
        words = [line.split()[1:] for line in sorted(output.splitlines())]
        return [({int(core) for core in each[:-1]}, each[-1]) for each in words]

    ranks = max(2, len(all_cores))
    own = cores("-np", ranks)
    if len(all_cores) == ranks:
        assert {frozenset(each) for each, _ in own} == {frozenset([core]) for core in all_cores}
        assert {count for _, count in own} == {"1"}
    else:
        assert own == [(all_cores, "None")] * ranks, "one core cannot be divided"
    everywhere = (all_cores, "None")
    assert cores("-np", ranks, "--bind-to", "none") == [everywhere] * ranks
    assert cores("-np", ranks + 1) == [everywhere] * (ranks + 1), "not an even share"
    some = cores("-np", ranks, "--min-np", 1)  # those that started before the first one ended
    assert some and some == [everywhere] * len(some), "more ranks may join"
    assert cores("-np", 1) == [everywhere]
    assert "--bind-to takes 'share' or 'none', not 'core'" in yard.run("train", "-np", 1, "--bind-to", "core", "true", rc=2).stderr


def test_interrupt_in_a_pipe_stops_the_training(yard: Yard) -> None:
    p = yard.start("train", "-np", 2, "sh", "-c", "echo begun; exec sleep 1000")
    assert p.stdout and p.stdout.readline().endswith("begun\n")
    p.send_signal(signal.SIGINT)
    _, output = p.communicate(timeout=60)
    assert p.returncode == 130 and "run 1 stopped: 0 done, 2 stopped in " in output
    yard.wait_idle()


def test_resume_shows_only_new_output(yard: Yard) -> None:
    p = yard.start("train", "-np", 2, "sh", "-c", 'echo attempt $HOPYARD_ATTEMPT; [ $HOPYARD_ATTEMPT = 2 ] || exec sleep 1000')
    assert p.stdout
    assert {p.stdout.readline(), p.stdout.readline()} == {"[0] attempt 1\n", "[1] attempt 1\n"}
    yard.run("stop")
    p.communicate(timeout=60)
    assert p.returncode == 1
    wait_for(lambda: not yard.processes("hopyard driver"), "the driver exits")
    again = yard.run("resume")
    assert sorted(again.stdout.splitlines()) == ["[0] attempt 2", "[1] attempt 2"]


# ---- scaling ----------------------------------------------------------------------------------

SPEED = 'for i in 1 2 3; do hopyard report examples_per_second=$((100 / HOROVOD_SIZE + 50)); done'


def test_scaling_plots_the_speed_of_1_2_and_more_ranks(yard: Yard) -> None:
    p = yard.run("train", "--scaling", "-np", 3, "--name", "wine", "sh", "-c", SPEED)
    assert p.stdout.splitlines()[0] == "ranks  efficiency  examples_per_second of all ranks"
    rows = [re.match(r" +(\d) +(\d+) %  [█░#.]+ (\d+)$", line) for line in p.stdout.splitlines()[1:]]
    assert [r and r.groups() for r in rows] == [("1", "100", "150"), ("2", "67", "200"), ("3", "55", "249")]
    assert len(re.findall(r"wine .* ranks? ", yard.run("ls").stdout)) == 3, "a run for each"


def test_scaling_uses_any_reported_or_printed_metric(yard: Yard) -> None:
    speeds = [json.loads(line) for line in yard.run(
        "train", "--scaling", "-np", 2, "--metric", "speed", "--json", "sh", "-c", "echo speed=10").stdout.splitlines()]
    assert [(e["event"], e["ranks"], e["value"], e["efficiency"]) for e in speeds] == [("speed", 1, 10, 1), ("speed", 2, 20, 1)]
    p = yard.run("train", "--scaling", "-np", 2, "true", rc=1)
    assert "the ranks of run 3 have not reported 'examples_per_second'" in p.stderr and not p.stdout


def test_scaling_stops_at_the_first_failed_training(yard: Yard) -> None:
    p = yard.run("train", "--scaling", "-np", 4, "sh", "-c", f"{SPEED}; [ $HOROVOD_SIZE = 1 ] || exit 4", rc=1)
    assert len(p.stdout.splitlines()) == 2 and re.search(r"rank \d on .* ended with exit status 4", p.stderr)
    assert len(json.loads(yard.run("ls", "--json").stdout)) == 2


# ---- in a terminal ----------------------------------------------------------------------------

def waiting(gate: Path) -> str:
    return f"echo I am $HOROVOD_RANK; while [ ! -e {gate} ]; do sleep 0.05; done; [ $HOROVOD_RANK = 0 ] || exit 5"


def test_terminal_shows_the_ranks_and_the_output_of_rank_0(yard: Yard, terminal: Terminal) -> None:  # noqa: F811
    gate = yard.project / "gate"
    terminal.type("train", "-np", 2, "sh", "-c", waiting(gate))
    screen = terminal.see(r"(?s)\nI am 0\n.*run 1  . running.*2 ranks.*\nrank +state +time\n +0 .*running.*\n +1 .*running")
    assert "I am 1" not in screen
    gate.touch()
    screen = terminal.see(r"(?s)failed  run 1  2 ranks in .*:  1 done  1 failed\n.*hopyard logs 1 1")
    assert re.search(r"rank 1 on .* ended with exit status 5\n +I am 1\n", screen), screen


def test_terminal_shows_all_ranks_on_request_and_ctrl_c_detaches(yard: Yard, terminal: Terminal) -> None:  # noqa: F811
    gate = yard.project / "gate"
    terminal.type("train", "-np", 2, "--verbose", "sh", "-c", waiting(gate))
    terminal.see(r"(?s)\[0\] I am 0.*running")
    terminal.see(r"\[1\] I am 1")
    terminal.key("C-c")
    terminal.see(r"detach and leave it running \(d\)")
    terminal.key("d")
    terminal.see("hopyard attach 1")
    terminal.tmux("send-keys", "-l", "clear")
    terminal.key("Enter")
    terminal.type("attach")
    terminal.see(r"(?s)I am 0\n.*running")
    terminal.key("C-c")
    terminal.see(r"\(s\)")
    terminal.key("s")
    terminal.see(r"stopped  run 1  2 ranks")
    wait_for(lambda: yard.state() == "stopped", "the training stops")
    yard.wait_idle()
