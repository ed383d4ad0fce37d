# SPDX-License-Identifier: Apache-2.0
"""Every page in Chromium, light and dark, on a desktop and on a phone: axe-core reports nothing serious, and nothing is wider
than the window. Screenshots are in build/screenshots, access-*.png."""
from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from apps import use_echo_app
from browser import serious, shoot
from conftest import Yard, wait_for, yard_in
from playwright.sync_api import Browser, Page, expect
from ui import Ui, end

PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
                    "0000000c49444154789c63f8cfc000000301010018dd8db00000000049454e44ae426082")
LONG_NAME = "predictions-of-the-second-experiment-with-a-name-that-does-not-end-2026-11-18.csv"
TRAIN = """
for s in 1 2 3 4; do hopyard report acc=0.{x}$s loss=0.$s step=$s; done
cp plot.png $HOPYARD_TRIAL_DIR/loss.png
printf '\\033[31mred\\033[0m \\033[32mgreen\\033[0m \\033[33myellow\\033[0m \\033[34mblue\\033[0m \\033[90mgray\\033[0m\\n'
printf '\\033[41mon red\\033[0m \\033[7minverse\\033[0m \\033[1;35mbold\\033[0m\\n'
echo acc=0.{x}
[ {x} != 3 ]
"""


def put(folder: Path, path: str, data: str | bytes) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data if isinstance(data, bytes) else data.encode())


def fill_project(yard: Yard) -> None:
    put(yard.project, "plot.png", PNG)
    put(yard.project, f"Resources/{LONG_NAME}", "image,label,score\n" + "digit-0001.png,seven,0.98765\n" * 40)
    put(yard.project, "Resources/train/a.csv", "1,2\n")
    for version in (1, 2):
        put(yard.project, f"Models/mnist/{version}/model.bin", b"x" * 300000)
        put(yard.project, f"Models/mnist/{version}.json", json.dumps({
            "metrics": {"accuracy": 0.954321987, "loss": 0.1 * version}, "user": "ada", "run": 1, "trial": version,
            "created": int(time.time() * 1000), "description": "a small convolutional network, trained for ten epochs"}))
    yard.script("train.sh", TRAIN)
    script = TRAIN.replace("\n", "; ").strip("; ")
    yard.run("run", "--name", "lattice", "--retries", "0", "--grid", "x=1..6", "--grid", "act=relu,tanh", "--grid",
             "rate=0.001,0.1", "--max", "acc", "--", "sh", "-c", script, rc=None)
    yard.run("run", "--name", "second", "--grid", "x=1..2", "--max", "acc", "--", "sh", "-c", "echo acc=0.{x}")


def label(server: Ui) -> None:
    assert server.change("/api/v1/runs/1", "PATCH", {"tags": ["night", "keep"], "note": "a baseline"}).status == 204
    assert server.change("/api/v1/runs/1/trials/2", "PATCH", {"tags": ["odd"], "note": "look here"}).status == 204


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Page]:
    """A browser that is logged in at a project with something on every page; its run 3 is running."""
    folder = tmp_path_factory.mktemp("access")
    theirs = folder / "weather" / "Resources" / "rain"
    put(theirs, "numbers.csv", "1,2\n")
    with yard_in(folder) as yard:
        use_echo_app(yard)
        fill_project(yard)
        yard.run("share", "add", "--with", "64002", "Resources/train")
        yard.run("share", "accept", str(theirs))
        yard.run("run", "--detach", "--name", "busy", "--grid", "x=1..40", "--", "sleep", "1000")
        wait_for(lambda: yard.processes("^sleep 1000$"), "run 3 has a trial")
        server = Ui(yard)
        server.log_in()
        label(server)
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.port}{server.login}")
        yield page
        context.close()
        end(server)
        yard.run("stop", "3")
        yard.wait_idle()


def start_form(page: Page) -> None:
    page.get_by_role("button", name="Start a run…").click()
    form = page.get_by_role("dialog", name="Start a run")
    form.get_by_label("Program").fill("train.sh")
    form.get_by_label("Metric").fill("acc")
    form.get_by_label("Trials at a time").fill("many")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(form.get_by_role("alert")).to_be_visible()


