# SPDX-License-Identifier: Apache-2.0
"""Event files of trials in any language, checked with TensorBoard's own readers and HTTP API."""
from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import Yard, wait_for
from hosts import hosts_of
from needs import need_root

ALL = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]
WRITTEN = "until ls $HOPYARD_TRIAL_DIR | grep -q tfevents; do sleep 0.01; done; "


@dataclass
class Contents:
    """The contents of one of our event files."""
    params: dict[str, Any] | None = None
    status: str | None = None
    values: dict[str, list[tuple[int, float]]] = field(default_factory=dict)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.out.tfevents.*"))


def read(path: Path) -> Contents:
    """With TensorFlow's own reader, which verifies every checksum, and TensorBoard's own messages."""
    import tensorflow as tf
    from tensorboard.compat.proto import event_pb2
    from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

    contents = Contents()
    records = [event_pb2.Event.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(path))]
    assert records[0].file_version == "brain.Event:2"
    for event in records[1:]:
        (value,) = event.summary.value
        data = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
        if value.tag == "_hparams_/session_start_info":
            assert contents.params is None, "one session start"
            contents.params = {k: getattr(v, v.WhichOneof("kind")) for k, v in data.session_start_info.hparams.items()}
        elif value.tag == "_hparams_/session_end_info":
            assert contents.status is None, "one session end"
            contents.status = api_pb2.Status.Name(data.session_end_info.status)
        else:
            contents.values.setdefault(value.tag, []).append((event.step, value.simple_value))
    return contents


def contents(yard: Yard, trial: int = 1, run: int = 1) -> Contents:
    (path,) = files(yard.logdir(run) / yard.trials(run)[trial - 1]["dir"])
    return read(path)


