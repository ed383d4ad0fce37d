# SPDX-License-Identifier: Apache-2.0
"""The page of a run in Chromium: its table, charts, and the comparison of trials and of runs."""
from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest
from browser import RECORDER, Drawing, serious, shoot
from conftest import Yard, wait_for
from playwright.sync_api import Download, Locator, Page, expect

TABS = ["Overview", "Trials", "Parallel", "Contour", "Curves", "Compare"]


@pytest.fixture
def lattice(yard: Yard) -> None:
    """Run 1: 120 trials, x from 1 to 20, y of 0.001, 0.01 and 0.1, and two kinds; acc is best for x=10, y=0.01 and relu."""
    yard.run("run", "--name", "lattice", "--grid", "x=1..20", "--grid", "y=0.001,0.01,0.1", "--grid", "act=relu,tanh", "--max",
             "acc", "--", "sh", "-c", 'awk "BEGIN { d = {x} - 10.3; l = log({y} / 0.01); '
             'print \\"acc=\\" 0.9 - d * d / 400 - l * l / 40 - (\\"{act}\\" == \\"tanh\\") / 10 }"')


def open_run(page: Page, tab: str = "", **params: str) -> None:
    origin = "/".join(page.url.split("/")[:3])
    query = "&".join([*([f"tab={tab}"] if tab else []), *(f"{k}={v}" for k, v in params.items())])
    page.goto(f"{origin}/runs/1{'?' + query if query else ''}")
    expect(page.get_by_role("tab", name="Overview")).to_be_visible()


def column(page: Page, title: str) -> list[str]:
    """The texts of a column, of the rows that are in the document."""
    heads = [text.split(" ")[0] for text in page.locator(".rows thead th").all_inner_texts()]
    n = heads.index(title) + 2  # after the check boxes
    return page.locator(f".rows tbody tr:not(.space) td:nth-child({n})").all_inner_texts()


def status(page: Page) -> Locator:
    return page.get_by_role("status")


def downloaded(download: Download) -> str:
    return Path(download.path()).read_text()


# ---- the table -----------------------------------------------------------------------------------------------------------

@pytest.mark.view
def test_a_click_on_a_title_sorts_by_it_and_another_click_turns_the_order(page: Page, lattice: None) -> None:
    open_run(page, "trials")
    expect(page.get_by_role("columnheader", name="acc")).to_have_attribute("aria-sort", "descending")  # the best first
    assert column(page, "acc")[0] == "0.899775" and column(page, "x")[0] == "10"
    page.get_by_role("button", name="x", exact=True).click()
    assert column(page, "x")[:7] == ["1"] * 6 + ["2"] and "sort=p%3Ax" in page.url
    page.get_by_role("button", name="x", exact=True).click()
    assert column(page, "x")[:7] == ["20"] * 6 + ["19"]
    page.get_by_role("button", name="act", exact=True).press("Enter")
    assert set(column(page, "act")) == {"relu"}
    page.reload()  # the order is in the address
    expect(page.get_by_role("columnheader", name="act")).to_have_attribute("aria-sort", "ascending")


def test_only_rows_in_sight_are_in_the_document_and_scrolling_reaches_all(page: Page, lattice: None) -> None:
    open_run(page, "trials", sort="number")
    rows = page.locator(".rows tbody tr:not(.space)")
    expect(rows.first).to_have_attribute("aria-rowindex", "2")
    assert rows.count() < 60 and page.get_by_role("table").get_attribute("aria-rowcount") == "121"
    page.get_by_role("region", name="Trials").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("link", name="120", exact=True)).to_be_visible()
    assert column(page, "Trial")[-1] == "120"
    page.get_by_role("cell", name="120", exact=True).get_by_role("link").click()
    expect(page.get_by_role("heading", name="Run 1, trial 120")).to_be_visible()


