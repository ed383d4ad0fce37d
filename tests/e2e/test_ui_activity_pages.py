# SPDX-License-Identifier: Apache-2.0
"""The timeline of a run and the cluster in Chromium, used as a person would."""
from __future__ import annotations

import os
import re

import pytest
from browser import RECORDER, Drawing, shoot
from conftest import Yard, wait_for
from house import Notebook
from playwright.sync_api import Page, expect
from test_standby import kernel, start_gated_run  # noqa: F401  (a fixture)
from test_ui_activity import gpus  # noqa: F401  (a fixture)

CORES = os.cpu_count() or 1
# It stays at its peak for longer than the interval between samples.
GROWS = "import time; kept = [bytearray(b'x') * (1 << 20) for _ in range(60) if not time.sleep(0.02)]; time.sleep(1.5)"


def params(page: Page) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"[?&](from|to)=(\d+)", page.evaluate("location.search"))}


@pytest.mark.view
def test_a_timeline_shows_details_zooms_and_opens_a_trial(yard: Yard, page: Page) -> None:
    yard.run("run", "--name", "growth", "--parallel", "1", "--retries", "0", "--grid", "x=1..3", "--", "sh", "-c",
             f'python3 -c "{GROWS}"; [ {{x}} != 2 ]', rc=None)
    page.goto(page.url + "runs/1?tab=timeline")
    canvas = page.get_by_role("application", name=re.compile("Timeline of 3 attempts"))
    expect(canvas).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"Memory of all trials over time, up to [6-9]\d MB"))).to_be_visible()
    view = page.locator(".timeline-view")
    expect(view.locator(".timeline-legend")).to_contain_text("failed")
    canvas.scroll_into_view_if_needed()
    shoot(page, "timeline")

    def point_at(part: float) -> None:
        """In the only lane, at that part of the canvas's width."""
        box = canvas.bounding_box()
        assert box
        canvas.hover(position={"x": box["width"] * part, "y": 8})

    point_at(0.5)  # the second of three trials of equal length
    expect(view.locator(".timeline-now")).to_contain_text("Trial 2: failed, local")
    expect(view.locator(".timeline-now")).to_contain_text("ran for")

    point_at(0.4)  # drag over a part of it
    page.mouse.down()
    point_at(0.6)
    page.mouse.up()
    wait_for(lambda: params(page), "the part is in the address")
    dragged = params(page)
    view.get_by_role("button", name="Zoom out").click()
    wait_for(lambda: params(page) and params(page)["to"] - params(page)["from"] > dragged["to"] - dragged["from"], "it shows more")
    page.reload()  # the address has the view
    expect(view.get_by_role("button", name="Whole run")).to_be_enabled()
    view.get_by_role("button", name="Whole run").click()
    expect(view.get_by_role("button", name="Whole run")).to_be_disabled()

    canvas.focus()  # the same by keyboard
    page.keyboard.press("+")
    wait_for(lambda: params(page), "it is zoomed")
    first = params(page)["from"]
    page.keyboard.press("ArrowRight")
    wait_for(lambda: params(page)["from"] > first, "it has moved")
    page.keyboard.press("0")
    wait_for(lambda: not params(page), "it shows all again")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    expect(view.locator(".timeline-now").get_by_role("link")).to_have_text("Trial 2")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/runs/1/trials/2$"))


