# SPDX-License-Identifier: Apache-2.0
"""Rows that Spark feeds to the nodes of a cluster, whose agents do not occupy the executors' slots."""
from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_for
from house import House, houses
from spark import repair

CONF = {"spark": {}, "yarn": {"executor_cores": "2", "executor_memoryOverhead": "2500m"}}

PROGRAMS = """
from tensorflowonspark import TFCluster, TFNode

spark = session(**{conf!r})
sc = spark.sparkContext

def counting(args, ctx):
    feed = TFNode.DataFeed(ctx.mgr, input_mapping=args)
    rows, total = 0, 0.0
    while not feed.should_stop():
        batch = feed.next_batch(100)
        values = batch["y"] if args else [row[1] for row in batch]
        rows, total = rows + len(values), total + float(sum(values))
    return [ctx.job_name, rows, total]

def both_ways(args, ctx):
    feed = TFNode.DataFeed(ctx.mgr)
    found = [row[1] for _ in range(3) for row in feed.next_batch(100)]
    found += [int(y) for _, ys in feed.dataset(64) for y in ys]
    return ["worker", len(found), float(sum(found))]

def doubling(args, ctx):
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        batch = feed.next_batch(7)
        if batch:
            feed.batch_results([2 * row for row in batch])

def learning(args, ctx):
    import keras
    import tensorflow as tf
    from sklearn.datasets import load_digits

    feed = ctx.get_data_feed()
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.optimizer.learning_rate = 0.02
    signature = tf.TensorSpec([None, 64], tf.float32), tf.TensorSpec([None], tf.int64)
    model.fit(feed.dataset(32, signature), verbose=0)
    features, labels = load_digits(return_X_y=True)
    return float(model.evaluate(features / 16, labels, verbose=0)[1])

def fed(main_fun, args=None, nodes=2, **settings):
    return TFCluster.run(sc, main_fun, args, nodes, input_mode=TFCluster.InputMode.SPARK, **settings)
"""