def test_words_comparisons_and_best_tenth_filter_trials(page: Page, lattice: None) -> None:
    open_run(page, "trials")
    expect(status(page)).to_have_text("120 trials")
    page.get_by_label("Filter trials").fill("tanh x<=3")
    expect(status(page)).to_have_text("9 of 120 trials")
    assert set(column(page, "act")) == {"tanh"} and set(column(page, "x")) == {"1", "2", "3"}
    page.get_by_label("Filter trials").fill("acc>=0.85 y=0.01")
    assert all(float(acc) >= 0.85 for acc in column(page, "acc")) and set(column(page, "y")) == {"0.01"}
    page.get_by_label("Filter trials").fill("")
    page.get_by_role("button", name="Best 10%").click()
    expect(status(page)).to_have_text("12 of 120 trials")
    expect(page.get_by_role("button", name="Best 10%")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(status(page)).to_have_text("12 of 120 trials")
    page.get_by_label("Filter trials").fill("nothing-has-this")
    expect(page.get_by_text("No trial is selected by the filter.")).to_be_visible()


def test_a_filter_names_columns_that_do_not_exist(page: Page, lattice: None) -> None:
    open_run(page, "trials")
    page.get_by_label("Filter trials").fill("loss<0.1")
    expect(page.get_by_text("no column 'loss'")).to_be_visible()
    expect(status(page)).to_have_text("0 of 120 trials")
    page.get_by_label("Filter trials").fill("acc>0.1 x=3 tag=none")
    expect(status(page)).to_have_text("0 of 120 trials")
    expect(page.get_by_text("no column")).to_have_count(0)


def test_a_number_in_the_filter_matches_cells_that_equal_it(yard: Yard, page: Page) -> None:
    yard.run("run", "--grid", "units=[64,640,0.1234567]", "--max", "acc", "--", "sh", "-c", "echo acc={units}")
    open_run(page, "trials", sort="number")
    page.get_by_label("Filter trials").fill("64")
    expect(status(page)).to_have_text("1 of 3 trials")
    assert column(page, "units") == ["64"]
    page.get_by_label("Filter trials").fill("0.123457")  # as the cell shows it
    expect(status(page)).to_have_text("1 of 3 trials")
    page.get_by_label("Filter trials").fill("6.4e2")
    expect(status(page)).to_have_text("1 of 3 trials")
    assert column(page, "units") == ["640"]


def test_columns_that_are_chosen_stay_chosen(page: Page, lattice: None) -> None:
    open_run(page, "trials")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="y", exact=True).uncheck()
    page.get_by_role("checkbox", name="Started").check()
    expect(page.get_by_role("columnheader", name="y", exact=True)).to_have_count(0)
    page.reload()
    expect(page.get_by_role("columnheader", name="Started")).to_be_visible()
    expect(page.get_by_role("columnheader", name="y", exact=True)).to_have_count(0)


def test_exports_have_all_selected_rows_in_their_order(page: Page, lattice: None) -> None:
    open_run(page, "trials", filter="relu", sort="-p:x")
    expect(status(page)).to_have_text("60 of 120 trials")
    with page.expect_download() as event:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(downloaded(event.value))))
    assert event.value.suggested_filename == "run-1.csv" and len(rows) == 60
    assert [r["x"] for r in rows] == [str(x) for x in range(20, 0, -1) for _ in range(3)]
    assert {r["act"] for r in rows} == {"relu"} and {r["state"] for r in rows} == {"done"}
    with page.expect_download() as event:
        page.get_by_role("button", name="JSON").click()
    objects = json.loads(downloaded(event.value))
    assert len(objects) == 60 and objects[0]["params"]["x"] == 20 and objects[0]["params"]["act"] == "relu"
    values = {(o["params"]["x"], o["params"]["y"]): o["acc"] for o in objects}
    assert math.isclose(values[10, 0.01], 0.899775)


def label_trial(page: Page, trial: int, tags: list[str], note: str | None) -> None:
    """As in another window of the page."""
    origin = "/".join(page.url.split("/")[:3])
    reply = page.request.patch(f"{origin}/api/v1/runs/1/trials/{trial}", data={"tags": tags, "note": note}, headers={"origin": origin})
    assert reply.status == 204


