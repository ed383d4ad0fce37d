# SPDX-License-Identifier: Apache-2.0
"""GPUs that Spark assigns to executors, leased to trials: a discovery script with fake addresses, YARN's yarn.io/gpu.

Four executors of one core and one GPU each, all on this machine. Standalone workers assign their two addresses to two
executors; YARN, which isolates nothing here, assigns address 0 to all four. The devices behind the addresses are fakes
(tests/fakes/nvml.c): two.
"""
from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_for
from house import CELL_S, House, houses
from spark import GPU_SCRIPT
from test_gpus import LIBRARY

EXECUTORS = 4

TRIALS = """
def record(folder, name, **words):
    made = Path(folder, "new-" + name)
    made.write_text(json.dumps({"time": time.monotonic_ns(), **words}))
    made.rename(Path(folder, name))

def holding(x, folder):
    "Records its devices, and its start and end. The first trials end when the gate opens."
    from hopyard import devices
    record(folder, f"begin-{x}", sees=os.environ.get("CUDA_VISIBLE_DEVICES"), number=devices.get_num_gpus())
    while not os.path.exists(os.path.join(folder, "gate")):
        time.sleep(0.02)
    record(folder, f"end-{x}")
    return x

def begin_holding(gpus, count, folder):
    os.mkdir(folder)
    emit(run=experiment.grid_search(holding, {"x": list(range(count)), "folder": [folder]}, gpus=gpus, spark=spark,
                                   tensorboard=False, detach=True).run)

def seen(gpus):
    result = experiment.grid_search(lambda x: {"m": x, "sees": os.environ.get("CUDA_VISIBLE_DEVICES", "unset"),
                                               "gpus": os.environ.get("HOPYARD_GPUS", "unset")},
                                    {"x": [1]}, gpus=gpus, metric="m", spark=spark, tensorboard=False)
    return json.loads(Path(result.trials[0].logdir, "result.json").read_text())

def given(_):
    "The addresses that Spark has assigned."
    from pyspark import TaskContext
    Path(there, _executor._id()).touch()
    while len(os.listdir(there)) < 4:  # each on its own executor
        time.sleep(0.01)
    return _executor._id(), TaskContext.get().resources()["gpu"].addresses

from hopyard._spark import executor as _executor
from pyspark import cloudpickle
cloudpickle.register_pickle_by_value(_executor)
there = os.path.abspath("there")
os.mkdir(there)
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1).resource("gpu", 1)).build
addresses = dict(sc.parallelize(range(4), 4).withResources(profile).map(given).collect())
"""


class Devices:
    """A house whose executors have fake devices."""

    def __init__(self, house: House, seed: str) -> None:
        self.house, self.seed = house, seed
        self.given: dict[str, list[str]] = house.notebook.evaluate(TRIALS + "emit(**addresses)")

    def uuid(self, address: str) -> str:
        return f"GPU-{0xa0 + int(address):08x}-fake-{self.seed}"

    def begin(self, gpus: float, count: int, name: str) -> tuple[int, Path]:
        folder = self.house.yard.project / name
        return int(self.house.notebook.evaluate(f"begin_holding({gpus}, {count}, {str(folder)!r})")["run"]), folder

    def wait_held(self, run: int, count: int) -> None:
        """Waits until so many trials wait at their agents for a device that a trial of another agent holds."""
        watcher = self.house.yard.start("attach", run, "--html")
        assert watcher.stdout
        late = threading.Timer(CELL_S, watcher.kill)
        late.start()
        try:
            assert any(self.held_in(table) == count for table in watcher.stdout), f"{count} trials never waited at once"
        finally:
            late.cancel()
            watcher.kill()
            watcher.communicate()

    def held_in(self, table: str) -> int:
        return sum("waiting" in row and "GPU-" in row for row in table.split("<tr"))

    def release_devices(self, run: int, folder: Path, begun: int) -> None:
        """So many trials have devices, and no more start until these release theirs."""
        wait_for(lambda: len(list(folder.glob("begin-*"))) == begun, f"{begun} trials have devices")
        (folder / "gate").touch()
        output = self.house.notebook.evaluate(f"emit(states=[t.state for t in experiment.attach({run}).trials])")
        assert set(output["states"]) == {"done"}, self.house.yard.trials(run)

    def check(self, run: int, folder: Path, share: float) -> dict[str, float]:
        """Checks the devices of trials, and that none was oversubscribed. Returns the largest concurrent share of each."""
        begun = {p.name[6:]: json.loads(p.read_text()) for p in folder.glob("begin-*")}
        ended = {p.name[4:]: json.loads(p.read_text()) for p in folder.glob("end-*")}
        attempts = {str(t["params"]["x"]): a for t, a in zip(self.house.yard.trials(run), self.house.yard.attempts(run))}
        assert begun.keys() == ended.keys() == attempts.keys()
        for x, words in begun.items():
            executor = re.match(r"executor-(\w+)@", attempts[x]["agent"])
            assert executor and words["number"] == 1, (attempts[x], words)
            assert words["sees"] in map(self.uuid, self.given[executor[1]]), (attempts[x], words, self.given)
        return {device: most_at_once([(begun[x]["time"], ended[x]["time"]) for x in begun if begun[x]["sees"] == device]) * share
                for device in {words["sees"] for words in begun.values()}}


