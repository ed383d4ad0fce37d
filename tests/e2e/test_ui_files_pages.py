# SPDX-License-Identifier: Apache-2.0
"""Files and models in Chromium, used as a person would. Screenshots are in build/screenshots."""
from __future__ import annotations

import io
import json
import os
import tarfile
import time
from pathlib import Path

import pytest
from browser import shoot
from conftest import Yard, wait_for
from playwright.sync_api import Browser, Page, expect
from ui import Ui, end

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108020000009077 53de0000000c49444154789c63f8cfc000000301010018dd8db00000000049454e44ae426082".replace(" ", ""))


def put(yard: Yard, path: str, data: bytes | str = "x") -> Path:
    file = yard.project / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return file


def open_files(page: Page, *folders: str) -> None:
    page.get_by_role("link", name="Files", exact=True).click()
    for folder in folders:
        page.get_by_role("link", name=folder, exact=True).click()


def listed(page: Page) -> list[str]:
    return [name.strip() for name in page.locator(".entries td.name").all_inner_texts()]


def details(page: Page, name: str) -> None:
    page.get_by_role("button", name=f"Details of {name}", exact=True).click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_focused()


def test_folders_are_entered_sorted_and_kept_in_the_address(yard: Yard, page: Page) -> None:
    put(yard, "Resources/data/small.csv", "a,b\n1,2\n")
    put(yard, "Resources/data/large.bin", b"x" * 5000)
    put(yard, "Resources/data/sub dir/é#?%/f", "x")
    open_files(page, "Resources", "data")
    expect(page.get_by_role("row", name="large.bin")).to_contain_text("4.9 KB")
    assert listed(page) == ["sub dir", "large.bin", "small.csv"]
    page.get_by_role("button", name="Size").click()
    expect(page.locator(".entries tbody tr:last-child")).to_contain_text("large.bin")
    page.reload()
    expect(page.locator(".entries tbody tr:last-child")).to_contain_text("large.bin")
    assert "sort=size" in page.url and page.url.split("?")[0].endswith("/files/Resources/data")
    page.get_by_role("link", name="sub dir").click()
    page.get_by_role("link", name="é#?%").click()
    page.reload()
    assert page.get_by_role("navigation", name="Path").inner_text().split(" / ") == ["Files", "Resources", "data", "sub dir", "é#?%"]
    expect(page.get_by_role("button", name="f", exact=True)).to_be_visible()
    page.get_by_role("navigation", name="Path").get_by_role("link", name="Resources").click()
    expect(page.get_by_role("link", name="data")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("button", name="f", exact=True)).to_be_visible()


@pytest.mark.view
def test_files_are_uploaded_by_button_and_by_drop(yard: Yard, page: Page, tmp_path: Path) -> None:
    (yard.project / "Resources").mkdir()
    data = os.urandom(20 << 20)
    chosen = tmp_path / "train 1.bin"
    chosen.write_bytes(data)
    open_files(page, "Resources")
    expect(page.get_by_text("This folder is empty.")).to_be_visible()
    page.get_by_label("Files to upload").set_input_files(chosen)
    expect(page.get_by_role("region", name="Uploads")).to_contain_text("done")
    expect(page.get_by_role("row", name="train 1.bin")).to_contain_text("20 MB")
    shoot(page, "files-upload")
    assert (yard.project / "Resources/train 1.bin").read_bytes() == data
    transfer = page.evaluate_handle("() => { const t = new DataTransfer(); t.items.add(new File(['dropped'], 'drop.txt')); return t; }")
    page.dispatch_event("main", "dragover", {"dataTransfer": transfer})
    page.dispatch_event("main", "drop", {"dataTransfer": transfer})
    expect(page.get_by_role("row", name="drop.txt")).to_be_visible()
    assert (yard.project / "Resources/drop.txt").read_text() == "dropped"
    chosen.write_bytes(b"second version")
    page.get_by_label("Files to upload").set_input_files(chosen)
    expect(page.get_by_text("'Resources/train 1.bin' already exists")).to_be_visible()
    assert (yard.project / "Resources/train 1.bin").read_bytes() == data
    page.get_by_role("button", name="Replace").click()
    expect(page.get_by_role("row", name="train 1.bin")).to_contain_text("14 bytes")
    page.get_by_role("button", name="Dismiss drop.txt").click()
    expect(page.get_by_role("region", name="Uploads")).not_to_contain_text("drop.txt")