def test_tags_of_trials_are_a_column_that_is_filtered_and_exported(page: Page, lattice: None) -> None:
    open_run(page, "trials", sort="number")
    expect(page.get_by_role("columnheader", name="acc")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Tags")).to_have_count(0)  # there are none yet
    label_trial(page, 2, ["odd", "keep"], "look, here")
    label_trial(page, 5, ["keeper"], None)
    cell = page.locator(".rows td[title='look, here']")  # without a reload
    expect(cell.locator(".tag")).to_have_text(["odd", "keep"])
    shoot(page, "run-tags")
    page.get_by_label("Filter trials").fill("keep")
    expect(status(page)).to_have_text("2 of 120 trials")
    page.get_by_label("Filter trials").fill("here")  # notes are searched, too
    expect(status(page)).to_have_text("1 of 120 trials")
    page.get_by_label("Filter trials").fill("tag=keep")
    expect(status(page)).to_have_text("1 of 120 trials")
    label_trial(page, 5, ["keep"], None)
    expect(status(page)).to_have_text("2 of 120 trials")
    page.get_by_role("button", name="Tags", exact=True).click()
    assert column(page, "Trial") == ["5", "2"]
    with page.expect_download() as event:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(downloaded(event.value))))
    assert [(r["trial"], r["tags"], r["note"]) for r in rows] == [("5", "keep", ""), ("2", "odd, keep", "look, here")]
    with page.expect_download() as event:
        page.get_by_role("button", name="JSON").click()
    objects = json.loads(downloaded(event.value))
    assert [(o["tags"], o["note"]) for o in objects] == [(["keep"], None), (["odd", "keep"], "look, here")]
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Note").check()
    assert column(page, "Note") == ["", "look, here"]
    page.get_by_role("checkbox", name="Note").uncheck()
    assert "hide=" not in page.url


def test_a_trial_is_tagged_and_annotated_on_its_page_and_the_table_shows_it(page: Page, lattice: None) -> None:
    open_run(page, "trials", sort="number")
    page.get_by_role("link", name="3", exact=True).click()
    page.get_by_role("button", name="Edit…").click()
    form = page.get_by_role("dialog", name="Trial 3 of run 1")
    form.get_by_label("Tags").fill("odd, keep")
    form.get_by_label("Note").fill("converged twice")
    form.get_by_role("button", name="Save").click()
    expect(page.locator("header .tag")).to_have_text(["odd", "keep"])
    expect(page.locator("dl .note")).to_have_text("converged twice")
    page.go_back()
    expect(page.locator(".rows td[title='converged twice'] .tag")).to_have_text(["odd", "keep"])
    page.get_by_label("Filter trials").fill("tag=odd")
    expect(status(page)).to_have_text("1 of 120 trials")
    assert column(page, "Trial") == ["3"]


def test_a_table_grows_while_its_run_goes_on(yard: Yard, page: Page) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--parallel", "1", "--grid", "x=1..4", "--max", "acc", "--", "sh", "-c",
             f"echo acc={{x}}; [ {{x}} -le 2 ] || while [ ! -e {gate} ]; do sleep 0.02; done")
    open_run(page, "trials")
    expect(page.get_by_role("row", name="running")).to_have_count(1)
    gate.touch()
    expect(page.locator("header .state")).to_have_text("done")
    expect(status(page)).to_have_text("4 trials")
    expect(page.get_by_role("row", name="running")).to_have_count(0)
    assert column(page, "acc") == ["4", "3", "2", "1"]


# ---- charts ----------------------------------------------------------------------------------------------------------------

def brush(page: Page, axis: int, axes: int, from_y: float, to_y: float) -> None:
    """Drags along an axis of the parallel coordinates; 0 is its top, 1 its bottom."""
    box = page.locator(".wide canvas").bounding_box()
    assert box
    x = box["x"] + 56 + (box["width"] - 112) * axis / (axes - 1)
    top, bottom = box["y"] + 34, box["y"] + box["height"] - 16
    page.mouse.move(x, top + (bottom - top) * from_y)
    page.mouse.down()
    page.mouse.move(x, top + (bottom - top) * (from_y + to_y) / 2)
    page.mouse.move(x, top + (bottom - top) * to_y)
    page.mouse.up()


@pytest.mark.view
def test_a_range_of_an_axis_selects_trials_and_is_in_the_address(page: Page, lattice: None) -> None:
    open_run(page, "parallel")
    brush(page, 0, 4, 0.0, 0.25)  # the upper quarter of x
    expect(status(page)).to_have_text("30 of 120 trials")
    assert {int(x) for x in column(page, "x")} <= {16, 17, 18, 19, 20}
    brush(page, 2, 4, 0.9, 1.0)  # the lower end of act, which is relu
    expect(status(page)).to_have_text("15 of 120 trials")
    assert set(column(page, "act")) == {"relu"}
    shoot(page, "run-parallel")
    page.reload()
    expect(status(page)).to_have_text("15 of 120 trials")
    page.get_by_role("button", name="x: ").click()
    expect(status(page)).to_have_text("60 of 120 trials")
    brush(page, 2, 4, 0.5, 0.5)  # a click
    expect(status(page)).to_have_text("120 trials")