on_yarn_too = pytest.mark.parametrize("house", ["spark", "yarn"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=["spark", pytest.param("yarn", marks=pytest.mark.full)])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    cluster = request.getfixturevalue(f"{request.param}_cluster")
    repair(request.param, cluster)
    for house in houses(cluster, request.param, tmp_path_factory.mktemp("house"), **CONF[request.param]):
        house.notebook.evaluate(PROGRAMS.format(conf=CONF[request.param]))
        yield house


def no_agents_left(house: House) -> None:
    wait_for(lambda: not house.agents(), "agents exit with their run")


@on_yarn_too
def test_model_trains_on_fed_digits(house: House) -> None:
    """Through a tf.data.Dataset: Python floats of an RDD, and Arrow data of a DataFrame."""
    output = house.notebook.evaluate("""
        from sklearn.datasets import load_digits

        rows = [((x / 16).tolist(), int(y)) for x, y in zip(*load_digits(return_X_y=True))]
        nodes = fed(learning)
        nodes.train(sc.parallelize(rows, 4), num_epochs=4)
        nodes.train(spark.createDataFrame(rows, "x array<float>, y long").repartition(4), num_epochs=4)
        nodes.shutdown()
        emit(accuracies=nodes.cluster.results())
    """)
    assert len(output["accuracies"]) == 2 and min(output["accuracies"].values()) > 0.9, output
    no_agents_left(house)


@on_yarn_too
def test_every_row_of_every_epoch_arrives_once(house: House) -> None:
    """RDDs of tuples; executors' slots are free for the feeding tasks."""
    output = house.notebook.evaluate("""
        rows = sc.parallelize(range(5000), 8).map(lambda i: ([float(i)] * 50, i))
        nodes = fed(counting)
        nodes.train(rows, num_epochs=3)
        nodes.shutdown()
        emit(found=nodes.cluster.results(), wanted=3 * sum(range(5000)))
    """)
    found = output["found"].values()
    assert sum(rows for _, rows, _ in found) == 15000 and sum(total for _, _, total in found) == output["wanted"]
    no_agents_left(house)


def test_rows_pickled_by_spark_arrive_once(house: House) -> None:
    """From a cache, which Python has filled, and through Spark's JVM; also if nodes switch to tensors in between."""
    output = house.notebook.evaluate("""
        made = sc.parallelize(range(20000), 4).map(lambda i: ([i / 7] * 50, i)).cache()
        read = spark.range(20000).selectExpr("array_repeat(id / 7, 50) as x", "id as y").rdd
        found = []
        for main_fun, other in (counting, read), (both_ways, made):
            nodes = fed(main_fun)
            nodes.train(made.union(made), num_epochs=1)
            nodes.train(other, num_epochs=2)
            nodes.shutdown()
            found.append(list(nodes.cluster.results().values()))
        emit(found=found, wanted=4 * sum(range(20000)))
    """)
    for nodes in output["found"]:
        assert sum(rows for _, rows, _ in nodes) == 80000 and sum(total for _, _, total in nodes) == output["wanted"], nodes
    no_agents_left(house)


def test_dataframe_is_fed_with_arrow(house: House) -> None:
    output = house.notebook.evaluate("""
        frame = spark.range(4000).selectExpr("cast(id as float) as x", "id as y", "array(id, id + 1) as z")
        nodes = fed(counting, {"x": "x", "y": "y", "z": "z"})
        nodes.train(frame.repartition(4), num_epochs=1)
        nodes.shutdown()
        emit(found=nodes.cluster.results(), wanted=sum(range(4000)))
    """)
    found = output["found"].values()
    assert sum(rows for _, rows, _ in found) == 4000 and sum(total for _, _, total in found) == output["wanted"]


@on_yarn_too
def test_results_are_one_to_one_and_in_order(house: House) -> None:
    output = house.notebook.evaluate("""
        nodes = fed(doubling)
        results = nodes.inference(sc.parallelize(range(1000), 6)).collect()
        again = nodes.inference(sc.parallelize([5, 6], 2)).collect()
        nodes.shutdown()
        emit(right=results == [2 * i for i in range(1000)], again=again)
    """)
    assert output["right"] and output["again"] == [10, 12]
    no_agents_left(house)


@on_yarn_too
def test_node_that_terminates_ends_the_feed(house: House) -> None:
    """With most of the rows unread."""
    output = house.notebook.evaluate("""
        def few(args, ctx):
            feed = TFNode.DataFeed(ctx.mgr)
            feed.next_batch(10)
            feed.terminate()
            return feed.should_stop()

        nodes = fed(few)
        nodes.train(sc.parallelize(range(200_000), 8).map(lambda i: [float(i)] * 100), num_epochs=1000)
        nodes.shutdown()
        emit(found=nodes.cluster.results())
    """)
    assert output["found"] == {"worker-0": True, "worker-1": True}
    no_agents_left(house)


def test_exception_of_a_fed_worker_is_reported(house: House) -> None:
    output = house.notebook.evaluate("""
        def broken(args, ctx):
            feed = TFNode.DataFeed(ctx.mgr)
            feed.next_batch(10)
            if ctx.task_index == 1:
                raise ValueError("no such column")
            while not feed.should_stop():
                feed.next_batch(10)

        nodes = fed(broken)
        error = failing(lambda: nodes.train(sc.parallelize(range(500_000), 8).map(lambda i: [float(i)] * 100), num_epochs=10))
        emit(error=error, state=experiment.result(nodes.cluster_id).state)
    """)
    assert "worker 1 on " in output["error"] and output["error"].rstrip().endswith("ValueError: no such column")
    assert output["state"] == "failed"
    no_agents_left(house)


def test_failure_is_reported_once(house: House) -> None:
    """Without the errors of Spark's tasks and of the JVM, which only report that the node is gone."""
    output = house.notebook.evaluate("""
        def broken(args, ctx):
            TFNode.DataFeed(ctx.mgr).next_batch(10)
            raise ValueError("no such column")

        nodes = fed(broken)
        try:
            nodes.train(sc.parallelize(range(500_000), 8).map(lambda i: [float(i)] * 100), num_epochs=10)
        except hopyard.TrialsFailed as error:
            lines = traceback.format_exception(error)
        emit(error="".join(lines), stopped=failing(nodes.shutdown))
    """)
    assert output["error"].count("ValueError: no such column") == 2, f"in the message, and in its traceback: {output['error']}"
    assert "Py4J" not in output["error"] and "During handling of" not in output["error"]


@pytest.mark.parametrize("how", ["rows", "frame", "cached"])
def test_worker_that_never_reads_ends_the_feed_once(house: House, how: str) -> None:
    """After feed_timeout: neither four times that because a task is retried, nor once for each of many partitions."""
    output = house.notebook.evaluate(f"""
        def idle(args, ctx):
            while not os.path.exists(args):
                time.sleep(0.05)

        gate = os.path.abspath("gate-{how}")
        nodes = fed(idle, gate)
        rows = {{"rows": sc.parallelize(range(1000), 16), "cached": sc.parallelize(range(1000), 16).map(lambda i: i + 1).cache(),
                "frame": spark.range(0, 1000, 1, 16)}}["{how}"]
        rows.count() if "{how}" != "frame" else rows.mapInArrow(lambda batches: batches, rows.schema).count()  # Spark's workers have started then
        began = time.monotonic()
        try:
            nodes.train(rows, num_epochs=1, feed_timeout=6)
        except hopyard.FeedTimeout as error:
            text = str(error)
        took = time.monotonic() - began
        open(gate, "w").close()
        nodes.shutdown()
        emit(error=text, took=took, run=nodes.cluster_id, tags=list(sc.getJobTags()))
    """)
    assert output["error"].startswith(f"a node of run {output['run']} took no rows for 6 s (feed_timeout); see its output with `hopyard logs")
    assert 6 <= output["took"] < 15 and output["tags"] == [], output
    no_agents_left(house)


# ---- streams ---------------------------------------------------------------------------------------------------

STREAM = """
def stream_of(folder, main_fun, **trigger):
    nodes = fed(main_fun)
    rows = spark.readStream.schema("x float, y long").option("maxFilesPerTrigger", 1).json(folder)
    feed = lambda batch, number: nodes.train(batch.repartition(4), num_epochs=1)
    return nodes, rows.writeStream.foreachBatch(feed).trigger(**trigger).start()

def sums_of(nodes):
    found = nodes.cluster.results().values()
    return [sum(rows for _, rows, _ in found), sum(total for _, _, total in found)]
"""
ROWS = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows in three files."""
    for part in range(3):
        lines = [json.dumps({"x": 0.5, "y": y}) for y in range(part, ROWS, 3)]
        (tmp_path / f"{part}.json").write_text("\n".join(lines))
    return tmp_path


def test_batches_of_a_structured_stream_arrive_once(house: House, folder: Path) -> None:
    """One that ends by itself, and one that is asked to end."""
    output = house.notebook.evaluate(STREAM + f"""
from tensorflowonspark import reservation

nodes, query = stream_of("{folder}", counting, availableNow=True)
nodes.shutdown(query)
emit(ended=sums_of(nodes), batches=sum(p["numInputRows"] > 0 for p in query.recentProgress))

nodes, query = stream_of("{folder}", counting, processingTime="0 seconds")
query.processAllAvailable()
went_on = query.isActive
reservation.Client(nodes.cluster_meta["server_addr"]).request_stop()
nodes.shutdown(query)
emit(stopped=sums_of(nodes), active=[went_on, query.isActive])
""")
    assert output["ended"] == output["stopped"] == [ROWS, sum(range(ROWS))]
    assert output["batches"] == 3 and output["active"] == [True, False]
    no_agents_left(house)


def test_exception_of_a_worker_ends_the_stream_and_is_reported(house: House, folder: Path) -> None:
    output = house.notebook.evaluate(STREAM + f"""
def broken(args, ctx):
    feed = TFNode.DataFeed(ctx.mgr)
    feed.next_batch(10)
    raise ValueError("no such column")

nodes, query = stream_of("{folder}", broken, processingTime="0 seconds")
emit(error=failing(lambda: nodes.shutdown(query)), active=query.isActive)
""")
    assert "worker " in output["error"] and output["error"].rstrip().endswith("ValueError: no such column")
    assert not output["active"]
    no_agents_left(house)


def test_batches_of_a_dstream_arrive_once(house: House) -> None:
    """shutdown waits until another program requests the end."""
    output = house.notebook.evaluate(f"""
        from pyspark.streaming import StreamingContext

        context, done = StreamingContext(sc, 0.5), []
        batches = [sc.parallelize(range(i, {ROWS}, 3), 4).map(lambda y: (0.5, y)) for i in range(3)]
        stream = context.queueStream(batches)
        nodes = fed(counting)
        nodes.train(stream)
        stream.foreachRDD(lambda rdd: done.append(rdd.count()))
        context.start()
        while sum(done) < {ROWS}:
            time.sleep(0.05)
        emit(run=nodes.cluster_id)
    """)
    house.notebook.begin("""
        nodes.shutdown(context)
        found = nodes.cluster.results().values()
        emit(found=[sum(rows for _, rows, _ in found), sum(total for _, _, total in found)],
            left=[str(context._jssc.getState()), sc.parallelize([1, 2]).count()])
    """)
    house.yard.run("stop", "--feed", output["run"])
    ended = house.notebook.end()
    assert ended["found"] == [ROWS, sum(range(ROWS))]
    assert ended["left"] == ["STOPPED", 2], "Spark itself continues"
    no_agents_left(house)


# ---- lost processes --------------------------------------------------------------------------------------------


def test_agent_exits_with_its_executor(house: House) -> None:
    """Although the agent is not a child of the executor any more; the run reports it."""
    output = house.notebook.evaluate("""
        nodes = fed(counting)
        emit(run=nodes.cluster_id)
    """)
    wait_for(lambda: len(house.agents()) >= 2, "agents have detached from their tasks")
    for pid in house.executors():
        os.kill(pid, signal.SIGKILL)
    no_agents_left(house)
    ended = house.notebook.evaluate("""
        emit(error=failing(nodes.shutdown))
    """)
    assert "agent is gone" in ended["error"] or "is over" in ended["error"], (output, ended)


def test_failed_node_ends_a_dstream_at_once(house: House) -> None:
    """Although its next batch comes in an hour, and the program waits for the stream, not for the nodes."""
    output = house.notebook.evaluate("""
        from pyspark.streaming import StreamingContext

        def broken(args, ctx):
            while not os.path.exists(args):
                time.sleep(0.05)
            raise ValueError("no such column")

        gate = os.path.abspath("gate-stream")
        context = StreamingContext(sc, 3600)
        nodes = fed(broken, gate)
        nodes.train(context.queueStream([sc.parallelize([1])]))
        context.start()
        open(gate, "w").close()
        context.awaitTermination()
        emit(error=failing(lambda: nodes.shutdown(context)), left=sc.parallelize([1, 2]).count())
    """)
    assert output["error"].rstrip().endswith("ValueError: no such column") and output["left"] == 2
    no_agents_left(house)


def test_parameter_servers_get_no_rows(house: House) -> None:
    """The agent of a parameter server stays in its Spark task: the executor has no slot for a feeding task."""
    output = house.notebook.evaluate("""
        from pyspark import SparkFiles

        def from_where(args, ctx):
            if ctx.job_name == "ps":
                ctx.start_cluster_server(num_gpus=0)[1].join()
            feed, found = TFNode.DataFeed(ctx.mgr), set()
            while not feed.should_stop():
                found.update(feed.next_batch(100))
            return sorted(found)

        nodes = fed(from_where, num_ps=1)
        nodes.train(sc.parallelize(range(64), 16).map(lambda i: SparkFiles.getRootDirectory()))
        nodes.shutdown()
        emit(found=nodes.cluster.results())
    """)
    assert len(output["found"]["worker-0"]) == 1, output
    no_agents_left(house)


def test_fed_run_fails_without_its_session(house: House) -> None:
    """At once, since its rows cannot be fed again; no message offers to resume it."""
    output = house.notebook.evaluate("""
        nodes = fed(counting)
        spark.stop()
        emit(run=nodes.cluster_id)
    """)
    run, yard = output["run"], house.yard
    wait_for(lambda: yard.state(run) == "failed", "the run fails")
    shown = yard.run("show", run).stdout
    assert "rows" in shown and "start it anew" in shown and "resume" not in shown, shown
    assert "resume" not in yard.run("attach", run, rc=None).stdout
    house.notebook.evaluate(PROGRAMS.format(conf=CONF[house.part]))
