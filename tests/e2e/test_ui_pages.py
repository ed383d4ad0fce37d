# SPDX-License-Identifier: Apache-2.0
"""The page in Chromium, used as a person would. Screenshots are in build/screenshots."""
from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from browser import shoot
from conftest import Yard, wait_for
from playwright.sync_api import Browser, Locator, Page, expect
from ui import Ui, end


@pytest.mark.view
def test_a_run_is_watched_filtered_and_stopped(yard: Yard, page: Page) -> None:
    expect(page.get_by_text("This project has no runs yet")).to_be_visible()
    assert page.url.count("/") == 3 and page.url.endswith("/")  # no token in the address
    yard.run("run", "--name", "letters", "--grid", "x=1..3", "--max", "acc", "--", "sh", "-c", "echo acc=0.{x}")
    yard.run("run", "--detach", "--name", "digits", "--parallel", "2", "--grid", "x=1..40", "--max", "acc", "--", "sh", "-c",
             "echo acc=0.{x}; [ {x} -le 30 ] || sleep 600")
    expect(page.get_by_role("row", name="digits")).to_contain_text("running")  # without a reload
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
    page.get_by_role("button", name="Cancel").click()
    assert yard.state(2) == "running"
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop the run").click()
    wait_for(lambda: yard.state(2) == "stopped", "the run was not stopped")
    expect(page.locator("header .state")).to_have_text("stopped")
    page.go_back()
    expect(page.get_by_role("row", name="digits")).to_contain_text("stopped")


@pytest.mark.view
def test_runs_are_sorted_by_a_click_filtered_as_typed_and_chosen_for_a_comparison(yard: Yard, page: Page) -> None:
    for name, acc in (("beta", 2), ("alpha", 9), ("gamma", 5)):
        yard.run("run", "--name", name, "--max", "acc", "--", "echo", f"acc=0.{acc}")
    names = page.locator(".scroll tbody td:nth-child(3)")
    expect(names).to_have_text(["gamma", "alpha", "beta"])  # the newest first
    page.get_by_role("button", name="Best").click()
    expect(names).to_have_text(["alpha", "gamma", "beta"])
    expect(page.get_by_role("columnheader", name="Best")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Best").click()
    expect(names).to_have_text(["beta", "gamma", "alpha"])
    page.reload()  # the order is in the address
    expect(names).to_have_text(["beta", "gamma", "alpha"])
    page.get_by_label("Filter runs").press_sequentially("alph")
    expect(names).to_have_text(["alpha"])
    page.get_by_label("Filter runs").fill("")
    chosen = page.get_by_role("group", name="Chosen runs")
    page.get_by_label("Choose run 2").check()
    expect(chosen.get_by_role("link", name="Compare")).to_have_count(0)  # one run alone is not compared
    page.get_by_label("Choose run 1").check()
    expect(chosen).to_contain_text("2 runs")
    expect(chosen.get_by_role("link", name="TensorBoard")).to_have_attribute("href", re.compile("/tensorboard[?]runs=2,1$"))
    chosen.get_by_role("link", name="Compare").click()
    expect(page).to_have_url(re.compile("/compare[?]runs=2,1$"))
    for name in ("Run 1 beta", "Run 2 alpha"):
        expect(page.get_by_role("columnheader", name=name)).to_be_visible()


@pytest.mark.view
def test_a_trial_shows_its_curves_attempts_and_live_output(yard: Yard, page: Page) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--grid", "lr=[0.1]", "--max", "acc", "--", "sh", "-c",
             f"for s in 1 2 3; do hopyard report acc=0.$s step=$s; done; printf '\\033[31mred\\033[0m 10%%\\033[3D20%%\\n'; "
             f"while [ ! -e {gate} ]; do sleep 0.05; done; echo last")
    page.get_by_role("link", name="1", exact=True).click()
    page.get_by_role("cell", name="1", exact=True).first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Run 1, trial 1")).to_be_visible()
    expect(page.get_by_role("heading", name="acc")).to_be_visible()
    log = page.get_by_label("stdout of trial 1")
    expect(log).to_have_text("red 20%")  # as a terminal shows it
    expect(log.locator(".fg1")).to_have_text("red")
    shoot(page, "trial")
    gate.touch()
    expect(log).to_have_text("red 20%\nlast")
    expect(page.locator("header .state")).to_have_text("done")
    expect(page.get_by_role("row", name="1 ● done local")).to_be_visible()