def test_axes_are_moved_scaled_and_limited_by_keyboard(page: Page, lattice: None) -> None:
    open_run(page, "parallel")
    page.get_by_text("Axes", exact=True).click()
    page.get_by_label("x from").fill("19")
    page.get_by_label("x from").press("Tab")
    expect(status(page)).to_have_text("12 of 120 trials")
    expect(page.get_by_role("group", name="y").get_by_label("logarithmic")).to_be_checked()  # from 0.001 to 0.1
    page.get_by_role("group", name="x").get_by_label("logarithmic").check()
    page.get_by_role("button", name="Move y to the left").press("Enter")
    assert "axes=p%3Ay%2Cp%3Ax" in page.url and "log=p%3Ax" in page.url
    assert page.locator("fieldset legend").all_inner_texts() == ["y", "x", "act", "acc"]


def test_curves_of_picked_trials_share_a_chart(yard: Yard, page: Page) -> None:
    yard.run("run", "--grid", "x=1..12", "--max", "acc", "--", "sh", "-c",
             "for s in 0 1 2 3 4; do hopyard report acc=0.{x}$s loss=$s step=$s; done")
    open_run(page, "curves")
    legend = page.locator(".legend li")
    expect(legend).to_have_count(10)
    expect(page.get_by_role("img", name="acc of 10 trials")).to_be_visible()
    page.get_by_label("Metric").select_option("loss")
    expect(page.get_by_role("img", name="loss of 10 trials")).to_be_visible()
    page.get_by_role("tab", name="Trials").click()
    page.get_by_label("Pick trial 3", exact=True).check()
    page.get_by_label("Pick trial 7", exact=True).check()
    page.get_by_role("tab", name="Curves").click()
    expect(legend).to_have_count(2)
    expect(legend.first).to_contain_text("Trial 3")
    page.get_by_label("Smoothing").fill("0.5")
    page.get_by_label("logarithmic").check()
    page.get_by_label("Horizontal axis").select_option("time")
    shoot(page, "run-curves")
    page.reload()
    expect(page.get_by_role("img", name="loss of 2 trials")).to_be_visible()
    expect(page.get_by_label("Smoothing")).to_have_value("0.5")


def hover(page: Page, chart: Locator, part: float) -> None:
    """Moves the pointer to a part of a chart's width."""
    chart.scroll_into_view_if_needed()
    box = chart.locator(".u-over").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * part, box["y"] + box["height"] / 2)


def test_a_retried_trial_has_a_curve_for_each_attempt(yard: Yard, page: Page) -> None:
    """The first attempt fails after step 2, the second one begins again."""
    yard.run("run", "--retries", "1", "--grid", "x=[1]", "--max", "acc", "--", "sh", "-c",
             "if [ -e $HOPYARD_CHECKPOINT/again ]; then first=6; last=9; else first=1; last=3; fi; touch $HOPYARD_CHECKPOINT/again; "
             "for v in $(seq $first $last); do hopyard report acc=0.$v step=$((v - first)); done; [ $first = 6 ]")
    open_run(page)
    origin = page.url.split("/runs")[0]
    page.goto(f"{origin}/runs/1/trials/1")
    chart = page.get_by_role("img", name="Reported values of acc")
    expect(chart.locator(".u-legend .u-label")).to_have_text(["step", "acc, attempt 1", "acc, attempt 2"])
    hover(page, chart, 2 / 3)
    expect(chart.locator(".u-legend .u-value")).to_have_text(["2", "0.3", "0.8"])
    shoot(page, "trial-of-two-attempts")
    open_run(page, "curves", by="time")  # the last attempt alone, as by step
    hover(page, page.get_by_role("img", name="acc of 1 trial"), 0.001)
    expect(page.locator(".legend li")).to_contain_text("0.6")


