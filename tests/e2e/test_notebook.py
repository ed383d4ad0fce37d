# SPDX-License-Identifier: Apache-2.0
"""hopyard.experiment in a notebook that a real Jupyter kernel executes."""
from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import nbclient
import nbformat
import pytest
from conftest import Yard, wait_for

IMPORTS = """
import os, sys, time
import hopyard
from hopyard import experiment
"""
GATED = """
def training(x):
    while not os.path.exists("gate"):
        time.sleep(0.02)
    return x
"""


class Notebook:
    """A kernel in a yard's project that executes cells one by one."""

    def __init__(self, yard: Yard) -> None:
        self.notebook = nbformat.v4.new_notebook()
        self.updates: list[str] = []  # the HTML of each display update
        self.client = nbclient.NotebookClient(self.notebook, timeout=240, kernel_name="python3",
                                              resources={"metadata": {"path": str(yard.project)}})
        take = self.client.process_message

        def process_message(message: dict[str, Any], *args: Any) -> Any:
            if message["msg_type"] == "update_display_data":
                self.updates.append(message["content"]["data"].get("text/html", ""))
            return take(message, *args)
        self.client.process_message = process_message
        self.client.create_kernel_manager()
        env = {**yard.env, "HOPYARD_PROGRAM": yard.bin}
        self.loop = asyncio.new_event_loop()
        self.wait(self.client.async_start_new_kernel(env=env, cwd=str(yard.project)))
        self.wait(self.client.async_start_new_kernel_client())

    def wait(self, what: Any) -> Any:
        return self.loop.run_until_complete(what)

    async def execute(self, source: str) -> Any:
        self.notebook.cells.append(nbformat.v4.new_code_cell(source))
        return await self.client.async_execute_cell(self.notebook.cells[-1], len(self.notebook.cells) - 1)

    def cell(self, source: str) -> list[Any]:
        """Its outputs."""
        return list(self.wait(self.execute(source))["outputs"])

    def interrupted(self, source: str, when: Any) -> list[Any]:
        """The outputs of a cell that is interrupted as soon as `when` is true."""
        async def both() -> Any:
            cell = asyncio.ensure_future(self.execute(source))
            await asyncio.to_thread(wait_for, when, "the cell gets to where it is to be interrupted")
            await self.client.km.interrupt_kernel()
            await asyncio.wait([cell])
        self.wait(both())
        return list(self.notebook.cells[-1]["outputs"])

    def close(self) -> None:
        self.wait(self.client._async_cleanup_kernel())
        self.loop.close()


@pytest.fixture
def notebook(yard: Yard) -> Iterator[Notebook]:
    n = Notebook(yard)
    try:
        yield n
    finally:
        n.close()


def text_of(outputs: list[Any]) -> str:
    return "".join(o["text"] for o in outputs if o["output_type"] == "stream")


def test_grid_search_updates_one_display_and_shows_its_result_below(yard: Yard, notebook: Notebook) -> None:
    notebook.cell(IMPORTS)
    notebook.cell("def training(x, y):\n    time.sleep(0.2)\n    return x * y")
    outputs = notebook.cell('experiment.grid_search(training, {"x": [1, 2], "y": [3, 4]}, parallel=1, metric="m", tensorboard=False)')
    shown, result = outputs
    assert shown["output_type"] == "display_data" and result["output_type"] == "execute_result"
    assert len(notebook.updates) > 2, "the table was updated during the trials"
    assert shown["data"]["text/html"].strip() == notebook.updates[-1].strip()
    assert shown["data"]["text/html"].startswith("<div") and "m=8" in re.sub("<[^>]*>", "", shown["data"]["text/html"])
    assert "best m=8 in trial 4" in result["data"]["text/html"] and "run 1 done: 4 done;" in result["data"]["text/plain"]
    assert re.search(r"(?m)^\*  4 +2  4  8  done ", result["data"]["text/plain"]), "the table as text"
    assert "m=8" in shown["data"]["text/plain"] and "<" not in shown["data"]["text/plain"]
    assert text_of(outputs) == "", "nothing else was printed"


def test_traceback_is_the_error_of_the_cell(yard: Yard, notebook: Notebook) -> None:
    notebook.cell(IMPORTS)
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        notebook.cell("""
def training(x):
    raise ValueError("not today")
experiment.grid_search(training, {"x": [1]}, tensorboard=False)
""")
    assert caught.value.ename == "TrialsFailed" and "ValueError: not today" in caught.value.evalue
    assert 'raise ValueError("not today")' in caught.value.evalue, "the line of the cell is shown, as in Python"


def test_interrupted_cell_leaves_the_run_and_shows_how_to_continue(yard: Yard, notebook: Notebook) -> None:
    notebook.cell(IMPORTS + GATED)
    outputs = notebook.interrupted('experiment.grid_search(training, {"x": [1, 2]}, parallel=2, tensorboard=False)',
                                   lambda: len([u for u in notebook.updates if "running" in u]) > 1)
    output = text_of(outputs)
    for how in ("experiment.attach(1)", "hopyard attach 1", "hopyard stop 1", "hopyard resume 1"):
        assert how in output, outputs
    assert outputs[-1]["ename"] == "KeyboardInterrupt" and "run 1 continues" in outputs[-1]["evalue"]
    assert yard.state() == "running"
    wait_for(lambda: not yard.processes(r"hopyard attach"), "no client watches any more")
    (yard.project / "gate").touch()
    outputs = notebook.cell("experiment.attach(1).best.params")
    assert outputs[-1]["data"]["text/plain"] == "{'x': 2}"


def test_run_outlives_the_kernel(yard: Yard, notebook: Notebook) -> None:
    notebook.cell(IMPORTS + GATED)
    notebook.cell('experiment.grid_search(training, {"x": [1, 2]}, parallel=2, tensorboard=False, detach=True)')
    notebook.wait(notebook.client.km.shutdown_kernel(now=True))
    assert yard.state() == "running"
    (yard.project / "gate").touch()
    wait_for(lambda: yard.state() == "done", "the run ends")
    assert [t["value"] for t in yard.trials()] == [1, 2]