def most_at_once(spans: list[tuple[int, int]]) -> int:
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    now = most = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


def devices_on(cluster: dict[str, Any], part: str, folder: Path, **settings: str) -> Iterator[Devices]:
    assert (LIBRARY / "libnvidia-ml.so.1").exists(), f"build the tests: no libnvidia-ml.so.1 in {LIBRARY}"
    seed = uuid.uuid4().hex
    wanted = {"executor_instances": str(EXECUTORS), "cores_max": str(EXECUTORS), "executor_cores": "1",
              "executor_resource_gpu_amount": "1", "executorEnv.LD_LIBRARY_PATH": str(LIBRARY),
              "executorEnv.FAKE_NVML_DEVICES": "2", "executorEnv.FAKE_NVML_SEED": seed, **settings}
    for house in houses(cluster, part, folder, **wanted):
        yield Devices(house, seed)


@pytest.fixture(scope="module")
def standalone(spark_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devices]:
    yield from devices_on(spark_cluster, "spark", tmp_path_factory.mktemp("house"))


@pytest.fixture(scope="module")
def yarn(yarn_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devices]:
    yield from devices_on(yarn_cluster, "yarn", tmp_path_factory.mktemp("house"),
                          **{k.removeprefix("spark."): str(v) for k, v in GPU_SCRIPT.items()})


# ---- standalone: two executors have device 0, and two have device 1 --------------------------------------------


def test_whole_devices_are_leased_to_one_trial_at_a_time(standalone: Devices) -> None:
    assert sorted(map(tuple, standalone.given.values())) == [("0",), ("0",), ("1",), ("1",)]
    run, folder = standalone.begin(1, 6, "whole")
    standalone.wait_held(run, 2)
    standalone.release_devices(run, folder, begun=2)
    assert standalone.check(run, folder, 1.0) == {standalone.uuid("0"): 1.0, standalone.uuid("1"): 1.0}


def test_shares_fill_a_device_across_executors(standalone: Devices) -> None:
    run, folder = standalone.begin(0.5, 6, "half")
    standalone.release_devices(run, folder, begun=4)
    assert standalone.check(run, folder, 0.5) == {standalone.uuid("0"): 1.0, standalone.uuid("1"): 1.0}


def test_more_gpus_than_an_executor_has_are_refused(standalone: Devices) -> None:
    output = standalone.house.notebook.evaluate("emit(error=failing(lambda: seen(2)))")
    assert re.search("each trial needs 2 GPUs, but an executor has 1; request fewer GPUs per trial", output["error"]), output


def test_gpus_0_hides_devices_and_no_option_leaves_those_of_spark(standalone: Devices) -> None:
    """A parameter server has none."""
    output = standalone.house.notebook.evaluate("emit(none=seen(0), any=seen(None))")
    assert output["none"]["sees"] == "" and output["none"]["gpus"] == "0"
    assert output["any"]["sees"] in "01" and output["any"]["gpus"] == "unset"


# ---- YARN: all four executors have device 0 --------------------------------------------------------------------


def test_device_assigned_to_all_containers_has_one_holder(yarn: Devices) -> None:
    assert list(yarn.given.values()) == [["0"]] * EXECUTORS
    run, folder = yarn.begin(1, 5, "whole")
    yarn.wait_held(run, 3)
    yarn.release_devices(run, folder, begun=1)
    assert yarn.check(run, folder, 1.0) == {yarn.uuid("0"): 1.0}


def test_shares_never_oversubscribe_a_device(yarn: Devices) -> None:
    run, folder = yarn.begin(0.5, 6, "half")
    yarn.wait_held(run, 2)
    yarn.release_devices(run, folder, begun=2)
    assert yarn.check(run, folder, 0.5) == {yarn.uuid("0"): 1.0}
    run, folder = yarn.begin(0.3, 6, "third")
    yarn.wait_held(run, 1)
    yarn.release_devices(run, folder, begun=3)
    assert yarn.check(run, folder, 0.3) == {yarn.uuid("0"): pytest.approx(0.9)}
