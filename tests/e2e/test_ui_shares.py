# SPDX-License-Identifier: Apache-2.0
"""Sharing data sets by the page's API, by a plain HTTP client; test_share.py has the rights of real users."""
from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from conftest import Yard
from hdfs import Hdfs
from ui import Reply, Ui, end

BOB = 64002
SHARES = "/api/v1/shares"


@pytest.fixture
def train(yard: Yard) -> Path:
    """A data set, on a path that others can pass only by a share."""
    folder = yard.project / "Resources" / "train"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("1,2\n")
    yard.project.chmod(0o700)
    return folder


@pytest.fixture
def inside(yard: Yard, train: Path) -> Iterator[Ui]:
    server = Ui(yard)
    server.log_in()
    yield server
    end(server)


def call(server: Ui, method: str, endpoint: str, **values: object) -> Reply:
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in values.items())
    return server.change(f"{endpoint}?{query}", method)


def entries(path: Path) -> set[str]:
    return set(os.listxattr(path))


def test_a_data_set_is_shared_listed_and_revoked(yard: Yard, inside: Ui, train: Path) -> None:
    assert inside.get(SHARES) == {"given": [], "received": []}
    added = call(inside, "POST", SHARES, path="Resources/train", **{"with": BOB})
    assert added.status == 200 and added.json()["changed"] == 3 and added.json()["foreign"] == 0
    assert entries(train) == {"system.posix_acl_access", "system.posix_acl_default"}
    shown = inside.get(SHARES)["given"]
    assert [(s["path"], s["with"], s["write"], s["complete"], s["name"], s["target"]) for s in shown] == [
        ("Resources/train", str(BOB), False, True, "project::train", str(train))]  # fmt: skip
    assert shown[0]["accept"] == f"hopyard share accept --as project::train {train}"
    assert call(inside, "POST", SHARES, path="Resources/train", write=1, **{"with": BOB}).status == 200
    assert inside.get(SHARES)["given"][0]["write"]
    assert call(inside, "DELETE", SHARES, path="Resources/train", **{"with": BOB}).status == 200
    assert inside.get(SHARES)["given"] == [] and entries(train) == set() and entries(yard.project) == set()
    assert call(inside, "DELETE", SHARES, path="Resources/train", **{"with": BOB}).status == 404