def test_an_upload_is_paused_and_continues_also_after_a_reload(yard: Yard, page: Page, tmp_path: Path) -> None:
    chosen = tmp_path / "big.bin"
    chosen.write_bytes(os.urandom(60 << 20))
    sent: list[int] = []
    page.on("request", lambda r: sent.append(int(r.url.rpartition("offset=")[2])) if r.method == "PATCH" else None)
    page.route("**/uploads*", lambda route: (time.sleep(0.2), route.continue_()))  # a slow network
    open_files(page)
    page.get_by_label("Files to upload").set_input_files(chosen)
    wait_for(lambda: (page.wait_for_timeout(50), len(sent) > 2)[1], "nothing was sent")
    page.get_by_role("button", name="Pause").click()
    uploads = page.get_by_role("region", name="Uploads")
    expect(uploads).to_contain_text("paused at")
    shoot(page, "files-paused")
    [part] = yard.project.glob(".hopyard-*.upload")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    wait_for(lambda: (page.wait_for_timeout(50), part.stat().st_size > 8 << 20)[1], "it does not continue")
    page.reload()
    kept = part.stat().st_size
    sent.clear()
    page.get_by_label("Files to upload").set_input_files(chosen)
    expect(uploads).to_contain_text("done", timeout=30000)
    assert sent[0] >= kept and (yard.project / "big.bin").read_bytes() == chosen.read_bytes() and not part.exists()
    page.unroute_all(behavior="ignoreErrors")


def test_each_kind_of_file_is_previewed(yard: Yard, page: Page) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import tensorflow as tf
    put(yard, "notes.md", "# Title\n<img src=x onerror=document.title=1>\n")
    put(yard, "table.csv", "".join(f"{i};{i * i};row <b>{i}</b>\n" for i in range(200)))
    put(yard, "plot.png", PNG)
    put(yard, "page.html", "<script>document.title = 1</script>")
    put(yard, "raw.bin", b"\x00\x01")
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), yard.project / "data.parquet")
    with tf.io.TFRecordWriter(str(yard.project / "train.tfrecord")) as writer:
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[7, 8]))
        writer.write(tf.train.Example(features=tf.train.Features(feature={"label": feature})).SerializeToString())
    open_files(page)
    pane = page.get_by_role("complementary")
    for name, text, shot in (("notes.md", "<img src=x onerror", ""), ("table.csv", "row <b>42</b>", "files-table"),
                             ("data.parquet", "2 rows in 1 row group", "files-parquet"), ("train.tfrecord", "7, 8", "files-records"),
                             ("raw.bin", "The file is not UTF-8 text.", ""), ("page.html", "<script>document.title", "")):
        page.get_by_role("button", name=name, exact=True).click()
        expect(pane).to_contain_text(text)
        assert f"open={name}" in page.url
        if shot:
            shoot(page, shot)
    page.get_by_role("button", name="table.csv", exact=True).click()
    expect(pane).to_contain_text("The first 100 rows.")
    page.get_by_role("button", name="plot.png", exact=True).click()
    expect(pane.get_by_role("img", name="plot.png")).to_have_js_property("naturalWidth", 1)
    page.reload()  # the view is in the address
    expect(pane.get_by_role("img", name="plot.png")).to_be_visible()
    pane.press("Escape")
    expect(pane).to_have_count(0)
    assert page.title() == "Files – hopyard" and "open=" not in page.url


@pytest.mark.view
def test_files_are_moved_deleted_downloaded_and_their_path_is_copied(yard: Yard, page: Page) -> None:
    put(yard, "Resources/a.txt", "text of a")
    put(yard, "Resources/old/b.txt", "b")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_files(page, "Resources")
    details(page, "a.txt")
    with page.expect_download() as download:
        page.get_by_role("complementary").get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "a.txt" and Path(download.value.path()).read_text() == "text of a"
    page.get_by_role("complementary").get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == f"{yard.project}/Resources/a.txt"
    page.get_by_role("button", name="New folder…").click()
    page.get_by_label("Name of the new folder").fill("new & better")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="new & better")).to_be_visible()
    page.get_by_role("button", name="Rename or move…").click()
    page.get_by_label("New path").fill("Resources/new & better/c.txt")
    page.get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_role("row", name="a.txt")).to_have_count(0)
    assert (yard.project / "Resources/new & better/c.txt").read_text() == "text of a"
    details(page, "old")
    with page.expect_download() as download:
        page.get_by_role("complementary").get_by_role("link", name="Download as tar").click()
    with tarfile.open(fileobj=io.BytesIO(Path(download.value.path()).read_bytes())) as tar:
        assert download.value.suggested_filename == "old.tar" and tar.getnames() == ["old/b.txt"]
    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_text("Delete old and everything in it?")).to_be_visible()
    shoot(page, "files-delete")
    page.get_by_role("button", name="Cancel").click()
    assert (yard.project / "Resources/old").exists()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("row", name="old")).to_have_count(0)
    assert not (yard.project / "Resources/old").exists() and listed(page) == ["new & better"]


