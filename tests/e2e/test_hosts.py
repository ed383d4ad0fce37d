# SPDX-License-Identifier: Apache-2.0
"""Several machines: network namespaces as hosts, with a real sshd in each."""
from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from conftest import Yard, wait_for
from hosts import Host, Hosts, hosts_of, kill

GATE = "while [ ! -e ~/gate ]; do sleep 0.05; done; "


@pytest.fixture
def net(yard: Yard) -> Iterator[Hosts]:
    """Two hosts that share no files with the driver."""
    with hosts_of(yard, "a", "b") as hosts:
        yield hosts


def running(yard: Yard) -> list[dict[str, Any]]:
    return [a for a in yard.attempts() if a["state"] == "running"] if yard.state() else []


def open_gate(*hosts: Host) -> None:
    for h in hosts:
        (h.home / "gate").touch()


def folder(yard: Yard, trial: int = 1) -> Path:
    return yard.logdir() / yard.trials()[trial - 1]["dir"]


def finish(p: subprocess.Popen[str], rc: int = 0) -> str:
    out, err = p.communicate(timeout=240)
    assert p.returncode == rc, out + err
    return out + err


# ---- starting -----------------------------------------------------------------------

def test_hosts_use_their_configured_slots(yard: Yard, net: Hosts) -> None:
    p = yard.start("run", "--hosts", "a:4,b:2", "--grid", "x=1..8", "--max", "v", "--", "sh", "-c", GATE + "echo v={x}")
    wait_for(lambda: len(running(yard)) == 6, "all six slots are in use")
    assert sorted((a["agent"], a["host"]) for a in running(yard)) == [("a", "a")] * 4 + [("b", "b")] * 2
    open_gate(*net.hosts.values())
    finish(p)
    assert [t["value"] for t in yard.trials()] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(t["attempts"] == 1 for t in yard.trials())


