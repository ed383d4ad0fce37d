#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a placement costs: runs bench_schedule, prints tables, keeps the JSON.

    bench/schedule.py PATH_OF_BENCH_SCHEDULE [TRIALS [AGENTS]]
"""
from __future__ import annotations

import json
import pathlib
import subprocess
import sys

LIMIT_S = 10.0
RESULT = pathlib.Path(__file__).resolve().parent / "results" / "schedule.json"


def table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}")
    for row in (head, *rows):
        print("  " + "   ".join(cell.rjust(width) for cell, width in zip(row, widths)))


def show(result: dict) -> None:
    sim = result["simulation"]
    print(f"{sim['trials']:,} trials on {sim['agents']:,} agents with {sim['slots']:,} slots, one core:")
    print(f"  {sim['seconds']:.2f} s of CPU ({sim['ns_per_trial']:,.0f} ns per trial), limit {LIMIT_S:.0f} s")
    print(f"  {sim['max_rss_mb']:.0f} MB resident at most, the whole queue and the simulation included")
    print(f"  {sim['utilisation']:.2%} of the slots in use until 90% of the trials had started")
    head = ("waiting", "agents", "placement, median", "99 of 100 below", "task, mean")
    for key, title in (("by_queue", "A longer queue"), ("by_agents", "More agents")):
        rows = [tuple(f"{r[k]:,.0f}" for k in ("queue", "agents", "median_ns", "p99_ns", "task_ns"))
                for r in result[key]]
        table(f"{title}: ns per placement, and per task through submit, next, done and the simulation", head, rows)


def main(argv: list[str]) -> int:
    if len(argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    run = subprocess.run(argv[1:], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode != 0:
        return 1
    result = json.loads(run.stdout)
    result["limit_s"] = LIMIT_S
    result["met"] = result["simulation"]["seconds"] < LIMIT_S
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    show(result)
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
