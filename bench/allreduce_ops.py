# SPDX-License-Identifier: Apache-2.0
"""What an allreduce costs as TensorFlow's user sees it; Horovod's figures beside it.

    .venv/bin/python bench/allreduce_ops.py                    two ranks on this machine, a minute
    PEER=horovod .venv/bin/python bench/allreduce_ops.py       builds Horovod on TensorFlow 2.15 first, and runs it too

`rows()` is what bench/allreduce.py calls. Without PEER the other side is what Horovod took on the machine the figures
in the table below are from (two ranks, eager, the faster of Gloo and MPI): then compare on such a machine only.
"""

import functools
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from report import Figure

ROOT = pathlib.Path(__file__).resolve().parents[1]
HOROVOD = ROOT / "build" / "bench" / "horovod"
KB, MB = 1 << 10, 1 << 20
HOROVOD_US = {KB: 1100.0, 64 * KB: 1200.0, MB: 2100.0, 16 * MB: 12700.0, 64 * MB: 58000.0}
GOALS = {KB: 10.0, 64 * KB: 10.0, 64 * MB: 1.5}  # times as fast as Horovod
ADDED_US = 50.0
ROUNDS = 7
TENSORS = 100  # of 1 MB, in a grouped allreduce
GROUPED = 1.25  # times as long as one tensor of as many bytes
CHAIN = 10  # ops in a tf.function, whose own call costs as much as many of them


def added(name: str, us: float, identity_us: float) -> dict[str, Any]:
    return {"name": name, "measured": us - identity_us, "unit": "us", "target": ADDED_US, "less": True, "us": us,
            "peer_us": identity_us}


def rows() -> list[dict[str, Any]]:
    """Figures as bench/allreduce.py wants them; `us` and `peer_us` are the times behind one."""
    ours = ours_us()
    theirs = horovod_us() if os.environ.get("PEER") == "horovod" else {str(n): us for n, us in HOROVOD_US.items()}
    found = [added("1 KB, one op in a tf.function, over an identity", ours["alone"], ours["identity_alone"]),
             added(f"1 KB, each of {CHAIN} ops in a tf.function, over one", ours["function"], ours["identity"])]
    found.append({"name": f"{TENSORS} tensors of 1 MB, grouped, times one of {TENSORS} MB", "unit": "x",
                  "measured": ours["grouped"] / ours["whole"], "target": GROUPED, "less": True,
                  "us": ours["grouped"], "peer_us": ours["whole"]})
    for size in HOROVOD_US:
        us, peer_us = ours[str(size)], theirs[str(size)]
        found.append({"name": f"{spell(size)} eagerly, times Horovod", "measured": peer_us / us, "unit": "x",
                      "target": GOALS.get(size, 1.0), "less": False, "us": us, "peer_us": peer_us})
    return found


def spell(size: int) -> str:
    return f"{size // MB} MB" if size >= MB else f"{size // KB} KB"


def ours_us() -> dict[str, float]:
    program = os.environ.get("HOPYARD_PROGRAM") or str(pathlib.Path(sys.executable).with_name("hopyard"))
    with tempfile.TemporaryDirectory(prefix="hopyard-bench-") as folder:
        return measured([program, "train", "-np", "2", "--project", folder, sys.executable, __file__, "hopyard.hvd"])


def horovod_us() -> dict[str, float]:
    build_horovod()
    python = HOROVOD / "bin" / "python"
    by = {"gloo": [HOROVOD / "bin" / "horovodrun", "--gloo", "-np", "2"],
          "mpi": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]}
    runs = [measured([*command, python, __file__, "horovod.tensorflow"]) for command in by.values()]
    return {key: min(run[key] for run in runs) for key in runs[0]}


def measured(command: list[Any]) -> dict[str, float]:
    """The line of JSON that rank 0 prints, whatever its launcher puts before it."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=env)
    found = [line for line in done.stdout.splitlines() if "MEASURED " in line]
    if done.returncode or not found:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}")
    return json.loads(found[0].split("MEASURED ", 1)[1])


def build_horovod() -> None:
    """An environment with the last Horovod and the last TensorFlow it builds on; minutes, once."""
    made = HOROVOD / ".made"
    if made.exists():
        return
    python = HOROVOD / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet"]
    needs = ["tensorflow-cpu==2.15.1", "cmake<4", "setuptools<70", "wheel", "packaging", "cffi", "cloudpickle",
             "psutil", "pyyaml"]
    wanted = {"HOROVOD_WITH_TENSORFLOW": "1", "HOROVOD_WITH_MPI": "1", "HOROVOD_WITH_GLOO": "1",
              "HOROVOD_WITHOUT_PYTORCH": "1", "HOROVOD_WITHOUT_MXNET": "1"}
    env = {**os.environ, **wanted, "PATH": f"{HOROVOD}/bin:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-m", "venv", "--clear", HOROVOD], check=True)
    subprocess.run([*pip, *needs], check=True)
    subprocess.run([*pip, "--no-build-isolation", "--no-deps", "horovod==0.28.1"], check=True, env=env)
    made.touch()


# ---- a rank ------------------------------------------------------------------


def rank(module: str) -> None:
    import tensorflow as tf

    hvd = importlib.import_module(module)
    hvd.init()
    small = tf.ones([KB // 4])

    def chain(op: Callable[[Any, int], Any], length: int) -> float:
        """Microseconds for one of several ops, each of which takes what the last one gave."""
        function = tf.function(lambda x: functools.reduce(op, range(length), x))
        return time_of(hvd, function, small, 300) / length

    def reduced(x: Any, i: int) -> Any:
        return hvd.allreduce(x, op=hvd.Min, name=f"small{i}")

    took = {"identity": chain(lambda x, i: tf.identity(x), CHAIN), "function": chain(reduced, CHAIN),
            "identity_alone": chain(lambda x, i: tf.identity(x), 1), "alone": chain(reduced, 1)}
    tensors = [tf.fill([MB // 4], float(i)) for i in range(TENSORS)]
    grouped = tf.function(lambda *xs: hvd.grouped_allreduce(list(xs), op=hvd.Sum, name="grouped"))
    took["grouped"] = time_of(hvd, lambda xs: grouped(*xs), tensors, 5)
    whole = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="whole"))
    took["whole"] = time_of(hvd, whole, tf.concat(tensors, 0), 5)
    for size in HOROVOD_US:
        x = tf.ones([size // 4])
        times = max(3, min(500, 8 * MB // size))
        took[str(size)] = time_of(hvd, lambda x: hvd.allreduce(x, op=hvd.Sum, name="eager"), x, times)
    if hvd.rank() == 0:
        print("MEASURED " + json.dumps(took), flush=True)


def time_of(hvd: Any, call: Callable[[Any], Any], x: Any, times: int) -> float:
    """Microseconds a call: the fastest of some rounds, each begun together; the others had company on the machine."""
    for _ in range(max(3, times // 10)):
        call(x)
    rounds = []
    for _ in range(ROUNDS):
        hvd.allreduce(x[:1], op=hvd.Sum, name="together")
        begun = time.perf_counter()
        for _ in range(times):
            call(x)
        rounds.append((time.perf_counter() - begun) / times * 1e6)
    return min(rounds)


def main() -> int:
    if len(sys.argv) > 1:
        rank(sys.argv[1])
        return 0
    for row in rows():
        figure = Figure(*[row[key] for key in ("name", "measured", "unit", "target", "less")])
        print(f"{figure.row()}   ({row['us']:.0f} us, {row['peer_us']:.0f} us)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
