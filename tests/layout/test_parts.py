# SPDX-License-Identifier: Apache-2.0
"""The layout of src/: parts in an order, one front door each, one meaning for each tag, names that can be guessed.

Nothing is compiled: it reads include lines and definitions. The order is that of docs/architecture.md.
"""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
ORDER = ["base", "fs", "record", "share", "hdfs", "event", "search", "schedule", "store", "wire", "supervise", "gpu",
         "agent", "engine", "driver", "client", "view", "web", "feed", "collective", "tensorflow", "cli", "python"]

# What a newcomer has to do, and the file whose name should lead there: a part, and a file anywhere below it.
TASKS = [
    ("parse a glob pattern", "fs", "glob_pattern.c"),
    ("renew the lease of a file on HDFS", "hdfs", "lease_renewer.c"),
    ("change how evolution picks the next parameters", "search", "differential_evolution.c"),
    ("add a column to the database", "store", "schema.c"),
    ("raise a limit of the protocol", "wire", "limits.h"),
    ("put a trial into a cgroup", "supervise", "cgroup.c"),
    ("find the descendants of a process", "supervise", "descendants.c"),
    ("share a GPU among trials", "gpu", "lease.c"),
    ("read the metrics that a trial prints", "agent", "metric_scan.c"),
    ("name the ranks that cause a deadlock", "collective", "deadlock.c"),
    ("reject ranks whose requests do not match", "collective", "mismatch.c"),
    ("change what a notebook shows of a run", "view", "live_view_html.c"),
    ("refuse a malformed HTTP request", "web", "http.c"),
    ("record the provenance of a run", "client", "provenance.c"),
    ("correct the text of --help", "cli", "help.c"),
]


@cache
def sources() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(SRC.rglob("*.[ch]"))}


def part_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0]


def includes() -> Iterator[tuple[Path, int, Path]]:
    """(file, line, header of src) for each include; those of generated headers and of libraries are left out."""
    for path, text in sources().items():
        for found in re.finditer(r'^\s*#\s*include\s+"([^"]+)"', text, re.M):
            line = text.count("\n", 0, found.start()) + 1
            for header in (path.parent / found[1], SRC / found[1]):
                if header.exists():
                    yield path, line, header.resolve()
                    break


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def tags() -> dict[str, list[str]]:
    """`struct hy_x` and its like, and the places where each is defined."""
    found = defaultdict(list)
    for path, text in sources().items():
        for m in re.finditer(r"^(?:typedef\s+|static\s+|const\s+)*(struct|enum|union)\s+(hy_\w+)\s*\{", text, re.M):
            found[m[2]].append(f"{place(path, text.count(chr(10), 0, m.start()) + 1)} ({m[1]})")
    return found


def test_every_directory_of_src_has_its_place_in_the_order() -> None:
    parts = {path.name for path in SRC.iterdir() if path.is_dir() and any(path.rglob("*.c"))}
    assert not parts - set(ORDER), "add it to ORDER here and to docs/architecture.md"


def test_a_part_is_included_by_its_front_door_alone() -> None:
    side_doors = [f"{place(path, line)} includes {header.relative_to(SRC)}" for path, line, header in includes()
                  if part_of(header) not in (part_of(path), "base")
                  and header != SRC / part_of(header) / f"{part_of(header)}.h"]
    assert not side_doors, f"{len(side_doors)} side doors:\n" + "\n".join(side_doors)


def test_a_part_includes_only_parts_above_it() -> None:
    against = [f"{place(path, line)} includes {header.relative_to(SRC)}" for path, line, header in includes()
               if ORDER.index(part_of(header)) > ORDER.index(part_of(path))]
    assert not against, "against the order:\n" + "\n".join(against)


def test_a_tag_has_one_definition() -> None:
    twice = [f"{tag}: {', '.join(places)}" for tag, places in sorted(tags().items()) if len(places) > 1]
    assert not twice, "tags with several meanings:\n" + "\n".join(twice)


@pytest.mark.parametrize(("task", "part", "name"), TASKS, ids=[f"{part}/{name}" for _, part, name in TASKS])
def test_the_file_for_a_task_is_found_by_its_name(task: str, part: str, name: str) -> None:
    assert list((SRC / part).rglob(name)), f"to {task} one would look for {name} in src/{part}"


def test_tests_have_the_directories_of_parts() -> None:
    """Each C suite is in the directory of the part that it tests, and no header holds tests."""
    suites = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.c")}
    assert not suites - set(ORDER)
    assert not list((ROOT / "tests").glob("test_*.c")), "suites are in the directories of their parts"
    with_tests = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.h")
                  if re.search(r"^(?:static (?:inline )?void test_\w+\(|HY_TEST\w*\(test_)", path.read_text(), re.M)]
    assert not with_tests, f"tests in headers: {', '.join(with_tests)}"