def test_a_data_set_is_accepted_and_forgotten(yard: Yard, inside: Ui, train: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    received = f"{SHARES}/received"
    accepted = call(inside, "POST", received, target=theirs, name="churn::train")
    assert accepted.json() == {"name": "churn::train", "target": str(theirs), "write": True, "error": None}
    assert inside.get(SHARES)["received"] == [accepted.json()]
    theirs.rmdir()
    assert "does not exist" in inside.get(SHARES)["received"][0]["error"]
    assert call(inside, "POST", SHARES, path="Resources/train", **{"with": BOB}).status == 200
    assert len(inside.get(SHARES)["given"]) == 1
    assert call(inside, "DELETE", received, name="churn::train").status == 204
    assert call(inside, "DELETE", received, name="churn::train").status == 404
    assert inside.get(SHARES)["received"] == []


@pytest.mark.parametrize(("path", "status"), [
    ("", 400), (".", 400), ("..", 400), ("../x", 400), ("/etc", 400), ("Resources/../.hopyard", 400),
    ("Resources//train", 400), (".hopyard", 403), ("Logs", 403), ("Shared", 403), ("Resources/train/run.db", 403), ("a\nb", 400),
    ("x" * 5000, 400), ("Resources/none", 404),
])  # fmt: skip
def test_paths_that_must_not_be_shared_are_refused(yard: Yard, inside: Ui, train: Path, path: str, status: int) -> None:
    refused = call(inside, "POST", SHARES, path=path, **{"with": BOB})
    assert refused.status == status and refused.json()["error"], (refused.status, refused.body)
    assert entries(yard.project) == set() and entries(yard.project / "Resources") == set()


@pytest.mark.parametrize(("target", "name", "status"), [
    ("relative", "a::b", 400), ("/tmp/../etc", "a::b", 400), ("/x/.hopyard", "a::b", 403),
    ("/nowhere/at/all", "a::b", 404), ("/etc", "../a::b", 400), ("/etc", "plain", 400), ("/etc", ".a::b", 400), ("file:///etc", "a::b", 400),
])  # fmt: skip
def test_targets_and_names_that_cannot_be_accepted_are_refused(
    yard: Yard, inside: Ui, target: str, name: str, status: int
) -> None:
    refused = call(inside, "POST", f"{SHARES}/received", target=target, name=name)
    assert refused.status == status and refused.json()["error"], (refused.status, refused.body)
    assert not list((yard.project / "Shared").glob("*"))


def test_changes_need_a_session_and_the_pages_own_origin(yard: Yard, inside: Ui, train: Path) -> None:
    query = f"{SHARES}?path=Resources/train&with={BOB}"
    assert inside.request(query, "POST").status == 403
    assert inside.request(query, "POST", origin="http://evil.example").status == 403
    assert inside.request(query, "DELETE").status == 403
    inside.cookie, cookie = "", inside.cookie
    assert inside.request(SHARES).status == 401 and inside.change(query, "POST").status == 401
    inside.cookie = cookie
    assert entries(train) == set()


def test_an_unknown_user_is_refused(inside: Ui) -> None:
    refused = call(inside, "POST", SHARES, path="Resources/train", **{"with": "no such user"})
    assert refused.status == 400 and "unknown user" in refused.json()["error"]
    assert call(inside, "POST", SHARES, path="Resources/train").status == 400


# ---- files of shares -------------------------------------------------------------------------------------------------


@pytest.fixture
def theirs(yard: Yard, inside: Ui, tmp_path: Path) -> Path:
    """A data set of another project, accepted as Shared/churn::train."""
    folder = tmp_path / "churn" / "Resources" / "theirs"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.csv").write_text("1,2\n")
    (folder / "run.db").write_text("private")
    (folder / "link").symlink_to("/etc")
    assert call(inside, "POST", f"{SHARES}/received", target=folder, name="churn::train").status == 200
    return folder


def test_files_of_a_share_are_listed_read_and_changed(yard: Yard, inside: Ui, theirs: Path) -> None:
    files, place = "/api/v1/files", "Shared/churn::train"
    assert [(e["name"], e["type"]) for e in inside.get(f"{files}?path=Shared")["entries"]] == [("churn::train", "share")]
    listed = inside.get(f"{files}?path={place}")
    assert listed["address"] == str(theirs)  # the real path, for other programs
    assert [(e["name"], e["type"]) for e in listed["entries"]] == [("sub", "directory"), ("a.csv", "file"), ("link", "link")]
    assert inside.request(f"{files}/content?path={place}/a.csv").body == b"1,2\n"
    assert inside.get(f"{files}/preview?path={place}/a.csv")["address"] == str(theirs / "a.csv")
    assert inside.post(f"{files}/folder?path={place}/new").status == 204 and (theirs / "new").is_dir()
    assert inside.post(f"{files}/move?from={place}/a.csv&to={place}/sub/b.csv").status == 204
    assert (theirs / "sub" / "b.csv").read_text() == "1,2\n"
    assert inside.post(f"{files}/delete?path={place}/sub/b.csv").status == 204
    archive = inside.request(f"{files}/content?path={place}")
    assert archive.status == 200 and b"private" not in archive.body


@pytest.mark.parametrize(("path", "status"), [
    ("../secret", 400), ("run.db", 403), (".hopyard/store.db", 403), ("link/passwd", 404), ("link", 403), ("%2e%2e/x", 400),
])  # fmt: skip
def test_paths_in_a_share_stay_in_it(inside: Ui, theirs: Path, path: str, status: int) -> None:
    (theirs.parent / "secret").write_text("other people's")
    reply = inside.request(f"/api/v1/files/content?path=Shared/churn::train/{path}")
    assert reply.status == status and b"other people" not in reply.body, (reply.status, reply.body)


def test_a_share_whose_directory_was_replaced_is_refused(inside: Ui, theirs: Path) -> None:
    theirs.rename(theirs.with_name("moved"))
    theirs.symlink_to("/etc")
    reply = inside.request("/api/v1/files/content?path=Shared/churn::train/passwd")
    assert reply.status == 403 and "symbolic link" in reply.json()["error"]
    assert inside.post("/api/v1/files/folder?path=Shared/churn::train/x").status == 403


def test_an_archive_of_the_project_lacks_the_data_sets_of_others(yard: Yard, inside: Ui, theirs: Path) -> None:
    (yard.project / "Shared" / "notes.txt").write_text("mine")
    for path in ("", "Shared"):
        archive = inside.request(f"/api/v1/files/content?path={path}")
        with tarfile.open(fileobj=io.BytesIO(archive.body)) as tar:
            found = [name.rpartition("/")[2] for name in tar.getnames()]
        assert "notes.txt" in found and "churn::train" not in found


@pytest.mark.parametrize("target", ["Shared/evil::etc", "Shared/evil%3A%3Aetc", "Shared"])
def test_no_upload_or_move_makes_a_share(yard: Yard, inside: Ui, target: str) -> None:
    """Only `share accept` does, which checks what it leads to."""
    (yard.project / "forged").write_text("hopyard share 1\n/etc\n0\n")
    upload = inside.change(f"/api/v1/files/uploads?path={quote(target)}&size=4&modified=1", "POST")
    assert upload.status == 403 and "share accept" in upload.json()["error"]
    piece = inside.request(f"/api/v1/files/uploads?path={quote(target)}&size=4&modified=1&offset=0", "PATCH", b"data", origin=inside.origin)
    assert piece.status == 403
    assert inside.change(f"/api/v1/files/move?from=forged&to={quote(target)}", "POST").status == 403
    assert not (yard.project / "Shared").exists()


def test_a_file_is_uploaded_into_a_share(inside: Ui, theirs: Path) -> None:
    upload = "/api/v1/files/uploads?path=Shared/churn::train/new.csv&size=5&modified=1"
    assert inside.post(upload).json()["offset"] == 0
    origin = f"http://127.0.0.1:{inside.port}"
    assert inside.request(f"{upload}&offset=0", "PATCH", "hello", origin=origin).json()["complete"]
    assert (theirs / "new.csv").read_text() == "hello"
    assert not [entry.name for entry in theirs.iterdir() if entry.name.endswith(".upload")]


def test_deleting_a_share_among_the_files_removes_only_its_entry(yard: Yard, inside: Ui, theirs: Path) -> None:
    assert inside.post("/api/v1/files/delete?path=Shared/churn::train&recursive=1").status == 204
    assert theirs.is_dir() and (theirs / "sub").is_dir() and inside.get(SHARES)["received"] == []


def test_hdfs_shares_are_given_accepted_and_opened(yard: Yard, hdfs: Hdfs, tmp_path: Path) -> None:
    base = f"{hdfs.url}/Projects/page-shares"
    hdfs.shell("-mkdir", "-p", f"{base}/mine/Resources/train", f"{base}/theirs/data")
    hdfs.shell("-put", "/etc/hostname", f"{base}/theirs/data/a.txt")
    yard.env |= {**hdfs.env(), "HOPYARD_PROJECT": f"{base}/mine", "XDG_STATE_HOME": str(tmp_path / "state")}
    server = Ui(yard)
    server.log_in()
    assert call(server, "POST", SHARES, path="Resources/train", **{"with": "bob"}).status == 200
    assert "user:bob:r-x" in hdfs.shell("-getfacl", f"{base}/mine/Resources/train").text
    accepted = call(server, "POST", f"{SHARES}/received", target=f"{base}/theirs/data", name="theirs::data")
    assert accepted.status == 200, accepted.body
    files = "/api/v1/files"
    assert [(e["name"], e["type"]) for e in server.get(f"{files}?path=Shared")["entries"]] == [("theirs::data", "share")]
    listed = server.get(f"{files}?path=Shared/theirs::data")
    assert listed["address"] == f"{base}/theirs/data" and [e["name"] for e in listed["entries"]] == ["a.txt"]
    content = server.request(f"{files}/content?path=Shared/theirs::data/a.txt")
    assert content.body == Path("/etc/hostname").read_bytes()
    assert server.post(f"{files}/delete?path=Shared/theirs::data").status == 204
    assert server.get(SHARES)["received"] == [] and "a.txt" in hdfs.shell("-ls", f"{base}/theirs/data").text
    assert call(server, "DELETE", SHARES, path="Resources/train", **{"with": "bob"}).status == 200
    assert "user:bob" not in hdfs.shell("-getfacl", f"{base}/mine/Resources/train").text
    end(server)