def test_program_is_copied_if_missing_or_different(yard: Yard, net: Hosts, tmp_path: Path) -> None:
    ours = Path(yard.bin).read_bytes()

    def run_once() -> None:
        yard.run("run", "--hosts", "a", "--", "true")
        net["a"].assert_nothing_left()

    run_once()
    (program,) = net["a"].programs
    assert program.read_bytes() == ours and program.stat().st_mode & 0o777 == 0o700
    before = program.stat()
    run_once()
    (program,) = net["a"].programs
    assert (program.stat().st_ino, program.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns), "it was copied again"

    os.truncate(program, len(ours) // 2)
    run_once()
    (program,) = net["a"].programs
    assert program.read_bytes() == ours, "a partial program is not used"

    newer = tmp_path / "newer/hopyard"
    newer.parent.mkdir()
    newer.write_bytes(ours + b"newer")
    newer.chmod(0o755)
    yard.bin = str(newer)
    run_once()
    assert sorted(p.read_bytes()[len(ours):] for p in net["a"].programs) == [b"", b"newer"]
    assert not net["b"].programs


def test_program_of_another_user_on_the_host_is_not_run(yard: Yard, net: Hosts, tmp_path: Path) -> None:
    ours = Path(yard.bin).read_bytes()
    yard.run("run", "--hosts", "a", "--", "true")
    net["a"].assert_nothing_left()
    (program,) = net["a"].programs
    planted = f"#!/bin/sh\ntouch {tmp_path}/ran\n".encode()
    program.write_bytes(planted + b"#" * (len(ours) - len(planted)))
    os.chown(program, 65534, 65534)
    program.chmod(0o755)
    yard.run("run", "--hosts", "a", "--", "true")
    net["a"].assert_nothing_left()
    assert program.read_bytes() == ours and program.stat().st_uid == os.geteuid() and not (tmp_path / "ran").exists()

    os.chown(program.parent, 65534, 65534)
    done = yard.run("run", "--hosts", "a", "--", "true", rc=1)
    assert "is a symbolic link or belongs to another user, and no program is run from there" in done.stdout, done.stdout
    os.chown(program.parent, os.geteuid(), os.getegid())


def test_output_of_shell_startup_files_is_ignored(yard: Yard, net: Hosts) -> None:
    (net["a"].home / ".bashrc").write_text("seq 1 5000; echo Welcome to host a; echo; printf '%0300d'; echo; echo be good >&2\n")
    yard.run("run", "--hosts", "a", "--", "true")
    assert [a["agent"] for a in yard.attempts()] == ["a"]


def test_unusable_hosts_are_named_and_the_others_run_the_trials(yard: Yard, net: Hosts) -> None:
    p = yard.start("run", "--hosts", "a:2,locked:2,dark:2", "--grid", "x=1..6", "--", "sh", "-c", GATE)
    wait_for(lambda: "agent locked is abandoned" in yard.driver_log(), "host locked is given up")
    wait_for(lambda: "agent dark could not be started" in yard.driver_log(), "host dark did not answer")
    open_gate(net["a"])
    output = finish(p)
    assert re.search(r"agent locked is abandoned: ssh locked: .*Permission denied \(publickey\)", output), output
    assert re.search(r"agent dark could not be started \(ssh dark: .*No route to host", output), output
    assert [a["agent"] for a in yard.attempts()] == ["a"] * 6


def test_host_with_an_ipv6_address(yard: Yard, net: Hosts) -> None:
    if not net.has_ipv6():
        pytest.skip("this machine has no IPv6")
    p = yard.start("run", "--hosts", f"[{net['a'].ip6}]:2,b", "--grid", "x=1..3", "--", "sh", "-c", GATE + "echo $SSH_CONNECTION")
    wait_for(lambda: len(running(yard)) == 3, "both are used")
    open_gate(*net.hosts.values())
    finish(p)
    came = {a["host"]: (folder(yard, a["trial"]) / "stdout").read_text().split()[0] for a in yard.attempts()}
    assert came == {"a": net.ip6, "b": net.ip}


def test_run_without_a_usable_host_fails_with_a_reason(yard: Yard, net: Hosts) -> None:
    p = yard.run("run", "--hosts", "locked", "--", "true", rc=1)
    assert re.search(r"no agent could be started: ssh locked: .*Permission denied \(publickey\)", p.stdout + p.stderr)
    assert yard.state() == "failed"
    p = yard.run("run", "--hosts", "a", "--", "true", rc=1, env={"PATH": "/nowhere"})
    assert "no agent could be started: cannot start 'ssh': no such file or directory" in p.stdout + p.stderr


def test_command_missing_on_the_host_is_reported(yard: Yard, net: Hosts) -> None:
    yard.script("train", "echo here\n")
    p = yard.run("run", "--hosts", "a", "--", "./train", rc=1)
    assert "cannot start './train': not found" in p.stdout
    assert f"this host does not have the directory '{yard.project}'" in p.stdout


# ---- environment ---------------------------------------------------------------------

def test_trial_has_the_home_of_the_host_and_the_environment_of_the_user(yard: Yard, net: Hosts) -> None:
    words = {"WORD": "from here", "HOME": "/nowhere", "USER": "nobody", "TMPDIR": "/nowhere", "XDG_CACHE_HOME": "/nowhere"}
    yard.run("run", "--hosts", "a", "--grid", "x=1", "--", "sh", "-c", "pwd; env -0 > $HOPYARD_TRIAL_DIR/env", env=words)
    got = dict(e.split("=", 1) for e in (folder(yard) / "env").read_text().split("\0") if e)
    assert got["WORD"] == "from here" and got["NO_COLOR"] == "1"
    assert got["USER"] == "root" and os.path.expanduser("~root") == got["HOME"]
    assert got["SSH_CONNECTION"].startswith(f"{net.ip} ")
    assert not {"TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"} & set(got)
    assert got["HOPYARD_PARAMS"] == '{"x": 1}'
    where = (folder(yard) / "stdout").read_text().rstrip("\n")
    assert where == got["HOPYARD_TRIAL_DIR"], "without the user's directory it starts in its own"


def test_host_with_shared_files_uses_the_project(yard: Yard) -> None:
    with hosts_of(yard, "a", shares=["a"]) as net:
        yard.run("run", "--hosts", "a", "--grid", "x=1", "--", "sh", "-c", "pwd; echo $HOPYARD_TRIAL_DIR; echo mine > $HOPYARD_TRIAL_DIR/file")
        assert (folder(yard) / "stdout").read_text().split() == [str(yard.project), str(folder(yard))]
        assert (folder(yard) / "file").read_text() == "mine\n"
        assert not (net["a"].home / ".cache/hopyard/work").exists()


def test_reports_from_a_host_without_hopyard(yard: Yard, net: Hosts) -> None:
    p = yard.start("run", "--hosts", "a", "--max", "accuracy", "--", "sh", "-c",
                   "hopyard report accuracy=0.5 step=1 && hopyard report accuracy=0.75 step=2 && " + GATE)
    rows = wait_for(lambda: yard.state() and (r := yard.rows("SELECT step, value FROM metrics ORDER BY seq")) and len(r) == 2 and r,
                    "two reports")
    assert rows == [{"step": 1, "value": 0.5}, {"step": 2, "value": 0.75}]
    open_gate(net["a"])
    finish(p)
    assert yard.trials()[0]["value"] == 0.75


# ---- files ---------------------------------------------------------------------------

def test_output_and_files_of_a_trial_are_copied_back(yard: Yard, net: Hosts) -> None:
    """Two at a time, each with more than one window of bytes in its files and on both outputs."""
    yard.run("run", "--hosts", "a:2", "--grid", "x=1,2", "--", "sh", "-c", r"""
        set -e; cd "$HOPYARD_TRIAL_DIR"
        mkdir -p deep/er/est many; : > empty; echo tail > deep/er/est/file
        for name in 'two words' '-rf' '*' 'ü' "$(printf 'new\nline')" "$(printf 'not\377utf')" "'quoted\""; do echo "$name" > "$name"; done
        head -c 3000000 /dev/urandom > big; head -c 1000000 /dev/urandom > deep/big
        : > many/empty; for i in $(seq 3000); do echo $i > many/$i; done
        echo run > script; chmod 755 script; echo no > readonly; chmod 444 readonly
        mkfifo pipe; ln -s /etc/passwd leak; ln -s /etc outside; ln -s big inside
        find . -type f -print0 | sort -z | xargs -0 sha256sum -z > ../sums.{x}; mv ../sums.{x} sums
        head -c 2000000 /dev/urandom > ../out.{x}; cat ../out.{x}; sha256sum < ../out.{x} > out.sum; cat ../out.{x} ../out.{x} >&2
        """)
    for x in (1, 2):
        here = folder(yard, x)
        sums = dict(reversed(s.split(b"  ./", 1)) for s in (here / "sums").read_bytes().split(b"\0") if s)
        assert len(sums) == 3014
        for name, expected in sums.items():
            assert hashlib.sha256((here / os.fsdecode(name)).read_bytes()).hexdigest().encode() == expected, name
        out = (here / "stdout").read_bytes()
        assert hashlib.sha256(out).hexdigest() == (here / "out.sum").read_text().split()[0]
        assert (here / "stderr").read_bytes() == out + out
        assert (here / "script").stat().st_mode & 0o777 == 0o755 and (here / "readonly").stat().st_mode & 0o777 == 0o444
        for name in ("pipe", "leak", "outside", "inside"):
            assert not os.path.lexists(here / name), f"{name} is not a file of the trial"


def test_event_files_are_copied_during_the_trial(yard: Yard, net: Hosts) -> None:
    """More than one window at first, then a little; one file is replaced, one is modified until the end."""
    p = yard.start("run", "--hosts", "a", "--", "sh", "-c", r"""
        cd "$HOPYARD_TRIAL_DIR"; mkdir train; new=train/events.out.tfevents.1.a
        head -c 3000000 /dev/urandom > ../first; head -c 5000 /dev/urandom > ../then
        cat ../first > $new; cat ../first > events.out.tfevents.anew; echo early > weights; echo begun
        until [ -e ~/more ]; do sleep 0.02; done
        cat ../then >> $new; cat ../then > events.out.tfevents.anew
        """ + GATE + "cat ../then >> $new; cat ../first ../then ../then | sha256sum > sum; sha256sum < ../then > anew.sum")
    here = wait_for(lambda: yard.state() and yard.trials() and folder(yard), "the trial runs")

    def size(name: str) -> int:
        return (here / name).stat().st_size if (here / name).exists() else -1

    wait_for(lambda: size("train/events.out.tfevents.1.a") == size("events.out.tfevents.anew") == 3000000, "the files have arrived")
    assert size("weights") == -1, "the rest comes at the end"
    (net["a"].home / "more").touch()
    wait_for(lambda: size("train/events.out.tfevents.1.a") == 3005000, "the new data has arrived, too")
    wait_for(lambda: size("events.out.tfevents.anew") == 5000, "the replaced file has arrived")
    assert yard.trials()[0]["state"] == "running"
    open_gate(net["a"])
    finish(p)
    for name, expected in (("train/events.out.tfevents.1.a", "sum"), ("events.out.tfevents.anew", "anew.sum")):
        assert hashlib.sha256((here / name).read_bytes()).hexdigest() == (here / expected).read_text().split()[0], name
    assert (here / "weights").read_text() == "early\n"


def test_files_are_never_written_outside_the_trial_directory(yard: Yard, net: Hosts, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    p = yard.start("run", "--hosts", "a", "--", "sh", "-c",
                   "echo ready; " + GATE + "cd $HOPYARD_TRIAL_DIR; mkdir -p way sub checkpoint/way; "
                   "for f in way/evil checkpoint/way/evil plain sub/plain clash kept tfevents; do echo evil > $f; done")
    here = wait_for(lambda: yard.state() and yard.trials() and folder(yard).exists() and folder(yard), "the trial prints")
    (here / "sub").mkdir()
    (here / "clash").mkdir()
    (here / "checkpoint").mkdir()
    for link in ("way", "checkpoint/way"):
        (here / link).symlink_to(outside)
    for link in ("plain", "sub/plain"):
        (here / link).symlink_to(outside / "precious")
    (here / "tfevents").symlink_to(outside / "precious")
    open_gate(net["a"])
    output = finish(p, rc=1)
    assert [f.name for f in outside.iterdir()] == ["precious"] and (outside / "precious").read_text() == "precious"
    for name in ("plain", "sub/plain", "kept", "tfevents"):
        assert (here / name).read_text() == "evil\n" and not (here / name).is_symlink()
    assert list((here / "checkpoint").iterdir()) == [here / "checkpoint/way"], "the checkpoint of such an attempt is not used"
    for name in ("way/evil", "clash"):
        assert f"trial 1: cannot write its file '{name}'" in output
    assert yard.trials()[0]["state"] == "failed"
    assert re.match("its file '(way/evil|clash)' could not be copied to the project: ", yard.trials()[0]["message"])


# ---- size limits -----------------------------------------------------------------------

HOLES = "truncate -s 10G sparse; printf middle | dd of=sparse bs=1M seek=5000 conv=notrunc status=none; "
DATA = "head -c {0} /dev/urandom > data; "


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_sparse_files_stay_sparse_in_copies_and_retries(yard: Yard, net: Hosts) -> None:
    p = yard.start("run", "--hosts", "a:1", "--max-transfer", "4M", "--retries", 1, "--", "sh", "-c",
                   f"cd $HOPYARD_CHECKPOINT; if [ $HOPYARD_ATTEMPT = 1 ]; then {HOLES} exit 7; fi; "
                   "[ $(stat -c %b sparse) -lt 8192 ] && [ $(stat -c %s sparse) = 10737418240 ] || exit 8; "
                   "cd ..; : > empty; truncate -s 3G hollow; cp --sparse=always checkpoint/sparse tail; truncate -s 5000M tail; "
                   "printf begin | dd of=tail conv=notrunc status=none; printf end >> tail")
    finish(p)
    here = folder(yard)
    assert {f.name: f.stat().st_size for f in here.iterdir() if f.name in ("empty", "hollow", "tail")} == {
        "empty": 0, "hollow": 3 << 30, "tail": (5000 << 20) + 3}
    for name in ("checkpoint/sparse", "hollow", "tail"):
        assert allocated(here / name) < 1 << 20, f"{name} has lost its holes"
    with open(here / "checkpoint/sparse", "rb") as f:
        assert f.seek(5000 << 20) and f.read(8) == b"middle\0\0"
    with open(here / "tail", "rb") as f:
        assert f.read(7) == b"begin\0\0" and f.seek((5000 << 20) - 2) and f.read() == b"\0\0end"


def test_trial_over_the_size_limit_fails_alone(yard: Yard, net: Hosts) -> None:
    deep = "/".join(["d"] * 70)
    p = yard.start("run", "--hosts", "a:3", "--grid", "x=1..3", "--max-transfer", "1M", "--", "sh", "-c", f'''
        cd $HOPYARD_TRIAL_DIR
        case {{x}} in
        1) {DATA.format(3 << 20)} mkdir checkpoint; echo small > checkpoint/small ;;
        2) {DATA.format(300 << 10)} {HOLES} ;;
        3) mkdir -p {deep}; echo deep > {deep}/file ;;
        esac''')
    finish(p, rc=1)
    failed, done, deeper = yard.trials()
    assert [t["state"] for t in (failed, done, deeper)] == ["failed", "done", "failed"]
    assert re.fullmatch(r"it left 3\.0 MB of files on a machine without access to the project directory, and at most 1\.0 MB are "
                        "copied; raise the limit \\(max-transfer\\), or write large files to storage that all machines share", failed["message"])
    assert re.fullmatch("its file 'd/d/.*' cannot be copied to the project: its path is too deep", deeper["message"])
    assert not {"data", "checkpoint"} & {f.name for f in folder(yard, 1).iterdir()}, "nothing was sent"
    assert (folder(yard, 2) / "data").stat().st_size == 300 << 10 and (folder(yard, 2) / "sparse").stat().st_size == 10 << 30
    assert all(t["attempts"] == 1 for t in yard.trials()), "its agent was not lost"


def test_file_over_the_local_file_size_limit_fails_its_trial_alone(yard: Yard, net: Hosts) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, 20 << 20))

    p = yard.start("run", "--hosts", "a:3", "--grid", "x=1..3", "--", "sh", "-c", "cd $HOPYARD_TRIAL_DIR; case {x} in "
                   f"1) {DATA.format(30 << 20)} ;; 2) truncate -s 1G sparse ;; 3) {DATA.format(1000)} ;; esac", preexec_fn=limit)
    output = finish(p, rc=1)
    assert [t["state"] for t in yard.trials()] == ["failed", "failed", "done"]
    for name, trial in zip(("data", "sparse"), yard.trials()):
        assert trial["message"] == f"its file '{name}' could not be copied to the project: File too large", output
    assert (folder(yard, 3) / "data").stat().st_size == 1000


