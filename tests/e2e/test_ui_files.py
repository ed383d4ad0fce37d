# SPDX-License-Identifier: Apache-2.0
"""Files in the API of the page: listings, downloads, uploads and changes, and their confinement to the project."""
from __future__ import annotations

import csv
import io
import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from conftest import Yard, wait_for
from hdfs import Hdfs
from needs import need_root
from ui import Reply, Ui, end

API = "/api/v1/files"
PIECE = 8 << 20
DAY = 24 * 3600


@pytest.fixture
def ui(yard: Yard) -> Iterator[Ui]:
    server = Ui(yard)
    server.log_in()
    yield server
    end(server)


@pytest.fixture
def secret(yard: Yard) -> Path:
    """A directory outside of the project, with a file."""
    folder = yard.project.parent / "outside"
    folder.mkdir()
    (folder / "secret").write_text("not for you")
    return folder


def put(yard: Yard, path: str, data: bytes | str = "x") -> Path:
    file = yard.project / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return file


def query(**params: object) -> str:
    return "?" + "&".join(f"{name}={quote(value if isinstance(value, bytes) else str(value), safe='')}"
                          for name, value in params.items())


def names(ui: Ui, path: str = "", **params: object) -> list[str]:
    return [e["name"] for e in ui.get(API + query(path=path, **params))["entries"]]


def content(ui: Ui, path: str | bytes, **headers: str) -> Reply:
    return ui.request(f"{API}/content{query(path=path)}", **headers)


def preview(ui: Ui, path: str) -> dict[str, Any]:
    shown: dict[str, Any] = ui.get(f"{API}/preview{query(path=path)}")
    return shown


# ---- listings ----------------------------------------------------------------------------------------------------------

def test_directories_are_listed_before_files_in_pages_and_any_order(yard: Yard, ui: Ui) -> None:
    put(yard, "Resources/b.csv", "1,2")
    put(yard, "Resources/a.csv", "1")
    put(yard, "Resources/new/c", "")
    os.utime(yard.project / "Resources/a.csv", (1000, 1000))
    listing = ui.get(f"{API}?path=Resources")
    assert [(e["name"], e["type"], e["size"]) for e in listing["entries"]] == [
        ("new", "directory", 0), ("a.csv", "file", 1), ("b.csv", "file", 3)]
    assert (listing["path"], listing["count"], listing["address"]) == ("Resources", 3, f"{yard.project}/Resources")
    assert listing["entries"][1]["modified"] == 1000000 and listing["entries"][1]["owner"]
    assert names(ui, "Resources", sort="-size") == ["new", "b.csv", "a.csv"]
    assert names(ui, "Resources", sort="modified") == ["new", "a.csv", "b.csv"]
    assert names(ui, "Resources", offset=1, limit=1) == ["a.csv"] and names(ui, "Resources", offset=9) == []
    assert names(ui) == ["Resources"]
    wrong = ui.request(f"{API}?sort=color")
    assert wrong.status == 400 and "name, size or modified" in wrong.json()["error"]


def test_a_directory_of_ten_thousand_files_is_listed(yard: Yard, ui: Ui) -> None:
    folder = yard.project / "many"
    folder.mkdir()
    for i in range(10000):
        (folder / f"{i:05}").touch()
    page = ui.get(f"{API}?path=many&offset=9990&limit=100")
    assert page["count"] == 10000 and [e["name"] for e in page["entries"]] == [f"{i:05}" for i in range(9990, 10000)]


def test_names_of_any_bytes_are_listed_sent_and_deleted(yard: Yard, ui: Ui) -> None:
    strange = [b"new\nline", b"\xff\xfe", "café ☕".encode(), b"a&b=c%2e%2e?#", b"..x", b"<b>", b"x" * 255, b"\\", b"'\""]
    for name in strange:
        with open(os.fsencode(yard.project) + b"/" + name, "wb") as file:
            file.write(name)
    entries = ui.get(API)["entries"]
    assert len(entries) == len(strange)
    for entry in entries:
        reply = ui.request(f"{API}/content?path={entry['encoded']}")
        assert reply.status == 200 and quote(reply.body, safe="") == entry["encoded"]
        assert f"filename*=UTF-8''{entry['encoded']}" in reply.headers["Content-Disposition"]
        assert ui.post(f"{API}/delete?path={entry['encoded']}").status == 204
    assert ui.get(API)["entries"] == []


# ---- confinement ---------------------------------------------------------------------------------------------------------

OUTSIDE = ["..", "../outside/secret", "a/../../outside/secret", "/etc/passwd", "//etc/passwd", "./a", "a/.", "a//f", "a/",
           "..%2foutside/secret", "file:///etc/passwd", "hdfs://x/y", "a" * 300, "a/" * 3000 + "a"]
HIDDEN = [".hopyard", ".hopyard/store.db", ".HOPYARD/store.db", "run.db", "a/run.db", "a/RUN.DB", "run.db-wal", "store.db",
          "a/.hopyard", "a/.hopyard/x", ".hopyard-0123.upload", "store.db-shm"]


def operations(path: str | bytes) -> list[tuple[str, str]]:
    """Every request that names a file."""
    return [("GET", API + query(path=path)), ("GET", f"{API}/content{query(path=path)}"),
            ("GET", f"{API}/preview{query(path=path)}"), ("POST", f"{API}/folder{query(path=path)}"),
            ("POST", f"{API}/delete{query(path=path, recursive=1)}"),
            ("POST", f"{API}/move{query(**{'from': path, 'to': 'stolen', 'overwrite': 1})}"),
            ("POST", f"{API}/move{query(**{'from': 'a/f', 'to': path, 'overwrite': 1})}"),
            ("POST", f"{API}/uploads{query(path=path, size=1, modified=0, overwrite=1)}"),
            ("PATCH", f"{API}/uploads{query(path=path, size=1, modified=0, overwrite=1, offset=0)}"),
            ("DELETE", f"{API}/uploads{query(path=path, size=1, modified=0)}")]


