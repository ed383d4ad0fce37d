# SPDX-License-Identifier: Apache-2.0
"""Rows that Spark feeds to the nodes of a cluster, whose agents do not hold the executors' slots meanwhile."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import wait_for
from house import House, houses
from spark import mend

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

def doubling(args, ctx):
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        batch = feed.next_batch(7)
        if batch:
            feed.batch_results([2 * row for row in batch])

def fed(main_fun, args=None, nodes=2, **settings):
    return TFCluster.run(sc, main_fun, args, nodes, input_mode=TFCluster.InputMode.SPARK, **settings)
"""


@pytest.fixture(scope="module", params=["spark", "yarn"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    cluster = request.getfixturevalue(f"{request.param}_cluster")
    mend(request.param, cluster)
    for house in houses(cluster, request.param, tmp_path_factory.mktemp("house"), **CONF[request.param]):
        house.notebook.say(PROGRAMS.format(conf=CONF[request.param]))
        yield house


def everybody_is_gone(house: House) -> None:
    wait_for(lambda: not house.agents(), "agents end with their run")


def test_every_row_of_every_epoch_comes_once(house: House) -> None:
    """RDDs of tuples; executors' slots are free for the tasks that feed."""
    said = house.notebook.say("""
        rows = sc.parallelize(range(5000), 8).map(lambda i: ([float(i)] * 50, i))
        nodes = fed(counting)
        nodes.train(rows, num_epochs=3)
        nodes.shutdown()
        say(found=nodes.cluster.results(), wanted=3 * sum(range(5000)))
    """)
    found = said["found"].values()
    assert sum(rows for _, rows, _ in found) == 15000 and sum(total for _, _, total in found) == said["wanted"]
    everybody_is_gone(house)


def test_a_data_frame_comes_by_arrow(house: House) -> None:
    said = house.notebook.say("""
        frame = spark.range(4000).selectExpr("cast(id as float) as x", "id as y", "array(id, id + 1) as z")
        nodes = fed(counting, {"x": "x", "y": "y", "z": "z"})
        nodes.train(frame.repartition(4), num_epochs=1)
        nodes.shutdown()
        say(found=nodes.cluster.results(), wanted=sum(range(4000)))
    """)
    found = said["found"].values()
    assert sum(rows for _, rows, _ in found) == 4000 and sum(total for _, _, total in found) == said["wanted"]


def test_results_are_one_to_one_and_in_order(house: House) -> None:
    said = house.notebook.say("""
        nodes = fed(doubling)
        results = nodes.inference(sc.parallelize(range(1000), 6)).collect()
        again = nodes.inference(sc.parallelize([5, 6], 2)).collect()
        nodes.shutdown()
        say(right=results == [2 * i for i in range(1000)], again=again)
    """)
    assert said["right"] and said["again"] == [10, 12]
    everybody_is_gone(house)


def test_who_has_had_enough_ends_the_feed(house: House) -> None:
    """With most of the rows unread."""
    said = house.notebook.say("""
        def few(args, ctx):
            feed = TFNode.DataFeed(ctx.mgr)
            feed.next_batch(10)
            feed.terminate()
            return feed.should_stop()

        nodes = fed(few)
        nodes.train(sc.parallelize(range(200_000), 8).map(lambda i: [float(i)] * 100), num_epochs=1000)
        nodes.shutdown()
        say(found=nodes.cluster.results())
    """)
    assert said["found"] == {"worker-0": True, "worker-1": True}
    everybody_is_gone(house)


def test_a_worker_that_raises_while_it_is_fed_says_why(house: House) -> None:
    said = house.notebook.say("""
        def broken(args, ctx):
            feed = TFNode.DataFeed(ctx.mgr)
            feed.next_batch(10)
            if ctx.task_index == 1:
                raise ValueError("no such column")
            while not feed.should_stop():
                feed.next_batch(10)

        nodes = fed(broken)
        error = failing(lambda: nodes.train(sc.parallelize(range(500_000), 8).map(lambda i: [float(i)] * 100), num_epochs=10))
        say(error=error, state=experiment.result(nodes.cluster_id).state)
    """)
    assert "worker 1 on " in said["error"] and said["error"].rstrip().endswith("ValueError: no such column")
    assert said["state"] == "failed"
    everybody_is_gone(house)


def test_an_executor_that_dies_takes_its_agent_along(house: House) -> None:
    """Though that is none of its children any more; and the run says so."""
    said = house.notebook.say("""
        nodes = fed(counting)
        say(run=nodes.cluster_id)
    """)
    wait_for(lambda: len(house.agents()) >= 2, "agents have left their tasks")
    for pid in house.executors():
        os.kill(pid, signal.SIGKILL)
    everybody_is_gone(house)
    ended = house.notebook.say("""
        say(error=failing(nodes.shutdown))
    """)
    assert "agent is gone" in ended["error"] or "is over" in ended["error"], (said, ended)


def test_no_rows_come_to_where_nobody_takes_them(house: House) -> None:
    """The agent of a parameter server stays in its Spark task: the executor has no room for one that feeds."""
    said = house.notebook.say("""
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
        say(found=nodes.cluster.results())
    """)
    assert len(said["found"]["worker-0"]) == 1, said
    everybody_is_gone(house)
