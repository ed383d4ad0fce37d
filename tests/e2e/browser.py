# SPDX-License-Identifier: Apache-2.0
"""Chromium, and the page in it. The fixtures are in conftest.py."""
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ui import Ui, end

if TYPE_CHECKING:
    from conftest import Yard
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
SCREENSHOTS = Path(__file__).parents[2] / "build/screenshots"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # most tests do without
    with sync_playwright() as p:
        path = next(path for path in ("/usr/bin/chromium", "/usr/bin/google-chrome") if os.path.exists(path))
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(yard: Yard, browser: Browser) -> Iterator[Page]:
    """Logged in. Any error in the browser is a failure, except for refusals (400, 409) and what the API does not find (404)."""
    server = Ui(yard)
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.text} {message.location['url']}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"http://127.0.0.1:{server.port}{server.login}")
    yield page
    context.close()
    end(server)
    assert [text for text in complaints if not re.search("status of 4(00|09)|status of 404 .*/api/v1/", text)] == []


def shoot(page: Page, name: str, full_page: bool = False) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full_page)


def serious(page: Page) -> list[Any]:
    """Violations that axe-core finds on our page, without the minor ones. Frames contain TensorBoard and JupyterLab, which are not ours."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], iframes: false})")["violations"]
    return [(v["id"], [n["html"] for n in v["nodes"]]) for v in found if v["impact"] in ("serious", "critical")]
