# SPDX-License-Identifier: Apache-2.0
"""Apps in Chromium: TensorBoard inside the page, and scripts in its place that try to use the page."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from apps import use_echo_app
from browser import shoot
from conftest import Yard
from playwright.sync_api import Browser, Page, expect
from ui import Ui, end


@pytest.fixture
def server(yard: Yard) -> Iterator[Ui]:
    yard.env["HOPYARD_PYTHON"] = sys.executable
    for rates in ("[0.1,0.2]", "[0.3]"):
        yard.run("run", "--grid", f"lr={rates}", "--max", "acc", "--", "sh", "-c",
                 "for s in 1 2 3; do hopyard report acc=0.$s step=$s; done; echo acc={lr}")
    server = Ui(yard)
    yield server
    end(server)


@pytest.fixture
def page(server: Ui, browser: Browser) -> Iterator[Page]:
    """Logged in. Errors of the page itself are failures; TensorBoard has errors of its own."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    complaints: list[str] = []
    own = f"http://127.0.0.1:{server.port}"
    page.on("console", lambda m: complaints.append(m.text) if m.location["url"].startswith(own) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(own + server.login)
    yield page
    context.close()
    assert complaints == []


@pytest.mark.view
def test_hyperparameters_are_read_in_tensorboard_inside_the_page(yard: Yard, server: Ui, page: Page) -> None:
    page.get_by_role("link", name="TensorBoard", exact=True).click()
    expect(page.get_by_label("Run 2")).to_be_checked()  # the newest
    page.get_by_label("Run 1").check()
    shoot(page, "tensorboard-choose")
    page.get_by_role("button", name="Show 2 runs").click()
    expect(page.get_by_role("status")).to_contain_text("Starting TensorBoard")
    frame = page.frame_locator("iframe[title=TensorBoard]")
    frame.get_by_role("tab", name="HParams").click(timeout=120_000)
    for name in ("1/lr=0.1", "1/lr=0.2", "2/lr=0.3"):
        expect(frame.get_by_text(name).locator("visible=true").first).to_be_visible(timeout=30_000)
    shoot(page, "tensorboard")
    assert "runs=1%2C2" in page.url and page.frames[1].url.startswith("http://127.0.0.1:")
    assert f":{server.port}/" not in page.frames[1].url and "ticket" not in page.frames[1].url
    page.reload()  # the view is in the address, and the same TensorBoard is shown
    expect(frame.get_by_role("tab", name="HParams")).to_be_visible(timeout=30_000)
    assert len(yard.processes("path_prefix")) == 1
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open in a new tab").click()
    expect(opened.value.get_by_role("tab", name="HParams")).to_be_visible(timeout=30_000)
    assert opened.value.evaluate("window.opener") is None
    page.set_viewport_size({"width": 390, "height": 700})
    box = page.locator("iframe").bounding_box()
    assert box and box["width"] == 390 and box["y"] + box["height"] == pytest.approx(700, abs=1)
    shoot(page, "tensorboard-phone")


def test_why_tensorboard_does_not_start_is_shown_and_it_can_be_tried_again(yard: Yard, server: Ui, page: Page) -> None:
    page.goto(f"http://127.0.0.1:{server.port}/tensorboard?runs=9")
    expect(page.get_by_role("alert")).to_contain_text("TensorBoard could not start: no run '9' here")
    shoot(page, "tensorboard-failed")
    page.get_by_role("button", name="Start again").click()
    expect(page.get_by_role("alert")).to_contain_text("no run '9' here")
    page.get_by_role("button", name="Choose runs…").click()
    expect(page.get_by_label("Run 1")).to_be_visible()


ATTACK = """<!doctype html><title>app</title><script>
const page = "PAGE", results = {};
const attempt = (name, f) => f().then(v => results[name] = v, e => results[name] = "refused");
const get = (path, init) => fetch(page + path, {credentials: "include", ...init}).then(r => r.type + r.status);
Promise.all([
  attempt("read", () => get("/api/v1/runs")),
  attempt("blind", () => get("/api/v1/runs", {mode: "no-cors"})),
  attempt("stop", () => get("/api/v1/runs/1", {method: "DELETE"})),
  attempt("post", () => get("/api/v1/runs/1/stop", {method: "POST", mode: "no-cors"})),
  attempt("script", () => new Promise((done, fail) => {
    const s = document.createElement("script"); s.src = page + "/assets/app.js"; s.onload = () => done("loaded"); s.onerror = fail;
    document.head.append(s); })),
  attempt("parent", async () => parent.document.title),
  attempt("leave", async () => { top.location = "about:blank"; }),
  attempt("cookie", async () => { if (document.cookie.includes("hopyard-")) return document.cookie; throw 0; }),
]).then(() => document.title = JSON.stringify(results));
</script>"""


def test_a_script_in_an_app_cannot_use_the_page(yard: Yard, server: Ui, browser: Browser) -> None:
    end(server)
    use_echo_app(yard)
    server = Ui(yard)
    page = browser.new_page()
    try:
        own = f"http://127.0.0.1:{server.port}"
        page.goto(own + server.login)
        page.goto(f"{own}/tensorboard?runs=1")
        expect(page.locator("iframe")).to_be_visible(timeout=30_000)
        page.wait_for_function("document.querySelector('iframe')")
        frame = page.frames[1]
        frame.wait_for_url("**/tensorboard/*/")
        reply = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + ATTACK.replace("PAGE", own)
        frame.goto(frame.url + "raw?" + quote(reply))
        frame.wait_for_function("document.title.startsWith('{')")
        results = frame.evaluate("JSON.parse(document.title)")
        names = ("read", "blind", "stop", "post", "script", "parent", "leave", "cookie")
        assert results == dict.fromkeys(names, "refused")
        assert page.url.startswith(own) and yard.state() == "done"
    finally:
        page.close()
        end(server)
