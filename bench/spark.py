# SPDX-License-Identifier: Apache-2.0
"""What trials cost on a Spark cluster; plain Spark and our own engine on one machine beside it.

    .venv/bin/python bench/spark.py             (make bench-spark; some ten minutes)
    .venv/bin/python bench/spark.py --quick     a round with a tenth of the trials, to see that it works

A standalone cluster of two workers is started on this machine, with one core for each of two executors. Trials run
one TensorFlow op. Plain Spark maps the same function over the same numbers, a partition each: with the same isolation
as ours, which is a process for each trial (spark.python.worker.reuse=false), and, for long trials, as it comes, with
workers that share a process, its memory and its crashes. Where each trial imports TensorFlow, fewer of them tell the
same. They take turns; figures are medians of the rounds' ratios. Exit status 0 also where one is missed: no test.
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
from collections.abc import Iterator
from typing import Any

from report import Figure, machine, results, save

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLUSTER = [sys.executable, ROOT / "tests" / "cluster" / "cluster.py"]
TRIALS, FEW, LONG, LONG_S = 200, 8, 4, 10
ROUNDS = 3


# --- in a process with a session ---------------------------------------------


def trial(x: float, seconds: float = 0.0) -> float:
    import time

    import tensorflow as tf

    time.sleep(seconds)
    return float(tf.reduce_sum(tf.ones((2, 2))) * x)


def session(reuse: bool) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.executor.instances": 2, "spark.executor.cores": 1, "spark.cores.max": 2, "spark.executor.memory": "512m",
        "spark.python.worker.reuse": str(reuse).lower(), "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR", "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=4",  # as JVMs come, not as tests have them
    }  # fmt: skip
    builder = SparkSession.builder.appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.parallelize(range(2), 2).map(lambda x: x).collect()  # the executors are there
    return spark


def check(values: list[float], n: int) -> None:
    """A side that lost a trial would look fast."""
    if sorted(values) != [4.0 * x for x in range(n)]:
        raise SystemExit(f"{n} trials were asked for, and these values came back: {values}")


def timed(side: str, n: int, seconds: float) -> dict[str, float]:
    """Seconds for n trials, by one side, on a warm session."""
    from hopyard import experiment

    spark = None if side == "local" else session(reuse=side != "isolated")
    begun = time.perf_counter()
    if side in ("hopyard", "local"):
        how = {"spark": spark, "parallel": 2, "tensorboard": False}
        found = experiment.grid_search(lambda x: trial(x, seconds), {"x": list(range(n))}, **how)
        values = [t.metric for t in found.trials]
    else:
        values = spark.sparkContext.parallelize(range(n), n).map(lambda x: trial(x, seconds)).collect()
    took = time.perf_counter() - begun
    check(values, n)
    return {"seconds": took}


def first(side: str) -> dict[str, float]:
    """Seconds from the call to the moment at which the function runs."""
    from hopyard import experiment

    spark = session(reuse=True)
    called = time.time()

    def begun(x: int) -> float:
        import time

        return time.time()

    result = experiment.grid_search(begun, {"x": [1]}, spark=spark, tensorboard=False)
    return {"seconds": result.trials[0].metric - called}


# --- the rounds --------------------------------------------------------------


@contextlib.contextmanager
def cluster() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="hopyard-bench-") as state:
        subprocess.run([*CLUSTER, "start", "spark", "--state", state], check=True, stdout=subprocess.DEVNULL)
        try:
            yield json.loads(pathlib.Path(state, "cluster.json").read_text())["spark_env"]
        finally:
            subprocess.run([*CLUSTER, "stop", "--state", state], check=True, stdout=subprocess.DEVNULL)


def measured(env: dict[str, str], *words: object) -> float:
    with tempfile.TemporaryDirectory(prefix="hopyard-bench-") as project:
        command = [sys.executable, __file__, "--side", *map(str, words)]
        full = {**os.environ, **env, "HOPYARD_PROJECT": project, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(command, env=full, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = [line for line in done.stdout.splitlines() if line.startswith("MEASURED ")]
    if done.returncode or not found:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
    return json.loads(found[0].removeprefix("MEASURED "))["seconds"]


def rounds(env: dict[str, str], count: int, scale: int) -> dict[str, list[float]]:
    """Seconds, of each side and round."""
    n, few, long, seconds = TRIALS // scale, max(2, FEW // scale), LONG, LONG_S / scale
    sides = {
        "hopyard": ("hopyard", n, 0), "local": ("local", n, 0), "isolated": ("isolated", few, 0),
        "hopyard long": ("hopyard", long, seconds), "reused long": ("reused", long, seconds),
    }  # fmt: skip
    took: dict[str, list[float]] = {side: [] for side in [*sides, "first"]}
    for i in range(count):
        for side, words in sides.items():
            print(f"  round {i + 1} of {count}: {side:<20}", end="\r", flush=True)
            took[side].append(measured(env, *words))
        took["first"].append(measured(env, "first", 1, 0))
    print(" " * 60, end="\r")
    return took


def ratio(took: dict[str, list[float]], of: str, to: str, weight: float = 1.0) -> float:
    return statistics.median(a / b * weight for a, b in zip(took[of], took[to]))


def figures(took: dict[str, list[float]], scale: int) -> list[Figure]:
    n, few = TRIALS // scale, max(2, FEW // scale)
    return [
        Figure(f"{n} trials, times plain Spark with a process each", ratio(took, "isolated", "hopyard", n / few), "x", 20, False),
        Figure(f"{n} trials, seconds over those of the local engine", ratio(took, "hopyard", "local"), "x", 1.5),
        Figure(f"{LONG} trials of {LONG_S / scale:g} s, over plain Spark", ratio(took, "hopyard long", "reused long"), "x", 1.03),
        Figure("call to first trial, warm session", statistics.median(took["first"]), "s", 2),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a round with a tenth of the trials")
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side, n, seconds = options.side
        said = first(side) if side == "first" else timed(side, int(n), float(seconds))
        print("MEASURED " + json.dumps(said), flush=True)
        return 0
    scale = 10 if options.quick else 1
    with cluster() as env:
        took = rounds(env, 1 if options.quick else ROUNDS, scale)
    found = figures(took, scale)
    for figure in found:
        print(figure.row(56))
    print(f"  {machine()}")
    save(results("spark"), found, seconds=took)
    return 0


if __name__ == "__main__":
    sys.exit(main())