def edit_form(page: Page) -> None:
    page.get_by_role("button", name="Edit…").click()
    expect(page.get_by_role("dialog").get_by_label("Tags")).to_have_value("night, keep")


def stop_question(page: Page) -> None:
    page.get_by_role("button", name="Stop…").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def axes_menu(page: Page) -> None:
    page.get_by_text("Axes", exact=True).click()
    expect(page.get_by_label("x from")).to_be_visible()


def delete_question(page: Page) -> None:
    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_text("Delete train and everything in it?")).to_be_visible()


def revoke_question(page: Page) -> None:
    page.get_by_role("button", name="Revoke…").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()


def wrong_jupyter_form(page: Page) -> None:
    page.get_by_role("radio", name="TensorFlowOnSpark").check()
    page.get_by_label("Number of parameter servers").fill("9")
    expect(page.get_by_role("alert")).to_be_visible()


# A name for screenshots, the path of the page, the text that shows that it is complete, and what to do then.
PAGES: list[tuple[str, str, str, Callable[[Page], None] | None]] = [
    ("runs", "?chosen=1", "lattice", None),
    ("start", "", "lattice", start_form),
    ("run", "runs/1?filter=act%3Drelu&best=50", "acc against x", None),
    ("run-trials", "runs/1?tab=trials&pick=1,2", "24 trials", None),
    ("run-parallel", "runs/1?tab=parallel&brush=%7B%22p:x%22:[1,4]%7D", "16 of 24 trials", axes_menu),
    ("run-contour", "runs/1?tab=contour&x=x&y=rate", "24 trials", None),
    ("run-curves", "runs/1?tab=curves", "Trial 2", None),
    ("run-timeline", "runs/1?tab=timeline", "Timeline", None),
    ("run-compare", "runs/1?tab=compare&pick=1,2,3", "only differences", None),
    ("run-edit", "runs/1", "acc against x", edit_form),
    ("run-stop", "runs/3", "sleep 1000", stop_question),
    ("trial", "runs/1/trials/2", "inverse", None),
    ("trial-failed", "runs/1/trials/9?stream=stderr", "exit status 1", None),
    ("files", "files/Resources", "train", None),
    ("files-preview", f"files/Resources?open={LONG_NAME}", "digit-0001.png", None),
    ("files-delete", "files/Resources?open=train", "train", delete_question),
    ("models", "models", "mnist", None),
    ("shares", "shares", "64002", revoke_question),
    ("tensorboard-choose", "tensorboard", "second", None),
    ("tensorboard", "tensorboard?runs=1", "Open in a new tab", None),
    ("tensorboard-failed", "tensorboard?runs=99", "could not start", None),
    ("jupyter", "jupyter", "Start JupyterLab", wrong_jupyter_form),
    ("cluster", "cluster", "in the queue", None),
    ("compare", "compare?runs=1,2", "Side by side", None),
    ("absent", "runs/77", "77", None),
]


def wider(page: Page) -> list[str]:
    """What makes the body scroll sideways; what scrolls in itself may be among it."""
    return page.evaluate("""() => document.documentElement.scrollWidth <= innerWidth ? [] : ["wider than the window:",
        ...[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1)
            .map(e => e.outerHTML.slice(0, 200))]""")


@pytest.mark.parametrize(("scheme", "width"), [pytest.param("light", 390, marks=pytest.mark.view), ("dark", 390), ("light", 1200),
                                               ("dark", 1200)])
def test_every_page_is_accessible_and_fits_the_window(site: Page, scheme: str, width: int) -> None:
    site.set_viewport_size({"width": width, "height": 800})
    site.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    origin = "/".join(site.url.split("/")[:3])
    problems = []
    for name, path, text, act in PAGES:
        site.goto(f"{origin}/{path}")
        expect(site.locator("main").get_by_text(text).or_(site.locator(f"main [aria-label*='{text}']")).first).to_be_attached()
        if act:
            act(site)
        with suppress(Exception):
            site.wait_for_load_state("networkidle", timeout=300)
        shoot(site, f"access-{name}-{scheme}-{width}", full_page=True)
        problems += [f"{name}: {found}" for found in serious(site) + wider(site)]
    assert not problems, "\n".join(problems)