@pytest.mark.view
def test_the_cluster_shows_what_runs_and_what_is_held(yard: Yard, page: Page) -> None:
    start = page.url
    page.get_by_role("link", name="Cluster").click()
    expect(page).to_have_url(start + "cluster")
    expect(page.get_by_text("No runs are active, so there are no agents.")).to_be_visible()
    yard.run("run", "--detach", "--name", "busy", "--grid", f"x=1..{CORES + 3}", "--", "sleep", "1000")
    wait_for(lambda: len(yard.processes("^sleep 1000$")) == CORES, "every core has a trial")
    yard.run("run", "--detach", "--name", "second", "--", "sleep", "0.1")
    busy = page.locator(".cluster-run", has_text="busy")
    second = page.locator(".cluster-run", has_text="second")
    expect(busy).to_contain_text(f"{CORES} running, 3 in the queue")  # without a reload
    expect(busy.get_by_role("meter", name="Slots of local in use")).to_have_attribute("aria-valuetext", f"{CORES} of {CORES}")
    expect(busy.get_by_role("meter", name="Memory of local in use")).to_be_visible()
    expect(second).to_contain_text("1 held:")
    expect(second).to_contain_text("by run 1 in")
    shoot(page, "cluster")
    page.set_viewport_size({"width": 400, "height": 800})
    wait_for(lambda: page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits a phone")
    shoot(page, "cluster-phone")
    page.set_viewport_size({"width": 1200, "height": 800})

    page.goto(start + "runs/2?tab=timeline")  # a held trial on its timeline
    canvas = page.get_by_role("application", name=re.compile(r"Timeline of 1 attempt\."))
    canvas.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".timeline-now")).to_contain_text(re.compile(r"Trial 1: running, local.*held for .*by run 1 in"))
    page.goto(start + "cluster")
    yard.run("stop", "1")
    yard.wait_idle()
    expect(page.get_by_text("No runs are active, so there are no agents.")).to_be_visible()


def test_gpus_have_lanes_and_who_waits_for_one_is_shown(gpus: Yard, page: Page) -> None:
    origin, gate = page.url, gpus.project / "gate"
    gpus.run("run", "--detach", "--gpus", "1", "--parallel", "4", "--oversubscribe", "--grid", "x=1..4", "--", "sh", "-c",
             f"while [ ! -e {gate} ]; do sleep 0.05; done")
    page.goto(origin + "cluster")
    expect(page.get_by_text("2 running, 2 in the queue")).to_be_visible()
    for n in range(2):
        row = page.locator(".gpu", has_text=f"Fake GPU {n}")
        expect(row).to_contain_text("1 trial, 40% busy", timeout=30_000)  # it is measured every few seconds
        expect(row.get_by_role("meter", name=f"Memory of GPU {n} of local in use")).to_have_attribute("aria-valuetext", re.compile(" of "))
    shoot(page, "cluster-gpus")
    gate.touch()
    wait_for(lambda: gpus.state() == "done", "the run ends")

    page.add_init_script(RECORDER)
    page.goto(origin + "runs/1?tab=timeline")
    canvas = page.get_by_role("application", name="Timeline of 4 attempts")
    wait_for(lambda: {"GPU 0", "GPU 1", "waiting"} <= set(Drawing(canvas).texts), "GPUs and the queue have lanes")
    canvas.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(page.locator(".timeline-now")).to_contain_text(re.compile(r"Trial 3: done, local.*, GPU [01], queued for .*, ran for"))
    expect(page.get_by_role("img", name="GPUs in use of all trials over time")).to_be_visible()
    shoot(page, "timeline-gpus")
    page.goto(origin + "cluster")
    expect(page.get_by_text("No runs are active, so there are no agents.")).to_be_visible()


def test_fork_servers_and_agents_on_standby_are_on_the_cluster_page(yard: Yard, kernel: Notebook, page: Page) -> None:
    page.get_by_role("link", name="Cluster").click()
    gate, agent = start_gated_run(yard, kernel)
    expect(page.locator(".cluster-run")).to_contain_text("fork server is ready", timeout=60_000)
    expect(page.get_by_role("heading", name="On standby")).to_have_count(0)  # it is in use
    gate.touch()
    expect(page.get_by_role("heading", name="On standby")).to_be_visible()
    expect(page.get_by_text(f"process {agent}, for {kernel.process.pid}")).to_be_visible()
    shoot(page, "cluster-standby")
    kernel.close()
    expect(page.get_by_role("heading", name="On standby")).to_have_count(0)