def try_all(ui: Ui, path: str | bytes) -> list[Reply]:
    return [ui.request(address, method, b"x" if method == "PATCH" else None, origin=f"http://127.0.0.1:{ui.port}")
            for method, address in operations(path)]


@pytest.fixture
def prepared(yard: Yard, secret: Path) -> Path:
    put(yard, "a/f", "mine")
    put(yard, "a/run.db", "snapshot")
    yard.run("run", "--", "true")
    return secret


def untouched(yard: Yard, secret: Path) -> None:
    assert [p.name for p in secret.iterdir()] == ["secret"] and (secret / "secret").read_text() == "not for you"
    assert (yard.project / "a/f").read_text() == "mine" and (yard.project / "a/run.db").read_text() == "snapshot"
    assert (yard.project / ".hopyard/store.db").exists() and not (yard.project / "stolen").exists()


def test_paths_do_not_leave_the_project(yard: Yard, ui: Ui, prepared: Path) -> None:
    for path in OUTSIDE:
        for reply in try_all(ui, path):
            assert reply.status in (400, 404, 204), (path, reply.body)  # 204: there is no such upload to cancel
            assert b"not for you" not in reply.body and b"root:" not in reply.body
    untouched(yard, prepared)


def test_escaped_and_repeated_forms_of_a_path_do_not_leave_the_project(ui: Ui, prepared: Path) -> None:
    for text in ("%2e%2e/outside/secret", "%2e%2e%2foutside%2fsecret", "..%2foutside%2fsecret", "a%2f..%2f..%2foutside%2fsecret",
                 "%00", "a%00", "%c0%ae%c0%ae/outside/secret", "%", "%zz", "%2"):
        reply = ui.request(f"{API}/content?path={text}")
        assert reply.status in (400, 404), text
    assert ui.request(f"{API}/../../../etc/passwd").status == 400
    assert ui.request(f"{API}/content?path=a/f&path=../outside/secret").body == b"mine"  # the first one counts


def test_files_of_hopyard_itself_do_not_exist_for_the_page(yard: Yard, ui: Ui, prepared: Path) -> None:
    for path in HIDDEN:
        for reply in try_all(ui, path):
            assert reply.status == 403 and "belongs to hopyard" in reply.json()["error"], path
    untouched(yard, prepared)
    assert names(ui) == ["Logs", "a"] and names(ui, "a") == ["f"]


def test_a_directory_with_files_of_hopyard_is_neither_moved_nor_deleted(yard: Yard, ui: Ui, prepared: Path) -> None:
    put(yard, "deep/er/run.db")
    for request in (f"{API}/delete?path=deep&recursive=1", f"{API}/move?from=deep&to=gone"):
        reply = ui.post(request)
        assert reply.status == 403 and "run.db" in reply.json()["error"]
    assert (yard.project / "deep/er/run.db").exists()
    with tarfile.open(fileobj=io.BytesIO(content(ui, "deep").body)) as tar:
        assert tar.getnames() == ["deep/er"]


def test_links_are_shown_and_never_followed(yard: Yard, ui: Ui, prepared: Path) -> None:
    (yard.project / "file").symlink_to(prepared / "secret")
    (yard.project / "folder").symlink_to(prepared)
    (yard.project / "a/inner").symlink_to("f")
    (yard.project / "own").symlink_to(".hopyard")
    entries = {e["name"]: e for e in ui.get(API)["entries"]}
    assert entries["file"] == {"name": "file", "encoded": "file", "type": "link"} and entries["folder"]["type"] == "link"
    for path in ("file", "folder", "folder/secret", "a/inner", "own", "own/store.db"):
        for request in (API + query(path=path), f"{API}/content{query(path=path)}", f"{API}/preview{query(path=path)}"):
            assert ui.request(request).status in (403, 404), (path, request)
    for path in ("folder/new", "own/new"):
        assert ui.post(f"{API}/folder{query(path=path)}").status in (403, 404)
        assert ui.post(f"{API}/uploads{query(path=path, size=1, modified=0)}").status in (403, 404)
        assert ui.post(f"{API}/uploads{query(path=path, size=1, modified=0, offset=0)}", "PATCH", b"x").status in (403, 404)
        assert ui.post(f"{API}/move{query(**{'from': 'a/f', 'to': path})}").status in (403, 404)
    with tarfile.open(fileobj=io.BytesIO(content(ui, "a").body)) as tar:
        assert tar.getnames() == ["a/f"]
    assert ui.post(f"{API}/delete?path=folder&recursive=1").status == 204  # the link itself
    assert ui.post(f"{API}/move?from=file&to=a/moved").status == 204
    untouched(yard, prepared)
    assert (yard.project / "a/moved").is_symlink()


def test_a_part_of_an_upload_that_is_a_link_is_not_written_through(yard: Yard, ui: Ui, secret: Path) -> None:
    start = f"{API}/uploads{query(path='f', size=4, modified=7)}"
    assert ui.post(f"{start}&offset=0", "PATCH", b"ab").json() == {"offset": 2, "complete": False}
    [part] = yard.project.glob(".hopyard-*.upload")
    part.unlink()
    part.symlink_to(secret / "secret")
    assert ui.post(f"{start}&offset=11", "PATCH", b"x").status in (400, 403, 404)
    assert ui.post(f"{start}&offset=0", "PATCH", b"abcd").status in (403, 404)
    assert (secret / "secret").read_text() == "not for you"