def test_checkpoint_too_large_for_a_retry_fails_its_trial_alone(yard: Yard) -> None:
    """With shared files there is no limit; then the retry runs on a host that does not share them."""
    with hosts_of(yard, "a", "b", shares=["a"]) as net:
        p = yard.start("run", "--hosts", "a:1,b:1", "--max-transfer", "1M", "--grid", "x=1..3", "--retries", 1, "--", "sh", "-c",
                       "hostname > ~/trial.{x}.$HOPYARD_ATTEMPT; "
                       "[ $HOPYARD_ATTEMPT != 1 ] || while [ ! -e ~/gate.{x}.$(hostname) ]; do sleep 0.05; done; "
                       "[ $(hostname) = a ] && [ {x} != 3 ] || exit 0; cd $HOPYARD_CHECKPOINT; " + DATA.format(3 << 20) + "exit 7")
        wait_for(lambda: yard.state() and [a["trial"] for a in running(yard)] == [1, 2], "both hosts are there")
        on = {a["agent"]: a["trial"] for a in running(yard)}
        (net["a"].home / f"gate.{on['a']}.a").touch()
        wait_for(lambda: [a["trial"] for a in running(yard)] == sorted([on["b"], 3]), "the first trial waits for its retry")
        (net["b"].home / f"gate.{on['b']}.b").touch()
        wait_for(lambda: len(yard.attempts(1, on["a"])) == 2, "the retry was started")
        wait_for(lambda: yard.attempts(1, on["a"])[1]["state"] == "failed", "the retry failed")
        (net["a"].home / "gate.3.a").touch()
        finish(p, rc=1)
    assert "its checkpoint is larger than the 1.0 MB that may be copied (max-transfer)" in yard.trials()[on["a"] - 1]["message"]
    assert [t["state"] for t in yard.trials() if t["number"] != on["a"]] == ["done", "done"]