def test_names_that_are_not_text_and_links_do_not_break_the_page(yard: Yard, page: Page) -> None:
    os.makedirs(os.fsencode(yard.project) + b"/\xff\xfe")
    with open(os.fsencode(yard.project) + b"/bad\xff<b>", "wb") as file:
        file.write(b"x")
    (yard.project / "link").symlink_to("/etc/passwd")
    open_files(page)
    expect(page.locator(".entries tbody tr")).to_have_count(3)
    details(page, "bad\\xff<b>")
    expect(page.get_by_role("complementary").locator("pre")).to_have_text("x")
    page.reload()
    expect(page.get_by_role("complementary").locator("pre")).to_have_text("x")
    details(page, "link")
    expect(page.get_by_text("a link, which is not followed")).to_be_visible()
    expect(page.get_by_role("complementary").get_by_role("link", name="Download")).to_have_count(0)


@pytest.mark.view
def test_models_have_metrics_and_a_link_to_their_run(yard: Yard, page: Page) -> None:
    page.get_by_role("link", name="Models", exact=True).click()
    expect(page.get_by_text("This project has no models yet")).to_be_visible()
    yard.run("run", "--name", "digits", "--grid", "x=1,2", "--", "echo", "trained")
    for version, accuracy in ((1, 0.91), (2, 0.954321987)):
        put(yard, f"Models/mnist/{version}/model.bin", b"x" * 300000)
        put(yard, f"Models/mnist/{version}.json", json.dumps({
            "metrics": {"accuracy": accuracy, "loss": 0.1 * version}, "user": "ada", "run": 1, "trial": version,
            "created": int(time.time() * 1000) - 7200000 * (3 - version), "description": "a small <b>convolutional</b> network"}))
    page.reload()
    rows = page.get_by_role("table", name="Versions of mnist").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("0.954322")
    shoot(page, "models")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download version 2 of mnist").click()
    assert download.value.suggested_filename == "mnist-2.tar"
    page.get_by_role("link", name="trial 2").click()
    expect(page.get_by_role("heading", name="Run 1, trial 2")).to_be_visible()
    page.go_back()
    page.get_by_role("link", name="2", exact=True).click()
    expect(page.get_by_role("row", name="model.bin")).to_be_visible()


def test_a_trial_shows_its_files_and_images(yard: Yard, page: Page) -> None:
    image = put(yard, "plot.png", PNG)
    yard.run("run", "--", "sh", "-c", f"cd $HOPYARD_TRIAL_DIR; mkdir deep; cp {image} loss.png; echo hello > deep/note.txt; echo printed")
    page.goto(page.url + "runs/1/trials/1")
    expect(page.locator(".images").get_by_role("img", name="loss.png")).to_have_js_property("naturalWidth", 1)
    page.get_by_role("link", name="deep").click()
    page.get_by_role("button", name="note.txt", exact=True).click()
    pane = page.get_by_role("complementary")
    expect(pane.locator("pre")).to_have_text("hello\n")
    expect(pane.get_by_role("button", name="Delete…")).to_have_count(0)
    assert "folder=deep" in page.url and "open=note.txt" in page.url
    shoot(page, "trial-files")


@pytest.mark.parametrize(("name", "width", "scheme"), [("phone", 390, "light"), ("dark", 1200, "dark")])
def test_files_fit_a_phone_and_a_dark_screen(yard: Yard, browser: Browser, name: str, width: int, scheme: str) -> None:
    put(yard, "Resources/a-file-with-a-rather-long-name-of-an-experiment-2026-11-18.csv", "a,b,c\n" + "1,2,3\n" * 30)
    put(yard, "Resources/sub/x")
    server = Ui(yard)
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.port}{server.login}")
    open_files(page, "Resources")
    page.get_by_role("button", name="a-file-with").first.click()
    expect(page.get_by_role("complementary").locator("table")).to_be_visible()
    shoot(page, f"files-{name}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    end(server)