def test_a_directory_that_is_swapped_for_a_link_does_not_lead_out(yard: Yard, ui: Ui, secret: Path) -> None:
    """Another process replaces it all the time; no reply and no change may reach its target."""
    put(yard, "d/secret", "mine")
    (secret / "d").mkdir()
    (secret / "d/secret").write_text("not for you")
    over = threading.Event()

    def swap() -> None:
        for i in itertools.count():
            if over.is_set():
                return
            if i % 2:
                time.sleep(0.001)  # otherwise a busy machine may never find the directory itself
            os.rename(yard.project / "d", yard.project / "real")
            os.symlink(secret / "d", yard.project / "d")
            os.unlink(yard.project / "d")
            os.rename(yard.project / "real", yard.project / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for i in range(300):
            reply = content(ui, "d/secret")
            assert b"not for you" not in reply.body
            seen.add(reply.status)
            ui.post(f"{API}/uploads{query(path=f'd/up{i}', size=1, modified=0, offset=0)}", "PATCH", b"x")
            ui.post(f"{API}/folder{query(path=f'd/new{i}')}")
            ui.post(f"{API}/delete{query(path='d/secret')}") if i == 299 else None
    finally:
        over.set()
        thread.join()
    assert 200 in seen and [p.name for p in (secret / "d").iterdir()] == ["secret"]


def test_special_files_are_never_opened(yard: Yard, ui: Ui) -> None:
    os.mkfifo(yard.project / "fifo")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(yard.project / "sock"))
        assert {e["name"]: e["type"] for e in ui.get(API)["entries"]} == {"fifo": "other", "sock": "other"}
        for name in ("fifo", "sock"):
            assert content(ui, name).status == 403 and ui.request(f"{API}/preview?path={name}").status == 403
            assert ui.post(f"{API}/delete?path={name}").status == 204
    assert names(ui) == []


def test_changes_need_a_session_and_our_own_page(yard: Yard, ui: Ui) -> None:
    put(yard, "f", "kept")
    cookie = ui.cookie
    for method, address in operations("f"):
        ui.cookie = ""
        assert ui.request(address, method, origin=f"http://127.0.0.1:{ui.port}").status == 401
        ui.cookie = cookie
        if method != "GET":
            assert ui.request(address, method, origin="http://evil.example").status == 403
            assert ui.request(address, method).status == 403
    for address in ("/delete?path=f", "/move?from=f&to=g", "/folder?path=h", "/uploads?path=f&size=1&modified=0"):
        assert ui.request(API + address).status == 405  # a link or an image
    assert names(ui) == ["f"]


# ---- downloads -------------------------------------------------------------------------------------------------------------

def test_a_file_is_sent_whole_or_in_ranges(yard: Yard, ui: Ui) -> None:
    data = os.urandom(3 << 20)
    put(yard, "big.bin", data)
    reply = content(ui, "big.bin")
    assert (reply.status, reply.body, reply.headers["Content-Length"]) == (200, data, str(len(data)))
    assert reply.headers["Accept-Ranges"] == "bytes"
    for field, start, stop in (("bytes=0-0", 0, 1), ("bytes=1000000-", 1000000, None), ("bytes=-10", -10, None),
                               ("bytes=5-999999999", 5, None), ("bytes=-99999999", 0, None)):
        part = content(ui, "big.bin", range=field)
        assert part.status == 206 and part.body == data[start:stop], field
        first = start if start >= 0 else len(data) + start
        assert part.headers["Content-Range"] == f"bytes {first}-{first + len(part.body) - 1}/{len(data)}"
    for field in ("bytes=99999999-", "bytes=-0"):
        past = content(ui, "big.bin", range=field)
        assert past.status == 416 and past.headers["Content-Range"] == f"bytes */{len(data)}"
    for field in ("bytes=2-1", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b", "bytes=", "bytes=-"):
        assert content(ui, "big.bin", range=field).status == 200
    tag = reply.headers["ETag"]
    assert content(ui, "big.bin", range="bytes=0-1", if_range=tag).status == 206
    put(yard, "big.bin", data + b"more")
    assert content(ui, "big.bin", range="bytes=0-1", if_range=tag).status == 200  # another file: all of it
    assert ui.request(f"{API}/content?path=big.bin", "HEAD").headers["Content-Length"] == str(len(data) + 4)
    put(yard, "empty", b"")
    assert content(ui, "empty").body == b"" and content(ui, "empty", range="bytes=0-0").status == 416


def test_files_with_scripts_are_saved_and_images_are_shown_in_a_sandbox(yard: Yard, ui: Ui) -> None:
    for name in ("x.html", "x.svg", "x.xml", "x.pdf", "x.js", "x.htm", "x", "x.png.html", "x.txt"):
        put(yard, name, "<script>alert(1)</script>")
        headers = content(ui, name).headers
        assert headers["Content-Disposition"].startswith("attachment;") and headers["Content-Type"] == "application/octet-stream"
    for name, kind in (("x.png", "image/png"), ("x.JPEG", "image/jpeg"), ("x.webp", "image/webp"), ("x.gif", "image/gif")):
        put(yard, name, "<script>alert(1)</script>")
        headers = content(ui, name).headers
        assert headers["Content-Disposition"].startswith("inline;") and headers["Content-Type"] == kind
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in headers.get_all("Content-Security-Policy")


def test_a_file_that_becomes_shorter_cuts_the_connection(yard: Yard, ui: Ui) -> None:
    file = put(yard, "big", b"x" * (64 << 20))
    with ui.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.sendall(f"GET {API}/content?path=big HTTP/1.1\r\nHost: localhost:{ui.port}\r\nCookie: {ui.cookie}\r\n\r\n".encode())
        assert s.recv(12) == b"HTTP/1.1 200"
        os.truncate(file, 100)
        received = 12
        while chunk := s.recv(1 << 20):
            received += len(chunk)
    assert received < 64 << 20


def test_a_client_that_reads_slowly_does_not_block_others(yard: Yard, ui: Ui) -> None:
    put(yard, "big", b"x" * (64 << 20))
    slow = []
    for _ in range(20):  # more than the server has threads
        s = ui.connect()
        s.sendall(f"GET {API}/content?path=big HTTP/1.1\r\nHost: localhost:{ui.port}\r\nCookie: {ui.cookie}\r\n\r\n".encode())
        assert s.recv(12) == b"HTTP/1.1 200"
        slow.append(s)
    assert len(content(ui, "big").body) == 64 << 20 and names(ui) == ["big"]
    for s in slow:
        s.close()


def test_a_directory_is_sent_as_a_tar_archive(yard: Yard, ui: Ui) -> None:
    long = "d" * 120 + "/" + "e" * 120
    files = {"m/1/model.bin": os.urandom(700000), "m/1/empty": b"", f"m/1/{long}/f": b"deep", "m/1/café": b"c", "m/1/b512": b"x" * 512}
    for path, data in files.items():
        put(yard, path, data)
    os.mkfifo(yard.project / "m/1/fifo")
    reply = content(ui, "m/1")
    assert reply.headers["Content-Disposition"] == "attachment; filename*=UTF-8''m-1.tar"
    assert reply.headers["Content-Length"] == str(len(reply.body)) and len(reply.body) % 512 == 0
    with tarfile.open(fileobj=io.BytesIO(reply.body)) as tar:
        found = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]
        assert {m.name for m in tar if m.isdir()} == {f"1/{'d' * 120}", f"1/{long}"}
        assert tar.getmember("1/empty").mtime == int((yard.project / "m/1/empty").stat().st_mtime)
    assert found == {path.removeprefix("m/"): data for path, data in files.items()}


