# SPDX-License-Identifier: Apache-2.0
"""hopyard.cluster, and TensorFlowOnSpark's API on it: on this machine, with TensorFlow's ways to train."""
from __future__ import annotations

import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tfcluster_programs as programs
from conftest import Yard, wait_for, yard_in
from test_experiment import Lab, lab  # noqa: F401  (a fixture)

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = f"""
import sys
sys.path.insert(0, {HERE!r})
from hopyard import cluster

def failing(call):
    try:
        call()
    except (hopyard.Error, TypeError) as error:
        return [type(error).__name__, str(error)]
"""


def evaluate(lab: Lab, code: str) -> Any:
    return lab.evaluate(HEAD + textwrap.dedent(code))


# ---- TensorFlow's ways to train -------------------------------------------------------------------------------

GANGS = {
    ("mirrored_loop", "mirrored_fit", "by_hvd"): {"workers": 1, "chief": True},
    ("coordinated", "coordinated_fit"): {"workers": 2, "ps": 1, "chief": True},
    ("between_graph", "between_graph_sync", "by_readers", "model_parallel"): {"workers": 2, "ps": 1},
}
"""Ways to train, and the nodes that they need: three clusters at once, whose TensorFlow processes start on all cores."""
WAYS = [way for ways in GANGS for way in ways]
ON_HDFS = ("mirrored_loop", "mirrored_fit", "by_hvd")  # in make test: how they train does not depend on where files are


def train(folder: Path, gangs: dict[tuple[str, ...], dict[str, Any]], names: list[str], env: dict[str, str]) -> dict[str, Any]:
    """Results of the nodes, or the error, by way to train."""
    with yard_in(folder) as yard:
        lab = Lab(yard)
        lab.env |= env
        output = evaluate(lab, f"""
            import tfcluster_programs as programs

            def results_of(nodes):
                try:
                    return nodes.results()
                except hopyard.Error as error:
                    return str(error)

            gangs = [(ways, cluster.run(programs.one_after_the_other, ({names!r}, ways), timeout=180, tensorboard=False, **nodes))
                     for ways, nodes in {gangs!r}.items()]
            emit(found=[[ways, results_of(nodes)] for ways, nodes in gangs])
        """)
        return {way: found for ways, found in output["found"] for way in ways}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(tmp_path_factory.mktemp("trained"), GANGS, programs.write(tmp_path_factory.mktemp("digits")), {})


