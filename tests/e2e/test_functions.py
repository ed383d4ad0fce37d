# SPDX-License-Identifier: Apache-2.0
"""Python functions as trials: forked from a warm process, and failures of that process."""
from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from conftest import Yard, wait_for
from test_death import kill, settled
from test_experiment import Lab, lab  # noqa: F401  (a fixture)
from test_gpus import device, gpus, is_free  # noqa: F401  (a fixture)


def pythons(yard: Yard) -> list[int]:
    """The fork server and the processes that it has forked."""
    return sorted(yard.processes(r"hopyard\._trial"))


def server(yard: Yard) -> int:
    """The one whose environment has no trial's tag."""
    def find() -> int | None:
        for pid in pythons(yard):
            try:
                if b"HOPYARD_TAG=1.server" in Path(f"/proc/{pid}/environ").read_bytes():
                    return pid
            except FileNotFoundError:
                pass
        return None
    return int(wait_for(find, "there is no fork server"))


# ---- warm start ----------------------------------------------------------------------------


def test_trials_are_forked_and_are_children_of_the_agent(yard: Yard, lab: Lab) -> None:
    lab.run("""
        def training(x):
            warm = "numpy" in sys.modules and "GLIBC_TUNABLES" not in os.environ
            import numpy
            open(f"ppid-{x}", "w").write(f"{os.getppid()} {os.getpid()} {os.getsid(0)}")
            time.sleep(0.3)
            return int(warm)
        experiment.grid_search(training, {"x": [1, 2, 3]}, parallel=2, tensorboard=False, detach=True)
    """)
    agent, forker = yard.process("agent"), server(yard)
    assert b"GLIBC_TUNABLES=glibc.malloc.hugetlb=1" in Path(f"/proc/{forker}/environ").read_bytes(), "cheaper forks"
    yard.run("attach", "1")
    for x in (1, 2, 3):
        ppid, pid, sid = map(int, (yard.project / f"ppid-{x}").read_text().split())
        assert ppid == agent and pid == sid and pid != forker
    assert [t["value"] for t in yard.trials()] == [1, 1, 1], "numpy was imported before they started"


def test_killed_server_is_replaced_and_its_trials_continue(yard: Yard, lab: Lab) -> None:
    lab.run("""
        def training(x):
            time.sleep(1)
            return x
        experiment.grid_search(training, {"x": [1, 2, 3, 4]}, parallel=2, tensorboard=False, detach=True)
    """)
    first = server(yard)
    wait_for(lambda: len(pythons(yard)) >= 3, "two trials run")
    kill(first)
    yard.run("attach", "1")
    assert [(t["value"], t["attempts"]) for t in yard.trials()] == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert yard.driver_log().count("the fork server is over") == 1


def test_op_run_at_import_is_reported_and_trials_start_cold(yard: Yard, lab: Lab, tmp_path: Path) -> None:
    """An installed module that runs an op at import: in a fork of that process the next op would hang."""
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "eager_module.py").write_text("import tensorflow as tf\nONE = tf.matmul([[1.0]], [[1.0]])\n")
    lab.env["PYTHONPATH"] = str(site)
    output = lab.evaluate("""
        import eager_module

        def training(x):
            import tensorflow as tf
            return float(tf.matmul([[x]], eager_module.ONE)[0, 0])

        r = experiment.grid_search(training, {"x": [2.0, 3.0]}, parallel=2, tensorboard=False)
        emit(values=[t.metric for t in r.trials])
    """)
    assert output["values"] == [2, 3]
    assert "importing eager_module has run a TensorFlow operation" in yard.driver_log()
    assert "move the operation into the function" in yard.driver_log()


def test_large_function_reaches_its_agent_complete(lab: Lab) -> None:
    output = lab.evaluate("""
        data = os.urandom(20 << 20)

        def training(x):
            import zlib
            return zlib.crc32(data)

        import zlib
        r = experiment.grid_search(training, {"x": [1, 2]}, tensorboard=False)
        emit(values=[t.metric for t in r.trials], crc=zlib.crc32(data))
    """)
    assert output["values"] == [output["crc"]] * 2


def test_forked_trials_hold_their_gpus_while_they_live(gpus: Yard, lab: Lab) -> None:
    """The lease goes through the server into the fork: the death of the server does not free it."""
    lab.env.update(gpus.env)
    lab.run("""
        from hopyard import devices
        def training(x):
            print(os.environ["CUDA_VISIBLE_DEVICES"], devices.get_num_gpus(), flush=True)
            open(f"here-{x}", "w").close()
            while not os.path.exists("go"):
                time.sleep(0.02)
        experiment.grid_search(training, {"x": [1, 2]}, gpus=1, parallel=2, tensorboard=False, detach=True)
    """)
    wait_for(lambda: all((gpus.project / f"here-{x}").exists() for x in (1, 2)), "both trials run")
    assert not is_free(gpus, 0) and not is_free(gpus, 1)
    kill(server(gpus))
    assert not is_free(gpus, 0) and not is_free(gpus, 1)
    (gpus.project / "go").touch()
    gpus.run("attach", "1")
    printed = {(gpus.logdir() / t["dir"] / "stdout").read_text() for t in gpus.trials()}
    assert printed == {f"{device(gpus, 0)} 1\n", f"{device(gpus, 1)} 1\n"}
    assert is_free(gpus, 0) and is_free(gpus, 1)


# ---- evolution ----------------------------------------------------------------------------


EVOLUTION = """
    def training(x, y):
        import random
        time.sleep({pause})
        return (x - 1) ** 2 + (y + 2) ** 2 + random.random() / 1000

    experiment.evolutionary_search(training, {{"x": [-5.0, 5.0], "y": [-5.0, 5.0]}}, direction="min", population=6,
                                   generations=4, seed=11, parallel=2, tensorboard=False, detach={detach})
"""


def test_resumed_evolution_ends_with_the_same_population(yard: Yard, lab: Lab) -> None:
    lab.run(EVOLUTION.format(pause=0.1, detach=True))
    wait_for(lambda: len(settled(yard)) >= 8, "some are done")
    yard.kill_everything()
    yard.run("gc", "--all")
    yard.run("resume", "1")
    lab.run(EVOLUTION.format(pause=0, detach=False))
    resumed, whole = ([(t["params"], t["value"]) for t in yard.trials(n)] for n in (1, 2))
    assert len(whole) == 24 and resumed == whole


# ---- killed processes -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_kill_of_server_and_trials_at_random_times(yard: Yard, lab: Lab, seed: int) -> None:
    """25 kills per seed, 100 in all: of the fork server and of trials."""
    rng = random.Random(seed)
    lab.run("""
        def training(x):
            time.sleep(0.05)
            return x
        experiment.grid_search(training, {"x": list(range(1, 121))}, parallel=2, retries=1000, tensorboard=False,
                               detach=True)
    """)
    kills = 0
    known: dict[int, tuple[float, int]] = {}
    while yard.state() != "done":
        time.sleep(rng.uniform(0, 0.15))  # at a random time
        victims = pythons(yard)
        if victims and kills < 25:
            kills += kill(rng.choice(victims))
        now = settled(yard)
        assert {n: now.get(n) for n in known} == known, "a finished trial was lost or repeated"
        known = now
    assert kills == 25, "the run must outlive the killer"
    yard.wait_idle()
    assert {n: v for n, (v, _) in settled(yard).items()} == {n: n for n in range(1, 121)}
    for n in range(1, 121):
        assert [a["state"] for a in yard.attempts(1, n)].count("done") == 1