class Board:
    """A real TensorBoard on a directory."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **words: str) -> Any:
        with urllib.request.urlopen(f"{self.address}data/plugin/{path}?{urllib.parse.urlencode(words)}", timeout=60) as answer:
            return json.load(answer)

    def session_groups(self) -> dict[str, dict[str, Any]]:
        asked = json.dumps({"allowedStatuses": ALL, "startIndex": 0, "sliceSize": 1000})
        groups = self.get("hparams/session_groups", request=asked).get("sessionGroups", [])
        return {g["name"]: g for g in groups}

    def status(self, trial: str) -> str | None:
        group = self.session_groups().get(trial)
        return group["sessions"][0].get("status", "STATUS_UNKNOWN") if group else None

    def metric(self, trial: str, tag: str) -> float | None:
        values = self.session_groups()[trial].get("metricValues", [])
        found = [v for v in values if v["name"]["tag"] == tag]
        return float(found[0].get("value", 0)) if found else None

    def scalars(self, trial: str, tag: str) -> list[tuple[int, float]]:
        return [(step, float(value)) for _, step, value in self.get("scalars/scalars", run=trial, tag=tag)]


@contextmanager
def tensorboard(logdir: Path, *options: str) -> Iterator[Board]:
    log = logdir.parent / "tensorboard.log"
    with open(log, "w") as out:
        process = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1",
                                    "--port", "0", "--reload_interval", "1", *options], stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=out, start_new_session=True)
    try:
        output = wait_for(lambda: process.poll() is not None or re.search(r"at (http://127\.0\.0\.1:\d+/)", log.read_text()),
                          f"TensorBoard starts: {log.read_text()}", 120)
        assert process.poll() is None, log.read_text()
        yield Board(output[1])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ---- TensorBoard's view -----------------------------------------------------------------

@pytest.mark.parametrize("fast", ["true", "false"])
def test_tensorboard_shows_parameters_metric_and_status_of_all_trials(yard: Yard, fast: str) -> None:
    """With both loaders: the data server, and the one in Python. Trial b fails, c succeeds at its second attempt."""
    yard.run("run", "--grid", "lr=0.1,0.2", "--grid", "net=a,b,c", "--max", "accuracy", "--retries", 1, "--parallel", 3,
             "--", "sh", "-c", """
        hopyard report loss=4 step=10; hopyard report loss=2 accuracy=0.25 step=20
        [ {net} != b ] || exit 3
        [ {net} != c ] || [ $HOPYARD_ATTEMPT = 2 ] || { hopyard report wrong=1; exit 4; }
        echo accuracy={lr}""", rc=1)
    trials = {t["dir"]: t for t in yard.trials()}
    with tensorboard(yard.logdir(), "--load_fast", fast) as board:
        groups = wait_for(lambda: (g := board.session_groups()) and len(g) == 6 and g, "six trials")
        assert set(groups) == set(trials)
        for name, trial in trials.items():
            failed = trial["params"]["net"] == "b"
            assert groups[name]["hparams"] == trial["params"]
            assert board.status(name) == ("STATUS_FAILURE" if failed else "STATUS_SUCCESS")
            assert board.metric(name, "accuracy") == pytest.approx(0.25 if failed else trial["params"]["lr"])
            assert board.metric(name, "loss") == 2
            assert board.metric(name, "wrong") is None, "values of the first attempt are gone"
            assert board.scalars(name, "loss") == [(10, 4), (20, 2)]
            steps = [(20, 0.25)] if failed else [(20, 0.25), (21, pytest.approx(trial["params"]["lr"]))]
            assert board.scalars(name, "accuracy") == steps
        experiment = board.get("hparams/experiment", request="{}")
        assert {h["name"]: h["type"] for h in experiment["hparamInfos"]} == {"lr": "DATA_TYPE_FLOAT64", "net": "DATA_TYPE_STRING"}
        assert {m["name"]["tag"] for m in experiment["metricInfos"]} == {"accuracy", "loss"}


def test_open_tensorboard_shows_the_success_of_a_retried_trial(yard: Yard) -> None:
    """It uses the first end it reads: there must be none while the trial may be retried."""
    gate = yard.project / "gate"
    p = yard.start("run", "--grid", "x=7", "--max", "v", "--retries", 1, "--", "sh", "-c",
                   f"echo v=1; [ $HOPYARD_ATTEMPT = 1 ] || while [ ! -e {gate} ]; do sleep 0.05; done; exit $((2 - HOPYARD_ATTEMPT))")
    wait_for(lambda: (yard.folder / "store.db").exists() and yard.attempts() and yard.attempts()[0]["state"] == "failed",
             "the first attempt fails")
    with tensorboard(yard.logdir()) as board:
        wait_for(lambda: board.status("x=7") == "STATUS_UNKNOWN", "the running trial is shown")
        gate.touch()
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, out + err
        wait_for(lambda: board.status("x=7") == "STATUS_SUCCESS", "the trial has succeeded")
        assert board.session_groups()["x=7"]["hparams"] == {"x": 7} and board.metric("x=7", "v") == 1


def test_event_files_of_the_trial_and_of_hopyard_are_shown_together(yard: Yard) -> None:
    """A trial with its own event file in its directory, and one in a subdirectory as Keras has it."""
    yard.script("own.py", "").write_text("""
import os, tensorflow as tf
for below in ("", "validation"):
    with tf.summary.create_file_writer(os.path.join(os.environ["HOPYARD_TRIAL_DIR"], below)).as_default():
        tf.summary.scalar("own", 0.5, step=3)