@pytest.fixture(scope="module")
def trained_on_hdfs(hdfs_cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("digits")
    names = programs.write(folder)
    hdfs_cluster.repair()
    hdfs_cluster.shell("-mkdir", "-p", f"/{folder.name}")
    hdfs_cluster.shell("-put", *names, f"/{folder.name}")
    urls = [f"{hdfs_cluster.url}/{folder.name}/{Path(name).name}" for name in names]
    gangs = GANGS if os.environ.get("HOPYARD_TEST_CLUSTER") == "all" else {ON_HDFS: GANGS[ON_HDFS]}
    return train(tmp_path_factory.mktemp("trained"), gangs, urls, hdfs_cluster.env())


def assert_trained(found: Any, way: str) -> None:
    assert isinstance(found, dict), found
    nodes = {name: ways[way] for name, ways in found.items()}
    read = Counter(number for _, numbers in nodes.values() for number in numbers)
    assert read == dict.fromkeys(range(programs.RECORDS), programs.EPOCHS)
    assert min(accuracy for accuracy, numbers in nodes.values() if numbers) > 0.9


@pytest.mark.parametrize("way", WAYS)
def test_every_way_trains_with_every_record_once_per_epoch(trained: dict[str, Any], way: str) -> None:
    """Of files that nodes read themselves. mirrored_loop is also in test_engines_clusters.py, on all engines."""
    assert_trained(trained[way], way)


@pytest.mark.parametrize("way", [way if way in ON_HDFS else pytest.param(way, marks=pytest.mark.full) for way in WAYS])
def test_every_way_trains_with_every_record_on_hdfs(trained_on_hdfs: dict[str, Any], way: str) -> None:
    assert_trained(trained_on_hdfs[way], way)


def test_finished_worker_waits_for_the_others(lab: Lab) -> None:  # noqa: F811
    """A session starts by contacting all servers, and waits forever for one that is gone."""
    output = evaluate(lab, """
        def main_fun(args, ctx):
            import tensorflow as tf
            v1 = tf.compat.v1
            spec, server = ctx.start_cluster_server(num_gpus=0)
            if ctx.job_name == "ps":
                server.join()
            first = os.path.join(os.path.dirname(os.environ["HOPYARD_TRIAL_DIR"]), "done")
            if ctx.task_index == 0:
                open(first, "w").close()
                return "done"
            while not os.path.exists(first):
                time.sleep(0.01)
            with tf.Graph().as_default(), tf.device("/job:ps/task:0"), v1.Session(server.target) as session:
                return int(session.run(tf.constant(40) + 2))

        emit(found=cluster.run(main_fun, workers=2, ps=1, tensorboard=False).results())
    """)
    assert output["found"] == {"worker-0": "done", "worker-1": 42}


# ---- clusters and their end -----------------------------------------------------------------------------------


def test_reserved_port_is_not_given_to_others(lab: Lab) -> None:  # noqa: F811
    output = evaluate(lab, """
        def main_fun(args, ctx):
            import socket
            port = int(ctx.cluster_spec["worker"][0].rpartition(":")[2])
            def may_bind():
                with socket.socket() as other:
                    try:
                        other.bind(("", port))
                    except OSError as error:
                        return error.strerror
                return True
            before = may_bind()
            ctx.release_port()
            return [before, may_bind(), ctx.tmp_socket]

        emit(found=cluster.run(main_fun, tensorboard=False).results())
    """)
    assert output["found"] == {"worker-0": ["Address already in use", True, None]}


def test_invalid_arguments_are_refused_at_once(lab: Lab) -> None:  # noqa: F811
    output = evaluate(lab, """
        emit(errors=[failing(lambda: cluster.run(print, workers=0, ps=2)), failing(lambda: cluster.run(3)),
                    failing(lambda: cluster.run(print, workers=1.5)), failing(lambda: cluster.run(print, colour="blue"))])
    """)
    assert output["errors"] == [
        ["Error", "a cluster needs a chief or a worker"],
        ["Error", "3 is not a function; main_fun(args, ctx) is required"],
        ["Error", "the number of 'worker' nodes is 1.5; it must be a whole number, 0 or more"],
        ["TypeError", "a cluster got an unexpected keyword argument 'colour'; see hopyard.cluster"],
    ]


def test_cluster_over_its_timeout_is_stopped(yard: Yard, lab: Lab) -> None:  # noqa: F811
    output = evaluate(lab, """
        def main_fun(args, ctx):
            import time
            print("up", flush=True)
            time.sleep(3600)

        nodes = cluster.run(main_fun, workers=2, tensorboard=False)
        emit(error=failing(lambda: nodes.shutdown(timeout=1)))
    """)
    assert output["error"] == ["RunError", "the cluster of run 1 was not done after 1 s; it was stopped"]
    assert {t["state"] for t in yard.trials()} == {"stopped"}


def test_cluster_leaves_nothing_behind(yard: Yard, lab: Lab) -> None:  # noqa: F811
    """No process and no port, after a worker has died in the middle."""
    output = evaluate(lab, """
        def main_fun(args, ctx):
            import signal, time
            open(os.environ["HOPYARD_TRIAL_DIR"] + "/pid", "w").write(str(os.getpid()))
            if ctx.job_name == "worker":
                _, server = ctx.start_cluster_server(num_gpus=0)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(3600)

        nodes = cluster.run(main_fun, workers=1, ps=1, chief=True, tensorboard=False)
        emit(error=failing(nodes.shutdown))
    """)
    assert output["error"][0] == "TrialsFailed" and "worker 0 on " in output["error"][1]
    processes = [int(path.read_text()) for path in Path(yard.logdir()).glob("node=*/pid")]
    assert len(processes) >= 1
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), "the nodes are gone")


STARTS = """
class Late:
    \"\"\"Comes to life in the node, and there to grief: before it has joined the others.\"\"\"

    def __init__(self, trouble):
        self.trouble = trouble

    def __reduce__(self):
        return exec, (f"import os, signal\\nif os.environ['HOPYARD_NODE'] == 'worker:1': {self.trouble}",)

def main_fun(args, ctx):
    time.sleep(3600)

def error_of(args):
    nodes = cluster.run(main_fun, args, workers=2, ps=1, tensorboard=False)
    return failing(lambda: nodes.shutdown(timeout=60))  # later calls raise another error
"""


