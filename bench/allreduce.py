# SPDX-License-Identifier: Apache-2.0
"""Allreduce of float32: hopyard beside Open MPI and Gloo, in turns on the same machine.

    .venv/bin/python bench/allreduce.py              (make bench-allreduce; some ten minutes)
    .venv/bin/python bench/allreduce.py --quick      fewer sizes and rounds, to see that it works
    .venv/bin/python bench/allreduce.py --only 2 8 grouped memcpy hosts ops training errors
    .venv/bin/python bench/allreduce.py --realtime   all sides before everything else on the machine (chrt; needs root)
    .venv/bin/python bench/allreduce.py --tune       tries every way and writes src/collective/shm/choice_table.h

All sides run the same loop (allreduce_loop.h): a barrier, some turns to warm up, a barrier, N turns by the clock. In
each round they run one after the other; of a round the fastest batch counts, and of the rounds' ratios the median:
what the machine does meanwhile happens to all of them. (On a virtual machine whose processors wander between a host's
caches, times differ by a factor of four from one minute to the next.)

What other files have to add comes from their `rows()`: a list of dicts, one for each figure, with `name`, `measured`,
`unit`, `target`, `less` (whether the target is an upper bound) and whatever else is worth keeping.
allreduce_hosts.py: between hosts, beside iperf3. allreduce_ops.py: as TensorFlow sees it, beside Horovod.
allreduce_training.py: examples per second of a training, and how soon it begins. allreduce_errors.py: how soon
the death of a rank, or a mismatch, is an error on the others.
"""

import argparse
import importlib
import os
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from report import ROOT, Figure, machine, results, save

RESULTS = results("allreduce")
WORK = os.path.join(ROOT, "build", "bench")
OWN = os.environ.get("BENCH_COLLECTIVE", os.path.join(ROOT, "build", "wheel", "bench_collective"))
TABLE = os.path.join(ROOT, "src", "collective", "shm", "choice_table.h")
SYSTEM_PYTHON = "/usr/bin/python3"  # whose PyTorch it is
KB, MB = 1 << 10, 1 << 20
SIZES = [KB << i for i in range(17)]  # to 64 MB
BATCHES = 3
ROUNDS = 7
MANY = 8  # ranks, more than cores
GROUPED = 100  # tensors of 1 MB
SECTIONS = {"hosts": "allreduce_hosts", "ops": "allreduce_ops", "training": "allreduce_training",
            "errors": "allreduce_errors"}  # fmt: skip
TIMEOUT_S = 600


@dataclass
class Report:
    rounds: int
    sizes: list[int]
    times: dict[str, dict[int, list[float]]] = field(default_factory=dict)  # side -> bytes -> seconds, a round each
    figures: list[Figure] = field(default_factory=list)
    sections: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def spell(size: int) -> str:
    return f"{size // MB} MB" if size >= MB else f"{size // KB} KB"


# --- sides -------------------------------------------------------------------


def build_mpi() -> str:
    program = os.path.join(WORK, "mpi")
    source = os.path.join(ROOT, "bench", "mpi.c")
    subprocess.run(["mpicc", "-O3", "-o", program, source], check=True)
    return program


PREFIX: list[str] = []  # of every side's command


def run_side(command: list[str]) -> dict[int, float]:
    """The fastest batch of each size, in seconds."""
    done = subprocess.run([*PREFIX, *command], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          timeout=TIMEOUT_S)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}")
    times: dict[int, float] = {}
    for size, seconds in re.findall(r"^(\d+) ([\d.]+)$", done.stdout, re.M):
        times[int(size)] = min(float(seconds), times.get(int(size), float("inf")))
    return times


def own_side(ranks: int, sizes: list[int], choice: tuple[str, ...] = ()) -> list[str]:
    return [OWN, "allreduce", str(ranks), str(BATCHES), ",".join(map(str, sizes)), *choice]


def mpi_side(program: str, ranks: int, sizes: list[int]) -> list[str]:
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), program, str(BATCHES),
            ",".join(map(str, sizes))]


def gloo_side(ranks: int, sizes: list[int]) -> list[str]:
    return [SYSTEM_PYTHON, os.path.join(ROOT, "bench", "gloo_peer.py"), str(ranks), str(BATCHES),
            ",".join(map(str, sizes))]


# --- rounds ------------------------------------------------------------------


def take_turns(report: Report, sides: dict[str, list[str]]) -> None:
    for i in range(report.rounds):
        for name, command in sides.items():
            print(f"\r  round {i + 1} of {report.rounds}: {name:<40}", end="", file=sys.stderr, flush=True)
            for size, seconds in run_side(command).items():
                report.times.setdefault(name, {}).setdefault(size, []).append(seconds)
    print(file=sys.stderr)