print("accuracy=0.75")
""")
    yard.run("run", "--grid", "lr=0.1", "--max", "accuracy", "--", sys.executable, "own.py", "{lr}")
    with tensorboard(yard.logdir()) as board:
        wait_for(lambda: board.status("lr=0.1") == "STATUS_SUCCESS", "the trial is shown")
        values = {(v["name"].get("group", ""), v["name"]["tag"]): v["value"] for v in board.session_groups()["lr=0.1"]["metricValues"]}
        assert values == {("", "own"): 0.5, ("validation", "own"): 0.5, ("", "accuracy"): 0.75}


# ---- contents of the files ---------------------------------------------------------------

def test_file_has_parameters_values_and_end(yard: Yard) -> None:
    yard.run("run", "--grid", "lr=0.1", "--grid", "net=relu", "--max", "accuracy", "--", "sh", "-c",
             "hopyard report accuracy=0.25 step=5; echo '{\"accuracy\": 0.5, \"loss\": 2}' > $HOPYARD_RESULT")
    folder = yard.logdir() / yard.trials()[0]["dir"]
    (path,) = files(folder)
    assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\.[\w.-]+\.hopyard\.1\.1", path.name)
    assert read(path) == Contents({"lr": 0.1, "net": "relu"}, "STATUS_SUCCESS", {"accuracy": [(5, 0.25), (6, 0.5)], "loss": [(0, 2)]})


def test_values_without_a_step_are_numbered(yard: Yard) -> None:
    yard.run("run", "--max", "v", "--", "sh", "-c", "for i in 1 2 3; do hopyard report v=$i w=$i; done; hopyard report v=8 step=9; "
             "hopyard report v=4; hopyard report w=4")
    assert contents(yard).values == {"v": [(0, 1), (1, 2), (2, 3), (9, 8), (10, 4)], "w": [(0, 1), (1, 2), (2, 3), (3, 4)]}


def test_without_parameters_there_are_values_and_no_session(yard: Yard) -> None:
    yard.run("run", "--max", "v", "--", "sh", "-c", "echo v=1")
    assert contents(yard) == Contents(None, None, {"v": [(0, 1)]})


def test_without_parameters_and_metric_there_is_no_file(yard: Yard) -> None:
    yard.run("run", "--", "sh", "-c", "echo hello; hopyard report v=1")
    assert {p.name for p in (yard.logdir() / "trial-1").iterdir()} == {"stdout"}


def test_new_attempt_replaces_the_file_of_the_previous_one(yard: Yard) -> None:
    yard.run("run", "--grid", "x=1", "--max", "v", "--retries", 2, "--", "sh", "-c",
             "hopyard report v=$HOPYARD_ATTEMPT; [ $HOPYARD_ATTEMPT = 3 ]")
    (path,) = files(yard.logdir() / "x=1")
    assert path.name.endswith(".hopyard.1.3")
    assert read(path) == Contents({"x": 1}, "STATUS_SUCCESS", {"v": [(0, 3)]})


def test_other_event_files_are_kept(yard: Yard) -> None:
    """Similar names belong to the user, or to another trial."""
    yard.run("run", "--grid", "x=1", "--retries", 1, "--", "sh", "-c", "cd $HOPYARD_TRIAL_DIR; "
             "for n in 0.h.hopyard.2.1 0.h.hopyard.1.x 0.h.hopyard.11.1 0.h; do : > events.out.tfevents.$n; done; : > x.hopyard.1.1; "
             "[ $HOPYARD_ATTEMPT = 2 ]")
    left = {p.name for p in (yard.logdir() / "x=1").iterdir()}
    assert len(left) == 6 and "x.hopyard.1.1" in left and "events.out.tfevents.0.h.hopyard.11.1" in left


def test_interrupted_trial_has_one_file_after_resume(yard: Yard) -> None:
    gate = yard.project / "gate"
    p = yard.start("run", "--grid", "x=1,2", "--max", "v", "--", "sh", "-c",
                   f"hopyard report v=$HOPYARD_ATTEMPT; [ -e {gate} ] || exec sleep 1000")
    wait_for(lambda: (yard.folder / "store.db").exists() and len(yard.rows("SELECT * FROM metrics")) == 2, "both trials have reported")
    os.kill(yard.process("driver"), signal.SIGKILL)
    p.communicate(timeout=60)
    yard.wait_idle()
    gate.touch()
    yard.run("resume", 1)
    for trial in (1, 2):
        assert contents(yard, trial) == Contents({"x": trial}, "STATUS_SUCCESS", {"v": [(0, 2)]})


def test_stopped_trial_has_no_end_until_it_is_resumed(yard: Yard) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--grid", "x=1", "--max", "v", "--", "sh", "-c", f"hopyard report v=1; [ -e {gate} ] || exec sleep 1000")
    wait_for(lambda: yard.rows("SELECT * FROM metrics"), "the trial has reported")
    yard.run("stop", 1)
    assert contents(yard) == Contents({"x": 1}, None, {"v": [(0, 1)]})
    gate.touch()
    yard.run("resume", 1)
    assert contents(yard) == Contents({"x": 1}, "STATUS_SUCCESS", {"v": [(0, 1)]})


def test_unusual_names_and_values_stay_readable(yard: Yard) -> None:
    yard.run("run", "--grid", "x=a b/ü\n'c'", "--max", "acc\nuracy", "--", "sh", "-c",
             "hopyard report loss=nan step=1; hopyard report loss=-inf step=2; hopyard report \"$(printf 'caf\\351')=1e300\"; "
             "printf '%s' '{\"acc\\nuracy\": 0.5, \"größe\": 3}' > $HOPYARD_RESULT")
    found = contents(yard)
    assert found.params == {"x": "a b/ü\\n'c'"} and found.status == "STATUS_SUCCESS"
    loss = found.values.pop("loss")
    assert math.isnan(loss[0][1]) and loss[1] == (2, -math.inf)
    assert found.values == {"caf\\xe9": [(0, math.inf)], "acc\\nuracy": [(0, 0.5)], "größe": [(0, 3)]}


def test_trial_that_empties_its_directory_keeps_its_event_file(yard: Yard) -> None:
    """As training code does to start afresh: trial 1 recreates the directory, trial 2 does not."""
    yard.run("run", "--grid", "x=1,2", "--max", "v", "--", "sh", "-c",
             WRITTEN + "rm -r $HOPYARD_TRIAL_DIR; hopyard report v=1; [ {x} = 2 ] || mkdir $HOPYARD_TRIAL_DIR; hopyard report v=2")
    for trial in (1, 2):
        assert contents(yard, trial) == Contents({"x": trial}, "STATUS_SUCCESS", {"v": [(0, 1), (1, 2)]})


def test_trial_that_damages_its_directory_loses_only_its_own_events(yard: Yard) -> None:
    p = yard.run("run", "--grid", "x=1,2", "--parallel", 1, "--max", "v", "--", "sh", "-c", WRITTEN +
                 "[ {x} = 2 ] || {{ rm -r $HOPYARD_TRIAL_DIR; : > $HOPYARD_TRIAL_DIR; }}; hopyard report v={x}", rc=1)
    assert [t["state"] for t in yard.trials()] == ["failed", "done"], "its result would have been in that directory"
    assert "trial 1: cannot write its events for TensorBoard" in p.stdout
    assert contents(yard, 2) == Contents({"x": 2}, "STATUS_SUCCESS", {"v": [(0, 2)]})


def test_pipe_in_place_of_the_event_file_is_not_written_to(yard: Yard) -> None:
    """A pipe takes 64 KB, and then blocks as long as it is not read."""
    fill = 'for i in $(seq 60); do hopyard report $(seq -f "a-long-name-of-a-value-%g=1" 60); done; '
    yard.run("run", "--grid", "x=1,2", "--max", "v", "--", "sh", "-c",
             "cd $HOPYARD_TRIAL_DIR; echo v={x}; " + fill + "for f in events*; do rm $f; mkfifo $f; done", rc=0)
    assert [t["state"] for t in yard.trials()] == ["done", "done"]
    assert "cannot write its events for TensorBoard" in yard.driver_log()


def test_full_disk_is_reported_and_resume_completes_every_file(yard: Yard) -> None:
    """A disk of sixteen pages for the logs only: it has only these files."""
    need_root("to mount a small disk")
    logs = yard.project / "Logs"
    logs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", logs], check=True)
    try:
        p = yard.run("run", "--disk-timeout", "2s", "--grid", "x=1..30", "--parallel", 1, "--", "true", rc=1)
        assert re.search(r"disk full: cannot write '.*tfevents.*'; free some space \(`hopyard resume 1` continues the run\)", p.stdout), p.stdout
        yard.wait_idle()
        subprocess.run(["mount", "-o", "remount,size=4m", logs], check=True)
        yard.run("resume", 1)
        assert all(contents(yard, n).params == {"x": n} for n in range(1, 31))
        ends = [contents(yard, n).status for n in range(1, 31)]
        assert ends.count("STATUS_SUCCESS") >= 29, "one session end was lost on the full disk"
    finally:
        subprocess.run(["umount", "-l", logs], check=True)


def test_trials_on_hosts_without_shared_files_have_event_files(yard: Yard) -> None:
    with hosts_of(yard, "a") as _:
        yard.run("run", "--hosts", "a:2", "--grid", "x=1,2", "--max", "v", "--retries", 1, "--", "sh", "-c",
                 "hopyard report v=$HOPYARD_ATTEMPT step=4; echo left > $HOPYARD_TRIAL_DIR/file; [ {x} = 1 ] || [ $HOPYARD_ATTEMPT = 2 ]")
        for trial in (1, 2):
            assert contents(yard, trial) == Contents({"x": trial}, "STATUS_SUCCESS", {"v": [(4, trial)]})
        assert all((yard.logdir() / t["dir"] / "file").read_text() == "left\n" for t in yard.trials())
