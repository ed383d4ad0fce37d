# SPDX-License-Identifier: Apache-2.0
"""`Shared/OWNER::NAME` in hopyard.hdfs is the data set that another project shares."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from hopyard import Error, hdfs


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set of a project elsewhere, shared with the project /…/mine/fraud."""
    train = tmp_path / "theirs" / "churn" / "Resources" / "train"
    (train / "sub").mkdir(parents=True)
    (train / "a.csv").write_text("1,2\n")
    entries = tmp_path / "mine" / "fraud" / "Shared"
    entries.mkdir(parents=True)
    (entries / "churn::train").write_text(f"hopyard share 1\n{train}\n{os.getuid()}\n")
    monkeypatch.setenv("HOPYARD_PROJECT", str(entries.parent))
    return train


def test_paths_in_a_share_are_real_paths(data: Path) -> None:
    assert hdfs.abs_path("Shared/churn::train/a.csv") == str(data / "a.csv")
    assert hdfs.load("Shared/churn::train/a.csv") == b"1,2\n"
    assert hdfs.isdir("Shared/churn::train/sub") and hdfs.exists("/Shared/churn::train")
    hdfs.dump("new", "Shared/churn::train/sub/b.csv")
    assert (data / "sub" / "b.csv").read_text() == "new"


def test_paths_that_ls_returns_can_be_used(data: Path) -> None:
    listed = hdfs.ls("Shared/churn::train", recursive=True)
    assert listed == [str(data / "a.csv"), str(data / "sub")]
    assert hdfs.load(listed[0]) == b"1,2\n" and hdfs.isdir(listed[1])
    hdfs.rmr(listed[0])
    assert not (data / "a.csv").exists()


def test_the_data_set_of_another_project_is_not_removed(data: Path) -> None:
    for path in ("Shared/churn::train", str(data)):
        with pytest.raises(Error):
            hdfs.rmr(path)
    with pytest.raises(Error, match="data set of another project"):
        hdfs.move("Shared/churn::train", "mine")
    assert (data / "a.csv").exists()


def test_links_in_a_share_are_not_followed(data: Path) -> None:
    (data / "link").symlink_to("/etc")
    with pytest.raises(Error, match="links of shares are not followed"):
        hdfs.load("Shared/churn::train/link/hostname")


def test_a_share_that_cannot_be_used_says_why(data: Path) -> None:
    data.rename(data.with_name("moved"))
    with pytest.raises(Error, match="does not exist"):
        hdfs.ls("Shared/churn::train")


def test_a_file_that_is_not_an_entry_is_not_followed(data: Path) -> None:
    hdfs.dump("/etc", "Shared/notes::mine")
    with pytest.raises(Error, match="was not created by `hopyard share accept`"):
        hdfs.ls("Shared/notes::mine")