def times_faster(report: Report, own: str, peer: str, size: int) -> float:
    pairs = zip(report.times[own][size], report.times[peer][size])
    return statistics.median(theirs / ours for ours, theirs in pairs)


def bench_two(report: Report, mpi: str) -> None:
    take_turns(report, {"hopyard, 2 ranks": own_side(2, report.sizes),
                        "Open MPI, 2 ranks": mpi_side(mpi, 2, report.sizes),
                        "Gloo, 2 ranks": gloo_side(2, report.sizes)})
    for size in report.sizes:
        ratio = times_faster(report, "hopyard, 2 ranks", "Open MPI, 2 ranks", size)
        target = 2.5 if size >= 16 * MB else 1.5
        report.figures.append(Figure(f"2 ranks, {spell(size)}, times Open MPI", ratio, "×", target, less=False))
    for size in report.sizes:
        ratio = times_faster(report, "hopyard, 2 ranks", "Gloo, 2 ranks", size)
        report.figures.append(Figure(f"2 ranks, {spell(size)}, times Gloo", ratio, "×", 2, less=False))


def bench_many(report: Report, mpi: str) -> None:
    own, peer = f"hopyard, {MANY} ranks", f"Open MPI, {MANY} ranks"
    take_turns(report, {own: own_side(MANY, report.sizes), peer: mpi_side(mpi, MANY, report.sizes)})
    for size in report.sizes:
        report.figures.append(Figure(f"{MANY} ranks, {spell(size)}, times Open MPI",
                                     times_faster(report, own, peer, size), "×", 1.5, less=False))


def bench_memcpy(report: Report) -> None:
    """Bytes of a 64 MB tensor reduced in a second, by 2 ranks, beside those that one core copies."""
    own, copy = "hopyard, 64 MB", "memcpy, 64 MB, one core"
    take_turns(report, {own: own_side(2, [64 * MB]), copy: [OWN, "memcpy", str(BATCHES), str(64 * MB)]})
    report.figures.append(Figure("2 ranks, 64 MB, as a share of memcpy's bandwidth",
                                 times_faster(report, own, copy, 64 * MB), "×", 0.5, less=False))


def bench_grouped(report: Report) -> None:
    """Many tensors at once, by 2 ranks: straight from and to them, beside by way of one buffer."""
    ways = {way: [OWN, "grouped", "2", str(BATCHES), str(GROUPED), str(MB), way] for way in ("spans", "staged")}
    take_turns(report, {f"hopyard, grouped, {way}": command for way, command in ways.items()})
    report.figures.append(Figure(f"2 ranks, {GROUPED} tensors of 1 MB, times as fast as by way of a buffer",
                                 times_faster(report, "hopyard, grouped, spans", "hopyard, grouped, staged", MB), "×",
                                 1.5, less=False))


def bench_section(report: Report, name: str) -> None:
    if not os.path.exists(os.path.join(ROOT, "bench", f"{SECTIONS[name]}.py")):
        return
    rows = importlib.import_module(SECTIONS[name]).rows()
    report.sections[name] = rows
    report.figures += [Figure(r["name"], r["measured"], r["unit"], r["target"], r["less"]) for r in rows]


# --- the report --------------------------------------------------------------


def show_times(report: Report, ranks: int) -> None:
    own = f"hopyard, {ranks} ranks"
    peers = [name for name in report.times if name.endswith(f", {ranks} ranks") and name != own]
    if own not in report.times:
        return
    head = "".join(f"{peer.split(',')[0]:>12} {'×':>6}" for peer in peers)
    print(f"\n{f'float32, {ranks} ranks, µs':<28} {'hopyard':>12}{head}")
    for size in report.sizes:
        line = f"  {spell(size):<26} {statistics.median(report.times[own][size]) * 1e6:>12.2f}"
        for peer in peers:
            line += f"{statistics.median(report.times[peer][size]) * 1e6:>12.2f} "
            line += f"{times_faster(report, own, peer, size):>6.2f}"
        print(line)


def show(report: Report) -> None:
    for ranks in (2, MANY):
        show_times(report, ranks)
    print(f"\n  {'figure':<60} {'measured':>9} {'':<4} {'target':>12}")
    for figure in report.figures:
        print(figure.row(60))
    print(f"  medians of {report.rounds} rounds; {machine()}; all of it is in {os.path.relpath(RESULTS)}")


# --- the table ---------------------------------------------------------------

Choice = tuple[str, int, int, bool]  # way, segment, ahead, results past the caches

