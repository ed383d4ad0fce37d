# SPDX-License-Identifier: Apache-2.0
"""How good is the search? Seven functions, 50 evaluations per dimension, 101 seeds, default settings.

Beside it SciPy's differential_evolution at the best setting found for so few evaluations (NP = 2D,
no polishing, no early stop), and random search. Verdict: not worse than SciPy by a one-sided
Mann-Whitney test at 5%, and a 95th percentile over the seeds (the worst 5%) not above SciPy's.

    .venv/bin/python bench/search.py [--seeds N] [--first SEED]      (needs numpy and scipy)

The same for TPE and CMA-ES, whose verdicts do not change the exit status.

A table on standard output, bench/results/search.json for programs. Exit status 1 if a verdict of the
synchronous or the asynchronous form is "worse".
"""

import argparse
import functools
import json
import math
import multiprocessing
import os
import pathlib
import random
import sys
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # the vectors here have ten elements
    os.environ.setdefault(variable, "1")

import numpy as np
import scipy
from scipy.optimize import differential_evolution
from scipy.stats import mannwhitneyu

import hopyard
from hopyard.search import CMA, TPE, Evolution, Random

PER_DIMENSION = 50
PARALLEL = 4
RESULTS = pathlib.Path(__file__).parent / "results" / "search.json"


def shift(n, half):
    """Where the optimum is moved to, so that no search profits from the middle of the box."""
    return 0.5 * half * np.sin(3.7 * np.arange(1, n + 1))


def sphere(x):
    z = x - shift(10, 5.12)
    return z @ z


def rastrigin(x):
    z = x - shift(10, 5.12)
    return 100 + z @ z - 10 * np.cos(2 * np.pi * z).sum()


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def ackley(x):
    z = x - shift(10, 32.768)
    waves = np.cos(2 * np.pi * z).sum() / 10
    return 20 + math.e - 20 * math.exp(-0.2 * math.sqrt(z @ z / 10)) - math.exp(waves)


def griewank(x):
    z = x - shift(10, 600)
    return 1 + z @ z / 4000 - np.cos(z / np.sqrt(np.arange(1, 11))).prod()


def branin(x):
    a, b = x
    bend = b - 5.1 / (4 * np.pi**2) * a * a + 5 / np.pi * a - 6
    return bend**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10


HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(x):
    return -np.array([1, 1.2, 3, 3.2]) @ np.exp(-(HARTMANN_A * (x - HARTMANN_P) ** 2).sum(axis=1))


FUNCTIONS = {
    "Sphere-10": (sphere, [(-5.12, 5.12)] * 10),
    "Rastrigin-10": (rastrigin, [(-5.12, 5.12)] * 10),
    "Rosenbrock-10": (rosenbrock, [(-5.0, 10.0)] * 10),
    "Ackley-10": (ackley, [(-32.768, 32.768)] * 10),
    "Griewank-10": (griewank, [(-600.0, 600.0)] * 10),
    "Branin": (branin, [(-5.0, 10.0), (0.0, 15.0)]),
    "Hartmann-6": (hartmann, [(0.0, 1.0)] * 6),
}


class Spent(Exception):
    """The evaluations are used up."""


class Counted:
    """A function that remembers its best value and ends after its budget."""

    def __init__(self, name):
        self.function, self.bounds = FUNCTIONS[name]
        self.left, self.best = PER_DIMENSION * len(self.bounds), math.inf

    def __call__(self, x):
        if self.left == 0:
            raise Spent
        self.left -= 1
        value = float(self.function(np.asarray(x)))
        self.best = min(self.best, value)
        return value


def by_scipy(f, seed):
    # A negative atol: it never takes itself for converged.
    differential_evolution(f, f.bounds, popsize=2, polish=False, tol=0, atol=-1, maxiter=10**6, rng=seed)


def by_asking(make, f, seed, parallel=1):
    """`parallel` trials are open at a time; which of them is answered next is chance."""
    search = make({f"x{i}": bounds for i, bounds in enumerate(f.bounds)}, direction="min", seed=seed)
    chance, running = random.Random(seed), []
    while True:
        trial = search.ask() if len(running) < parallel else None
        if trial is not None:
            running.append((trial, f(list(trial.params.values()))))
        else:
            search.tell(*running.pop(chance.randrange(len(running))))


METHODS = {
    "hopyard": functools.partial(by_asking, Evolution),
    "asynchronous": functools.partial(
        by_asking, functools.partial(Evolution, asynchronous=True), parallel=PARALLEL
    ),
    "TPE": functools.partial(by_asking, TPE),
    "CMA-ES": functools.partial(by_asking, CMA),
    "scipy": by_scipy,
    "random": functools.partial(by_asking, Random),
}


def run(task):
    method, name, seed = task
    f = Counted(name)
    try:
        METHODS[method](f, seed)
    except Spent:
        pass
    assert f.left == 0
    return f.best


def compare(values, peer):
    p = float(mannwhitneyu(values, peer, alternative="greater").pvalue)
    p95, peer_p95 = float(np.percentile(values, 95)), float(np.percentile(peer, 95))
    ahead = float(mannwhitneyu(values, peer, alternative="less").pvalue) < 0.05
    verdict = "worse" if p < 0.05 or p95 > peer_p95 else "better" if ahead else "as good"
    return {"median": float(np.median(values)), "p95": p95, "p_worse": p, "verdict": verdict}


def table(title, method, results):
    print(f"\n{title}")
    print(
        f"{'':14} {'median':>10} {'p95':>10} | {'SciPy med.':>10} {'p95':>10} | {'random':>10} |"
        f" {'p(worse)':>9}  verdict"
    )
    for name, row in results.items():
        r, peer = row[method], row["scipy"]
        print(
            f"{name:14} {r['median']:10.4g} {r['p95']:10.4g} | {peer['median']:10.4g} {peer['p95']:10.4g} |"
            f" {row['random']['median']:10.4g} | {r['p_worse']:9.2g}  {r['verdict']}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=101, help="runs of each search on each function")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    seeds, begun, results = range(options.first, options.first + options.seeds), time.monotonic(), {}
    with multiprocessing.Pool() as pool:
        for name in FUNCTIONS:
            best = {m: pool.map(run, [(m, name, seed) for seed in seeds], chunksize=4) for m in METHODS}
            results[name] = {m: compare(values, best["scipy"]) for m, values in best.items()}
    print(f"Best value after {PER_DIMENSION} evaluations per dimension, {len(seeds)} seeds; less is better.")
    print(f"hopyard {hopyard.__version__}, SciPy {scipy.__version__} (differential_evolution, NP = 2D).")
    table("Evolution, default settings", "hopyard", results)
    table(f"The same, asynchronous, {PARALLEL} trials at a time answered by chance", "asynchronous", results)
    table("TPE", "TPE", results)
    table("CMA-ES", "CMA-ES", results)
    print(
        f"\n{time.monotonic() - begun:.0f} s; p(worse): one-sided Mann-Whitney; worse: p < 0.05 or a higher p95."
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps(
            {
                "evaluations_per_dimension": PER_DIMENSION,
                "seeds": [seeds.start, seeds.stop - 1],
                "scipy": scipy.__version__,
                "hopyard": hopyard.__version__,
                "parallel": PARALLEL,
                "functions": results,
            },
            indent=1,
        )
        + "\n"
    )
    return any(row[m]["verdict"] == "worse" for row in results.values() for m in ("hopyard", "asynchronous"))


if __name__ == "__main__":
    sys.exit(main())