def is_linear(pixels: list[float], values: list[float]) -> bool:
    """Whether the values are drawn there on a linear axis, to a pixel."""
    low, high = values.index(min(values)), values.index(max(values))
    scale = (pixels[high] - pixels[low]) / (values[high] - values[low])
    return all(abs(p - pixels[low] - (v - values[low]) * scale) <= 1.5 for p, v in zip(pixels, values))


def smooth(values: list[float], weight: float) -> list[float]:
    means, mean, mass = [], 0.0, 0.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        mass = weight * mass + 1 - weight
        means.append(mean / mass)
    return means


@pytest.mark.view
def test_smoothing_logarithm_and_time_change_what_is_drawn(yard: Yard, page: Page) -> None:
    steps, values = [1.0, 2.0, 4.0, 8.0], [1.0, 100.0, 10.0, 1000.0]
    page.add_init_script(RECORDER)
    yard.run("run", "--grid", "x=[1]", "--min", "loss", "--", "sh", "-c",  # at times that differ
             "; sleep 0.02; ".join(f"hopyard report loss={value} step={step}" for step, value in zip(steps, values)))
    open_run(page, "curves")
    canvas = page.get_by_role("img", name="loss of 1 trial").locator("canvas")

    def wait_for_line(x: list[float], y: list[float]) -> None:
        def is_drawn() -> bool:
            lines = Drawing(canvas).lines
            if len(lines) != 1 or len(lines[0]) != len(x):
                return False
            return is_linear([point[0] for point in lines[0]], x) and is_linear([point[1] for point in lines[0]], y)
        wait_for(is_drawn, f"the line goes through {list(zip(x, y))}")

    wait_for_line(steps, values)
    page.get_by_label("Smoothing").fill("0.5")
    wait_for_line(steps, smooth(values, 0.5))
    page.get_by_label("logarithmic").check()
    wait_for_line(steps, [math.log(value) for value in smooth(values, 0.5)])
    page.get_by_label("Horizontal axis").select_option("time")
    times = page.request.get("/".join(page.url.split("/")[:3]) + "/api/v1/runs/1/curves?best=1").json()["curves"][0]["time"]
    wait_for_line(times, [math.log(value) for value in smooth(values, 0.5)])
    assert "seconds" in Drawing(canvas).texts
    page.get_by_label("logarithmic").uncheck()
    page.get_by_label("Smoothing").fill("0")
    wait_for_line(times, values)