# ---- uploads -----------------------------------------------------------------------------------------------------------------

class Upload:
    """As the page sends a file."""

    def __init__(self, ui: Ui, path: str, data: bytes, modified: int = 1700000000000, **params: object) -> None:
        self.ui, self.path, self.data = ui, path, data
        self.address = f"{API}/uploads{query(path=path, size=len(data), modified=modified, **params)}"

    def start(self) -> Reply:
        return self.ui.post(self.address)

    def piece(self, offset: int, n: int = PIECE) -> Reply:
        return self.ui.post(f"{self.address}&offset={offset}", "PATCH", self.data[offset:offset + n])

    def all(self, n: int = PIECE) -> Reply:
        start = self.start()
        assert start.status == 200, start.body
        offset = start.json()["offset"]
        while True:
            reply = self.piece(offset, n)
            if reply.status != 200 or reply.json()["complete"]:
                return reply
            offset = reply.json()["offset"]


def test_a_file_arrives_in_pieces_and_appears_when_it_is_complete(yard: Yard, ui: Ui) -> None:
    data = os.urandom(20 << 20)
    (yard.project / "Resources").mkdir()
    upload = Upload(ui, "Resources/train.bin", data)
    assert upload.start().json() == {"offset": 0, "piece": PIECE}
    assert upload.piece(0).json() == {"offset": PIECE, "complete": False}
    assert names(ui, "Resources") == []
    assert upload.piece(PIECE).json() == {"offset": 2 * PIECE, "complete": False}
    assert upload.piece(2 * PIECE).json() == {"offset": len(data), "complete": True}
    assert (yard.project / "Resources/train.bin").read_bytes() == data and os.listdir(yard.project / "Resources") == ["train.bin"]
    assert Upload(ui, "empty", b"").all().json() == {"offset": 0, "complete": True}
    assert (yard.project / "empty").read_bytes() == b""


def test_an_upload_continues_after_a_restart_of_the_server(yard: Yard, ui: Ui) -> None:
    data = os.urandom(100000)
    assert Upload(ui, "f", data).piece(0, 60000).status == 200
    ui.end()
    again = Ui(yard)
    again.log_in()
    try:
        assert Upload(again, "f", data, modified=1).start().json()["offset"] == 0  # another file of that name and size
        upload = Upload(again, "f", data)
        assert upload.start().json()["offset"] == 60000
        assert upload.piece(60000).json()["complete"] and (yard.project / "f").read_bytes() == data
    finally:
        end(again)


def test_a_piece_at_a_wrong_offset_changes_nothing_and_says_where_to_continue(yard: Yard, ui: Ui) -> None:
    upload = Upload(ui, "f", b"0123456789")
    assert upload.piece(0, 4).status == 200
    for offset in (0, 2, 5, 10, 99):
        reply = upload.piece(offset)
        assert reply.status == 409 and reply.json()["offset"] == 4
    too_long = ui.post(f"{upload.address}&offset=4", "PATCH", b"x" * 7)
    assert too_long.status == 400 and "exceeds the announced size" in too_long.json()["error"]
    for address in (f"{API}/uploads?path=f&size=1", f"{API}/uploads?path=f&modified=1", f"{API}/uploads?size=1&modified=1",
                    f"{API}/uploads?path=f&size=-1&modified=1", f"{API}/uploads?path=f&size=99999999999999999999&modified=1"):
        assert ui.post(address).status == 400
    assert upload.piece(4).json()["complete"] and (yard.project / "f").read_bytes() == b"0123456789"


