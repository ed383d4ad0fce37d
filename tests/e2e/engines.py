# SPDX-License-Identifier: Apache-2.0
"""The engines that runs use, for suites that are written once.

    local    this machine
    hosts    two network namespaces with an sshd each, over ssh
    spark    a standalone Spark of two workers
    yarn     YARN of two nodes

An engine is a Python process that executes a cell at a time. In it `where` holds the arguments of experiment.* and
allreduce.run that select the engine, and `meet` is a directory that both trials and tests can see. The project
directory is visible only to trials on this machine.

Local and hosts run all of a suite. The clusters run what is not marked `full`, or all of it if
HOPYARD_TEST_CLUSTER is "all", as in `make test-cluster` (see conftest.py).
"""
from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard, yard_in
from hosts import hosts_of
from house import House, Notebook
from needs import need_root
from spark import repair
from test_hosts_functions import PACKAGES, python_of

ENGINES = ["local", "hosts", "spark", "yarn"]
SESSION = {
    "spark": {},
    "yarn": {"executor_cores": "2", "executor_memoryOverhead": "2500m"},
}


@dataclass
class Engine:
    name: str
    yard: Yard
    notebook: Notebook
    agents: str  # a pattern for their names
    machines: int = 2  # or their stand-ins: ranks on the same one are local to each other
    sees_project: bool = False
    meet: Path = field(default_factory=Path)

    def evaluate(self, code: str) -> dict[str, Any]:
        return self.notebook.evaluate(code)

    def running(self) -> list[int]:
        return [row["id"] for row in self.yard.rows("SELECT id FROM runs WHERE state = 1")]


# ---- the engines ----------------------------------------------------------------------------------------------


@contextmanager
def local(folder: Path) -> Iterator[Engine]:
    with yard_in(folder) as yard, closing(Notebook(yard, {})) as notebook:
        notebook.evaluate("where = {}")
        yield Engine("local", yard, notebook, "local", machines=1, sees_project=True)


@contextmanager
def on_hosts(folder: Path) -> Iterator[Engine]:
    with (
        yard_in(folder) as yard,
        hosts_of(yard, "a", "b") as net,
        closing(Notebook(yard, {"PYTHONPATH": PACKAGES}, python_of(net))) as notebook,
    ):
        notebook.evaluate("where = {'hosts': ['a:2', 'b:2']}")
        yield Engine("hosts", yard, notebook, "[ab]")


@contextmanager
def on_cluster(part: str, cluster: dict[str, Any]) -> Iterator[Engine]:
    need_root("to hide a project from executors")
    repair(part, cluster)
    edge = Path(tempfile.mkdtemp(dir=cluster["state"] / "edge"))  # which executors do not see
    with yard_in(edge) as yard, closing(House(yard, cluster, part)) as house:
        house.notebook.evaluate(f"""
            spark = session(executor_instances="2", executor_memory="512m", **{SESSION[part]})
            where = {{"spark": spark}}
        """)
        yield Engine(part, yard, house.notebook, r"executor-\d+@\S+")


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    part = request.param
    if part in SESSION:
        made = on_cluster(part, request.getfixturevalue(f"{part}_cluster"))
    else:
        made = {"local": local, "hosts": on_hosts}[part](tmp_path_factory.mktemp(part))
    with made as engine:
        yield engine


@pytest.fixture(autouse=True)
def by_itself(engine: Engine) -> Iterator[None]:
    """Each test gets its own rendezvous directory, and leaves no run that would occupy slots of later tests."""
    with tempfile.TemporaryDirectory(prefix="hy-meet-") as folder:  # hosts cannot see a test's own directory
        engine.meet = Path(folder)
        engine.evaluate(f"meet = {folder!r}")
        yield
        for run in engine.running():
            engine.yard.run("stop", run, rc=None)