def test_a_failed_trial_opens_with_its_error_messages(yard: Yard, page: Page) -> None:
    yard.run("run", "--retries", "1", "--grid", "x=1..2", "--max", "acc", "--", "sh", "-c",
             "echo acc={x}; echo warning >&2; [ {x} = 1 ] || { echo no such layer >&2; exit 3; }", rc=None)
    origin = page.url.rstrip("/")
    page.goto(f"{origin}/runs/1/trials/1")
    expect(page.get_by_label("stdout of trial 1")).to_have_text("acc=1")
    expect(page.get_by_text("of the last attempt")).to_have_count(0)  # it is the only one
    page.goto(f"{origin}/runs/1/trials/2")
    expect(page.get_by_label("stderr of trial 2")).to_have_text("warning\nno such layer")
    expect(page.get_by_text("of the last attempt; that of earlier ones is in the files stdout.1, stderr.1")).to_be_visible()
    expect(page.get_by_role("button", name="stderr.1", exact=True)).to_be_visible()
    page.get_by_label("Stream").select_option("stdout")
    expect(page.get_by_label("stdout of trial 2")).to_have_text("acc=2")
    page.reload()  # the choice is in the address
    expect(page.get_by_label("stdout of trial 2")).to_have_text("acc=2")


@pytest.mark.view
def test_the_line_of_a_trial_runs_it_again_with_its_seed(yard: Yard, page: Page) -> None:
    yard.run("run", "--seed", 40, "--grid", "x=1..3", "--max", "seed", "--", "sh", "-c", "echo seed=$HOPYARD_SEED x={x}")
    page.goto(page.url + "runs/1/trials/2")
    line = page.locator("dd", has_text="hopyard run").locator("code")
    expect(line).to_contain_text("--seed 41 ")
    subprocess.run(["sh", "-c", line.inner_text()], env=yard.env, cwd=yard.project, check=True, stdin=subprocess.DEVNULL)
    assert [t["value"] for t in yard.trials(1)] == [41, 42, 43]
    assert [t["value"] for t in yard.trials(2)] == [42]
    assert (yard.logdir(2) / "x=2" / "stdout").read_text() == "seed=42 x=2\n"


def test_the_line_of_a_trial_has_its_directory(yard: Yard, page: Page) -> None:
    elsewhere = yard.project / "a sub"
    elsewhere.mkdir()
    subprocess.run(yard.command("run", "--project", yard.project, "--", "pwd"), env=yard.env, cwd=elsewhere, check=True)
    page.goto(page.url + "runs/1/trials/1")
    line = page.locator("dd", has_text="hopyard run").locator("code")
    expect(line).to_contain_text("a sub' && ")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as without HTTPS
    page.evaluate("document.execCommand = (what) => { window.copied = what + document.activeElement.value }")
    page.locator("dd", has_text="hopyard run").get_by_role("button", name="Copy").click()
    assert page.evaluate("window.copied") == "copy" + line.inner_text()
    subprocess.run(["sh", "-c", line.inner_text()], env=yard.env, cwd="/", check=True, stdin=subprocess.DEVNULL)
    assert (yard.logdir(2) / "trial-1" / "stdout").read_text() == f"{elsewhere}\n"