def test_checkpoint_moves_with_the_retry_to_another_host(yard: Yard, net: Hosts) -> None:
    """Trial 1 fails; trial 3 takes its slot; trial 2 ends, and trial 1 continues on that host."""
    p = yard.start("run", "--hosts", "a:1,b:1", "--grid", "x=1..3", "--retries", 2, "--max", "v", "--", "sh", "-c", r"""
        hostname > ~/trial.{x}.$HOPYARD_ATTEMPT
        [ $HOPYARD_ATTEMPT != 1 ] || while [ ! -e ~/gate.{x} ]; do sleep 0.05; done
        [ {x} = 1 ] || { echo v=0; exit; }
        cd $HOPYARD_CHECKPOINT
        case $HOPYARD_ATTEMPT in
        1) mkdir -p deep/er; : > empty; echo odd > 'an odd name'; head -c 2000000 /dev/urandom > deep/er/big
           seq 100 | while read i; do echo $i > part.$i; done; chmod 755 part.7
           echo old > old; find . -type f | sort | xargs -d '\n' sha256sum > ../sums; mv ../sums .; exit 7 ;;
        2) sha256sum --check --quiet sums && [ -x part.7 ] || exit 8; rm old part.3; echo new > new; exit 7 ;;
        3) [ ! -e old ] && [ ! -e part.3 ] && [ -e new ] && [ -e empty ] && [ $(ls | wc -l) = 104 ] && echo v=$(cat part.100) ;;
        esac""")
    wait_for(lambda: yard.state() and [a["trial"] for a in running(yard)] == [1, 2], "both hosts are there")
    first, second = net[yard.attempts(1, 1)[0]["agent"]], net[yard.attempts(1, 2)[0]["agent"]]
    (first.home / "gate.1").touch()
    wait_for(lambda: [a["trial"] for a in running(yard)] == [2, 3], "trial 1 waits for its retry")
    (second.home / "gate.2").touch()
    wait_for(lambda: len(yard.attempts(1, 1)) >= 2, "the retry runs")
    assert yard.attempts(1, 1)[1]["agent"] == second.name
    wait_for(lambda: yard.attempts(1, 1)[1]["state"] != "running", "the retry has ended")
    (first.home / "gate.3").touch()
    finish(p)
    assert [a["exit_code"] for a in yard.attempts(1, 1)] == [7, 7, 0]
    assert yard.trials()[0]["value"] == 100
    left = {str(f.relative_to(folder(yard) / "checkpoint")) for f in (folder(yard) / "checkpoint").rglob("*") if f.is_file()}
    assert "old" not in left and {"new", "empty", "an odd name", "deep/er/big"} <= left


