# SPDX-License-Identifier: Apache-2.0
"""Training as a person sees it: what a second rank brings, and how long ranks take to begin.

    .venv/bin/python bench/allreduce_training.py             some ten minutes
    .venv/bin/python bench/allreduce_training.py --quick     a round of each, to see that it works

`rows()` is what bench/allreduce.py calls.

Speed: scikit-learn's digits, by Keras 3's `fit`, batches of the same size in each rank. One rank on one core, two
ranks on two, and, so that one sees what the machine has to give, two trainings of one rank at once that know
nothing of each other. They take turns. Examples per second are those of all ranks, by their own clocks, between
barriers; of the epochs the first does not count, and of the rest, and of the rounds' ratios, the median.

Start: from the command, or the call, to the moment at which the last rank is past `hvd.init()`. Beside it a fresh
interpreter that imports TensorFlow, and two of them at once: they share disk and caches, as two ranks do.
"""

import argparse
import contextlib
import fcntl
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from report import Figure, machine

EPOCHS = 6
ROUNDS = 5
STARTS = 7
WANTED = 1.7  # times the examples per second of one rank
ALLOWED_S = 1.0  # more than the import
TIMEOUT_S = 300
IMPORT = "import time, tensorflow; print(time.time())"

MODELS = {  # batch, batches of an epoch, and what it is
    "convolutions": (64, 150, "two convolutions (32 and 64 of 3x3) and 128 dense, 53,002 weights, batches of 64"),
    "dense": (32, 500, "the model of examples/digits.py: 64 dense, 4,810 weights, batches of 32"),
}

Rates = dict[str, list[float]]
Seconds = dict[str, list[float]]


def rows(rounds: int = ROUNDS, starts: int = STARTS) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="hopyard-bench-") as folder, contextlib.chdir(folder):
        figures = [speed(model, rounds) for model in MODELS]
        return figures + begin(starts)


# --- speed -------------------------------------------------------------------


def speed(model: str, rounds: int) -> dict[str, Any]:
    rates: Rates = {"one": [], "two": [], "apart": []}
    for i in range(rounds):
        say(f"{model}, round {i + 1} of {rounds}")
        rates["one"].append(sum(trained(model, [{i % cores()}])))
        rates["two"].append(sum(trained(model, [None], ranks=2)))
        rates["apart"].append(sum(trained(model, [{0}, {1 % cores()}])))
    return {
        "name": f"digits ({model}), 2 ranks on 2 cores, times 1 on 1", "unit": "×", "target": WANTED, "less": False,
        "measured": times(rates["two"], rates["one"]), "apart": times(rates["apart"], rates["one"]),
        "model": MODELS[model][2], "examples_per_second": rates,
    }  # fmt: skip


def times(some: list[float], others: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(some, others))


def trained(model: str, places: list[set[int] | None], ranks: int = 1) -> list[float]:
    """Examples per second of trainings that run at once, each on its cores (None: on all there are)."""
    with contextlib.ExitStack() as stack:
        each = [stack.enter_context(training(model, ranks, place)) for place in places]
        return [json.loads(said(process).split("MEASURED ", 1)[1].splitlines()[0]) for process in each]


@contextlib.contextmanager
def training(model: str, ranks: int, place: set[int] | None) -> Iterator[subprocess.Popen[str]]:
    def limit() -> None:
        if place:
            os.sched_setaffinity(0, place)

    with tempfile.TemporaryDirectory(dir=".") as project:
        command = [*train(ranks, project), __file__, "--rank", model]
        with begun(command, preexec_fn=limit) as process:
            yield process
        wait_for_drivers(project)


def wait_for_drivers(project: str) -> None:
    """They write the snapshot of their run after its clients have left."""
    for path in glob.glob(f"{project}/.hopyard/run-*.lock"):
        with open(path, "r+") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)


def cores() -> int:
    return len(os.sched_getaffinity(0))


# --- start -------------------------------------------------------------------


def begin(starts: int) -> list[dict[str, Any]]:
    ways: dict[str, Callable[[], float]] = {
        "import": lambda: imported(1), "imports": lambda: imported(2), "train": train_begun, "run": run_begun,
    }  # fmt: skip
    took: Seconds = {way: [] for way in ways}
    for i in range(starts + 1):
        say(f"start, round {i} of {starts}")
        for way, measure in ways.items():
            took[way].append(measure())
    took = {way: seconds[1:] for way, seconds in took.items()}  # the first had to read files
    called = {"train": "hopyard train -np 2", "run": "allreduce.run(fn, np=2)"}
    beside = {"import": "import tensorflow", "imports": "two imports at once"}
    return [
        {"name": f"{called[way]} to hvd.init(), over {beside[peer]}", "unit": "s", "target": ALLOWED_S, "less": True,
         "measured": statistics.median(took[way]) - statistics.median(took[peer]),
         "seconds": took[way], "peer_seconds": took[peer]}
        for way in called for peer in beside
    ]  # fmt: skip