def test_trials_side_by_side_mark_what_differs(page: Page, lattice: None) -> None:
    open_run(page, "trials", sort="number")
    for number in (1, 2, 4):
        page.get_by_label(f"Pick trial {number}", exact=True).check()
    page.get_by_role("button", name="Compare 3 trials").click()
    expect(page.get_by_role("columnheader", name="Trial 4")).to_be_visible()
    different = page.locator(".sides tr.differs th").all_inner_texts()
    assert "x" not in different and {"acc", "y", "act"} <= set(different)  # the last parameter changes first
    page.get_by_label("only differences").check()
    expect(page.get_by_role("rowheader", name="x", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Remove trial 4").click()
    expect(page.get_by_role("columnheader", name="Trial 4")).to_have_count(0)
    assert "pick=1%2C2" in page.url


def pixels(page: Page, locator: Locator) -> int:
    """The number of different colors on a canvas."""
    return locator.evaluate("""canvas => {
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size;
    }""")


def test_contours_and_scatters_are_drawn_for_chosen_hyperparameters(page: Page, lattice: None) -> None:
    open_run(page, "contour", x="x", y="y")
    canvas = page.get_by_role("img", name="acc over x and y")
    expect(canvas).to_be_visible()
    assert pixels(page, canvas) > 100  # a map, not an empty area
    page.get_by_label("y axis").select_option("act")
    expect(page.get_by_role("img", name="acc over x and act")).to_be_visible()
    shoot(page, "run-contour")
    page.get_by_role("tab", name="Overview").click()
    for name in ("x", "y", "act"):
        expect(page.get_by_role("img", name=f"acc against {name}")).to_be_visible()
    page.get_by_label("Hyperparameter").select_option("y")
    expect(page.get_by_role("img", name="acc against x")).to_have_count(0)
    page.get_by_label("y logarithmic").uncheck()
    page.reload()
    expect(page.get_by_label("y logarithmic")).not_to_be_checked()


def on_plot(page: Page, chart: str, x: float, y: float) -> tuple[float, float]:
    """Where a part of a chart's width and height is on the page; 0 is its left and its bottom."""
    over = page.get_by_role("img", name=chart).locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box
    return box["x"] + box["width"] * x, box["y"] + box["height"] * (1 - y)


def test_points_of_scatter_plots_are_named_and_open_their_trials(yard: Yard, page: Page) -> None:
    yard.run("run", "--grid", "x=1..3", "--grid", "y=1..2", "--max", "acc", "--", "sh", "-c", "echo acc=$(({x} * 2 + {y}))")
    open_run(page, against="x")
    tip = page.locator(".tip")
    expect(page.get_by_role("img", name="acc against x")).to_be_visible()
    texts = {}
    for part in range(20):  # upwards, where x is 2
        page.mouse.move(*on_plot(page, "acc against x", 0.5, part / 20))
        if tip.is_visible():
            texts[tip.inner_text()] = part / 20
    assert list(texts) == ["Trial 3: acc=5", "Trial 4: acc=6"]
    page.mouse.move(*on_plot(page, "acc against x", 0.25, texts["Trial 4: acc=6"]))
    expect(tip).to_be_hidden()
    page.mouse.move(*on_plot(page, "acc against x", 0.5, texts["Trial 4: acc=6"]))
    shoot(page, "run-point")
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_role("heading", name="Run 1, trial 4")).to_be_visible()


def test_points_of_a_contour_are_named_and_open_their_trials(page: Page, lattice: None) -> None:
    open_run(page, "contour", x="x", y="y", filter="relu")
    box = page.get_by_role("img", name="acc over x and y").bounding_box()
    assert box
    left, right, top, bottom = 70, 90, 12, 48  # as in contour.tsx
    page.mouse.move(box["x"] + left + 0.04 * (box["width"] - left - right) + 2,
                    box["y"] + top + 0.96 * (box["height"] - top - bottom) - 2)  # the first x and y
    expect(page.locator(".tip")).to_contain_text("Trial 1: acc=")
    shoot(page, "run-contour-point")
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_role("heading", name="Run 1, trial 1")).to_be_visible()


@pytest.mark.view
def test_the_overview_shows_the_best_so_far_and_what_matters(page: Page, lattice: None) -> None:
    open_run(page)
    expect(page.get_by_role("img", name="The best acc after each trial")).to_be_visible()
    page.get_by_label("Best so far over").select_option("time")
    assert "over=time" in page.url
    bars = page.locator(".bars th")
    expect(bars).to_have_count(3)
    assert bars.first.inner_text() == "x"
    shoot(page, "run-overview")


