# SPDX-License-Identifier: Apache-2.0
"""The layout of the package, read from its import statements: nothing is imported to check it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "hopyard"

PUBLIC = {
    "allreduce", "cluster", "collective", "compat", "devices", "experiment", "fsspec", "hdfs", "hvd", "keras", "search",
    "space", "spark", "stop", "tensorboard", "tfrecord", "util",
}  # fmt: skip
EXTENSION = "hopyard._hopyard"
PRIVATE = {"_base", "_code", "_feed", "_jupyter", "_run", "_spark", "_tensorflow", "_trial"}

PRIVATE_MAY_IMPORT = {
    (
        "hopyard._run.start",
        "hopyard.space",
    ): "an experiment's space, which users write with these types, becomes options",
    ("hopyard._run.settings", "hopyard.stop"): "a rule, which users write with these types, becomes options",
    ("hopyard._jupyter.session", "hopyard.spark"): "the form's session is one that a user could make",
    ("hopyard._spark.__main__", "hopyard.spark"): "a program that makes a session the way a user does",
}


# ---- reading imports -----------------------------------------------------------------------------


@cache
def sources() -> dict[str, Path]:
    """The module names of the package, and their files."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["hopyard", *path.relative_to(PACKAGE).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(node: ast.AST, everywhere: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when the module is imported; with `everywhere`, also those in functions and for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif everywhere or not (is_type_checking(child) or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from statements(child, everywhere)


def imported(module: str, everywhere: bool) -> set[str]:
    """The modules of the package that a module imports."""
    path = sources()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in statements(ast.parse(path.read_text()), everywhere):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        base = node.module or ""
        if node.level:
            base = ".".join(filter(None, [*package.split(".")[: package.count(".") + 2 - node.level], node.module]))
        names = {f"{base}.{alias.name}" for alias in node.names}
        modules = names & {*sources(), EXTENSION}
        found |= modules if modules == names else {*modules, base}
    return {name for name in found if name == "hopyard" or name.startswith("hopyard.")}


def part_of(module: str) -> str:
    """The module or package at the top of hopyard that a module belongs to."""
    return (module.split(".") + [""])[1]


# ---- what holds ------------------------------------------------------------------------------------


def test_top_of_the_package_holds_public_modules_and_private_packages_only() -> None:
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    directories = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert files | {name for name in directories if not name.startswith("_")} == PUBLIC
    assert {name for name in directories if name.startswith("_")} == PRIVATE


def test_only_compat_imports_compat() -> None:
    others = {name for name in sources() if part_of(name) != "compat"}
    guilty = {name for name in others if any(part_of(target) == "compat" for target in imported(name, everywhere=True))}
    assert not guilty


def test_private_packages_do_not_import_public_modules() -> None:
    private = {name for name in sources() if part_of(name) in PRIVATE}
    edges = {(name, target) for name in private for target in imported(name, everywhere=True)}
    assert {edge for edge in edges if part_of(edge[1]) in PUBLIC} == set(PRIVATE_MAY_IMPORT)


def test_private_packages_have_empty_init_files() -> None:
    """Importing one module of a package costs nothing else, and Spark's workers can have single modules by value."""
    for name in PRIVATE:
        body = ast.parse((PACKAGE / name / "__init__.py").read_text()).body
        assert [type(node) for node in body] == [ast.Expr], f"{name}/__init__.py has more than a docstring"


def test_no_modules_import_each_other_in_a_cycle() -> None:
    graph = {name: imported(name, everywhere=False) & set(sources()) - {name} for name in sources()}
    finished: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        assert name not in path, f"import cycle: {' -> '.join([*path[path.index(name) :], name])}"
        if name not in finished:
            for target in graph[name]:
                visit(target, [*path, name])
            finished.add(name)

    for name in graph:
        visit(name, [])


def test_installation_lists_every_file() -> None:
    listed = re.findall(r"'(hopyard/\S+)'", (PACKAGE.parent / "meson.build").read_text())
    files = {path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".pyi", ".typed")}
    assert listed == sorted(listed, key=lambda name: name.rpartition("/")[::2])
    assert set(listed) == {str(path.relative_to(PACKAGE.parent)) for path in files}


def test_installation_has_every_notebook_of_the_tour() -> None:
    listed = re.findall(r"'\.\./examples/tour/(\S+)'", (PACKAGE.parent / "meson.build").read_text())
    assert listed == sorted(path.name for path in (PACKAGE.parents[1] / "examples/tour").glob("*.ipynb"))