def test_node_that_never_starts_is_reported_with_role_and_host(yard: Yard, lab: Lab) -> None:  # noqa: F811
    """Waiting nodes are stopped at once: if it cannot be unpickled, or exits before it has joined."""
    output = evaluate(lab, STARTS + """
emit(errors=[error_of(Late("import nowhere_to_be_found")), error_of(Late("raise ValueError('rotten')")),
            error_of(Late("os._exit(3)")), error_of(Late("os.kill(os.getpid(), signal.SIGKILL)"))])
""")
    host = os.uname().nodename
    for (kind, text), end in zip(output["errors"], ["No module named", "ValueError: rotten", "status 3", "signal 9"]):
        assert kind == "TrialsFailed" and f"worker 1 on {host}" in text.splitlines()[0] and end in text, text
    for text in [text for _, text in output["errors"][:2]]:
        assert "Traceback (most recent call last)" in text
    for run in range(1, 5):
        assert {t["state"] for t in yard.trials(run)} == {"failed", "stopped"}


def test_python_that_cannot_start_is_reported_with_role_and_host(yard: Yard, lab: Lab) -> None:  # noqa: F811
    """Or at once, if the file does not exist."""
    ends = yard.script("ends", "echo no such library >&2; exit 7")
    bad = yard.script("bad", "")
    bad.write_text("#!/nowhere/python\n")
    output = evaluate(lab, STARTS + f"""
errors = []
for sys.executable in ("/nowhere/python", "{bad}", "{ends}"):
    errors.append(failing(lambda: cluster.run(main_fun)) if "nowhere" in sys.executable else error_of(None))
emit(errors=errors)
""")
    none, *others = output["errors"]
    assert none[1].startswith("program '/nowhere/python' does not exist")
    for (kind, text), end in zip(others, [f"cannot start '{bad}'", "status 7"]):
        node = rf" [01] on {re.escape(os.uname().nodename)} "  # both fail: the first one is reported
        assert kind == "TrialsFailed" and re.search(node, text.splitlines()[0]) and end in text, text


def test_program_shows_nodes_by_name(yard: Yard, lab: Lab) -> None:  # noqa: F811
    evaluate(lab, """
        def main_fun(args, ctx):
            print("I am", ctx.job_name, ctx.task_index)

        cluster.run(main_fun, workers=2, chief=True, name="named", tensorboard=False).shutdown()
        emit(done=True)
    """)
    shown = yard.run("show", "named").stdout
    assert "1 chief, 2 worker" in shown and "worker-1" in shown and "chief-0" in shown
    assert yard.run("logs", "named", "worker-1").stdout == "I am worker 1\n"
    assert yard.run("logs", "node=chief-0").stdout == "I am chief 0\n"


def test_fed_cluster_cannot_be_resumed(yard: Yard, lab: Lab) -> None:  # noqa: F811
    """Rows of any iterable; exceptions of main_fun during the feed; and rows cannot be fed a second time."""
    output = evaluate(lab, """
        def main_fun(args, ctx):
            feed = ctx.get_data_feed()
            rows = feed.next_batch(100)
            if args == "fails":
                raise ValueError("row " + str(rows[0]))
            while not feed.should_stop():
                rows += feed.next_batch(100)
            return sorted(rows)

        nodes = cluster.run(main_fun, None, workers=2, feed=True, tensorboard=False)
        nodes.train(range(1000), num_epochs=2)
        nodes.shutdown()
        broken = cluster.run(main_fun, "fails", workers=1, feed=True, tensorboard=False)
        error = failing(lambda: broken.train(iter(lambda: 7, None)))  # endless
        emit(found=nodes.results(), error=error, unfed=failing(lambda: cluster.run(main_fun, tensorboard=False).train([1])))
    """)
    assert sorted(output["found"]["worker-0"] + output["found"]["worker-1"]) == sorted([*range(1000), *range(1000)])
    assert output["error"][0] == "TrialsFailed" and output["error"][1].rstrip().endswith("ValueError: row 7")
    assert "this cluster is not fed" in output["unfed"][1]
    assert "run 2 cannot be resumed: the rows that were fed to its nodes" in yard.run("resume", "2", rc=2).stderr