@pytest.mark.full
def test_ten_tabs_of_running_trials_load_and_the_visible_one_follows(yard: Yard, page: Page) -> None:
    """A browser allows six connections to a server, over all tabs."""
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--oversubscribe", "--parallel", 10, "--grid", "x=1..10", "--", "sh", "-c",
             f"echo begin {{x}}; while [ ! -e {gate} ]; do sleep 0.05; done; echo end {{x}}")
    wait_for(lambda: len(yard.attempts()) == 10, "all trials run")
    tabs = []
    for x in range(1, 11):
        tab = page.context.new_page()
        if tabs:
            hide(tabs[-1], True)
        tab.goto(f"{page.url}runs/1/trials/{x}")
        expect(tab.locator(".log")).to_contain_text(f"begin {x}")
        tabs.append(tab)
    hide(page, True)
    gate.touch()
    expect(tabs[-1].locator(".log")).to_contain_text("end 10")
    hide(tabs[-1], True)
    hide(tabs[2], False)
    expect(tabs[2].locator(".log")).to_contain_text("end 3")
    expect(tabs[2].get_by_text("done").first).to_be_visible()


def hide(tab: Page, is_hidden: bool) -> None:
    """As if another tab were in front of it: a browser without a window shows all its tabs."""
    tab.evaluate("""(hidden) => {
        Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }""", is_hidden)


def test_a_page_says_that_its_server_is_gone_and_continues_after_a_login(yard: Yard, browser: Browser) -> None:
    server = Ui(yard)
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.origin + server.login)
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    end(server)
    expect(page.get_by_role("alert")).to_contain_text("does not answer", timeout=20000)
    yard.run("run", "--name", "meanwhile", "--", "true")
    again = Ui(yard, "--port", str(server.port))
    try:
        expect(page.get_by_role("alert")).to_contain_text("Log in", timeout=20000)
        login = context.new_page()
        login.goto(again.origin + again.login)
        expect(page.get_by_role("row", name="meanwhile")).to_be_visible(timeout=20000)
        expect(page.get_by_role("alert")).to_have_count(0)
    finally:
        context.close()
        end(again)


@pytest.mark.view
def test_a_run_is_started_by_the_form(yard: Yard, page: Page) -> None:
    (yard.project / "train.sh").write_text('echo "acc=0.$2"\n')
    page.get_by_role("button", name="Start a run…").click()
    form = page.get_by_role("dialog", name="Start a run")
    form.get_by_label("Program").fill("train.sh")
    form.get_by_label("Name of hyperparameter 1").fill("x")
    form.get_by_label("Values of hyperparameter 1").fill("1..4")
    form.get_by_label("Metric").fill("acc")
    form.get_by_label("Name", exact=True).fill("by the form")
    form.get_by_label("Trials at a time").fill("many")
    expect(form.get_by_text("sh train.sh --x {x}")).to_be_visible()
    shoot(page, "start")
    form.get_by_role("button", name="Start").click()
    expect(form.get_by_role("alert")).to_contain_text("parallel")  # the option that is wrong
    expect(form.get_by_label("Trials at a time")).to_have_attribute("aria-invalid", "true")
    form.get_by_label("Trials at a time").fill("2")
    form.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="Run 1 by the form")).to_be_visible()
    expect(page.locator("header .state")).to_have_text("done")
    assert sorted(t["value"] for t in yard.trials()) == [0.1, 0.2, 0.3, 0.4]


def test_the_form_requires_a_metric_unless_there_is_none(yard: Yard, page: Page) -> None:
    page.get_by_role("button", name="Start a run…").click()
    form = page.get_by_role("dialog", name="Start a run")
    form.get_by_label("Program").fill("true")
    form.get_by_label("Search").select_option("single")
    form.get_by_role("button", name="Start", exact=True).click()
    assert form.get_by_label("Metric").evaluate("input => input.validity.valueMissing")
    expect(form.get_by_label("Metric")).to_be_focused()
    form.get_by_label("Goal").select_option("none")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("heading", name="Run 1")).to_be_visible()
    assert [r["metric"] for r in yard.rows("SELECT metric FROM runs")] == [None]