def test_full_disk_on_the_host_fails_the_trial(yard: Yard, net: Hosts) -> None:
    """A checkpoint that does not fit is not used. The trial is retried first: there may be space soon."""
    a, work = net["a"], os.path.expanduser("~root/.cache/hopyard/work")
    subprocess.run(["nsenter", "-t", str(a.sshd.pid), "-m", "sh", "-c", f"mkdir -p {work} && mount -t tmpfs -o size=3m,mode=0700 hopyard-test {work}"],
                   check=True)
    p = yard.run("run", "--hosts", "a", "--retries", 1, "--", "sh", "-c",
                 "head -c 2000000 /dev/zero > $HOPYARD_CHECKPOINT/$HOPYARD_ATTEMPT; [ -e $HOPYARD_CHECKPOINT/1 ] && exit 7", rc=1)
    assert yard.attempts()[0]["exit_code"] == 7 and "exit status" in p.stdout
    big = folder(yard) / "checkpoint/1"
    assert big.stat().st_size == 2000000
    with open(big, "ab") as f:
        f.write(b"x" * 6000000)  # not sparse: that would fit
    p = yard.run("resume", "1", rc=1)
    assert "cannot write the checkpoint's file 'checkpoint/1': No space left on device" in p.stdout, p.stdout
    assert p.stdout.count("No space left on device; retried\n") == 4, p.stdout
    assert p.stdout.count("No space left on device; retried (1 of 1)\n") == 1, "then it counts as a retry"
    subprocess.run(["nsenter", "-t", str(a.sshd.pid), "-m", "umount", "-l", work], check=True)


