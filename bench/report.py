# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: a figure with its target, and the file it is kept in."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass
class Figure:
    name: str
    measured: float
    unit: str
    target: float
    less: bool = True  # the target is an upper bound

    @property
    def met(self) -> bool:
        return self.measured <= self.target if self.less else self.measured > self.target

    def row(self, width: int = 48) -> str:
        bound = f"{'≤' if self.less else '>'} {self.target:g} {self.unit}"
        verdict = "ok" if self.met else "MISSED"
        return f"  {self.name:<{width}} {self.measured:>9.3g} {self.unit:<4} {bound:>12}   {verdict}"


def results(name: str) -> str:
    """The file of a benchmark's results."""
    return os.path.join(ROOT, "bench", "results", f"{name}.json")


def machine() -> str:
    return f"on {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}"


def save(path: str, figures: list[Figure], **fields: Any) -> None:
    """Everything about a run, beside the machine it ran on."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        json.dump({
            "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()[0]},
            **fields,
            "figures": [{**asdict(f), "met": f.met} for f in figures],
        }, out, indent=2)
        out.write("\n")
