# SPDX-License-Identifier: Apache-2.0
"""A project on HDFS: directories of trials are there during the trial, and complete afterwards, despite NameNode outages."""
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import Yard
from hdfs import Hdfs
from needs import need_root
from waiting import wait_for


@pytest.fixture
def far(yard: Yard, hdfs: Hdfs, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of the project; commands of the yard use it."""
    url = f"{hdfs.url}/Projects/{request.node.name.removeprefix('test_')[:40]}"
    yard.env |= {**hdfs.env(), "HOPYARD_PROJECT": url, "XDG_STATE_HOME": str(tmp_path / "state")}
    return url


def files(yard: Yard, url: str) -> dict[str, int]:
    """Path and size of all files below it."""
    found = json.loads(yard.run("fs", "ls", "-R", "--json", url).stdout)
    return {f["path"].removeprefix(f"{url}/"): f["size"] for f in found if f["type"] == "file"}


def text(yard: Yard, *parts: str) -> str:
    return yard.run("fs", "cat", "/".join(parts)).stdout


def logdir(yard: Yard) -> str:
    return json.loads(yard.run("show", "--json").stdout)["run"]["logdir"]


def test_all_files_of_a_run_are_on_hdfs(yard: Yard, far: str, hdfs: Hdfs) -> None:
    script = 'echo printed; mkdir $HOPYARD_TRIAL_DIR/deep; printf {x} > $HOPYARD_TRIAL_DIR/deep/value; : > $HOPYARD_TRIAL_DIR/empty'
    output = yard.run("run", "--grid", "x=1,2", "--", "sh", "-c", script).stdout
    place = logdir(yard)
    assert place.startswith(f"{far}/Logs/TensorFlow/local-") and place in output and place in yard.run("show").stdout
    found = files(yard, place)
    assert {"run.db", "x=1/deep/value", "x=2/deep/value", "x=1/stdout", "x=1/empty"} <= set(found)
    assert (found["x=1/deep/value"], found["x=1/empty"]) == (1, 0)
    assert not [f for f in found if ".token" in f or "_COPYING_" in f]
    assert hdfs.shell("-cat", f"{place}/x=2/deep/value").text == "2" and text(yard, place, "x=1", "stdout") == "printed\n"
    made = {f["path"].rpartition("/")[2] for f in json.loads(yard.run("fs", "ls", "--json", far).stdout)}
    assert made == {"Resources", "Logs", "Jupyter", "Models"}
    assert "1 | printed" in yard.run("logs").stdout


def test_project_option_selects_hdfs(yard: Yard, far: str) -> None:
    del yard.env["HOPYARD_PROJECT"]
    output = yard.run("run", "--project", f"{far}/", "--", "sh", "-c", "echo $HOPYARD_PROJECT").stdout
    assert f"logs in {far}/Logs/" in output
    assert far in yard.run("logs", "--project", far).stdout.split()


def test_events_and_output_are_on_hdfs_during_the_trial(yard: Yard, far: str, tmp_path: Path) -> None:
    script = ('printf one > $HOPYARD_TRIAL_DIR/events.out.tfevents.1; echo begun; until [ -e "$0" ]; do sleep 0.1; done;'
              ' printf two >> $HOPYARD_TRIAL_DIR/events.out.tfevents.1')
    run = yard.start("run", "--", "sh", "-c", script, tmp_path / "go")

    def now() -> dict[str, int]:
        return files(yard, f"{far}/Logs") if "Logs" in yard.run("fs", "ls", far, rc=None).stdout else {}

    def names() -> set[str]:
        return {path.rpartition("/")[2] for path, size in now().items() if size}

    wait_for(lambda: {"events.out.tfevents.1", "stdout"} <= names(), "the first events are on HDFS")
    path = next(p for p in now() if p.endswith("events.out.tfevents.1"))
    assert text(yard, far, "Logs", path) == "one" and run.poll() is None
    (tmp_path / "go").touch()
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert text(yard, far, "Logs", path) == "onetwo"


def test_namenode_outage_delays_the_run_and_loses_nothing(yard: Yard, far: str, hdfs: Hdfs) -> None:
    script = "for i in 1 2 3 4 5 6; do echo line {x} $i | tee -a $HOPYARD_TRIAL_DIR/own.log; sleep 1; done"
    run = yard.start("run", "--grid", "x=1,2", "--", "sh", "-c", script)
    wait_for(lambda: "Logs" in yard.run("fs", "ls", far, rc=None).stdout, "the run has started")
    hdfs.namenode.kill()
    time.sleep(60 if os.environ.get("HOPYARD_TEST_CLUSTER") == "all" else 8)  # length of the outage
    assert run.poll() is None, "it waits for the upload of its files"
    hdfs.repair()
    out, err = run.communicate(timeout=180)
    assert run.returncode == 0, out + err
    place = logdir(yard)
    for x in (1, 2):
        lines = "".join(f"line {x} {i}\n" for i in range(1, 7))
        assert text(yard, place, f"x={x}", "own.log") == lines == text(yard, place, f"x={x}", "stdout")


# ---- agents without access to the project directory ------------------------------------------------------------------

WRITER = """
cd $HOPYARD_TRIAL_DIR; mkdir -p checkpoint deep/er; printf one > events.out.tfevents.1; echo {x} > checkpoint/step; echo own > stderr
pwd > $0/x={x}; until [ -e $0/gate ]; do sleep 0.1; done
printf two >> events.out.tfevents.1; head -c 3000000 /dev/urandom > deep/big; sha256sum < deep/big
"""


class IsolatedAgent:
    """A run with an agent that sees an empty directory instead of the project's; its Hadoop user may be another one."""

    def __init__(self, yard: Yard, here: Path, folder: Path, user: str | None) -> None:
        need_root("to hide a project from an agent")
        self.yard, self.here, self.folder = yard, here, folder
        trials = 2 + (os.cpu_count() or 1)
        self.run = yard.start("run", "--listen", "127.0.0.1:0", "--grid", f"x=1..{trials}", "--", "sh", "-c", WRITER, folder)
        match = wait_for(lambda: re.search(r"agents join by: hopyard agent --join HOST:(\d+) --key-file (\S+)", self.driver_log()),
                         "the log says how to join")
        key = Path(shutil.copy(match[2], folder / "key"))
        options = ["--slots", 2, "--work", folder / "work", *(["--own-environment"] if user else [])]
        command = yard.command("agent", "--join", f"127.0.0.1:{match[1]}", "--key-file", key, *options)
        hide_project = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'mount -t tmpfs none {here} && exec "$@"', "sh"]
        self.agent = subprocess.Popen(
            [*hide_project, *command],
            env={**yard.env, **({"HADOOP_USER_NAME": user} if user else {})}, text=True, stderr=subprocess.PIPE)
        wait_for(lambda: len(self.trials()) == 2, "the agent has two trials")
        self.place = logdir(yard)

    def driver_log(self) -> str:
        return "".join(p.read_text() for p in self.here.rglob("run-*.log"))

    def trials(self) -> list[str]:
        """Those of the agent."""
        return [p.name for p in self.folder.glob("x=*") if p.read_text().startswith(str(self.folder))]

    def files_sent_over_the_driver_link(self) -> set[str]:
        """Files of these trials in the local project directory, without the driver's own."""
        files = [p for t in self.trials() for folder in self.here.rglob(t) for p in folder.rglob("*") if p.is_file()]
        return {p.name for p in files if ".hopyard." not in p.name}

    def finish(self) -> str:
        """Returns the output of the agent; all files are on HDFS."""
        out, err = self.run.communicate(timeout=240)
        assert self.run.returncode == 0, out + err
        for trial in self.trials():
            place = f"{self.place}/{trial}"
            assert text(self.yard, place, "events.out.tfevents.1") == "onetwo"
            assert text(self.yard, place, "checkpoint/step").strip() == trial.removeprefix("x=")
            assert text(self.yard, place, "stderr") == "own\n", "no output names the local directory"
            copy = self.folder / f"big-{trial}"
            self.yard.run("fs", "get", f"{place}/deep/big", copy)
            assert text(self.yard, place, "stdout").split()[0] == hashlib.sha256(copy.read_bytes()).hexdigest()
        return self.agent.communicate(timeout=60)[1]


