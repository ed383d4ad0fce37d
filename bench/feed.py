# SPDX-License-Identifier: Apache-2.0
"""Rows from Spark into TensorFlow's nodes, by hopyard and by TensorFlowOnSpark 2.2.5; rings, and TFRecords.

    .venv/bin/python bench/feed.py              (make bench-feed; some eight minutes)
    .venv/bin/python bench/feed.py --quick      with a tenth of the rows, to see that it works

A standalone Spark of two workers is started on this machine. Both sides feed the same cached RDD, or DataFrame, into two
nodes that take batches and drop them; beside them stands what Spark itself moves to a Python function that counts. Each
side has a session of its own, as warm as two rounds before make it. Figures are medians of the rounds' ratios. Exit status
0 also where one is missed: no test.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from report import Figure, machine, results, save

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "bench"
CLUSTER = [sys.executable, ROOT / "tests" / "cluster" / "cluster.py"]
RING = os.environ.get("BENCH_RING", str(ROOT / "build" / "wheel" / "bench_ring"))
PEER = "tensorflowonspark==2.2.5"
WIDTH = 784
FEW = 40  # rows, for nodes to begin with
WARM = 2  # rounds before those that count: JVMs compile meanwhile
SIDES = ("hopyard", "peer")


# --- in a process with a session ---------------------------------------------


def session() -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.executor.instances": 2, "spark.executor.cores": 1, "spark.cores.max": 2, "spark.executor.memory": "1g",
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=4",  # as JVMs come, not as tests have them
        "spark.task.maxFailures": 1, "spark.sql.execution.arrow.maxRecordsPerBatch": 1000,
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # the peer has to be there
    }  # fmt: skip
    builder = SparkSession.builder.appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def taking(args: Any, ctx: Any) -> None:
    """A node that does nothing with what it gets."""
    from tensorflowonspark import TFNode

    feed = TFNode.DataFeed(ctx.mgr)
    if args["way"] == "dataset":
        for _ in feed.dataset(1000):
            continue
    while not feed.should_stop():
        feed.next_batch(256)


def image(i: int, width: int) -> list[float]:
    """As those of digits are: four fifths are background."""
    edge = [0.0] * (width * 2 // 5)
    return [*edge, *((i + k) % 255 / 255 for k in range(width - 2 * len(edge))), *edge]


def cached(spark: Any, rows: int, width: int) -> tuple[Any, Any]:
    """(RDD, DataFrame), both in memory."""
    sc = spark.sparkContext
    rdd = sc.parallelize(range(rows), 4).map(lambda i: (image(i, width), i) if width else float(i)).cache()
    frame = spark.range(rows, numPartitions=4).selectExpr(f"array_repeat(cast(id as float), {max(width, 1)}) as x", "id as y")
    frame = frame.cache()
    return rdd, frame if rdd.count() == frame.count() else None


def fed(sc: Any, data: Any, few: Any, way: str = "rows") -> dict[str, float]:
    """Seconds of run() to a node's first call, of feeding nodes that have had rows before, and of shutdown()."""
    from tensorflowonspark import TFCluster

    begun = time.perf_counter()
    cluster = TFCluster.run(sc, taking, {"way": way}, 2, 0, input_mode=TFCluster.InputMode.SPARK)
    up = time.perf_counter()
    cluster.train(few, num_epochs=1)  # nodes have imported what they need then
    ready = time.perf_counter()
    cluster.train(data, num_epochs=1)
    done = time.perf_counter()
    cluster.shutdown()
    return {"run": up - begun, "feed": done - ready, "shutdown": time.perf_counter() - done}


def timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def counting(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow

    rows = sum(batch.num_rows for batch in batches)
    yield pyarrow.RecordBatch.from_pydict({"rows": pyarrow.array([rows], pyarrow.int64())})


def side(name: str, rows: int, width: int, rounds: int) -> list[dict[str, float]]:
    """Rows a second of everything, in each round."""
    if name == "hopyard":
        import hopyard.compat  # noqa: F401
    spark = session()
    sc = spark.sparkContext
    rdd, frame = cached(spark, rows, width)
    few_rows, few_of_frame = cached(spark, FEW, width)
    found = []
    for _ in range(WARM + rounds):
        times = fed(sc, rdd, few_rows)
        one = {"rows": rows / times["feed"], "around": times["run"] + times["shutdown"]}
        if name == "hopyard":
            one["plain"] = rows / timed(lambda: rdd.mapPartitions(lambda part: [sum(1 for _ in part)]).collect())
            if width:
                one["rows as a dataset"] = rows / fed(sc, rdd, few_rows, "dataset")["feed"]
                one["frame"] = rows / fed(sc, frame, few_of_frame, "dataset")["feed"]
                one["arrow"] = rows / timed(lambda: frame.mapInArrow(counting, "rows bigint").collect())
        found.append(one)
    spark.stop()
    return found[WARM:]


# --- TFRecords ----------------------------------------------------------------


def records(count: int, folder: str) -> dict[str, float]:
    """Ours over TensorFlow's: reading 784 floats a row and 20 scalars a row, and writing."""
    import numpy as np

    import tensorflow as tf
    from hopyard import _hopyard

    def write(name: str, width: int, scalars: int, rows: int) -> tuple[str, float]:
        path, begun = f"{folder}/{name}", time.perf_counter()
        with tf.io.TFRecordWriter(path) as file:
            for i in range(rows):
                floats = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=np.full(width, i, np.float32)))} if width else {}
                ints = {f"s{k}": tf.train.Feature(int64_list=tf.train.Int64List(value=[i + k])) for k in range(scalars)}
                file.write(tf.train.Example(features=tf.train.Features(feature={**floats, **ints})).SerializeToString())
        return path, time.perf_counter() - begun

    def ours(paths: list[str]) -> int:
        def read(path: str) -> int:
            examples, rows = _hopyard.Examples(path), 0
            while batch := examples.next():
                rows += batch[0]
            return rows

        with ThreadPoolExecutor(len(paths)) as threads:
            return sum(threads.map(read, paths))

    def theirs(paths: list[str], features: dict[str, Any]) -> int:
        def parse(batch: Any) -> Any:
            return tf.io.parse_example(batch, features)

        threads, options = None if len(paths) == 1 else len(paths), tf.data.Options()
        if threads is None:
            options.threading.private_threadpool_size = options.threading.max_intra_op_parallelism = 1
        files = tf.data.TFRecordDataset(paths, num_parallel_reads=threads)
        read = files.batch(1024).map(parse, num_parallel_calls=threads).with_options(options)
        return sum(int(next(iter(batch.values())).shape[0]) for batch in read)

    wide, wide_s = write("wide", WIDTH, 1, count)
    narrow, _ = write("narrow", 0, 20, 4 * count)
    of_wide = {"x": tf.io.FixedLenFeature((WIDTH,), tf.float32), "s0": tf.io.FixedLenFeature((), tf.int64)}
    of_narrow = {f"s{k}": tf.io.FixedLenFeature((), tf.int64) for k in range(20)}
    cores = os.cpu_count() or 1
    ways = {"wide": ([wide], of_wide), "narrow": ([narrow], of_narrow), "wide, all cores": ([wide] * cores, of_wide),
            "narrow, all cores": ([narrow] * cores, of_narrow)}  # fmt: skip
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3):
        for name, (paths, features) in ways.items():
            slow, fast = timed(lambda: theirs(paths, features)), timed(lambda: ours(paths))
            ratios[name].append(slow / fast)
    batches = list(iter(_hopyard.Examples(wide).next, None))

    def again() -> None:
        with open(f"{folder}/again", "wb") as out:
            for batch in batches:
                out.write(_hopyard.write_examples(*batch))

    written = statistics.median(timed(again) for _ in range(3))
    return {**{name: statistics.median(r) for name, r in ratios.items()}, "write": wide_s / written}


def ring() -> tuple[float, float]:
    """Bytes a second, in messages of 64 KB: the ring's, memcpy's."""
    pairs = [subprocess.run([RING, "65536", "200000"], capture_output=True, text=True, check=True).stdout.split() for _ in range(5)]
    return statistics.median(float(a) for a, _ in pairs), statistics.median(float(b) for _, b in pairs)


# --- all of it -----------------------------------------------------------------


def peer() -> str:
    """Where TensorFlowOnSpark is."""
    folder = WORK / "tensorflowonspark"
    if not (folder / "tensorflowonspark").exists():
        print("installing TensorFlowOnSpark below build/ …", flush=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), PEER, "packaging"]
        subprocess.run(command, check=True)
    return str(folder)