def test_worker_that_never_reads_ends_the_feed(lab: Lab) -> None:  # noqa: F811
    output = evaluate(lab, """
        def idle(args, ctx):
            while not os.path.exists("gate"):
                time.sleep(0.05)

        nodes = cluster.run(idle, workers=1, feed=True, tensorboard=False)
        nodes.wait_for_nodes(60)
        began = time.monotonic()
        error = failing(lambda: nodes.train(range(10), feed_timeout=1))
        took = time.monotonic() - began
        open("gate", "w").close()
        nodes.shutdown()
        emit(error=error, took=took)
    """)
    assert output["error"][0] == "FeedTimeout" and output["error"][1].startswith("a node of run 1 took no rows for 1 s (feed_timeout)")
    assert output["took"] < 5, "it does not also wait for the end of the node"


def test_model_trains_on_fed_digits(lab: Lab) -> None:  # noqa: F811
    """Rows of a list and of a tf.data.Dataset, read as a tf.data.Dataset; then a result for each row."""
    output = evaluate(lab, """
        import numpy as np
        import tensorflow as tf
        import tfcluster_programs as programs

        def main_fun(args, ctx):
            import keras
            feed = ctx.get_data_feed()
            model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            model.optimizer.learning_rate = 0.02
            signature = tf.TensorSpec([None, 64], tf.float32), tf.TensorSpec([None], tf.int64)
            model.fit(feed.dataset(24, signature).take(args), verbose=0)
            rows = ctx.get_data_feed(train_mode=False, qname_in="asked")
            while not rows.should_stop():
                batch = rows.next_batch(100)
                if batch:
                    rows.batch_results(model.predict(np.array(batch), verbose=0).argmax(axis=1).tolist())

        features, labels = programs.digits()
        rows = [(x.tolist(), int(y)) for x, y in zip(features, labels)]
        steps = 8 * len(rows) // 24  # all of them: the feeder waits until they are taken
        nodes = cluster.run(main_fun, steps, workers=1, feed=True, tensorboard=False)
        nodes.train(rows, num_epochs=4)
        nodes.train(tf.data.Dataset.from_tensor_slices((features, labels)), num_epochs=4)
        found = list(nodes.inference([row[0] for row in rows], qname="asked"))
        nodes.shutdown()
        emit(count=len(found), accuracy=float(np.mean(np.array(found) == labels)))
    """)
    assert output["count"] == 1797 and output["accuracy"] > 0.9, output


def test_nodes_exit_if_their_feeder_is_gone(yard: Yard, lab: Lab) -> None:  # noqa: F811
    """They would wait for rows forever."""
    program = lab.start(HEAD + textwrap.dedent("""
        def main_fun(args, ctx):
            feed = ctx.get_data_feed()
            while not feed.should_stop():
                feed.next_batch(10)

        nodes = cluster.run(main_fun, workers=2, feed=True, tensorboard=False)
        nodes.train(range(100))
        print("fed", flush=True)
        time.sleep(3600)
    """))
    assert program.stdout
    wait_for(lambda: "fed" in program.stdout.readline(), "rows are fed")
    program.kill()
    program.wait()
    wait_for(lambda: yard.rows("SELECT state FROM runs")[0]["state"] != 1, "the run ends")
    assert {t["state"] for t in yard.trials()} == {"done"}
    notes = " ".join(row["text"] for row in yard.rows("SELECT text FROM notes"))
    assert "the program that fed the nodes has disconnected" in notes


