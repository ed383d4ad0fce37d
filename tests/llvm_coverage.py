# SPDX-License-Identifier: Apache-2.0
"""What clang's coverage says of programs built with it, for tests/run fuzz-coverage and coverage."""

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class Reached:
    """Of a file, or of several together."""

    lines: int = 0
    lines_reached: int = 0
    branches: int = 0
    branches_reached: int = 0

    def __add__(self, other: "Reached") -> "Reached":
        return Reached(self.lines + other.lines, self.lines_reached + other.lines_reached,
                       self.branches + other.branches, self.branches_reached + other.branches_reached)


def percent(count: int, reached: int) -> float:
    return 100 * reached / count if count else 0


def by_file(profiles: Iterable[str], programs: list[str], root: str, build: str, merged: str) -> dict[str, Reached]:
    """The source files of the programs, by their paths from the root."""
    subprocess.run(["llvm-profdata", "merge", "-sparse", "-o", merged, *profiles], check=True)
    objects = [argument for program in programs for argument in ("-object", program)]
    done = subprocess.run(["llvm-cov", "export", "-summary-only", f"-instr-profile={merged}", *objects], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # warns of functions in several programs
    found = {}
    for file in json.loads(done.stdout)["data"][0]["files"]:
        path = os.path.relpath(os.path.normpath(os.path.join(root, "build", build, file["filename"])), root)
        lines, branches = file["summary"]["lines"], file["summary"].get("branches", {"count": 0, "covered": 0})
        found[path] = Reached(lines["count"], lines["covered"], branches["count"], branches["covered"])
    return found