def test_the_list_shows_what_failed_and_no_values_that_do_not_exist(yard: Yard, page: Page) -> None:
    yard.run("run", "--name", "half", "--grid", "x=1..4", "--", "sh", "-c", "[ {x} -gt 1 ]", rc=None)
    yard.run("run", "--name", "alone", "--max", "acc", "--", "false", rc=None)
    expect(page.get_by_role("row", name="alone")).to_contain_text("failed")
    heads = page.locator(".scroll thead th").all_inner_texts()
    half = page.get_by_role("row", name="half").get_by_role("cell")
    expect(page.get_by_role("row", name="alone").get_by_role("cell").nth(heads.index("Best"))).to_have_text("")
    expect(half.nth(heads.index("Kind"))).to_have_text("grid")
    expect(page.get_by_role("row", name="alone").get_by_role("cell").nth(heads.index("Kind"))).to_have_text("single")
    bar = half.get_by_role("progressbar")
    expect(bar).to_have_attribute("aria-valuenow", "4")
    widths = bar.evaluate("bar => [...bar.children].map((part) => [part.className, part.offsetWidth / bar.offsetWidth])")
    assert [name for name, _ in widths] == ["done", "failed"] and 0.2 < widths[1][1] < 0.3  # one of four
    expect(bar.locator(".failed")).to_have_css("background-color", "rgb(179, 38, 30)")
    shoot(page, "runs-failed")
    page.get_by_label("Filter runs").fill("single")
    expect(page.locator(".scroll tbody tr")).to_have_count(1)


def start_form(page: Page, search: str) -> Locator:
    """The form with a program, one hyperparameter, and this search."""
    page.get_by_role("button", name="Start a run…").click()
    form = page.get_by_role("dialog", name="Start a run")
    form.get_by_label("Program").fill("train.sh")
    form.get_by_label("Search").select_option(label=search)
    form.get_by_label("Name of hyperparameter 1").fill("x")
    form.get_by_label("Values of hyperparameter 1").fill("0.5..1.5")
    form.get_by_label("Goal").select_option("minimize")
    form.get_by_label("Metric").fill("loss")
    return form


def submit(page: Page, form: Locator) -> dict[str, Any]:
    """Starts the run; returns what the API says about it."""
    form.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("heading", name="Run 1")).to_be_visible()
    return read(page, "runs/1")


def read(page: Page, path: str) -> Any:
    """A reply of the API."""
    reply = page.request.get("/".join(page.url.split("/")[:3]) + f"/api/v1/{path}")
    assert reply.status == 200, reply.text()
    return reply.json()


def test_a_random_search_with_limits_is_started_by_the_form(yard: Yard, page: Page) -> None:
    gate = yard.project / "gate"
    yard.script("train.sh", f'while [ ! -e {gate} ]; do sleep 0.02; done; [ "$HOPYARD_ATTEMPT" = 3 ] && echo "loss=$2"\n')
    form = start_form(page, "at random")
    form.get_by_label("Trials", exact=True).fill("3")
    for label, text in (("Trials at a time", "1"), ("Memory per trial", "2G"), ("Time per trial", "15m"), ("Retries", "2")):
        form.get_by_label(label).fill(text)
    run = submit(page, form)
    assert (run["kind"], run["total"], run["metric"], run["maximize"]) == ("random", 3, "loss", False)
    assert run["options"] == [["memory", "2G"], ["timeout", "900000ms"]]
    assert [(d["name"], d["kind"], d["low"], d["high"]) for d in run["search"]["space"]] == [("x", "float", 0.5, 1.5)]
    wait_for(lambda: yard.processes("train.sh"), "a trial runs")
    assert read(page, "cluster")["runs"][0]["slots"] == 1  # at a time
    gate.touch()
    expect(page.locator("header .state")).to_have_text("done")
    assert all(0.5 <= t["value"] == t["params"]["x"] <= 1.5 for t in yard.trials())
    assert [a["state"] for a in yard.attempts()] == ["failed", "failed", "done"] * 3  # two retries


