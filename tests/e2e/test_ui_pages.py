# SPDX-License-Identifier: Apache-2.0
"""The page in Chromium, used as a person would. Screenshots are in build/screenshots."""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Yard, wait_for
from playwright.sync_api import Browser, Page, expect, sync_playwright
from ui import Ui, end

SCREENSHOTS = Path(__file__).parents[2] / "build/screenshots"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as p:
        path = next(path for path in ("/usr/bin/chromium", "/usr/bin/google-chrome") if os.path.exists(path))
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(yard: Yard, browser: Browser) -> Iterator[Page]:
    """Logged in. Whatever the browser complains about is a failure."""
    server = Ui(yard)
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"http://127.0.0.1:{server.port}{server.login}")
    yield page
    context.close()
    end(server)
    assert complaints == []


def shoot(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def cells(page: Page) -> list[list[str]]:
    return [row.locator("td").all_inner_texts() for row in page.locator(".scroll tbody tr").all()]


def test_a_run_is_watched_filtered_and_stopped(yard: Yard, page: Page) -> None:
    expect(page.get_by_text("This project has no runs yet")).to_be_visible()
    assert page.url.count("/") == 3 and page.url.endswith("/")  # no token in the address
    yard.run("run", "--name", "letters", "--grid", "x=1..3", "--max", "acc", "--", "sh", "-c", "echo acc=0.{x}")
    yard.run("run", "--detach", "--name", "digits", "--parallel", "2", "--grid", "x=1..40", "--max", "acc", "--", "sh", "-c",
             "echo acc=0.{x}; [ {x} -le 30 ] || sleep 600")
    expect(page.get_by_role("row", name="digits")).to_contain_text("running")  # it came by itself
    expect(page.get_by_role("row", name="digits")).to_contain_text("30 / 40")
    shoot(page, "runs")
    page.get_by_label("Filter runs").fill("letters done")
    expect(page.locator(".scroll tbody tr")).to_have_count(1)
    assert "filter=letters+done" in page.url
    page.reload()  # the view is in the address
    expect(page.locator(".scroll tbody tr")).to_have_count(1)
    page.get_by_label("Filter runs").fill("")
    page.get_by_role("link", name="digits").click()
    expect(page.get_by_role("heading", name="Run 2 digits")).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.get_by_text("acc=0.9 in trial 9")).to_be_visible()
    shoot(page, "run")
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("button", name="Keep it").click()
    assert yard.state(2) == "running"
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("button", name="Stop the run").click()
    wait_for(lambda: yard.state(2) == "stopped", "the run was not stopped")
    expect(page.locator("header .state")).to_have_text("stopped")
    page.go_back()
    expect(page.get_by_role("row", name="digits")).to_contain_text("stopped")


def test_trials_are_sorted_and_come_in_pages(yard: Yard, page: Page) -> None:
    yard.run("run", "--grid", "x=1..150", "--max", "acc", "--", "sh", "-c", "echo acc=0.{x}")
    page.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_text("1 to 100 of 150")).to_be_visible()
    assert [cells(page)[0][i] for i in (0, 2, 3)] == ["99", "0.99", "99"]
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("101 to 150 of 150")).to_be_visible()
    page.get_by_label("Sort by").select_option("number")
    expect(page.get_by_text("1 to 100 of 150")).to_be_visible()
    assert [row[0] for row in cells(page)][:3] == ["1", "2", "3"] and "sort=number" in page.url


def test_a_trial_shows_its_curves_attempts_and_live_output(yard: Yard, page: Page) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--grid", "lr=[0.1]", "--max", "acc", "--", "sh", "-c",
             f"for s in 1 2 3; do hopyard report acc=0.$s step=$s; done; printf '\\033[31mred\\033[0m 10%%\\r20%%\\n'; "
             f"while [ ! -e {gate} ]; do sleep 0.05; done; echo last")
    page.get_by_role("link", name="1", exact=True).click()
    page.get_by_role("cell", name="1", exact=True).first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Run 1, trial 1")).to_be_visible()
    expect(page.get_by_role("heading", name="acc")).to_be_visible()
    log = page.get_by_label("stdout of trial 1")
    expect(log).to_have_text("20%\n")  # as a terminal shows it
    shoot(page, "trial")
    gate.touch()
    expect(log).to_have_text("20%\nlast\n")
    expect(page.locator("header .state")).to_have_text("done")
    expect(page.get_by_role("row", name="1 ● done local")).to_be_visible()


def test_text_of_users_never_becomes_html(yard: Yard, page: Page) -> None:
    hostile = "<img src=x onerror=document.title=1>"
    yard.run("run", "--name", hostile, "--grid", f'x=["{hostile}"]', "--max", "acc", "--", "sh", "-c", "echo acc=1")
    expect(page.get_by_role("link", name=hostile)).to_be_visible()
    page.get_by_role("link", name=hostile).click()
    expect(page.get_by_role("heading", name=hostile)).to_be_visible()
    expect(page.get_by_role("cell", name=hostile)).to_be_visible()
    assert page.title() == "hopyard" and page.locator("main img").count() == 0


def test_a_browser_that_is_not_logged_in_is_told_how(yard: Yard, browser: Browser) -> None:
    server = Ui(yard)
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    expect(page.get_by_role("alert")).to_contain_text("open the address that `hopyard ui` has printed")
    page.close()
    end(server)