def test_lost_message_loses_and_repeats_nothing(yard: Yard, net: Hosts) -> None:
    """At each end one frame is lost, and the connection with it: at another position in each run."""
    for run, n in enumerate((1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 17, 23, 31, 43, 59), 1):
        (net["a"].home / ".bashrc").write_text(f"export HOPYARD_FAULT=wire:{n}\n")
        yard.run("run", "--hosts", "a", "--max", "v", "--", "sh", "-c",
                 "cd $HOPYARD_TRIAL_DIR; head -c 300000 /dev/urandom > noise; seq 50 | while read i; do echo $i > part.$i; done; "
                 "hopyard report v=7 step=1; cat noise; cat noise noise >&2", env={"HOPYARD_FAULT": f"wire:{n + run % 3}"})
        (trial,) = yard.trials(run)
        here = yard.logdir(run) / trial["dir"]
        noise = (here / "noise").read_bytes()
        assert (here / "stdout").read_bytes() == noise and (here / "stderr").read_bytes() == noise + noise and len(noise) == 300000
        assert sorted(int(f.read_text()) for f in here.glob("part.*")) == list(range(1, 51))
        assert [a["state"] for a in yard.attempts(run)] == ["done"] and trial["value"] == 7
        assert len(yard.rows("SELECT * FROM metrics WHERE run = ?", run)) == 1


@pytest.mark.slow
def test_failing_agents_leave_no_partial_checkpoint(yard: Yard) -> None:
    """Sixteen hosts; on each one the n-th allocation or system call of the first agent fails, with another n on each.

    Every trial fails once, on purpose; its retry must find, on any host, a complete checkpoint or none.
    """
    faults = [f"alloc:{n}" for n in range(104, 320, 27)] + [f"sys:{n}" for n in range(43, 203, 20)]
    names = [f"h{i}" for i in range(len(faults))]
    with hosts_of(yard, *names) as net:
        for name, fault in zip(names, faults):
            (net[name].home / "fault").write_text(fault)
            (net[name].home / ".bashrc").write_text("if [ -e ~/fault ]; then export HOPYARD_FAULT=$(cat ~/fault); rm ~/fault; fi\n")
        yard.run("run", "--hosts", ",".join(names), "--grid", "x=1..32", "--max", "v", "--retries", 3, "--", "sh", "-c", r"""
            cd $HOPYARD_CHECKPOINT
            if [ -z "$(ls)" ]; then
                head -c 600000 /dev/urandom > big; mkdir -p d/e; : > empty; for i in 1 2 3; do echo $i > d/e/$i; done
                find . -type f | sort | xargs sha256sum > ../sums; mv ../sums .; echo first; exit 7
            fi
            sha256sum --check --quiet sums && [ $(find . -type f | wc -l) = 6 ] || exit 8
            hopyard report q=1; cp big $HOPYARD_TRIAL_DIR/copy; echo v={x}""")
        assert [t["value"] for t in yard.trials()] == list(range(1, 33))
        assert 8 not in {a["exit_code"] for a in yard.attempts()}
        has_seams = yard.run("ls", rc=None, env={"HOPYARD_FAULT": "alloc:1"}).returncode != 0
        assert ("lost" in {a["state"] for a in yard.attempts()}) == has_seams, "an injected fault did not occur"
        for n in range(1, 33):
            assert (folder(yard, n) / "copy").read_bytes() == (folder(yard, n) / "checkpoint/big").read_bytes()


# ---- stops and failures ---------------------------------------------------------------

def test_stop_ends_all_processes_on_the_hosts(yard: Yard, net: Hosts) -> None:
    yard.run("run", "--detach", "--hosts", "a:1,b:1", "--grid", "x=1,2", "--", "sh", "-c",
             "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > ~/pids; while :; do sleep 1; done' & "
             "while [ ! -s ~/pids ]; do sleep 0.02; done; echo $$ >> ~/pids; while :; do sleep 1; done")
    files = [h.home / "pids" for h in net.hosts.values()]
    wait_for(lambda: all(f.exists() and len(f.read_text().split()) == 2 for f in files), "both hosts run two trials")
    yard.run("stop", "1")
    assert yard.state() == "stopped"
    for f in files:
        for pid in f.read_text().split():
            assert not os.path.exists(f"/proc/{pid}"), f"process {pid} is left"


def test_agent_death_on_a_host_runs_its_trials_again(yard: Yard, net: Hosts) -> None:
    p = yard.start("run", "--hosts", "a:2", "--grid", "x=1,2", "--max", "v", "--", "sh", "-c",
                   "echo $$ >> ~/pids; [ $HOPYARD_ATTEMPT = 2 ] || sleep 1000; echo v={x}")
    pids = net["a"].home / "pids"
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, "both trials run")
    old = pids.read_text().split()
    kill(net["a"].agent())
    finish(p)
    assert sorted(a["state"] for a in yard.attempts()) == ["done", "done", "lost", "lost"]
    assert [t["value"] for t in yard.trials()] == [1, 2]
    for pid in old:
        assert not os.path.exists(f"/proc/{pid}"), f"process {pid} is left"
    assert yard.attempts()[0]["message"] == "its agent was lost: ssh a: Killed"