def test_an_evolution_is_started_by_the_form(yard: Yard, page: Page) -> None:
    yard.script("train.sh", 'echo "loss=$2"\n')
    form = start_form(page, "differential evolution")
    form.get_by_label("Generations").fill("2")
    run = submit(page, form)
    assert (run["kind"], run["maximize"]) == ("evolve", False) and run["search"]["population"] > 3
    assert run["total"] == 2 * run["search"]["population"]
    expect(page.locator("header .state")).to_have_text("done")


@pytest.fixture
def no_session(yard: Yard) -> None:
    """Spark sessions fail at once."""
    yard.env["HOPYARD_PYTHON"] = "/bin/false"


def test_a_run_on_an_engine_is_started_by_the_form(yard: Yard, no_session: None, page: Page) -> None:
    yard.script("train.sh", "true\n")
    form = start_form(page, "every combination (grid)")
    form.get_by_label("Values of hyperparameter 1").fill("1..2")
    form.get_by_label("Engine").fill("slurm")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(form.get_by_role("alert")).to_contain_text("takes spark://HOST:PORT or yarn, not 'slurm'")
    expect(form.get_by_label("Engine")).to_have_attribute("aria-invalid", "true")
    form.get_by_label("Engine").fill("spark://127.0.0.1:7077")
    run = submit(page, form)
    assert run["engine"] == "spark" and ["engine", "spark://127.0.0.1:7077"] in run["options"]
    expect(page.get_by_text("the Spark session could not be started")).to_be_visible()


def notebook(*cells: str) -> str:
    """The text of a notebook for Python."""
    code = [{"cell_type": "code", "id": f"c{n}", "metadata": {}, "outputs": [], "execution_count": None, "source": source}
            for n, source in enumerate(cells)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": code})


def test_a_notebook_is_run_over_a_space_by_the_form(yard: Yard, page: Page) -> None:
    """Its values are in HOPYARD_PARAMS, as for every program."""
    yard.project.joinpath("train.ipynb").write_text(notebook(
        "import json, os, hopyard\nparams = json.loads(os.environ['HOPYARD_PARAMS'])", "hopyard.report(acc=params['x'] / 10)"))
    page.get_by_role("button", name="Start a run…").click()
    form = page.get_by_role("dialog", name="Start a run")
    form.get_by_label("Program").fill("train.ipynb")
    form.get_by_label("Name of hyperparameter 1").fill("x")
    form.get_by_label("Values of hyperparameter 1").fill("1..2")
    form.get_by_label("Metric").fill("acc")
    form.get_by_label("Trials at a time").fill("1")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("header .state")).to_have_text("done", timeout=120_000)
    assert [t["value"] for t in yard.trials()] == [0.1, 0.2]


def test_a_stopped_run_is_resumed_after_a_question(yard: Yard, page: Page) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--parallel", "1", "--grid", "x=1..3", "--max", "acc", "--", "sh", "-c",
             f"echo acc=0.{{x}}; [ {{x}} = 1 ] || while [ ! -e {gate} ]; do sleep 0.02; done")
    wait_for(lambda: len(yard.trials()) > 1, "the second trial runs")
    yard.run("stop", "1")
    page.get_by_label("Choose run 1").check()
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert yard.state() == "stopped"
    gate.touch()
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume the run").click()
    expect(page.get_by_role("row", name="done")).to_contain_text("3 / 3")
    assert len([a for a in yard.attempts() if a["trial"] == 1]) == 1  # it was done


# A stand-in for the desktop, which headless Chromium does not have.
NOTIFICATION = """window.Notification = class {
    static permission = "default";
    static requestPermission() { this.permission = "granted"; return Promise.resolve("granted"); }
    constructor(title, options) { (window.shown ??= []).push(`${title}: ${options.body}`); }
}"""