def test_an_existing_file_is_replaced_only_if_asked_for(yard: Yard, ui: Ui) -> None:
    put(yard, "f", "old")
    (yard.project / "d").mkdir()
    refused = Upload(ui, "f", b"new").start()
    assert refused.status == 409 and refused.json()["error"] == "'f' already exists"
    assert Upload(ui, "f", b"new").piece(0).status == 409
    assert Upload(ui, "d", b"new", overwrite=1).start().status == 409 and Upload(ui, "d", b"new", overwrite=1).piece(0).status == 409
    assert Upload(ui, "no/f", b"new").start().status == 404 and (yard.project / "f").read_text() == "old"
    assert Upload(ui, "f", b"new", overwrite=1).all().json()["complete"] and (yard.project / "f").read_text() == "new"


def test_two_uploads_of_one_name_do_not_mix(yard: Yard, ui: Ui) -> None:
    one, other = Upload(ui, "f", b"1" * 3000000, modified=1), Upload(ui, "f", b"2" * 3000000, modified=2)
    assert one.piece(0, 1000000).status == other.piece(0, 2000000).status == 200
    assert one.piece(1000000).json()["complete"]
    assert other.piece(2000000).status == 409  # it exists now
    assert (yard.project / "f").read_bytes() == one.data
    same = Upload(ui, "g", os.urandom(2 << 20))
    with ThreadPoolExecutor(8) as pool:  # the same piece eight times at once
        replies = list(pool.map(lambda _: same.piece(0, 1 << 20), range(8)))
    assert sorted({r.status for r in replies}) in ([200], [200, 409]) and [r.status for r in replies].count(200) == 1
    assert same.piece(1 << 20).json()["complete"] and (yard.project / "g").read_bytes() == same.data


def test_an_upload_is_canceled(yard: Yard, ui: Ui) -> None:
    upload = Upload(ui, "f", b"0123456789")
    assert upload.piece(0, 4).status == 200 and len(os.listdir(yard.project)) == 1
    assert ui.post(upload.address, "DELETE").status == 204 and os.listdir(yard.project) == []
    assert ui.post(upload.address, "DELETE").status == 204 and upload.start().json()["offset"] == 0


def test_an_abandoned_upload_is_removed_after_a_day(yard: Yard, ui: Ui) -> None:
    old, new = Upload(ui, "old", b"0123456789"), Upload(ui, "new", b"0123456789")
    assert old.piece(0, 4).status == 200
    [part] = yard.project.iterdir()
    os.utime(part, (time.time() - DAY - 60,) * 2)
    assert new.piece(0, 4).status == 200
    assert names(ui) == [] and not part.exists() and len(os.listdir(yard.project)) == 1
    assert new.piece(4).json()["complete"]


def upload_head(upload: Upload, offset: int = 0) -> bytes:
    """Of a request with a piece of the largest size; its body does not follow."""
    ui = upload.ui
    return (f"PATCH {upload.address}&offset={offset} HTTP/1.1\r\nHost: localhost:{ui.port}\r\nCookie: {ui.cookie}\r\n"
            f"Origin: http://localhost:{ui.port}\r\nContent-Length: {PIECE}\r\n\r\n").encode()


def test_bodies_of_all_clients_together_are_bounded(yard: Yard, ui: Ui) -> None:
    """Four pieces of 8 MB at once; the next client tries again."""
    upload = Upload(ui, "f", b"x" * PIECE)
    head = upload_head(upload)
    waiting = []
    for _ in range(4):
        s = ui.connect()
        s.sendall(head)
        waiting.append(s)
    names(ui)  # they have arrived
    assert ui.send(head.decode()).startswith(b"HTTP/1.1 503 ")
    assert ui.send(head.decode().replace(str(PIECE), str(PIECE + 1), 2)).startswith(b"HTTP/1.1 413 ")
    assert ui.post(f"{API}/folder?path=small").status == 204
    for s in waiting:
        s.close()
    wait_for(lambda: upload.start().status == 200 and upload.piece(0).status == 200, "the limit was not freed")
    assert (yard.project / "f").stat().st_size == PIECE


def test_an_upload_that_trickles_is_cut_off_and_a_slow_one_is_not(yard: Yard) -> None:
    yard.env["HOPYARD_TEST_BODY_MS"] = "1500"
    ui = Ui(yard)
    ui.log_in()
    upload = Upload(ui, "f", b"x" * PIECE)
    try:
        with ui.connect() as drip, ui.connect() as slow:
            for s in (drip, slow):
                s.sendall(upload_head(upload))
            began, sent = time.monotonic(), 0
            while time.monotonic() < began + 4.5:  # three times as long as a client may be silent
                slow.sendall(b"x" * (64 << 10))
                sent += 64 << 10
                with suppress(ConnectionError):
                    drip.sendall(b"x")
                time.sleep(0.25)
            with suppress(ConnectionError):
                assert drip.recv(1) == b""
            slow.sendall(b"x" * (PIECE - sent))
            assert slow.recv(12) == b"HTTP/1.1 200"
        assert (yard.project / "f").read_bytes() == upload.data
    finally:
        end(ui)