def test_broken_ssh_connection_changes_nothing(yard: Yard, net: Hosts) -> None:
    p = yard.start("run", "--hosts", "a:1,b:1", "--grid", "x=1..4", "--max", "v", "--", "sh", "-c", "echo first; " + GATE + "echo v={x}")
    wait_for(lambda: len(running(yard)) == 2, "both trials run")
    for pid in net["a"].processes(r"^sshd: "):
        kill(pid)
    for pid in yard.processes(r"^/\S*/?ssh .* b exec"):
        kill(pid)
    wait_for(lambda: yard.driver_log().count("agent process has ended") == 2, "the driver has seen both")
    open_gate(*net.hosts.values())
    finish(p)
    assert [t["value"] for t in yard.trials()] == [1, 2, 3, 4]
    assert [a["state"] for a in yard.attempts()] == ["done"] * 4
    assert (folder(yard) / "stdout").read_text() == "first\nv=1\n"


# ---- network failures: concurrent, since each takes long --------------------------------

BEAT = "trap '' TERM; (while :; do date +%s%N >> ~/heartbeats.$HOPYARD_ATTEMPT; sleep 0.05; done) & "


def heartbeats(host: Host, attempt: int = 1) -> list[float]:
    """Times at which it ran there, in the store's milliseconds."""
    path = host.home / f"heartbeats.{attempt}"
    return [int(line) / 1e6 for line in path.read_text().split()] if path.exists() else []