CANDIDATES: dict[int, list[Choice]] = {
    2: [(way, segment * KB, ahead, out) for way in ("direct", "slices") for segment in (64, 32) for ahead in (1, 2)
        for out in (False, True)],
    MANY: [("direct", 64 * KB, 1, False)] + [("slices", segment * KB, ahead, out) for segment in (64, 16)
                                            for ahead in (2, 1, 3) for out in (False, True)],
}
WORTH = 1.1  # another row of the table must be so much faster


def try_choices(ranks: int, sizes: list[int], rounds: int) -> dict[Choice, dict[int, float]]:
    """Times as multiples of the first candidate's, which runs right before each: what the machine does cancels out."""
    first, *others = CANDIDATES[ranks]
    times: dict[Choice, dict[int, list[float]]] = {first: {size: [1.0] for size in sizes}}
    for i in range(rounds):
        for choice in others:
            print(f"\r  {ranks} ranks, round {i + 1} of {rounds}: {str(choice):<40}", end="", file=sys.stderr,
                  flush=True)
            before, after = (run_side(own_side(ranks, sizes, words(c))) for c in (first, choice))
            for size in sizes:
                times.setdefault(choice, {}).setdefault(size, []).append(after[size] / before[size])
    return {choice: {size: statistics.median(t) for size, t in by.items()} for choice, by in times.items()}


def words(choice: Choice) -> tuple[str, ...]:
    way, segment, ahead, out = choice
    return way, str(segment), str(ahead), str(int(out))


def best_rows(times: dict[Choice, dict[int, float]], sizes: list[int]) -> list[tuple[int, Choice]]:
    """(largest size, choice), by size; a row ends where another is worth it."""
    rows: list[tuple[int, Choice]] = []
    for size in sizes:
        best = min(times, key=lambda choice: times[choice][size])
        if rows and times[rows[-1][1]][size] < times[best][size] * WORTH:
            best = rows.pop()[1]
        elif rows and rows[-1][1] == best:
            rows.pop()
        rows.append((size, best))
    return rows


def c_rows(members: str, rows: list[tuple[int, Choice]]) -> list[str]:
    lines = []
    for i, (size, (way, segment, ahead, out)) in enumerate(rows):
        limit = "SIZE_MAX" if i + 1 == len(rows) else f"{size // KB} << 10"
        way, past = f"HY_{way.upper()}", str(out).lower()
        lines.append(f"    {{{members}, {limit}, {way}, {segment // KB} << 10, {ahead}, {past}}},")
    return lines


def tune(sizes: list[int], rounds: int) -> None:
    lines = ["    /* members, bytes, way, segment, ahead, results past the caches */"]
    for ranks, members in ((2, "2"), (MANY, "UINT32_MAX")):
        lines += c_rows(members, best_rows(try_choices(ranks, sizes, rounds), sizes))
    with open(TABLE) as file:
        text = file.read()
    text = re.sub(r"(choices\[\] = \{\n).*?(\};)", lambda m: m[1] + "\n".join(lines) + "\n" + m[2], text, flags=re.S)
    with open(TABLE, "w") as file:
        file.write(text)
    print("\n".join([f"\n{os.path.relpath(TABLE)}:", *lines]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["2", str(MANY), "grouped", "memcpy", *SECTIONS]
    parser.add_argument("--quick", action="store_true", help="every fourth size, two rounds")
    parser.add_argument("--only", nargs="*", default=parts, choices=parts, metavar="PART", help=", ".join(parts))
    parser.add_argument("--rounds", type=int, help=f"instead of {ROUNDS}")
    parser.add_argument("--realtime", action="store_true", help="for machines with other work to do")
    parser.add_argument("--tune", action="store_true", help="write the table of choices instead")
    options = parser.parse_args()
    os.makedirs(WORK, exist_ok=True)
    rounds = options.rounds or (2 if options.quick else ROUNDS)
    report = Report(rounds, SIZES[::4] if options.quick else SIZES)
    if options.realtime:
        PREFIX[:] = ["chrt", "--rr", "20"]
    if options.tune:
        tune(report.sizes, rounds)
        return 0
    if "2" in options.only:
        bench_two(report, build_mpi())
    if str(MANY) in options.only:
        bench_many(report, build_mpi())
    if "grouped" in options.only:
        bench_grouped(report)
    if "memcpy" in options.only:
        bench_memcpy(report)
    for name in SECTIONS:
        if name in options.only:
            bench_section(report, name)
    show(report)
    save(RESULTS, report.figures, rounds=report.rounds, sections=report.sections, times=report.times)
    return 0 if all(f.met for f in report.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