def test_the_browser_notifies_when_a_run_of_any_project_ends(yard: Yard, page: Page, tmp_path: Path) -> None:
    gate = yard.project / "gate"
    other = tmp_path / "other"
    other.mkdir()
    page.add_init_script(NOTIFICATION)
    page.reload()
    page.get_by_label("Notify me when a run ends").check()
    yard.run("run", "--detach", "--name", "night", "--grid", "x=[5]", "--max", "acc", "--", "sh", "-c",
             f"while [ ! -e {gate} ]; do sleep 0.02; done; echo acc=0.{{x}}")
    expect(page.get_by_role("row", name="night")).to_contain_text("running")
    page.get_by_role("link", name="Files").click()  # on any view
    gate.touch()
    assert wait_for(lambda: page.evaluate("window.shown"), "a notice is shown") == ["Run 1 night is done: 1 done, 0 failed, best acc=0.5"]
    yard.run("run", "--project", other, "--name", "elsewhere", "--", "true")
    assert wait_for(lambda: page.evaluate("window.shown")[1:], "another one") == ["Run 1 elsewhere is done: 1 done, 0 failed"]
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_label("Notify me when a run ends")).to_be_checked()


def test_runs_are_renamed_tagged_and_deleted(yard: Yard, page: Page) -> None:
    for name in ("first", "second"):
        yard.run("run", "--name", name, "--", "true")
    yard.wait_idle()
    page.get_by_label("Choose run 1").check()
    page.get_by_role("button", name="Edit…").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Name").fill("renamed")
    form.get_by_label("Tags").fill("night, keep, keep")
    form.get_by_label("Note").fill("a baseline")
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="renamed")).to_contain_text("night")
    page.get_by_label("Filter runs").fill("baseline")  # notes are searched, too
    expect(page.locator(".scroll tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete the run").click()
    expect(page.get_by_role("link", name="second")).to_be_visible()
    expect(page.get_by_role("link", name="renamed")).to_have_count(0)
    assert [r["name"] for r in yard.rows("SELECT name FROM runs")] == ["second"]


def test_a_long_output_is_searched_and_shown_in_parts(yard: Yard, page: Page) -> None:
    yard.run("run", "--", "sh", "-c", "seq 1 900000; echo 'ValueError: the needle'; seq 1 900000; echo the end")
    page.goto(page.url + "runs/1/trials/1")
    log = page.get_by_role("log")
    expect(log).to_contain_text("the end")  # its end first
    assert page.locator(".line").count() < 300  # of 1.8 million
    page.get_by_role("button", name="First error").click()
    expect(page.locator(".line.found")).to_have_text("ValueError: the needle")
    expect(page.locator(".line.found")).to_be_in_viewport()
    shoot(page, "log")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".line").first).to_have_text("1")
    page.get_by_label("Search in the output").fill("888888")
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".line.found")).to_have_text("888888")
    first = page.get_by_role("status").inner_text()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("status")).to_have_text(re.compile(rf"^(?!{re.escape(first)}).* to .* of"))
    page.get_by_role("button", name="Previous").click()
    expect(page.get_by_role("status")).to_have_text(first)
    for _ in range(40):  # on, beyond what was read at first
        log.evaluate("e => { e.scrollTop = e.scrollHeight / 2 + e.clientHeight * 200 }")
    page.get_by_role("button", name="End", exact=True).click()
    expect(log).to_contain_text("the end")


@pytest.mark.full
def test_an_output_of_1_gb_is_searched_and_never_loaded_whole(yard: Yard, page: Page) -> None:
    yard.run("run", "--", "echo", "replaced")
    block = "".join(f"step {n}: loss 0.{n:07d}\n" for n in range(500_000)).encode()
    with open(next(yard.logdir().glob("*/stdout")), "wb") as file:
        for _ in range(2**30 // len(block)):
            file.write(block)
        file.write(b"ValueError: the needle\n" + block + b"the end\n")
    page.goto(page.url + "runs/1/trials/1")
    expect(page.get_by_role("log")).to_contain_text("the end")
    page.get_by_role("button", name="First error").click()
    expect(page.locator(".line.found")).to_have_text("ValueError: the needle", timeout=120_000)
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".line").first).to_have_text("step 0: loss 0.0000000")
    page.get_by_role("button", name="End", exact=True).click()
    expect(page.get_by_role("log")).to_contain_text("the end")
    assert page.locator(".line").count() < 300
    assert page.evaluate("performance.memory.usedJSHeapSize") < 64 << 20


