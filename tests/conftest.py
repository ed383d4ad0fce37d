# SPDX-License-Identifier: Apache-2.0
"""Marks tests that need TensorFlow: `-m 'not tensorflow'` runs the others, without importing it.

A test needs it when its module imports it, when its own source has an import of it, or when it uses a fixture or a name
of its module that does (a program in a string, a helper).
"""
from __future__ import annotations

import ast
import atexit
import functools
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

if "XDG_STATE_HOME" not in os.environ:  # projects of tests stay out of the user's list of projects
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="hopyard-state-")
    atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

PACKAGES = "tensorflow|keras|tf_keras|tensorboard"
IMPORTS = re.compile(rf"\b(?:import|from) (?:{PACKAGES}|horovod|hopyard\.(?:keras|hvd|_tfops|_?tensorflow))\b|"
                     rf"\bimportorskip\(\"(?:{PACKAGES})")
MODULES = re.compile(r"test_(?:hvd|horovod|tfops|tfos|tfcluster|gfile)")  # they run programs of other files


@functools.cache
def names_in(path: Path) -> tuple[bool, dict[str, str]]:
    """Whether the module itself imports TensorFlow, and the source of each name that it defines."""
    text = path.read_text()
    whole, names, lines = False, {}, text.splitlines()
    for node in ast.parse(text).body:
        source = "\n".join(lines[node.lineno - 1:node.end_lineno])  # get_source_segment splits the whole text each time
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            whole = whole or bool(IMPORTS.search(source))
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = source
        elif isinstance(node, ast.Assign):
            names.update({target.id: source for target in node.targets if isinstance(target, ast.Name)})
    return whole, names


@functools.cache
def needing_names(path: Path) -> frozenset[str]:
    """The names of a module that need TensorFlow, directly or through another name of it."""
    _, names = names_in(path)
    found = {name for name, source in names.items() if IMPORTS.search(source)}
    while more := {name for name, source in names.items() if name not in found and
                   found & set(re.findall(r"\w+", source))}:
        found |= more
    return frozenset(found)


def needs_tensorflow(item: pytest.Item) -> bool:
    whole, _ = names_in(item.path)
    name = getattr(item, "originalname", item.name)
    if whole or MODULES.match(item.path.name):
        return True
    return name in needing_names(item.path) or "tensorflow" in getattr(item, "fixturenames", [])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collecting a module that imports TensorFlow takes seconds, and fails where it is not installed."""
    if "not tensorflow" in config.option.markexpr and collection_path.suffix == ".py" and names_in(collection_path)[0]:
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if needs_tensorflow(item):
            item.add_marker("tensorflow")
