# SPDX-License-Identifier: Apache-2.0
"""Runs of every kind in Chromium: Python functions, trainings, clusters."""
from __future__ import annotations

import subprocess
import sys

import pytest
from browser import shoot
from conftest import Yard
from playwright.sync_api import Page, expect
from test_ui_run_pages import column, open_run, status

FUNCTION = """
import hopyard
from hopyard import experiment

def training(rate, layers):
    for step in range(3):
        hopyard.report(acc=rate * step, step=step)
    print("\\x1b[32mtrained\\x1b[0m")
    return {"acc": rate * layers, "loss": 0.5}

def silent(x):
    pass

experiment.grid_search(training, {"rate": [0.1, 0.001], "layers": [1, 2]}, metric="acc", name="search")
experiment.grid_search(silent, {"x": [1, [2, 3], None]}, name="silent")
"""


@pytest.mark.view
def test_runs_of_python_functions_are_shown_as_calls(yard: Yard, page: Page) -> None:
    subprocess.run([sys.executable, "-c", FUNCTION], env={**yard.env, "HOPYARD_PROGRAM": yard.bin}, cwd=yard.project, check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    expect(page.get_by_role("row", name="search")).to_contain_text("training(rate, layers)")
    page.get_by_label("Filter runs").fill("training(")
    page.get_by_role("link", name="search").click()
    expect(page.get_by_text("acc=0.2 in trial 2")).to_be_visible()
    expect(page.get_by_label("rate logarithmic")).to_be_checked()  # 0.1 and 0.001
    page.get_by_role("link", name="2", exact=True).click()
    expect(page.get_by_role("heading", name="Run 1, trial 2")).to_be_visible()
    expect(page.locator("dd", has_text="training(")).to_contain_text("training(rate=0.1, layers=2)")
    expect(page.get_by_role("img", name="Reported values of acc")).to_be_visible()
    expect(page.locator("dl")).to_contain_text("loss0.5")  # a single value is not a curve
    expect(page.get_by_role("log").locator(".fg2")).to_have_text("trained")
    shoot(page, "trial-of-a-function")

    origin = "/".join(page.url.split("/")[:3])
    page.goto(f"{origin}/runs/2")  # what went wrong is shown, and no empty charts
    expect(page.get_by_text("silent returned nothing, so the trial has no metric; return a number")).to_be_visible()
    expect(page.get_by_text("No trial has a value of metric yet.")).to_be_visible()
    expect(page.locator("canvas")).to_have_count(0)
    expect(page.get_by_role("cell", name="[2,3]")).to_be_visible()
    page.goto(f"{origin}/compare?runs=1,2")
    expect(page.get_by_role("row", name="Space of rate")).to_contain_text("0.1, 0.001")


def test_ranks_are_numbered_as_in_the_terminal(yard: Yard, page: Page) -> None:
    yard.run("train", "-np", "2", "--seed", "40", "--", "sh", "-c", "echo rank $HOROVOD_RANK of $HOROVOD_SIZE, seed $HOPYARD_SEED")
    open_run(page)
    expect(page.get_by_role("tab", name="Parallel")).to_have_count(0)  # they have no hyperparameters
    page.get_by_role("tab", name="Ranks").click()
    expect(status(page)).to_have_text("2 ranks")
    assert column(page, "Rank") == ["0", "1"]
    page.get_by_label("Pick rank 0").check()
    page.get_by_label("Pick rank 1").check()
    page.get_by_role("button", name="Compare 2 ranks").click()
    expect(page.get_by_role("columnheader", name="Rank 1")).to_be_visible()
    page.get_by_role("tab", name="Ranks").click()
    page.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("heading", name="Run 1, rank 1")).to_be_visible()
    expect(page.get_by_role("log")).to_have_text("rank 1 of 2, seed 42")
    line = page.locator("dd", has_text="hopyard train").locator("code").inner_text()  # all of it again
    again = subprocess.run(["sh", "-c", line], env=yard.env, cwd=yard.project, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    assert b"rank 1 of 2, seed 42" in again.stdout


NODES = """
from hopyard import cluster

def main_fun(args, ctx):
    print("this is", ctx.job_name, ctx.task_index)

cluster.run(main_fun, None, workers=2, chief=True, tensorboard=False).shutdown()
"""


def test_nodes_of_a_cluster_have_their_names(yard: Yard, page: Page) -> None:
    subprocess.run([sys.executable, "-c", NODES], env={**yard.env, "HOPYARD_PROGRAM": yard.bin}, cwd=yard.project, check=True,
                   stdin=subprocess.DEVNULL)
    open_run(page, "trials")
    expect(status(page)).to_have_text("3 nodes")
    assert column(page, "Node") == ["chief-0", "worker-0", "worker-1"]
    page.get_by_role("link", name="worker-1").click()
    expect(page.get_by_role("heading", name="Run 1, node worker-1")).to_be_visible()
    expect(page.get_by_role("log")).to_have_text("this is worker 1")