class Scenario:
    """A yard with hosts a and b, and a driver."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.yard = Yard(folder)

    def run_scenario(self, script: Callable[[Yard, Hosts], None]) -> None:
        try:
            with hosts_of(self.yard, "a", "b") as net:
                script(self.yard, net)
            wait_for(lambda: not self.yard.processes(), "all processes exit with the run")
        finally:
            self.yard.kill_everything()


def long_partition(yard: Yard, net: Hosts) -> None:
    """Both hosts run a trial; the cable of the first one is unplugged until its trial runs on the other."""
    p = yard.start("run", "--hosts", "a:1,b:1", "--grid", "x=1..4", "--max", "v", "--", "sh", "-c", BEAT + GATE + "echo v={x}")
    wait_for(lambda: len(running(yard)) == 2 and all(heartbeats(h) for h in net.hosts.values()), "both trials run")
    net["a"].cut()
    (lost,) = [a for a in running(yard) if a["agent"] == "a"]
    open_gate(net["b"])
    wait_for(lambda: len(yard.attempts(1, lost["trial"])) == 2, "the trial runs elsewhere", 120)
    assert not net["a"].processes(r"hopyard|sleep|date"), "the host has killed its processes before"
    again = yard.attempts(1, lost["trial"])[1]
    assert again["agent"] == "b" and heartbeats(net["a"])[-1] < again["started"], "the trial ran on two hosts at a time"
    net["a"].repair()
    open_gate(net["a"])
    output = finish(p)
    assert "agent a is lost (nothing received from" in output
    assert [t["value"] for t in yard.trials()] == [1, 2, 3, 4]
    assert [a["state"] for a in yard.attempts(1, lost["trial"])] == ["lost", "done"]
    assert len(yard.attempts()) == 5


def partition_and_recovery(yard: Yard, net: Hosts) -> None:
    """A host that was without network for so long that it was given up is used again."""
    p = yard.start("run", "--hosts", "a:1", "--grid", "x=1", "--", "sh", "-c", BEAT + GATE)
    wait_for(lambda: heartbeats(net["a"]), "the trial runs")
    net["a"].cut()
    wait_for(lambda: "agent a is lost" in yard.driver_log(), "the host is given up", 120)
    net["a"].repair()
    wait_for(lambda: heartbeats(net["a"], 2), "the host is used again", 120)
    assert heartbeats(net["a"])[-1] < heartbeats(net["a"], 2)[0]
    open_gate(net["a"])
    finish(p)
    assert [(a["agent"], a["state"]) for a in yard.attempts()] == [("a", "lost"), ("a", "done")]


def short_partition(yard: Yard, net: Hosts) -> None:
    """A trial prints while its cable is unplugged for a few seconds, and while its connections break."""
    p = yard.start("run", "--hosts", "a:1", "--grid", "x=1", "--", "sh", "-c",
                   "i=0; while [ ! -e ~/gate ]; do seq -f 'line %.0f' $i $((i+999)); i=$((i+1000)); sleep 0.02; done; "
                   "head -c 1000000 /dev/urandom > $HOPYARD_TRIAL_DIR/noise; cat $HOPYARD_TRIAL_DIR/noise >&2")
    out = wait_for(lambda: yard.state() and yard.trials() and (o := folder(yard) / "stdout").exists() and o, "the trial prints")

    def more(why: str) -> None:
        size = out.stat().st_size
        wait_for(lambda: out.stat().st_size > size + 500_000, why)

    for i in range(3):
        more("it goes on printing")
        net["a"].drop_link()
    more("a new connection carries it")
    net["a"].cut()
    time.sleep(5)  # time without a cable: less than the lease, and the window is full
    net["a"].repair()
    more("it comes back")
    open_gate(net["a"])
    finish(p)
    assert [a["state"] for a in yard.attempts()] == ["done"]
    lines = out.read_bytes().splitlines(keepends=True)
    assert lines == [b"line %d\n" % i for i in range(len(lines))] and len(lines) % 1000 == 0
    assert (folder(yard) / "stderr").read_bytes() == (folder(yard) / "noise").read_bytes()


def late_results(yard: Yard, net: Hosts) -> None:
    """An agent is stopped, so that not even its lease can end it; its trial ends unnoticed and runs elsewhere."""
    p = yard.start("run", "--hosts", "a:1,b:1", "--grid", "x=1", "--max", "v", "--", "sh", "-c",
                   "touch ~/runs; " + GATE + "echo v=$HOPYARD_ATTEMPT; hopyard report v=$HOPYARD_ATTEMPT; "
                   "echo mine > $HOPYARD_TRIAL_DIR/from.$HOPYARD_ATTEMPT")
    wait_for(lambda: running(yard), "the trial runs")
    first = net[running(yard)[0]["agent"]]
    second = net["b" if first.name == "a" else "a"]
    wait_for(lambda: (first.home / "runs").exists(), "the trial runs")
    agent = first.agent()
    kill(agent, signal.SIGSTOP)
    open_gate(first)
    wait_for(lambda: len(yard.attempts()) == 2, "the trial runs elsewhere", 120)
    kill(agent, signal.SIGCONT)
    wait_for(lambda: not os.path.exists(f"/proc/{agent}"), "the agent notices its expired lease and exits")
    open_gate(second)
    finish(p)
    assert [(a["agent"], a["state"]) for a in yard.attempts()] == [(first.name, "lost"), (second.name, "done")]
    assert yard.trials()[0]["value"] == 2
    assert {m["value"] for m in yard.rows("SELECT value FROM metrics")} == {2}
    assert (folder(yard) / "stdout").read_text() == "v=2\n"
    assert not (folder(yard) / "from.1").exists() and (folder(yard) / "from.2").exists()


def stop_during_a_partition(yard: Yard, net: Hosts) -> None:
    """An agent that cannot receive the stop is waited for until its lease expires, and no longer."""
    yard.run("run", "--detach", "--hosts", "a:1,b:1", "--grid", "x=1,2", "--", "sh", "-c", BEAT + GATE)
    wait_for(lambda: all(heartbeats(h) for h in net.hosts.values()), "both trials run")
    net["a"].cut()
    yard.run("stop", "1")
    assert yard.state() == "stopped" and not net["a"].processes(r"hopyard|sleep|date")
    assert sorted((a["agent"], a["state"]) for a in yard.attempts()) == [("a", "lost"), ("b", "stopped")]
    assert [t["state"] for t in yard.trials()] == ["stopped", "stopped"]


def driver_dies(yard: Yard, net: Hosts) -> None:
    """kill -9 of the driver, and a resume at once: trials on the hosts end before they run again."""
    yard.run("run", "--detach", "--hosts", "a:1,b:1", "--grid", "x=1..3", "--max", "v", "--", "sh", "-c",
             "[ {x} = 1 ] && echo v=1 && exit; " + BEAT + GATE + "echo v={x}")
    wait_for(lambda: len(running(yard)) == 2 and all(heartbeats(h) for h in net.hosts.values()), "both trials run")
    done = [t["number"] for t in yard.trials() if t["state"] == "done"]
    assert done == [1]
    kill(yard.process("driver"))
    wait_for(lambda: not yard.processes(), "trials of the first driver have ended")
    p = yard.start("resume", "1")
    wait_for(lambda: len([a for a in yard.attempts() if a["number"] == 2]) == 2, "both trials run again", 120)
    again = min(a["started"] for a in yard.attempts() if a["number"] == 2)
    assert max(heartbeats(h)[-1] for h in net.hosts.values()) < again, "trials of two drivers ran at the same time"
    open_gate(*net.hosts.values())
    finish(p)
    assert [t["value"] for t in yard.trials()] == [1, 2, 3]
    assert [[a["state"] for a in yard.attempts(1, n)] for n in (1, 2, 3)] == [["done"], ["lost", "done"], ["lost", "done"]]


SCRIPTS = {s.__name__: s for s in (long_partition, partition_and_recovery, short_partition, late_results, stop_during_a_partition, driver_dies)}


@pytest.fixture(scope="module")
def scenarios_done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[None]]:
    """All scenarios that the selected tests need, run concurrently."""
    wanted = [s for s in SCRIPTS if any(s in item.name for item in request.session.items)]
    base = tmp_path_factory.mktemp("networks")
    scenarios = {s: Scenario(base / s) for s in wanted}
    with ThreadPoolExecutor(len(SCRIPTS)) as pool:
        futures = {s: pool.submit(scenarios[s].run_scenario, SCRIPTS[s]) for s in wanted}
    for s, scenario in scenarios.items():
        if not futures[s].exception():
            scenario.yard.assert_nothing_left()
            scenario.yard.assert_no_sanitizer_reports()
        shutil.rmtree(scenario.yard.runtime, ignore_errors=True)
    return futures


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_network_failures(scenarios_done: dict[str, Future[None]], script: str) -> None:
    scenarios_done[script].result()