def test_a_full_disk_is_explained_and_the_upload_continues_with_more_space(yard: Yard, ui: Ui) -> None:
    folder = yard.project / "small"
    folder.mkdir()
    need_root("to mount a small disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=True)
    try:
        refused = Upload(ui, "small/big", b"x" * (4 << 20)).start()
        assert refused.status == 507 and "needs 4.0 MB more, and the disk has" in refused.json()["error"]
        upload = Upload(ui, "small/f", os.urandom(900000))
        assert upload.piece(0, 500000).status == 200
        (folder / "other").write_bytes(b"x" * 400000)
        failed = upload.piece(500000)
        assert failed.status == 507 and "No space left on device" in failed.json()["error"]
        assert "/proc/" not in failed.json()["error"]
        (folder / "other").unlink()
        assert upload.all().json()["complete"] and (folder / "f").read_bytes() == upload.data
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class HugeUpload(Upload):
    """10 GB of zeros, but for the number of each piece at its start: pieces that are lost or swapped change the checksum."""

    SIZE = 10 * 10**9

    def __init__(self, ui: Ui) -> None:
        super().__init__(ui, "huge", b"")
        self.address = f"{API}/uploads{query(path='huge', size=self.SIZE, modified=1700000000000)}"

    def piece(self, offset: int, n: int = PIECE) -> Reply:
        return self.ui.post(f"{self.address}&offset={offset}", "PATCH", self.part(offset))

    def part(self, offset: int) -> bytes:
        return struct.pack(">Q", offset) + bytes(min(PIECE, self.SIZE - offset) - 8)

    def checksum(self) -> int:
        crc = 0
        for offset in range(0, self.SIZE, PIECE):
            crc = zlib.crc32(self.part(offset), crc)
        return crc


def checksum(path: Path) -> int:
    crc = 0
    with open(path, "rb", buffering=0) as file:
        while part := file.read(PIECE):
            crc = zlib.crc32(part, crc)
    return crc


@pytest.mark.slow
@pytest.mark.full
def test_a_file_of_10_gb_arrives_although_connection_and_server_are_interrupted(yard: Yard, ui: Ui) -> None:
    free = shutil.disk_usage(yard.project).free
    if free < 12 * 10**9:
        pytest.skip(f"needs 12 GB of free disk space: '{yard.project}' has {free / 1e9:.1f} GB")
    upload, file = HugeUpload(ui), yard.project / "huge"
    try:
        offset = upload.start().json()["offset"]
        while offset < upload.SIZE // 2:
            offset = upload.piece(offset).json()["offset"]
        with ui.connect() as s:  # half a piece
            s.sendall(upload_head(upload, offset) + bytes(PIECE // 2))
        end(ui)
        server = Ui(yard)
        server.log_in()
        upload = HugeUpload(server)
        assert upload.start().json()["offset"] == offset
        assert upload.all().json()["complete"]
        assert file.stat().st_size == upload.SIZE and checksum(file) == upload.checksum()
        assert server.post(f"{API}/delete?path=huge").status == 204 and os.listdir(yard.project) == []
        end(server)
    finally:
        for left in (file, *yard.project.glob(".hopyard-*.upload")):
            left.unlink(missing_ok=True)


# ---- changes -----------------------------------------------------------------------------------------------------------------

def test_directories_are_made_and_files_moved_and_deleted(yard: Yard, ui: Ui) -> None:
    put(yard, "f", "x")
    assert ui.post(f"{API}/folder?path=d").status == 204 and ui.post(f"{API}/folder?path=d/e").status == 204
    assert ui.post(f"{API}/folder?path=d").status == 409 and ui.post(f"{API}/folder?path=no/e").status == 404
    assert ui.post(f"{API}/move?from=f&to=d/e/g").status == 204 and names(ui, "d/e") == ["g"]
    put(yard, "f", "new")
    taken = ui.post(f"{API}/move?from=f&to=d/e/g")
    assert taken.status == 409 and taken.json()["error"] == "'d/e/g' already exists"
    assert ui.post(f"{API}/move?from=f&to=d/e/g&overwrite=1").status == 204 and content(ui, "d/e/g").body == b"new"
    assert ui.post(f"{API}/move?from=d&to=d/e/d").status == 400 and ui.post(f"{API}/move?from=no&to=x").status == 404
    assert ui.post(f"{API}/move?from=d&to=renamed").status == 204 and names(ui) == ["renamed"]
    full = ui.post(f"{API}/delete?path=renamed")
    assert full.status == 409 and "not empty" in full.json()["error"] and names(ui) == ["renamed"]
    assert ui.post(f"{API}/delete?path=renamed&recursive=1").status == 204 and names(ui) == []
    for address in ("/delete", "/delete?path=", "/move?from=a", "/move?to=a", "/folder", "/delete?recursive=1"):
        assert ui.post(API + address).status == 400
    assert ui.post(f"{API}/delete?path=no").status == 404


# ---- previews ----------------------------------------------------------------------------------------------------------------

def test_text_is_previewed_up_to_64_kb_if_it_is_utf8(yard: Yard, ui: Ui) -> None:
    put(yard, "a.py", "print('☕')\n")
    shown = preview(ui, "a.py")
    assert (shown["kind"], shown["text"], shown["cut"], shown["size"]) == ("text", "print('☕')\n", False, 13)
    assert shown["address"] == f"{yard.project}/a.py"
    put(yard, "long", "é" * 100000)  # its 65,536th byte is in the middle of a character at some length
    put(yard, "odd", "x" + "é" * 100000)
    assert preview(ui, "long")["text"] == "é" * 32768 and preview(ui, "odd")["text"] == "x" + "é" * 32767
    assert preview(ui, "odd")["cut"]
    for data in (b"\x00\x01\x02", b"caf\xe9", b"text\x00", b"\xff\xfea\x00"):
        put(yard, "b", data)
        assert preview(ui, "b")["kind"] == "binary"
    put(yard, "n.ipynb", json.dumps({"cells": []}))
    put(yard, "mark", b"\xef\xbb\xbfx")
    put(yard, "empty", "")
    assert [preview(ui, p)["text"] for p in ("n.ipynb", "mark", "empty")] == ['{"cells": []}', "x", ""]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_is_previewed_as_python_reads_it(yard: Yard, ui: Ui, separator: str) -> None:
    rows = [["name", "note", "x"], ["a", 'quoted "text", with; all|kinds\tof\nbreaks', "1"], ["", "é", ""], ["b", "", "2"]]
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(rows)
    put(yard, "a.csv", text.getvalue())
    shown = preview(ui, "a.csv")
    assert (shown["kind"], shown["separator"], shown["rows"], shown["cut"]) == ("table", separator, rows, False)


def test_a_large_csv_is_previewed_by_its_first_rows(yard: Yard, ui: Ui) -> None:
    put(yard, "a.csv", "".join(f"{i},{'x' * 300}\n" for i in range(100000)))
    shown = preview(ui, "a.csv")
    assert len(shown["rows"]) == 100 and shown["cut"] and shown["rows"][99] == ["99", "x" * 200]
    put(yard, "wide.csv", ",".join(map(str, range(5000))))
    assert preview(ui, "wide.csv")["rows"] == [[str(i) for i in range(200)]]
    put(yard, "one.csv", '"never closed\n' + "x" * 500000)
    assert preview(ui, "one.csv")["rows"] == []


def test_parquet_is_previewed_by_its_columns(yard: Yard, ui: Ui) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    table = pa.table({
        "id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None], "when": pa.array([1, 2, 3], pa.timestamp("ms")),
        "nested": [{"x": 1.5, "tags": ["t"]}] * 3, "raw": pa.array([b"1"] * 3), "flag": [True, False, None]})
    pq.write_table(table, yard.project / "t.parquet", row_group_size=2)
    shown = preview(ui, "t.parquet")
    schema = pq.ParquetFile(yard.project / "t.parquet").schema
    assert [c["name"] for c in shown["columns"]] == [schema.column(i).path for i in range(len(schema))]
    assert [c["type"] for c in shown["columns"]] == [
        schema.column(i).physical_type.lower().replace("_", " ") for i in range(len(schema))]
    assert {c["name"]: c["meaning"] for c in shown["columns"]}["name"] == "string"
    assert {c["name"]: c["meaning"] for c in shown["columns"]}["when"] == "timestamp"
    assert (shown["kind"], shown["row_count"], shown["row_groups"]) == ("parquet", 3, 2) and "parquet-cpp" in shown["created_by"]
    data = (yard.project / "t.parquet").read_bytes()
    for broken in (data[:-1], data[:-8] + struct.pack("<I", 1 << 31) + b"PAR1", data[:-8] + struct.pack("<I", 12) + b"PAR1",
                   b"PAR1", b"", data[:200] + b"\xff" * 100 + data[-8:]):
        put(yard, "broken.parquet", broken)
        assert preview(ui, "broken.parquet")["kind"] == "binary", len(broken)


def test_tfrecords_are_previewed_as_examples(yard: Yard, ui: Ui) -> None:
    import tensorflow as tf

    def feature(value: Any) -> tf.train.Feature:
        if isinstance(value, int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))

    with tf.io.TFRecordWriter(str(yard.project / "t.tfrecord")) as writer:
        for i in range(12):
            values = {"label": i, "x": [0.5, 1.5], "name": f"é{i}".encode(), "image": b"\xff" * 500}
            features = tf.train.Features(feature={name: feature(value) for name, value in values.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())
    shown = preview(ui, "t.tfrecord")
    assert shown["kind"] == "records" and len(shown["examples"]) == 10 and shown["cut"]
    features = {f["name"]: f for f in shown["examples"][3]["features"]}
    assert features["label"]["values"] == [3] and features["label"]["type"] == "int64"
    assert features["x"]["values"] == [0.5, 1.5] and features["name"]["values"] == ["é3"]
    assert features["image"]["values"] == ["(500 bytes)"] and features["image"]["count"] == 1
    data = (yard.project / "t.tfrecord").read_bytes()
    put(yard, "cut.tfrecord", data[:len(data) // 2])
    assert preview(ui, "cut.tfrecord")["note"] and preview(ui, "cut.tfrecord")["examples"]
    put(yard, "no.tfrecord", b"\xff" * 1000)
    assert preview(ui, "no.tfrecord")["kind"] == "binary"


# ---- models and trials -----------------------------------------------------------------------------------------------------

def test_models_are_listed_with_metrics_and_the_run_they_came_from(yard: Yard, ui: Ui) -> None:
    assert ui.get("/api/v1/models") == {"models": []}
    for version in (1, 2, 10):
        put(yard, f"Models/mnist/{version}/model.bin", b"x" * 1000)
    about = {"metrics": {"accuracy": 0.9, "bad": "text"}, "description": "digits", "created": 5, "user": "ada", "run": 3, "trial": 7}
    put(yard, "Models/mnist/2.json", json.dumps(about))
    put(yard, "Models/mnist/10.json", "{damaged")
    put(yard, "Models/mnist/draft/f")
    put(yard, "Models/.draft/1/f")
    put(yard, "Models/loose.keras")
    [model] = ui.get("/api/v1/models")["models"]
    assert model["name"] == "mnist" and [v["version"] for v in model["versions"]] == [10, 2, 1]
    assert model["versions"][1] == {"version": 2, "path": "Models/mnist/2", "size": 1000, "files": 1, "metrics": {"accuracy": 0.9},
                                    "description": "digits", "user": "ada", "created": 5, "run": 3, "trial": 7}
    assert model["versions"][0]["metrics"] == {} and model["versions"][0]["run"] is None


def test_an_exported_model_names_the_trial_that_has_exported_it(yard: Yard, ui: Ui) -> None:
    put(yard, "train.py", "import os, hopyard.compat\nfrom hops import model\n"
                          "open('m.bin', 'w').write('weights')\n"
                          "model.export('m.bin', 'net', metrics={'x': float(os.environ['X'])})\n")
    yard.run("run", "--parallel", "1", "--grid", "x=5,6", "--", "sh", "-c", f"X={{x}} {sys.executable} {yard.project}/train.py")
    [model] = ui.get("/api/v1/models")["models"]
    assert [(v["version"], v["metrics"], v["run"], v["trial"], v["size"]) for v in model["versions"]] == [
        (2, {"x": 6}, 1, 2, 7), (1, {"x": 5}, 1, 1, 7)]


def test_the_files_of_a_trial_are_those_below_its_directory(yard: Yard, ui: Ui, secret: Path) -> None:
    yard.run("run", "--grid", "x=1,2", "--", "sh", "-c",
             f"cd $HOPYARD_TRIAL_DIR; mkdir plots; echo {{x}} > plots/a.txt; ln -s {secret} out; echo done")
    base = "/api/v1/runs/1/trials/2/files"
    types = {e["name"]: e["type"] for e in ui.get(base)["entries"]}
    assert (types["plots"], types["out"], types["stdout"]) == ("directory", "link", "file")
    assert ui.request(f"{base}/content?path=plots/a.txt").body == b"2\n"
    assert ui.get(f"{base}/preview?path=plots/a.txt")["text"] == "2\n"
    for path in ("out/secret", "../x=1/plots/a.txt", "..", "../run.db", "run.db"):
        assert ui.request(f"{base}/content{query(path=path)}").status in (400, 403, 404)
    assert ui.request("/api/v1/runs/1/trials/9/files").status == 404 and ui.request("/api/v1/runs/1/trials/x/files").status == 404
    assert ui.post(f"{base}/delete?path=plots").status == 404  # nothing changes there


# ---- HDFS ----------------------------------------------------------------------------------------------------------------------

@pytest.fixture
def hdfs_project(yard: Yard, hdfs: Hdfs, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a project on HDFS, which commands of the yard use."""
    url = f"{hdfs.url}/Projects/{request.node.name.removeprefix('test_')[:40]}"
    yard.env |= {**hdfs.env(), "HOPYARD_PROJECT": url, "XDG_STATE_HOME": str(tmp_path / "state")}
    yard.run("fs", "mkdir", "-p", f"{url}/Resources")
    return url


def test_files_of_a_project_on_hdfs_are_used_as_local_ones(yard: Yard, hdfs_project: str, hdfs: Hdfs) -> None:
    ui = Ui(yard)
    ui.log_in()
    try:
        data = os.urandom(3 << 20)  # three blocks
        upload = Upload(ui, "Resources/f.bin", data)
        assert upload.piece(0, 1 << 20).json() == {"offset": 1 << 20, "complete": False} and names(ui, "Resources") == []
        ui.end()
        ui = Ui(yard)
        ui.log_in()
        upload.ui = ui
        assert upload.all(1 << 20).json()["complete"]
        assert names(ui, "Resources") == ["f.bin"]
        assert ui.get(f"{API}?path=Resources")["address"] == f"{hdfs_project}/Resources"
        assert content(ui, "Resources/f.bin").body == data
        assert content(ui, "Resources/f.bin", range="bytes=1048570-1048580").body == data[1048570:1048581]
        assert Upload(ui, "Resources/f.bin", b"x").start().status == 409
        assert ui.post(f"{API}/folder?path=d").status == 204
        assert ui.post(f"{API}/move?from=Resources/f.bin&to=d/g").status == 204
        assert Upload(ui, "d/t.csv", b"a,b\n1,2\n").all().json()["complete"]
        assert preview(ui, "d/t.csv")["rows"] == [["a", "b"], ["1", "2"]]
        with tarfile.open(fileobj=io.BytesIO(content(ui, "d").body)) as tar:
            assert sorted(tar.getnames()) == ["d/g", "d/t.csv"]
        assert hdfs.shell("-cat", f"{hdfs_project}/d/t.csv").text == "a,b\n1,2\n"
        assert ui.post(f"{API}/delete?path=d&recursive=1").status == 204 and names(ui) == ["Resources"]
    finally:
        end(ui)


def test_paths_do_not_leave_a_project_on_hdfs(yard: Yard, hdfs_project: str, hdfs: Hdfs) -> None:
    yard.run("fs", "mkdir", "-p", f"{hdfs_project}/../elsewhere".replace(hdfs_project.rpartition("/")[2] + "/../", ""))
    yard.run("fs", "touch", f"{hdfs_project}/run.db")
    ui = Ui(yard)
    ui.log_in()
    try:
        for path in ("..", "../elsewhere", "/Projects/elsewhere", "Resources/../../elsewhere", "hdfs://other/x"):
            assert ui.request(API + query(path=path)).status in (400, 404)
            assert ui.post(f"{API}/delete{query(path=path, recursive=1)}").status in (400, 404)
        assert ui.request(f"{API}/content?path=run.db").status == 403 and names(ui) == ["Resources"]
        assert ui.post(f"{API}/delete?path=run.db").status == 403
    finally:
        end(ui)