@contextlib.contextmanager
def spark() -> Iterator[dict[str, str]]:
    """The environment of who has a session there."""
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK, prefix="feed-") as state:
        command = [*map(str, CLUSTER), "hold", "spark", "--state", state]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
            assert held.stdin and held.stdout
            if "held\n" not in held.stdout:
                raise SystemExit("there is no Spark to measure on.")
            try:
                env = json.loads(pathlib.Path(state, "cluster.json").read_text())["spark_env"]
                yield {**os.environ, **env, "TF_CPP_MIN_LOG_LEVEL": "3"}
            finally:
                held.stdin.close()


def run(name: str, env: dict[str, str], rows: int, width: int, rounds: int) -> list[dict[str, float]]:
    """A side in a process of its own, in a folder of its own."""
    print(f"  {name}: {rows:,} rows of {width or 1} …", flush=True)
    paths = [peer()] if name == "peer" else []
    env = {**env, "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [env.get("PYTHONPATH")])])}
    with tempfile.TemporaryDirectory(dir=WORK) as folder, tempfile.TemporaryFile() as said:
        words = [sys.executable, __file__, "--side", name, "--rows", str(rows), "--width", str(width), "--rounds", str(rounds)]
        done = subprocess.run(words, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=said, text=True)
        if done.returncode:
            said.seek(0)
            raise SystemExit(f"{name} failed:\n{done.stdout[-2000:]}\n{said.read().decode(errors='replace')[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def median(found: list[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in found)


def of(found: list[dict[str, float]], key: str, limit: str) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(one[key] / one[limit] for one in found)


def figures(rows: int, rounds: int) -> tuple[list[Figure], dict[str, Any]]:
    with spark() as env:
        ours, theirs = run("hopyard", env, rows, WIDTH, rounds), run("peer", env, rows // 4, WIDTH, 1)
        small, slow = run("hopyard", env, 20 * rows, 0, rounds), run("peer", env, rows // 4, 0, 1)
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        read = records(rows // 10, folder)
    speed, copied = ring()
    peer_rows = median(theirs, "rows")
    all_of = {"hopyard": ours, "tensorflowonspark": theirs, "one float, hopyard": small, "one float, peer": slow,
              "records": read, "ring": speed, "memcpy": copied}  # fmt: skip
    print(f"\n  rows a second    784 floats: {median(ours, 'rows'):,.0f} by RDD, {median(ours, 'frame'):,.0f} by Arrow,"
          f" TensorFlowOnSpark {peer_rows:,.0f}, Spark {median(ours, 'plain'):,.0f} and {median(ours, 'arrow'):,.0f}\n"
          f"                   one float: {median(small, 'rows'):,.0f}, TensorFlowOnSpark {median(slow, 'rows'):,.0f}\n")
    return [
        Figure("RDD rows of 784 floats, times TensorFlowOnSpark", median(ours, "rows") / peer_rows, "x", 8, less=False),
        Figure("RDD rows, of what Spark moves by itself", of(ours, "rows", "plain"), "x", 0.6, less=False),
        Figure("DataFrames by Arrow, times TensorFlowOnSpark", median(ours, "frame") / peer_rows, "x", 20, less=False),
        Figure("DataFrames, of what mapInArrow moves by itself", of(ours, "frame", "arrow"), "x", 0.8, less=False),
        Figure("rows of one float, times TensorFlowOnSpark", median(small, "rows") / median(slow, "rows"), "x", 100, less=False),
        Figure("run and shutdown together", median(ours, "around"), "s", 2),
        Figure("a ring, of memcpy's bandwidth", speed / copied, "x", 0.5, less=False),
        Figure("tf.Examples of 784 floats, times parse_example", read["wide"], "x", 3, less=False),
        Figure("the same, all cores", read["wide, all cores"], "x", 3, less=False),
        Figure("tf.Examples of 20 scalars, times parse_example", read["narrow"], "x", 3, less=False),
        Figure("the same, all cores", read["narrow, all cores"], "x", 3, less=False),
        Figure("writing tf.Examples, times TFRecordWriter", read["write"], "x", 30, less=False),
    ], all_of  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round with a tenth of the rows")
    parser.add_argument("--rows", type=int, help="of 784 floats (100000)")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = options.rows or (10_000 if options.quick else 100_000)
    rounds = options.rounds or (1 if options.quick else 5)
    if options.side:
        print(json.dumps(side(options.side, rows, options.width, rounds)))
        return 0
    found, all_of = figures(rows, rounds)
    for figure in found:
        print(figure.row(52))
    save(results("feed"), found, rows=rows, rounds=rounds, measured=all_of)
    print(f"  medians of {rounds}; {machine()}; all of it is in bench/results/feed.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
