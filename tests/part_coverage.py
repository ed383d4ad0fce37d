# SPDX-License-Identifier: Apache-2.0
"""The table of `make coverage`: lines and branches by part, C and Python, printed and kept in CONTRIBUTING.md."""

import json
import os
import re
import subprocess
from dataclasses import dataclass

BEGIN, END = "<!-- coverage: begin (make coverage writes it) -->", "<!-- coverage: end -->"
LINES_GOAL, BRANCHES_GOAL = 90, 85
BRANCHY = {"src/store", "src/wire", "src/schedule", "src/search"}  # the goal for branches is theirs


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


def c_files(gcovr: str, builds: list[str], root: str, env: dict[str, str]) -> dict[str, Reached]:
    """What gcc's counters in these builds together say of each source file."""
    summary = os.path.join(builds[0], "summary.json")
    subprocess.run([gcovr, "--root", root, "--filter", f"{root}/src/", "--json-summary", summary, "-j", "2",
                    "--exclude-throw-branches", "--gcov-ignore-parse-errors=all", *builds],
                   cwd=builds[0], env=env, check=True, stdout=subprocess.DEVNULL)
    with open(summary) as file:
        files = json.load(file)["files"]
    return {f["filename"]: Reached(f["line_total"], f["line_covered"], f["branch_total"], f["branch_covered"])
            for f in files}


def c_parts(files: dict[str, Reached]) -> dict[str, Reached]:
    parts: dict[str, Reached] = {}
    for path, reached in files.items():
        words = path.split("/")
        if words[0] == "src" and len(words) > 2:
            parts["/".join(words[:2])] = parts.get("/".join(words[:2]), Reached()) + reached
    return dict(sorted(parts.items()))


def python_settings(folder: str, package: str) -> str:
    """For coverage.py in every process: also those that fork or leave by os._exit, as Spark's workers do; also modules
    with other names (`hops` is hopyard/compat/hops), and copies of the package on executors.
    """
    return (f"[run]\nbranch = true\nparallel = true\nsource_pkgs = hopyard\nsource_dirs = {package}\n"
            f"data_file = {folder}/python\npatch = _exit, fork\n"
            f"[paths]\nhopyard =\n    {package}\n    */site/hopyard\n")


def python_parts(report: str) -> dict[str, Reached]:
    """From coverage.py's JSON: the modules and packages right below hopyard."""
    parts: dict[str, Reached] = {}
    with open(report) as file:
        files = json.load(file)["files"]
    for path, details in files.items():
        words = path[path.rindex("hopyard/"):].split("/")
        name = "hopyard" if len(words) == 2 and words[1] == "__init__.py" else f"hopyard.{words[1].removesuffix('.py')}"
        s = details["summary"]
        parts[name] = parts.get(name, Reached()) + Reached(s["num_statements"], s["covered_lines"],
                                                           s.get("num_branches", 0), s.get("covered_branches", 0))
    return dict(sorted(parts.items()))


def below_goal(part: str, reached: Reached) -> bool:
    return percent(reached.lines, reached.lines_reached) < LINES_GOAL or \
        part in BRANCHY and percent(reached.branches, reached.branches_reached) < BRANCHES_GOAL


def table(parts: dict[str, Reached]) -> list[str]:
    rows = ["| part | lines | % | branches | % | |", "|---|---:|---:|---:|---:|---|"]
    for part, reached in parts.items():
        rows.append(f"| `{part}` | {reached.lines} | {percent(reached.lines, reached.lines_reached):.1f} | "
                    f"{reached.branches} | {percent(reached.branches, reached.branches_reached):.1f} | "
                    f"{'below' if below_goal(part, reached) else ''} |")
    return rows


def keep(rows: list[str], root: str) -> bool:
    """Writes the table between the markers; False where there are none."""
    path = os.path.join(root, "CONTRIBUTING.md")
    with open(path) as file:
        text = file.read()
    between = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.S)
    if not between.search(text):
        return False
    with open(path, "w") as file:
        file.write(between.sub(lambda _: "\n".join([BEGIN, *rows, END]), text))
    return True