def test_tensorboard_shows_events_of_nodes(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    """The given directory, or that of the run."""
    output = evaluate(lab, f"""
        import json, urllib.request
        import hopyard.compat
        from pyspark import SparkConf, SparkContext
        from tensorflowonspark import TFCluster

        def main_fun(args, ctx):
            import tensorflow as tf
            from hopyard import tensorboard
            with tf.summary.create_file_writer(args or tensorboard.logdir()).as_default():
                tf.summary.scalar("loss of " + ctx.job_name, 0.5, step=1)

        def tags(nodes):
            nodes.cluster.results()
            while True:
                try:
                    with urllib.request.urlopen(nodes.tensorboard_url() + "data/plugin/scalars/tags") as page:
                        found = sorted({{tag for tags in json.load(page).values() for tag in tags}})
                except OSError:
                    found = []
                if found:
                    return found
                time.sleep(0.2)

        sc = SparkContext(conf=SparkConf().setMaster("local[2]").setAppName("tfos"))
        given = TFCluster.run(sc, main_fun, "{tmp_path}/given", 1, tensorboard=True, log_dir="{tmp_path}/given")
        own = TFCluster.run(sc, main_fun, None, 1, tensorboard=True)
        def is_up(nodes):
            try:
                urllib.request.urlopen(nodes.tensorboard_url()).close()
            except OSError:
                return False
            return True

        shown = dict(given=tags(given), own=tags(own), different=given.tensorboard_url() != own.tensorboard_url())
        for nodes in (given, own):
            nodes.shutdown()
        emit(**shown, up=[is_up(given), is_up(own)])
        sc.stop()
    """)
    assert output["given"] == ["loss of worker"] and "loss of worker" in output["own"] and output["different"]
    assert output["up"] == [False, False], "TensorBoard exits in shutdown"


# ---- TensorFlowOnSpark ----------------------------------------------------------------------------------------


def test_tensorflowonspark_programs_run(lab: Lab) -> None:  # noqa: F811
    """On a SparkContext of this machine; invalid arguments are reported before the start."""
    output = evaluate(lab, """
        import hopyard.compat
        from pyspark import SparkConf, SparkContext
        from tensorflowonspark import TFCluster, TFNode

        sc = SparkContext(conf=SparkConf().setMaster("local[2]").setAppName("tfos"))

        def main_fun(args, ctx):
            socket = ctx.tmp_socket
            spec = ctx.cluster_spec
            TFNode.release_port(ctx)
            return [args, ctx.job_name, ctx.defaultFS, ctx.absolute_path("/data/x"), ctx.absolute_path("y"),
                    ctx.absolute_path("hdfs://n/z"), ctx.working_dir, socket is not None, spec, ctx.tmp_socket]

        nodes = TFCluster.run(sc, main_fun, {"a": 1}, 3, num_ps=0, master_node="chief", tensorboard=False)
        nodes.shutdown()
        holding = TFCluster.run(sc, main_fun, None, 1, tensorboard=False, release_port=False)
        import tensorflowonspark
        emit(found=nodes.cluster.results(), id=nodes.cluster_id, url=nodes.tensorboard_url(), version=tensorflowonspark.__version__,
            info=[{**node, "authkey": node["authkey"].decode()} for node in nodes.cluster_info],
            holds=holding.cluster.results()["worker-0"][7],
            errors=[failing(lambda: TFCluster.run(sc, main_fun, {}, 2, num_ps=2)),
                    failing(lambda: TFCluster.run(sc, main_fun, {}, 2, master_node="boss")),
                    failing(lambda: TFNode.next_batch(None, 3))])
        sc.stop()
    """)
    found = output["found"]
    assert list(found) == ["chief-0", "worker-0", "worker-1"] and output["url"] is None
    args, job, default, absolute, relative, named, folder, holds, spec, socket = found["worker-1"]
    assert args == {"a": 1} and job == "worker" and default == "file://" and output["version"] == "2.2.5"
    assert not holds and output["holds"] and socket is None, "ctx.tmp_socket exists only with release_port=False"
    info = output["info"]
    assert [(n["executor_id"], n["job_name"], n["task_index"]) for n in info] == [(0, "chief", 0), (1, "worker", 0), (2, "worker", 1)]
    assert [f"{n['host']}:{n['port']}" for n in info] == spec["chief"] + spec["worker"]
    assert set(info[0]) == {"executor_id", "job_name", "task_index", "host", "port", "tb_pid", "tb_port", "addr", "authkey"}
    assert absolute == "file:///data/x" and relative == f"file://{folder}/y" and named == "hdfs://n/z"
    few, boss, gone = output["errors"]
    assert few[1] == "2 executors are too few for 2 parameter servers and a worker"
    assert boss[1] == "master_node must be 'chief' or 'master', not 'boss'"
    assert "TFNode.DataFeed(mgr).next_batch(batch_size)" in gone[1]