def test_each_page_has_a_title(yard: Yard, page: Page) -> None:
    yard.run("run", "--name", "digits", "--grid", "x=1..3", "--", "true")
    yard.run("train", "-np", "2", "--", "true")
    (yard.project / "data").mkdir()
    origin = page.url.rstrip("/")
    titles = {"": "Runs", "runs/1": "Run 1 digits", "runs/2": "Run 2", "runs/1/trials/3": "Trial 3 of run 1",
              "runs/2/trials/1": "Rank 0 of run 2", "compare?runs=1": "Compare runs", "cluster": "Cluster",
              "files": "Files", "files/data": "Files / data", "shares": "Shares", "models": "Models",
              "tensorboard": "TensorBoard", "jupyter": "Jupyter"}
    for path, title in titles.items():
        page.goto(f"{origin}/{path}")
        expect(page).to_have_title(f"{title} – hopyard")
    page.get_by_role("link", name="Files").click()  # without loading the page again
    expect(page).to_have_title("Files – hopyard")


def test_an_address_of_no_page_leads_to_the_runs(yard: Yard, page: Page) -> None:
    yard.run("run", "--name", "digits", "--", "true")
    origin = page.url.rstrip("/")
    for path in ("nonsense", "runs/1/nonsense", "models/7"):
        page.goto(f"{origin}/{path}")
        expect(page.get_by_text("There is no such page.")).to_be_visible()
        expect(page.get_by_role("link", name="digits")).to_have_count(0)
    page.get_by_role("link", name="All runs").click()
    expect(page.get_by_role("link", name="digits")).to_be_visible()
    page.goto(f"{origin}/runs")
    expect(page.get_by_role("link", name="digits")).to_be_visible()


def test_the_projects_of_a_user_are_in_one_page(yard: Yard, page: Page, tmp_path: Path) -> None:
    other = tmp_path / "weather"
    other.mkdir()
    yard.run("run", "--name", "mine", "--", "true")
    yard.run("run", "--name", "rain", "--project", str(other), "--", "true")
    page.reload()
    page.get_by_label("Project").select_option("weather")
    expect(page.get_by_role("link", name="rain")).to_be_visible()
    expect(page.get_by_role("link", name="mine")).to_have_count(0)
    page.get_by_role("link", name="rain").click()
    expect(page.get_by_role("heading", name="Run 1 rain")).to_be_visible()
    page.reload()  # the project is in the address
    expect(page.get_by_role("heading", name="Run 1 rain")).to_be_visible()


def test_text_of_users_never_becomes_html(yard: Yard, page: Page) -> None:
    hostile = "<img src=x onerror=document.title=1>"
    yard.run("run", "--name", hostile, "--grid", f'x=["{hostile}"]', "--max", "acc", "--", "sh", "-c", "echo acc=1")
    expect(page.get_by_role("link", name=hostile)).to_be_visible()
    page.get_by_role("link", name=hostile).click()
    expect(page.get_by_role("heading", name=hostile)).to_be_visible()
    expect(page.get_by_role("cell", name=hostile)).to_be_visible()
    assert page.title() == f"Run 1 {hostile} – hopyard" and page.locator("main img").count() == 0


def test_a_browser_that_is_not_logged_in_is_told_how(yard: Yard, browser: Browser) -> None:
    server = Ui(yard)
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    expect(page.get_by_role("alert")).to_contain_text("open the address that `hopyard ui` has printed")
    page.close()
    end(server)
