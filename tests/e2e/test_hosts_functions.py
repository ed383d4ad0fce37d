# SPDX-License-Identifier: Apache-2.0
"""Python functions on machines that share no files with the machine that starts them."""
from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import Yard
from hosts import Hosts, sh, tool
from test_experiment import Lab
from test_hosts import net  # noqa: F401  (a fixture)

PACKAGES = sysconfig.get_path("purelib")


def python_of(hosts: Hosts) -> str:
    """An interpreter that hosts can see: that of this environment may be in a home directory."""
    check = [sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]
    for python in check:
        inside = [tool("nsenter"), "-t", str(hosts["a"].sshd.pid), "-m", "env", f"PYTHONPATH={PACKAGES}"]
        if subprocess.run([*inside, python, "-c", "import hopyard, cloudpickle"], capture_output=True).returncode == 0:
            return python
    pytest.fail(f"none of {check} can be used on a host", pytrace=False)


@pytest.fixture
def far(yard: Yard, net: Hosts) -> Lab:  # noqa: F811
    """A lab whose interpreter and packages are visible on all hosts, and nothing else."""
    lab = Lab(yard)
    lab.env["PYTHONPATH"] = PACKAGES
    lab.python = python_of(net)
    return lab


def test_function_runs_without_shared_files(yard: Yard, far: Lab, net: Hosts) -> None:  # noqa: F811
    """By value, without modules of the project; its result and its files are copied back."""
    output = far.evaluate("""
        SCALE = 10

        def training(x):
            import platform
            open(os.path.join(os.environ["HOPYARD_TRIAL_DIR"], "left"), "w").write(platform.node())
            hopyard.report(step=1, seen=x)
            print("on", platform.node())
            return {"loss": SCALE * x, "host": platform.node()}
        r = experiment.grid_search(training, {"x": [1, 2, 3, 4]}, metric="loss", direction="min", hosts="a:1,b:1",
                                   tensorboard=False)
        emit(values=[t.metric for t in r.trials], best=r.best.params, dirs=[t.logdir for t in r.trials],
            seen=[t.metrics["seen"] for t in r.trials])
    """)
    assert output["values"] == [10, 20, 30, 40] and output["best"] == {"x": 1} and output["seen"] == [1, 2, 3, 4]
    hosts = [Path(d, "left").read_text() for d in output["dirs"]]
    assert hosts == [a["host"] for a in yard.attempts()] and set(hosts) <= {"a", "b"}, "one host may be done before the other has started"
    assert [Path(d, "stdout").read_text() for d in output["dirs"]] == [f"on {host}\n" for host in hosts]


def test_failed_function_on_a_host_has_its_traceback(yard: Yard, far: Lab, net: Hosts) -> None:  # noqa: F811
    (yard.project / "mine.py").write_text("def train(x):\n    return x\n")
    output = far.evaluate("""
        def training(x):
            if x == 2:
                raise ValueError("too high")
            import mine
            return mine.train(x)
        r = experiment.grid_search(training, {"x": [1, 2]}, hosts="a", tensorboard=False, detach=True)
        try:
            experiment.attach(1)
        except hopyard.Error as error:
            emit(errors=[t.error for t in error.result.trials], messages=[t.message for t in error.result.trials])
    """)
    assert output["messages"][0] == "ModuleNotFoundError: No module named 'mine'"
    assert output["messages"][1] == "ValueError: too high" and output["errors"][1].endswith("in training\nValueError: too high\n")


def test_missing_interpreter_is_named(yard: Yard, far: Lab, net: Hosts) -> None:  # noqa: F811
    link = yard.project / "python-of-mine"
    link.symlink_to(far.python)
    far.python = str(link)
    output = far.evaluate("""
        def training(x):
            return x
        r = experiment.grid_search(training, {"x": [1]}, hosts="a", tensorboard=False, detach=True)
        try:
            experiment.attach(1)
        except hopyard.Error as error:
            emit(messages=[t.message for t in error.result.trials])
    """)
    assert output["messages"] == [f"cannot start '{link}': there is no such file; this host does not have the directory '{yard.project}'"]


def test_large_function_survives_a_broken_connection(yard: Yard, far: Lab, net: Hosts) -> None:  # noqa: F811
    """Received data is not sent again, lost data is: the agent verifies a hash of everything."""
    far.run("""
        data = os.urandom(40 << 20)

        def training(x):
            return len(data)
        experiment.grid_search(training, {"x": [1, 2]}, hosts="a", tensorboard=False, detach=True)
    """)
    host, broken = net["a"], 0
    host.agent()
    while broken < 4 and "agent has joined agent=" not in yard.driver_log():
        broken += net.ip in sh(tool("nsenter"), "-t", host.sshd.pid, "-n", tool("ss"), "-K", "dst", net.ip, "sport", "!=", "22")
    yard.run("attach", "1")
    assert broken > 0, "the transfer was too fast to be interrupted"
    assert [(t["state"], t["value"]) for t in yard.trials()] == [("done", 40 << 20)] * 2
    assert yard.driver_log().count("agent has joined agent=") == 1, "another agent was started"


def test_horovod_training_across_hosts(yard: Yard, far: Lab, net: Hosts) -> None:  # noqa: F811
    """Over ssh, with shared memory on a host, TCP between hosts, and TensorFlow's ops on top."""
    output = far.evaluate("""
        from hopyard import allreduce

        def training():
            import platform
            import tensorflow as tf
            import hopyard.hvd as hvd
            hvd.init()
            weights = tf.Variable([1.0, 2.0])
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.reduce_sum(weights * float(hvd.rank() + 1))
            [gradient] = tape.gradient(loss, [weights])
            return platform.node(), hvd.rank(), hvd.local_size(), hvd.cross_size(), gradient.numpy().tolist()

        emit(each=allreduce.run(training, np=3, hosts="a:2,b:1", tensorboard=False))
    """)
    assert output["each"] == [["a", 0, 2, 2, [2.0, 2.0]], ["a", 1, 2, 1, [2.0, 2.0]], ["b", 2, 1, 2, [2.0, 2.0]]]
    assert {t["state"] for t in yard.trials()} == {"done"}
