# SPDX-License-Identifier: Apache-2.0
"""Configuration of a session, settings that affect a run, and where a run gets its executors from."""
from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import wait_for
from house import House, opened

CROWD = """
def crowd(x, here, expected):
    "How many were here with it, at most. It waits until there were once as many as expected, and then for one too many."
    mine, seen = Path(here, f"{os.getpid()} {x}"), Path(here + "-seen")
    mine.touch()
    most = 0
    while not seen.exists():
        if len(os.listdir(here)) >= expected:
            seen.touch()
        time.sleep(0.02)
    for _ in range(30):
        most = max(most, len(os.listdir(here)))
        time.sleep(0.02)
    mine.unlink()
    return most

spark = None

def stop():
    if spark:
        spark.stop()

def most_at_once(count, expected, **settings):
    here = os.path.abspath(f"here-{time.time()}")
    os.mkdir(here)
    space = {"x": list(range(count)), "here": [here], "expected": [expected]}
    result = experiment.grid_search(crowd, space, tensorboard=False, **settings)
    emit(run=result.run, states=sorted({t.state for t in result.trials}))
    return max(t.metric for t in result.trials)
"""


@pytest.fixture(scope="module")
def house(spark_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with opened(spark_cluster, "spark", tmp_path_factory.mktemp("house")) as house:
        house.notebook.evaluate("import hopyard.spark" + CROWD)
        yield house


def on_master(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    """The running applications that the master knows."""
    with urllib.request.urlopen(cluster["spark_page"] + "/json/", timeout=60) as answer:
        return json.load(answer)["activeapps"]


def test_session_is_configured_by_arguments_properties_and_the_project_file(house: House, spark_cluster: dict[str, Any]) -> None:
    (house.yard.project / "hopyard.toml").write_text(
        "[spark]\nexecutors = 7\nparallel = 3\nexecutor-memory = 600\nparameter-servers = 2\n")
    output = house.notebook.evaluate("""
        stop()
        spark = hopyard.spark.session(executors=2, conf={"spark.hopyard.executor.memory": "512"})
        from hops import util
        conf = spark.sparkContext.getConf()
        emit(instances=conf.get("spark.executor.instances"), memory=conf.get("spark.executor.memory"),
            executors=util.num_executors(spark), servers=util.num_param_servers(spark), most=most_at_once(5, 3, spark=spark),
            fewer=most_at_once(4, 2, spark=spark, parallel=2), again=failing(lambda: hopyard.spark.session()))
    """)
    assert output["instances"] == "2" and output["memory"] == "512m", "the argument and our property take precedence over the file"
    assert output["executors"] == 2 and output["servers"] == 2 and output["most"] == 3, "from the file"
    assert output["fewer"] == 2, "the argument of the call"
    assert "already has a SparkSession" in output["again"]
    [application] = on_master(spark_cluster)
    assert application["memoryperexecutor"] == 512
    (house.yard.project / "hopyard.toml").unlink()


def test_late_executors_are_used(house: House) -> None:
    """The number of executors is unknown, and there may be none at the time of the call."""
    output = house.notebook.evaluate("""
        stop()
        spark = session(executor_memory="512m")
        emit(most=most_at_once(8, 4, spark=spark))
        def rank():
            import hopyard.collective as hvd
            hvd.init()
            return hvd.size()
        emit(ranks=allreduce.run(rank, np=4, spark=spark, tensorboard=False),
            error=failing(lambda: allreduce.run(rank, np=6, spark=spark, tensorboard=False)))
    """)
    assert output["most"] == 4 and output["ranks"] == [4] * 4
    assert "6 ranks need 6 slots, but there are 4; start 4, or add executors" in output["error"]
    assert output["error"].endswith(", spark=spark)")


def test_invalid_setting_is_refused_without_a_run(house: House) -> None:
    (house.yard.project / "hopyard.toml").write_text("[spark]\nparallel = 'many'\n")
    output = house.notebook.evaluate("""
        spark = spark or session(executor_memory="512m")
        emit(error=failing(lambda: experiment.grid_search(lambda x: x, {"x": [1]}, spark=spark, name="senseless", tensorboard=False)))
    """)
    assert output["error"].endswith("hopyard.toml: parallel in [spark] is 'many', which is not a number")
    assert not house.yard.rows("SELECT id FROM runs WHERE name = 'senseless'")
    (house.yard.project / "hopyard.toml").unlink()


def test_at_most_one_agent_per_trial_is_requested(house: House) -> None:
    output = house.notebook.evaluate("""
        spark = spark or session(executor_memory="512m")
        most_at_once(1, 1, spark=spark)
    """)
    run = output["run"]
    jobs = house.notebook.evaluate(f"""
        emit(jobs=[len(spark.sparkContext.statusTracker().getJobIdsForGroup(f"hopyard-run-{run}-agent-{{n}}")) for n in (1, 2, 3)])
    """)["jobs"]
    assert jobs == [1, 0, 0], "each is a job in its own group"


def test_missing_executor_does_not_hide_a_shortage(house: House) -> None:
    """Three are requested, and two can be had: the shortage is reported without waiting for the third."""
    output = house.notebook.evaluate("""
        stop()
        spark = session(executor_memory="512m", executor_instances="3")
        emit(error=failing(lambda: experiment.grid_search(lambda x: x, {"x": list(range(8))}, gpus=1, spark=spark, tensorboard=False)))

        def rank():
            import hopyard.collective as hvd
            hvd.init()
            return hvd.size()
        emit(ranks=allreduce.run(rank, np=6, min_np=2, max_np=6, spark=spark, tensorboard=False))
    """)
    assert "each trial needs 1 GPU, but executors have no GPU" in output["error"], output["error"]
    assert output["ranks"] == [4] * 4, "an elastic training starts with the ranks that fit"


def test_dynamic_allocation_adds_and_releases_executors(house: House) -> None:
    output = house.notebook.evaluate("""
        stop()
        spark = session(executor_memory="512m", executor_cores="1", dynamicAllocation_enabled="true",
                        dynamicAllocation_shuffleTracking_enabled="true", dynamicAllocation_executorIdleTimeout="1s")
        emit(most=most_at_once(3, 3, spark=spark))
    """)
    assert output["states"] == ["done"] and output["most"] == 3
    wait_for(lambda: not house.executors(), "idle executors are released")


def test_run_has_its_own_session_with_the_given_settings(house: House, spark_cluster: dict[str, Any]) -> None:
    house.notebook.evaluate("stop()\nspark = None")
    (house.yard.project / "hopyard.toml").write_text("[spark]\nparallel = 1\n")
    gate = house.yard.project / "gate"
    env = {**house.env, "HOPYARD_PYTHON": sys.executable}
    house.yard.run("run", "--detach", "--engine", house.env["MASTER"], "--executors", 1, "--executor-memory", 600, "--grid",
                   "x=1,2", "--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done", env=env)
    run = max(row["id"] for row in house.yard.rows("SELECT id FROM runs"))
    wait_for(lambda: house.count(run, "running") == 1, "a trial runs")
    assert [a["memoryperexecutor"] for a in on_master(spark_cluster)] == [600]
    assert house.count(run, "running") == 1, "one at a time, as in the project's file"
    os.kill(house.yard.process("driver"), signal.SIGKILL)
    wait_for(lambda: not on_master(spark_cluster) and not house.agents(), "its session ends with the driver")
    gate.touch()
    house.yard.run("resume", run, env=env)  # with another session
    assert [t["state"] for t in house.yard.trials(run)] == ["done"] * 2
    wait_for(lambda: not on_master(spark_cluster), "the other session ends with the run")
    (house.yard.project / "hopyard.toml").unlink()


def test_progress_bar_of_spark_does_not_disturb_the_table(house: House) -> None:
    """It writes to the terminal of the session's program every half second while a job runs."""
    house.notebook.evaluate("stop()\nspark = None")
    code = """
import time
from hopyard import experiment
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.ui.showConsoleProgress", "true").config("spark.executor.memory", "512m").getOrCreate()
experiment.grid_search(lambda x: time.sleep(2), {"x": [1, 2]}, spark=spark, tensorboard=False)
spark.stop()
"""
    main, other = pty.openpty()
    env = {**house.yard.env, **house.env, "HOPYARD_PROGRAM": house.yard.bin, "TERM": "xterm"}
    with subprocess.Popen([sys.executable, "-c", code], env=env, cwd=house.yard.project, stdin=other, stdout=other, stderr=other,
                          start_new_session=True) as program:
        os.close(other)
        shown = b""
        try:
            while part := os.read(main, 65536):
                shown += part
        except OSError:  # EIO: the other end is closed
            pass
    os.close(main)
    assert program.returncode == 0 and b"2 done" in shown, shown[-3000:]
    assert b"[Stage" not in shown


def test_spark_connect_session_is_refused_with_a_message(house: House) -> None:
    """A real one, with its own server."""
    code = """
import hopyard, hopyard.compat
from hops import experiment
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[1]").getOrCreate()
for call in (experiment.grid_search, lambda s, *args: hopyard.experiment.grid_search(*args, spark=s)):
    try:
        call(spark, lambda x: x, {"x": [1]})
    except hopyard.Error as error:
        print(error)
spark.stop()
"""
    env = {k: v for k, v in house.yard.env.items() if k != "MASTER"}
    p = subprocess.run([sys.executable, "-c", code], env={**env, "HOPYARD_PROGRAM": house.yard.bin}, cwd=house.yard.project,
                       text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
    assert p.returncode == 0, p.stdout + p.stderr
    assert p.stdout.count("a Spark Connect session cannot start hopyard's jobs; use a SparkSession of this process: ") == 2, p.stdout


# ---- memory of YARN containers ------------------------------------------------------------------------------


def test_trials_get_the_memory_of_a_container_without_its_jvm(yarn_cluster: dict[str, Any],
                                                             tmp_path_factory: pytest.TempPathFactory) -> None:
    with opened(yarn_cluster, "yarn", tmp_path_factory.mktemp("yarn-house")) as house:
        output = house.notebook.evaluate(CROWD + """
spark = session(**{"executor.memoryOverhead": "700m", "executor_instances": "1", "executor_cores": "4"})
emit(most=most_at_once(4, 2, spark=spark, memory="300M"),
    error=failing(lambda: most_at_once(1, 1, spark=spark, memory="2G")))
""")
    assert output["most"] == 2, "700 MB are for two of them, though there are four cores"
    assert "a trial needs 2.0 GB of memory, but no executor has more than 700.0 MB" in output["error"], output["error"]
    assert "spark.executor.memoryOverhead" in output["error"]
