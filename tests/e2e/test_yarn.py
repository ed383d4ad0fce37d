# SPDX-License-Identifier: Apache-2.0
"""Features of YARN only: containers with a memory limit. The rest is in test_engines_*.py."""
from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import wait_for
from spark import repair
from test_spark import House, houses, leave_no_run_behind  # noqa: F401  (fixtures)


@pytest.fixture(scope="module")
def house(yarn_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    repair("yarn", yarn_cluster)
    overhead = {"executor_memoryOverhead": "700m", "executor_cores": "2"}
    yield from houses(yarn_cluster, "yarn", tmp_path_factory.mktemp("house"), **overhead)


def test_trials_run_in_containers(house: House) -> None:
    output = house.notebook.evaluate("""
        here = os.path.abspath("here")
        os.mkdir(here)

        def training(x):
            Path(here, str(x)).touch()
            while len(os.listdir(here)) < 4:  # all at once: as many as there are slots
                time.sleep(0.01)
            Path(here, str(x)).write_text(os.environ["CONTAINER_ID"])

        experiment.grid_search(training, {"x": [1, 2, 3, 4]}, spark=spark, tensorboard=False)
        emit(containers=sorted(path.read_text() for path in Path(here).iterdir()), app=sc.applicationId)
    """)
    first, second = output["containers"][1:3]
    assert output["containers"] == [first, first, second, second] and first != second
    assert output["app"].startswith("application_") and first.startswith("container_" + output["app"].removeprefix("application_"))


def test_largest_trial_is_killed_before_yarn_kills_its_container(house: House) -> None:
    output = house.notebook.evaluate("""
        def training(mb):
            held = []
            for _ in range(mb // 50):
                held.append(os.urandom(1) * (50 << 20))
                time.sleep(0.1)
            return mb

        result = experiment.grid_search(training, {"mb": [100, 3000, 150]}, spark=spark, tensorboard=False)
        emit(run=result.run, states=[t.state for t in result.trials], error=result.trials[1].error)
    """)
    assert output["states"] == ["done", "failed", "done"]
    assert re.match(r"killed: its container may use 1\.2 GB, and .* by this trial; raise spark\.executor\.memoryOverhead",
                    output["error"]), output["error"]
    assert {a["state"] for a in house.yard.attempts(output["run"])} == {"done", "failed"}, "no other trial was lost"


def test_killed_container_loses_only_its_trials(house: House) -> None:
    run = house.start_gated_run("gate")
    [first, _] = house.on_cluster(r"^\S*java .*YarnCoarseGrainedExecutorBackend")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: house.count(run, "lost") == 2, "the trials of the container are lost")
    house.wait_for_gated_run(run)
    (house.yard.project / "gate").touch()
    house.notebook.evaluate(f"experiment.attach({run})")
    house.check_gated_run(run, lost=2)


def test_command_with_the_name_of_the_cluster(house: House) -> None:
    """The run then has its own session."""
    house.notebook.evaluate("spark.stop()")
    env = {**house.env, "HOPYARD_PYTHON": sys.executable}
    p = house.yard.run("run", "--engine", "yarn", "--executors", 1, "--grid", "x=1,2", "--max", "m", "--", "sh", "-c",
                       "echo m={x} in=$CONTAINER_ID", env=env)
    assert "2 done" in p.stdout and "m=2" in p.stdout, p.stdout
    logs = house.yard.logdir(max(row["id"] for row in house.yard.rows("SELECT id FROM runs")))
    assert all("in=container_" in (logs / f"x={x}" / "stdout").read_text() for x in (1, 2))