@pytest.fixture
def isolated_agent(yard: Yard, far: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[IsolatedAgent]:
    """Mounts need root."""
    (tmp_path / "state").mkdir()
    (tmp_path / "far").mkdir()
    if hasattr(request, "param"):
        del yard.env["HADOOP_USER_NAME"]  # the run's variable would be passed to the agent
    found = IsolatedAgent(yard, tmp_path / "state", tmp_path / "far", getattr(request, "param", None))
    yield found
    found.agent.kill()


def test_agent_without_the_project_directory_writes_to_hdfs_itself(isolated_agent: IsolatedAgent) -> None:
    for trial in isolated_agent.trials():
        events = f"{isolated_agent.place}/{trial}/events.out.tfevents.1"
        wait_for(lambda: isolated_agent.yard.run("fs", "cat", events, rc=None).stdout == "one", "the first events are on HDFS")
    (isolated_agent.folder / "gate").touch()
    assert "over the driver's link" not in isolated_agent.finish()
    assert isolated_agent.files_sent_over_the_driver_link() == {"stdout", "stderr", "step"}
    assert "er" in isolated_agent.yard.run("fs", "ls", f"{isolated_agent.place}/{isolated_agent.trials()[0]}/deep").stdout


def test_files_of_an_isolated_agent_survive_a_namenode_outage(isolated_agent: IsolatedAgent, hdfs: Hdfs) -> None:
    hdfs.namenode.kill()
    (isolated_agent.folder / "gate").touch()
    wait_for(lambda: all((isolated_agent.folder / "work").rglob("deep/big")), "the files are written")
    time.sleep(5)  # length of the outage
    assert isolated_agent.run.poll() is None
    hdfs.repair()
    assert "over the driver's link" not in isolated_agent.finish()
    assert isolated_agent.files_sent_over_the_driver_link() == {"stdout", "stderr", "step"}


@pytest.mark.parametrize("isolated_agent", ["stranger"], indirect=True)
def test_files_go_over_the_driver_link_without_write_permission(isolated_agent: IsolatedAgent) -> None:
    (isolated_agent.folder / "gate").touch()
    output = isolated_agent.finish()
    assert "a trial's files go over the driver's link" in output and "stranger" in output
    assert {"big", "events.out.tfevents.1"} <= isolated_agent.files_sent_over_the_driver_link()


def test_attach_returns_when_the_files_of_an_ended_run_are_on_hdfs(yard: Yard, far: str, hdfs: Hdfs, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"echo begun; until [ -e {gate} ]; do sleep 0.1; done; printf 4 > $HOPYARD_TRIAL_DIR/value"
    yard.run("run", "--detach", "--", "sh", "-c", script)
    place = logdir(yard)
    wait_for(lambda: "begun" in yard.run("logs").stdout, "the trial runs")
    hdfs.namenode.kill()
    gate.touch()
    wait_for(lambda: json.loads(yard.run("show", "--json").stdout)["run"]["state"] == "done", "the run is done")
    with subprocess.Popen(yard.command("attach"), env=yard.env, text=True, stdout=subprocess.PIPE) as attach:
        with pytest.raises(subprocess.TimeoutExpired):
            attach.wait(3)
        hdfs.repair()
        assert attach.wait(240) == 0
    assert text(yard, place, "trial-1", "value") == "4"


def test_missing_namenode_is_an_error_before_the_run(yard: Yard, far: str) -> None:
    done = yard.run("run", "--project", "hdfs://127.0.0.1:9/p", "--", "true", rc=None)
    assert done.returncode != 0 and "no NameNode responded at 127.0.0.1:9" in done.stderr


PROGRAM = """
import json, os, sys
from hopyard import experiment, hdfs, tensorboard

def train(x):
    with open(os.path.join(tensorboard.logdir(), "note"), "w") as file:
        file.write(hdfs.project_path())
    return {"metric": x * 2, "word": "w%d" % x}

result = experiment.grid_search(train, {"x": [1, 2]}, direction="max")
import hopyard.compat
from hops import tflauncher, experiment as hops_experiment
best = hops_experiment.grid_search(train, {"x": [3, 4]}, direction="max", optimization_key="metric")
launched = tflauncher.launch(None, train, {"x": [5]})
print(json.dumps({"logdir": result.logdir, "best": result.best.logdir, "found": list(best), "launched": launched}))
"""


def test_python_gets_directories_on_hdfs(yard: Yard, far: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, tmp_path / "program.py"], env={**yard.env, "HOPYARD_PROGRAM": yard.bin},
                          cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert output["logdir"].startswith(f"{far}/Logs/TensorFlow/") and output["best"] == f"{output['logdir']}/x=2"
    assert text(yard, output["best"], "note") == f"{far}/"
    assert output["found"][0].startswith(far) and output["found"][-1]["word"] == "w4"
    assert output["launched"].startswith(far) and "x=5" in yard.run("fs", "ls", output["launched"]).stdout
