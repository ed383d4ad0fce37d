# SPDX-License-Identifier: Apache-2.0
"""Jupyter in the page, in Chromium: the form, JupyterLab in its frame, a notebook that runs. Screenshots are in
build/screenshots."""
from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from browser import shoot
from conftest import Yard, wait_for
from playwright.sync_api import Browser, FrameLocator, Page, expect
from ui import Ui, end

START_MS = 120_000  # JupyterLab loads 10 MB of scripts, and a kernel starts


@pytest.fixture
def server(yard: Yard) -> Iterator[Ui]:
    yard.env["HOPYARD_PYTHON"] = sys.executable
    ui = Ui(yard)
    yield ui
    end(ui)


@pytest.fixture
def page(server: Ui, browser: Browser) -> Iterator[Page]:
    """The form, logged in. Any error in the browser on our page is a failure."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    complaints: list[str] = []
    own = f"http://127.0.0.1:{server.port}/"
    page.on("console", lambda m: complaints.append(m.text) if m.location["url"].startswith(own) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)) if own in (error.stack or "") else None)
    page.goto(f"{own[:-1]}{server.login}")
    page.get_by_role("navigation").get_by_role("link", name="Jupyter").click()
    yield page
    context.close()
    assert complaints == []


def start(page: Page) -> FrameLocator:
    """JupyterLab in its frame, with all that it shows at first."""
    page.get_by_role("button", name="Start JupyterLab").click()
    expect(page.get_by_role("status")).to_contain_text("JupyterLab")  # its progress
    lab = page.frame_locator("iframe[title=JupyterLab]")
    expect(lab.get_by_role("listitem", name=re.compile("^Name: tour"))).to_be_visible(timeout=START_MS)
    return lab


@pytest.mark.view
def test_form_has_the_fields_of_each_mode_and_refuses_invalid_values(page: Page) -> None:
    expect(page.get_by_role("heading", name="Jupyter")).to_be_visible()
    titles = page.locator(".field label")
    expect(titles).to_have_text(["Engine", "Number of executors", "Max parallel executions", "Executor memory (MB)", "Executor GPUs"])
    shoot(page, "jupyter-form")
    page.get_by_role("radio", name="Allreduce").check()
    expect(titles).to_have_text(["Engine", "Number of executors", "Executor memory (MB)", "Executor GPUs"])
    page.get_by_role("radio", name="TensorFlowOnSpark").check()
    expect(titles).to_have_text(["Engine", "Number of executors", "Number of parameter servers", "Executor memory (MB)", "Executor GPUs"])
    page.get_by_label("Number of parameter servers").fill("2")
    expect(page.get_by_role("alert")).to_have_text("Must be less than the number of executors (2): the others are workers.")
    expect(page.get_by_role("button", name="Start JupyterLab")).to_be_disabled()
    shoot(page, "jupyter-form-refused")
    page.get_by_label("Number of parameter servers").fill("1")
    page.get_by_label("Executor memory (MB)").fill("4G")
    expect(page.get_by_role("alert")).to_contain_text("Must be a whole number from 1")
    page.get_by_label("Executor memory (MB)").fill("4096")
    page.get_by_label("Engine").select_option("Spark cluster")
    expect(page.get_by_role("button", name="Start JupyterLab")).to_be_disabled()
    page.get_by_label("Master address").fill("spark://host:7077")
    expect(page.get_by_role("button", name="Start JupyterLab")).to_be_enabled()
    expect(page.locator("form code")).to_have_text(
        "hopyard notebook --mode tfonspark --engine spark://host:7077 --executors 2 --parameter-servers 1 --executor-memory 4096")
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380, "nothing is cut off on a phone"
    shoot(page, "jupyter-form-phone")


def test_notebook_of_the_tour_runs_in_jupyterlab_inside_the_page(yard: Yard, server: Ui, page: Page) -> None:
    page.get_by_label("Max parallel executions").fill("1")
    page.get_by_label("Number of executors").fill("3")
    lab = start(page)
    assert "app=1" in page.url
    lab.get_by_role("listitem", name=re.compile("^Name: tour")).dblclick()
    lab.get_by_role("listitem", name=re.compile("^Name: grid_search.ipynb")).dblclick()
    expect(lab.get_by_role("heading", name="Grid search")).to_be_visible(timeout=START_MS)
    expect(lab.get_by_title("Switch kernel").first).to_have_text("hopyard (experiments)")
    lab.get_by_role("menuitem", name="Run", exact=True).click()
    lab.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    expect(lab.get_by_text(f"the project is {yard.project}/")).to_be_visible(timeout=START_MS)
    wait_for(lambda: [t["state"] for t in yard.trials()] == ["done"] * 4, "the search ends", 240)
    shoot(page, "jupyter-lab")
    expect(lab.get_by_text("{'learning_rate': 0.01, 'dropout':").first).to_be_visible(timeout=START_MS)
    spans = sorted((a["started"], a["ended"]) for a in yard.attempts())
    assert all(earlier[1] <= later[0] for earlier, later in zip(spans, spans[1:])), "one at a time, as the form said"
    # In a tab of its own, without the page around it.
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open in a new tab").click()
    expect(opened.value.get_by_role("menuitem", name="Run", exact=True)).to_be_visible(timeout=START_MS)
    opened.value.close()
    # The form remembers, and lists the server, which is stopped with its kernels.
    page.get_by_role("button", name="Settings…").click()
    expect(page.get_by_label("Max parallel executions")).to_have_value("1")
    expect(page.locator(".server")).to_contain_text("this machine, executors 3, max parallel executions 1")
    shoot(page, "jupyter-servers")
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("button", name="Stop JupyterLab").click()
    expect(page.locator(".server")).to_have_count(0)
    wait_for(lambda: not yard.processes("hopyard._jupyter|ipykernel_launcher"), "the server and its kernels end")
