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
    from playwright.sync_api import Browser, Locator, Page

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


# Remembers what is drawn on each canvas: its texts, and the points of its lines.
RECORDER = """(() => {
    const after = (type, name, hook) => {
        const original = type.prototype[name];
        type.prototype[name] = function (...args) { const result = original.apply(this, args); hook(this, ...args); return result; };
    };
    const points = new WeakMap();
    const add = (path, x, y) => { if (!points.has(path)) points.set(path, []); points.get(path).push([x, y]); };
    const clear = canvas => { canvas.texts = []; canvas.lines = []; };
    after(Path2D, "moveTo", add);
    after(Path2D, "lineTo", add);
    after(CanvasRenderingContext2D, "clearRect", context => clear(context.canvas));
    after(CanvasRenderingContext2D, "fillText", (context, text) => context.canvas.texts?.push(text));
    after(CanvasRenderingContext2D, "stroke", (context, path) => { if (points.has(path)) context.canvas.lines?.push(points.get(path)); });
    const width = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, "width");
    Object.defineProperty(HTMLCanvasElement.prototype, "width", {...width, set(x) { width.set.call(this, x); clear(this); }});
})()"""


class Drawing:
    """The texts on a canvas, and its lines as lists of points, in the order in which they were drawn. The page has to be
    opened with RECORDER as an init script."""

    def __init__(self, canvas: Locator) -> None:
        found = canvas.evaluate("canvas => [canvas.texts ?? [], canvas.lines ?? []]")
        self.texts: list[str] = found[0]
        self.lines: list[list[list[float]]] = found[1]


def shoot(page: Page, name: str, full_page: bool = False) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full_page)


def serious(page: Page) -> list[Any]:
    """Violations that axe-core finds on our page, without the minor ones. Frames contain TensorBoard and JupyterLab, which are not ours."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], iframes: false})")["violations"]
    return [(v["id"], [n["html"] for n in v["nodes"]]) for v in found if v["impact"] in ("serious", "critical")]