def test_the_logs_of_a_run_are_copied_and_opened(yard: Yard, page: Page) -> None:
    yard.run("run", "--grid", "x=1..2", "--max", "acc", "--", "sh", "-c", "echo acc={x}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_run(page)
    logs = page.locator("dd", has_text=str(yard.logdir()))
    logs.get_by_role("button", name="Copy").click()
    expect(logs.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == str(yard.logdir())
    logs.get_by_role("link", name="Files").click()
    expect(page.get_by_role("link", name="x=2")).to_be_visible()
    assert page.url.endswith(f"/files/{yard.logdir().relative_to(yard.project)}")


def test_the_best_so_far_and_the_importance_grow_while_a_run_goes_on(yard: Yard, page: Page) -> None:
    gate = yard.project / "gate"
    page.add_init_script(RECORDER)
    yard.run("run", "--detach", "--parallel", "1", "--grid", "x=1..3", "--grid", "y=1..4", "--max", "acc", "--", "sh", "-c",
             f"[ {{x}} != 3 ] || while [ ! -e {gate} ]; do sleep 0.02; done; echo acc=$(({{x}} * {{x}} * 10 + {{y}}))")
    wait_for(lambda: sum(t["state"] == "done" for t in yard.trials()) == 8, "the trials before the gate are done")
    open_run(page)
    page.evaluate("window.isSame = true")
    canvas = page.get_by_role("img", name="The best acc after each trial").locator("canvas")

    def levels() -> int:
        """Of the line of steps."""
        return len({y for _, y in max(Drawing(canvas).lines, key=len, default=[])})

    expect(page.get_by_text("8 of 8 trials")).to_be_visible()
    wait_for(lambda: levels() == 8, "each trial is better than the ones before")
    shares = page.locator(".bars").inner_text()
    gate.touch()
    expect(page.get_by_text("12 of 12 trials")).to_be_visible(timeout=15_000)  # it is computed every 5 s
    wait_for(lambda: levels() == 12, "the line has grown")
    assert page.locator(".bars").inner_text() != shares
    assert page.evaluate("window.isSame")  # without a reload


def test_an_evolution_has_its_generations(yard: Yard, page: Page) -> None:
    yard.run("run", "--evolve", "--population", "5", "--generations", "4", "--space", "x=0..1.0", "--min", "loss", "--", "sh", "-c",
             "echo loss={x}")
    open_run(page)
    page.get_by_role("tab", name="Generations").click()
    expect(page.get_by_text("A generation has 5 trials")).to_be_visible()
    expect(page.get_by_role("img", name="loss by generation")).to_be_visible()


# What is written on a canvas, as its property `texts`.
RECORD_TEXTS = """const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    (this.canvas.texts ??= []).push(text);
    fillText.call(this, text, ...rest);
}"""


def written(page: Page, chart: str) -> set[str]:
    return set(page.get_by_role("img", name=chart).locator("canvas").evaluate("canvas => canvas.texts ?? []"))


def test_axes_of_a_positive_metric_can_be_logarithmic(yard: Yard, page: Page) -> None:
    yard.run("run", "--evolve", "--population", "5", "--generations", "2", "--space", "x=1..9", "--min", "loss", "--", "sh", "-c",
             "for s in 0 1 2 3; do hopyard report loss=1e-$s step=$s; hopyard report gain=-$s step=$s; done; "
             "echo loss=$(awk \"BEGIN { print 10 ^ -(($HOPYARD_TRIAL - 1) % 4) }\")")
    page.add_init_script(RECORD_TEXTS)
    decades = {"0.001", "0.01", "0.1", "1"}
    origin = "/".join(page.url.split("/")[:3])
    views = {"runs/1/trials/1": "Reported values of loss", "runs/1?tab=generations": "loss by generation",
             "runs/1": "loss against x", "compare?runs=1": "The best loss so far of 1 runs"}
    for view, chart in views.items():
        page.goto(f"{origin}/{view}")
        expect(page.get_by_role("img", name=chart)).to_be_visible()
        assert not decades <= written(page, chart), view
        page.get_by_label("logarithmic" if "generations" in view else "loss logarithmic").check()
        wait_for(lambda chart=chart: decades <= written(page, chart), f"{view} is logarithmic")
        page.reload()
        wait_for(lambda chart=chart: decades <= written(page, chart), f"{view} is logarithmic again")
    page.goto(f"{origin}/runs/1/trials/1")
    expect(page.get_by_role("img", name="Reported values of gain")).to_be_visible()
    expect(page.get_by_label("gain logarithmic")).to_have_count(0)  # its values are negative


@pytest.mark.view
def test_runs_are_compared_by_their_best_and_their_settings(yard: Yard, page: Page) -> None:
    yard.run("run", "--name", "small", "--grid", "x=1..4", "--max", "acc", "--", "sh", "-c", "echo acc=0.{x}")
    yard.run("run", "--name", "large", "--grid", "x=1..8", "--max", "acc", "--", "sh", "-c", "echo acc=0.{x}")
    origin = "/".join(page.url.split("/")[:3])
    page.goto(f"{origin}/compare?runs=1,2")
    expect(page.get_by_role("img", name="The best acc so far of 2 runs")).to_be_visible()
    expect(page.get_by_role("row", name="Best", exact=False).first).to_contain_text("acc=0.4 in trial 4")
    expect(page.get_by_role("row", name="Space of x")).to_contain_text("1 … 8")
    expect(page.get_by_role("row", name="Command")).to_have_count(0)  # it does not differ
    page.get_by_label("only differences").uncheck()
    expect(page.get_by_role("row", name="Command")).to_be_visible()
    shoot(page, "compare")
    page.get_by_role("link", name="Run 2 large").click()
    expect(page.get_by_role("heading", name="Run 2 large")).to_be_visible()


def test_a_run_that_does_not_exist_leaves_the_others_compared(yard: Yard, page: Page) -> None:
    for n in (1, 2, 3):
        yard.run("run", "--name", f"n{n}", "--grid", f"x=1..{n}", "--max", "acc", "--", "sh", "-c", "echo acc=0.{x}")
    yard.run("rm", "2")
    origin = "/".join(page.url.split("/")[:3])
    page.goto(f"{origin}/compare?runs=1,2,3")
    expect(page.get_by_role("img", name="The best acc so far of 2 runs")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(1)
    expect(page.get_by_role("alert")).to_contain_text("no run '2'")
    expect(page.locator(".sides thead th")).to_have_text(["Run 1 n1", "Run 3 n3"])


def test_comparing_requests_only_what_has_changed(yard: Yard, page: Page) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--grid", "x=1..4", "--max", "acc", "--", "sh", "-c", "echo acc=0.{x}")
    yard.run("run", "--detach", "--parallel", "1", "--grid", "x=1..4", "--max", "acc", "--", "sh", "-c",
             f"echo acc=0.{{x}}; [ {{x}} -le 2 ] || while [ ! -e {gate} ]; do sleep 0.02; done")
    wait_for(lambda: len(yard.trials(2)) == 3, "the third trial runs")
    requested: list[str] = []
    page.on("request", lambda r: requested.append(r.url.split("/runs/")[1]) if "/columns" in r.url else None)
    origin = "/".join(page.url.split("/")[:3])
    page.goto(f"{origin}/compare?runs=1,2")
    expect(page.get_by_role("row", name="State")).to_contain_text("running")
    gate.touch()
    expect(page.get_by_role("row", name="State")).not_to_contain_text("running")
    expect(page.get_by_role("row", name="Best", exact=False).first).to_contain_text("acc=0.4 in trial 4acc=0.4 in trial 4")
    assert [r for r in requested if r.startswith("1/")] == ["1/columns?since=0"]
    assert [r for r in requested if r.startswith("2/")].count("2/columns?since=0") == 1 and len(requested) > 2


def test_runs_chosen_in_the_list_are_compared_up_to_twelve(yard: Yard, page: Page) -> None:
    for _ in range(14):
        yard.run("run", "--max", "acc", "--", "sh", "-c", "echo acc=0.5")
    for n in (2, 1):
        page.get_by_label(f"Choose run {n}", exact=True).check()
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("img", name="The best acc so far of 2 runs")).to_be_visible()
    expect(page.locator(".sides thead th")).to_have_text(["Run 2", "Run 1"])
    expect(page.get_by_text("left out")).to_have_count(0)
    page.go_back()
    for n in range(3, 15):
        page.get_by_label(f"Choose run {n}", exact=True).check()
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_text("At most 12 runs are compared: runs 2, 1 are left out.")).to_be_visible()
    expect(page.locator(".sides thead th")).to_have_count(12)


# ---- accessibility -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_view(page: Page, lattice: None, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    open_run(page, pick="1,2", brush='{"p:x":[1,10]}')
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel")).to_be_visible()
        assert serious(page) == [], tab
    page.goto("/".join(page.url.split("/")[:3]) + "/compare?runs=1")
    expect(page.get_by_role("img", name="The best acc so far of 1 runs")).to_be_visible()
    assert serious(page) == []


def test_tabs_are_reached_by_arrow_keys(page: Page, lattice: None) -> None:
    open_run(page)
    page.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Trials")).to_be_focused()
    expect(page.get_by_role("tab", name="Trials")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="Compare")).to_be_focused()


def test_no_view_is_wider_than_a_phone(page: Page, lattice: None) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    open_run(page, pick="1,2,3", brush='{"p:x":[1,10]}')
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab
        shoot(page, f"run-phone-{tab.lower()}")
    page.goto("/".join(page.url.split("/")[:3]) + "/compare?runs=1")
    expect(page.get_by_role("heading", name="Side by side")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_an_address_that_was_cut_still_opens(page: Page, lattice: None) -> None:
    open_run(page, "parallel", brush='{"p:x":[1', sort="p:none", pick="1,x,-4", best="x", smooth="nan", hide="")
    expect(status(page)).to_have_text("120 trials")