def imported(count: int) -> float:
    """Seconds until so many interpreters that were started at once have TensorFlow."""
    started = time.time()
    with contextlib.ExitStack() as stack:
        each = [stack.enter_context(begun([sys.executable, "-c", IMPORT])) for _ in range(count)]
        return max(float(said(process).split()[-1]) for process in each) - started


def train_begun() -> float:
    with tempfile.TemporaryDirectory(dir=".") as project:
        started = time.time()
        with begun([*train(2, project), __file__, "--begin", project]) as process:
            said(process)
        return stamped(project) - started


def run_begun() -> float:
    """Of an interpreter that is there; what it does before it calls `run` is not counted."""
    with tempfile.TemporaryDirectory(dir=".") as project:
        with begun([sys.executable, __file__, "--call", os.path.abspath(project)]) as process:
            started = float(said(process).split("CALLED ", 1)[1].split()[0])
        return stamped(project) - started


def stamped(folder: str) -> float:
    """When the last rank was past its hvd.init()."""
    return max(float(pathlib.Path(folder, f"begun.{rank}").read_text()) for rank in range(2))


# --- processes ---------------------------------------------------------------


def train(ranks: int, project: str) -> list[str]:
    program = os.environ.get("HOPYARD_PROGRAM") or str(pathlib.Path(sys.executable).with_name("hopyard"))
    return [program, "train", "-np", str(ranks), "--project", project, sys.executable]


def begun(command: list[str], **how: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, **how,
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> str:
    text = process.communicate(timeout=TIMEOUT_S)[0]
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, process.args))} failed:\n{text[-4000:]}")
    return text


def say(text: str) -> None:
    print(f"  {text:<60}", end="\r", flush=True)


# --- in the ranks ------------------------------------------------------------


def begin_rank(folder: str) -> None:
    import hopyard.hvd as hvd
    import tensorflow  # noqa: F401

    hvd.init()
    pathlib.Path(folder, f"begun.{hvd.rank()}").write_text(repr(time.time()))


def call_run(folder: str) -> None:
    from hopyard import allreduce

    print(f"CALLED {time.time()}", flush=True)
    allreduce.run(begin_rank, args=(folder,), np=2, project=folder)


def train_rank(name: str) -> None:
    import keras
    import sklearn.datasets

    import hopyard.hvd.keras as hvd
    import tensorflow as tf

    hvd.init()
    batch, batches, _ = MODELS[name]
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    x, y = (x / 16).astype("float32")[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(1000, seed=hvd.rank()).batch(batch)
    model = keras.Sequential([keras.layers.Input((64,)), *layers(name), keras.layers.Dense(10, activation="softmax")])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size()))
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    began, ended = [], []

    def clock(stamps: list[float]) -> None:
        hvd.allreduce(tf.zeros([1]), name="together")
        stamps.append(time.perf_counter())

    by_epoch = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: clock(began), on_epoch_end=lambda epoch, logs: clock(ended)
    )
    first = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(data, steps_per_epoch=batches, epochs=EPOCHS, verbose=0, callbacks=[first, by_epoch])
    rates = [hvd.size() * batch * batches / (end - start) for start, end in zip(began, ended)]
    if hvd.rank() == 0:
        print(f"MEASURED {statistics.median(rates[1:])}", flush=True)


def layers(name: str) -> list[Any]:
    from keras.layers import Conv2D, Dense, Dropout, Flatten, MaxPooling2D, Reshape

    if name == "dense":
        return [Dense(64, activation="relu"), Dropout(0.1)]
    return [
        Reshape((8, 8, 1)), Conv2D(32, 3, activation="relu"), Conv2D(64, 3, activation="relu"), MaxPooling2D(),
        Dropout(0.25), Flatten(), Dense(128, activation="relu"), Dropout(0.5),
    ]  # fmt: skip


# --- the report --------------------------------------------------------------


def show(figures: list[dict[str, Any]]) -> None:
    print(" " * 64)
    for row in figures:
        print(Figure(row["name"], row["measured"], row["unit"], row["target"], row["less"]).row(66))
        if "model" in row:
            middle = {who: f"{statistics.median(rates):,.0f}" for who, rates in row["examples_per_second"].items()}
            print(f"    {row['model']}\n    examples/s: one rank {middle['one']}, two {middle['two']}, "
                  f"two trainings apart {middle['apart']} ({row['apart']:.2f} × one)")  # fmt: skip
        else:
            print(f"    {statistics.median(row['seconds']):.2f} s, {statistics.median(row['peer_seconds']):.2f} s")
    print(f"  {machine()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a round of each")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--begin", help=argparse.SUPPRESS)
    parser.add_argument("--call", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        train_rank(options.rank)
    elif options.begin:
        begin_rank(options.begin)
    elif options.call:
        call_run(options.call)
    else:
        show(rows(1, 1) if options.quick else rows())
    return 0


if __name__ == "__main__":
    sys.exit(main())
