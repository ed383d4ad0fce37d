# SPDX-License-Identifier: Apache-2.0
"""Sharing in Chromium, used as a person would. Screenshots are in build/screenshots."""
from __future__ import annotations

import os
from pathlib import Path

import pytest
from browser import shoot
from conftest import Yard
from playwright.sync_api import Page, expect

BOB = "64002"


@pytest.fixture
def train(yard: Yard) -> Path:
    folder = yard.project / "Resources" / "train"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("1,2\n")
    return folder


@pytest.mark.view
def test_a_folder_is_shared_and_revoked(yard: Yard, train: Path, page: Page) -> None:
    page.get_by_role("link", name="Files").click()
    page.get_by_role("link", name="Resources").click()
    page.get_by_role("button", name="Details of train").click()
    page.get_by_role("link", name="Share…").click()
    expect(page.get_by_label("Folder")).to_have_value("Resources/train")
    page.get_by_label("with user").fill(BOB)
    page.get_by_role("button", name="Share", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text(f"{BOB} can read Resources/train")
    row = page.get_by_role("region", name="Shared with others").get_by_role("row", name="Resources/train")
    expect(row).to_contain_text("read")
    assert "system.posix_acl_access" in os.listxattr(train)
    shoot(page, "shares-given")
    page.set_viewport_size({"width": 400, "height": 800})
    shoot(page, "shares-given-phone")
    page.set_viewport_size({"width": 1200, "height": 800})
    row.get_by_role("button", name="Revoke…").click()
    row.get_by_role("button", name="Cancel").click()
    assert "system.posix_acl_access" in os.listxattr(train)
    row.get_by_role("button", name="Revoke…").click()
    shoot(page, "shares-question")
    row.get_by_role("button", name="Revoke access").click()
    expect(page.get_by_text("Nothing is shared with others.")).to_be_visible()
    assert os.listxattr(train) == []


@pytest.mark.view
def test_a_data_set_is_accepted_opened_and_removed(yard: Yard, page: Page, tmp_path: Path) -> None:
    theirs = tmp_path / "alice's" / "churn" / "Resources" / "theirs"
    theirs.mkdir(parents=True)
    (theirs / "numbers.csv").write_text("1,2\n")
    quoted = str(theirs).replace("'", "'\\''")
    page.get_by_role("link", name="Shares").click()
    page.get_by_label("Command or path from the owner").fill(f"hopyard share accept --as churn::theirs '{quoted}'")
    page.get_by_role("button", name="Accept").click()
    row = page.get_by_role("region", name="Shared with this project").get_by_role("row", name="Shared/churn::theirs")
    expect(row).to_contain_text(str(theirs))
    expect(row).to_contain_text("read and write")
    shoot(page, "shares-received")
    page.set_viewport_size({"width": 400, "height": 800})
    shoot(page, "shares-phone")
    page.set_viewport_size({"width": 1200, "height": 800})
    page.emulate_media(color_scheme="dark")
    shoot(page, "shares-dark")
    page.emulate_media(color_scheme="light")
    row.get_by_role("link", name="Shared/churn::theirs").click()
    page.get_by_role("button", name="numbers.csv", exact=True).click()
    expect(page.get_by_role("complementary", name="Details of numbers.csv")).to_contain_text(str(theirs / "numbers.csv"))
    shoot(page, "shares-files")
    page.get_by_role("link", name="Shared", exact=True).click()
    expect(page.get_by_role("link", name="churn::theirs")).to_be_visible()
    page.get_by_role("link", name="Shares").click()
    row.get_by_role("button", name="Remove…").click()
    row.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Nothing is shared with this project.")).to_be_visible()
    assert (theirs / "numbers.csv").exists()
