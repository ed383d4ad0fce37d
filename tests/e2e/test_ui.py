# SPDX-License-Identifier: Apache-2.0
"""The server of the page: logins, the API, and clients that mean no good or send nothing. tests/ui has the page."""
from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import jsonschema
import pytest
import yaml
from conftest import Yard, wait_for
from ui import Ui, end


@pytest.fixture
def ui(yard: Yard) -> Iterator[Ui]:
    server = Ui(yard)
    yield server
    end(server)


@pytest.fixture
def inside(ui: Ui) -> Ui:
    """A client that has logged in."""
    ui.log_in()
    return ui


@pytest.fixture
def gate_run(yard: Yard) -> Iterator[None]:
    """Run 1, five trials: 1 to 3 are done, the others run until they are killed."""
    yard.run("run", "--detach", "--name", "digits", "--parallel", "2", "--grid", "x=1..5", "--max", "acc", "--", "sh", "-c",
             "echo acc=0.{x}; [ {x} -le 3 ] || sleep 600")
    wait_for(lambda: sum(t["state"] == "done" for t in yard.trials()) == 3, "three trials are not done")
    yield
    yard.run("stop", "1", rc=None)  # a test may have done it


# ---- logins -----------------------------------------------------------------------------------------------------------

def test_an_address_logs_in_once_and_the_cookie_is_for_this_server_only(ui: Ui) -> None:
    first = ui.login
    assert ui.request(first, "HEAD").status == 405  # as programs do that only look at addresses
    reply = ui.log_in()
    cookie = reply.headers["Set-Cookie"]
    assert reply.headers["Location"] == "/" and cookie.startswith(f"hopyard-{ui.port}=")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Lax")
    assert ui.get("/api/v1/runs")["runs"] == []
    again = ui.request(first)
    assert again.status == 403 and "used already" in again.json()["error"] and "Set-Cookie" not in again.headers
    other = ui.request(ui.login)  # the address that was printed after the first login
    assert other.status == 303 and other.headers["Set-Cookie"] != cookie


def test_nothing_of_a_project_is_shown_without_a_login(ui: Ui, gate_run: None) -> None:
    for cookie in ("", f"hopyard-{ui.port}=", f"hopyard-{ui.port}={'0' * 64}", f"hopyard-{ui.port}={'0' * 6000}"):
        for path in ("/api/v1/runs", "/api/v1/runs/1", "/api/v1/runs/1/trials", "/api/v1/events"):
            reply = ui.request(path, cookie=cookie)
            assert reply.status == 401 and b"digits" not in reply.body
        assert ui.post("/api/v1/runs/1/stop", cookie=cookie).status == 401
    assert ui.request("/").status == 200 and b"digits" not in ui.request("/").body


def test_a_logout_ends_the_session(inside: Ui) -> None:
    assert inside.post("/logout").status == 204
    assert inside.request("/api/v1/runs").status == 401


# ---- other sites ---------------------------------------------------------------------------------------------------

def test_other_names_for_this_server_are_refused(yard: Yard, inside: Ui) -> None:
    """A site whose name leads here for a moment (DNS rebinding) could read replies otherwise."""
    for host in ("evil.example", f"evil.example:{inside.port}", "localhost", "127.0.0.1:1", f"127.0.0.1:{inside.port}.evil"):
        reply = inside.request("/api/v1/runs", host=host)
        assert reply.status == 421 and "--allow-host" in reply.json()["error"]
    for host in (f"localhost:{inside.port}", f"127.0.0.1:{inside.port}", f"[::1]:{inside.port}", f"LOCALHOST:{inside.port}"):
        assert inside.request("/api/v1/runs", host=host).status == 200
    other = Ui(yard, "--allow-host", "hub.example")
    try:
        assert other.request("/login?token=x", host="hub.example").status == 403
        assert other.request("/login?token=x", host="hub.example.evil").status == 421
    finally:
        other.end()


def test_requests_of_other_sites_change_nothing(yard: Yard, inside: Ui, gate_run: None) -> None:
    own = f"http://127.0.0.1:{inside.port}"
    for origin in ("http://evil.example", "null", own + ".evil.example", own[:-1], "127.0.0.1", ""):
        assert inside.request("/api/v1/runs/1/stop", "POST", origin=origin).status == 403
    assert inside.request("/api/v1/runs/1/stop", "POST").status == 403
    assert inside.request("/api/v1/runs/1/stop").status == 405  # a link or an image
    assert yard.state() == "running"
    assert inside.post("/api/v1/runs/1/stop").status == 204
    wait_for(lambda: yard.state() == "stopped", "the run was not stopped")


def test_browsers_are_told_to_run_our_own_scripts_only(inside: Ui) -> None:
    for path in ("/", "/api/v1/runs", "/assets/app.js", "/nowhere"):
        headers = inside.request(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and headers["X-Content-Type-Options"] == "nosniff"


# ---- the API ---------------------------------------------------------------------------------------------------------

def test_runs_are_those_of_ls(yard: Yard, inside: Ui, gate_run: None) -> None:
    yard.run("run", "--oversubscribe", "--grid", "y=1..3", "--", "sh", "-c", "[ {y} -ne 2 ]", rc=1)
    runs = inside.get("/api/v1/runs")
    assert runs["runs"] == json.loads(yard.run("ls", "--json").stdout) and runs["project"] == str(yard.project)
    assert [(r["state"], r["failed"]) for r in runs["runs"]] == [("done", 1), ("running", 0)]
    one = inside.get("/api/v1/runs/digits")
    assert (one["run"], one["best_trial"], one["best_value"], one["done"]) == (1, 3, 0.3, 3)


def test_trials_come_in_pages(inside: Ui, gate_run: None) -> None:
    def numbers(query: str) -> list[int]:
        page = inside.get(f"/api/v1/runs/1/trials{query}")
        assert page["count"] == 5
        return [t["number"] for t in page["trials"]]

    assert numbers("") == [1, 2, 3, 4, 5]
    assert numbers("?sort=value&limit=3") == [3, 2, 1]
    assert numbers("?offset=2&limit=2") == [3, 4] and numbers("?offset=9") == [] and numbers("?limit=0") == []
    [first] = inside.get("/api/v1/runs/1/trials?limit=1")["trials"]
    assert (first["params"], first["value"], first["state"]) == ({"x": 1}, 0.1, "done")


def test_columns_have_all_trials_and_null_for_what_is_missing(yard: Yard, inside: Ui, gate_run: None) -> None:
    columns = inside.get("/api/v1/runs/1/columns")
    assert (columns["number"], columns["state"]) == ([1, 2, 3, 4, 5], "dddrr")
    assert columns["value"] == [0.1, 0.2, 0.3, None, None] and columns["params"] == {"x": [1, 2, 3, 4, 5]}
    assert [s is None for s in columns["seconds"]] == [False, False, False, True, True]
    yard.run("run", "--oversubscribe", "--", "true")
    assert inside.get("/api/v1/runs/2/columns")["params"] == {}


def test_a_trial_has_its_attempts_and_reported_values(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--retries", "1", "--max", "acc", "--", "sh", "-c",
             "hopyard report acc=0.5 loss=2 step=1; hopyard report acc=0.75 step=2; exit 3", rc=1)
    trial = inside.get("/api/v1/runs/1/trials/1")
    assert trial["state"] == "failed" and [a["exit_code"] for a in trial["attempts"]] == [3, 3]
    assert all(a["state"] == "failed" and a["agent"] == "local" and a["ended"] >= a["started"] for a in trial["attempts"])
    assert trial["metrics"]["acc"]["step"] == [1, 2, 1, 2] and trial["metrics"]["acc"]["attempt"] == [1, 1, 2, 2]
    assert trial["metrics"]["acc"]["value"] == [0.5, 0.75, 0.5, 0.75] and trial["metrics"]["loss"]["value"] == [2, 2]


def test_output_is_followed_until_the_trial_is_over(yard: Yard, inside: Ui) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--", "sh", "-c", f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo last; echo no >&2")
    wait_for(lambda: inside.request("/api/v1/runs/1/trials/1/output/stdout").body == b"first\n", "no output")
    early = inside.connect()  # stderr does not exist yet
    early.sendall(f"GET /api/v1/runs/1/trials/1/output/stderr?follow=1 HTTP/1.1\r\nHost: localhost:{inside.port}\r\n"
                  f"Cookie: {inside.cookie}\r\n\r\n".encode())
    path = "/api/v1/runs/1/trials/1/output/stdout?follow=1"
    with inside.connect() as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{inside.port}\r\nCookie: {inside.cookie}\r\n\r\n".encode())
        stream = s.makefile("rb")
        while stream.readline().strip():
            pass
        assert stream.readline() == b"first\n"
        gate.touch()
        assert stream.readline() == b"last\n"
        assert stream.read() == b""  # the server closes it: the trial is over
    with early, early.makefile("rb") as stream:
        assert stream.read().endswith(b"\r\n\r\nno\n")
    assert inside.request("/api/v1/runs/1/trials/1/output/stdout?offset=6").body == b"last\n"
    assert inside.request("/api/v1/runs/1/trials/1/output/stderr").body == b"no\n"


def test_output_that_is_a_link_is_not_followed(yard: Yard, inside: Ui) -> None:
    """A trial can put anything in place of its output; root's page would show any file of the machine."""
    secret = yard.project.parent / "secret"
    secret.write_text("secret")
    yard.run("run", "--", "sh", "-c", f"rm -f stdout stderr; ln -s {secret} stdout; mkfifo stderr")
    folder = next(yard.logdir().iterdir())
    for name, make in (("stdout", lambda p: p.symlink_to(secret)), ("stderr", lambda p: os.mkfifo(p))):
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        reply = inside.request(f"/api/v1/runs/1/trials/1/output/{name}")
        assert reply.status == 403 and b'secret"' not in reply.body and b"secret\n" not in reply.body
    outside = yard.project.parent / "outside"
    shutil.move(folder, outside)
    (outside / "stdout").unlink()
    (outside / "stdout").write_text("secret")
    folder.symlink_to(outside)
    assert inside.request("/api/v1/runs/1/trials/1/output/stdout").status == 403


@pytest.mark.parametrize(("path", "status", "words"), [
    ("/api/v1/runs/1/trials/9", 404, "run 1 has no trial 9"),
    ("/api/v1/runs/1/trials/x", 404, "'x' is not the number of a trial"),
    ("/api/v1/runs/1/trials/1/output/run.db", 404, "stdout or stderr, not 'run.db'"),
    ("/api/v1/runs/1/trials/1/output/stdout?offset=x", 400, "'offset' is a number"),
    ("/api/v1/runs/7", 404, "no run '7' here"),
    ("/api/v1/runs/nobody/trials", 404, "nobody"),
    ("/api/v1/runs/1/trials?limit=many", 400, "'limit' is a number up to 10000, not 'many'"),
    ("/api/v1/runs/1/trials?offset=-1", 400, "'offset' is a number"),
    ("/api/v1/runs/1/trials?sort=color", 400, "'sort' is number or value, not 'color'"),
    ("/api/v1/nothing", 404, "there is no '/api/v1/nothing'"),
    ("/assets/nothing.js", 404, "there is no '/assets/nothing.js'"),
    ("/api/v1/../../etc/passwd", 400, "segment '.' or '..'"),
])
def test_mistakes_are_explained(yard: Yard, inside: Ui, path: str, status: int, words: str) -> None:
    yard.run("run", "--", "true")
    reply = inside.request(path)
    assert reply.status == status and words in reply.json()["error"], reply.body


def test_replies_are_as_the_openapi_file_says(yard: Yard, inside: Ui, gate_run: None) -> None:
    yard.run("run", "--oversubscribe", "--retries", "1", "--", "sh", "-c", "hopyard report loss=2 step=1; exit 3", rc=1)
    description = yaml.safe_load((Path(__file__).parents[2] / "docs/openapi.yaml").read_text())
    checked = set()
    for path, operations in description["paths"].items():
        reply = operations.get("get", {}).get("responses", {}).get("200", {})
        schema = reply.get("content", {}).get("application/json", {}).get("schema")
        if not schema:
            continue
        checker = jsonschema.Draft202012Validator({**schema, "components": description["components"]})
        for run, trial in (("1", "1"), ("1", "5"), ("2", "1")):
            checker.validate(inside.get("/api/v1" + path.replace("{run}", run).replace("{trial}", trial)))
        checked.add(path)
    assert checked == {"/runs", "/runs/{run}", "/runs/{run}/trials", "/runs/{run}/columns", "/runs/{run}/trials/{trial}"}
    failure = description["components"]["responses"]["Failure"]["content"]["application/json"]["schema"]
    jsonschema.validate(inside.request("/api/v1/runs/9").json(), failure)


def test_an_event_is_sent_when_the_store_changes(yard: Yard, inside: Ui) -> None:
    with inside.connect() as s:
        s.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost:{inside.port}\r\nCookie: {inside.cookie}\r\n\r\n".encode())
        stream = s.makefile("r")

        def next_event() -> str:
            return next(line for line in stream if line.startswith("event: ")).strip()

        assert next_event() == "event: change"  # what it is now
        for count in (1, 2, 3):
            yard.run("run", "--", "true")
            yard.wait_idle()  # the last process that closes the store removes its -wal file
            seen: list[str] = []
            while seen != ["done"] * count:  # what the page asks for at each event
                assert next_event() == "event: change"
                seen = [r["state"] for r in inside.get("/api/v1/runs")["runs"]]


def test_the_page_is_compressed_and_cached_by_its_contents(inside: Ui) -> None:
    for path, words in (("/", b"<title>hopyard</title>"), ("/runs/1?sort=number", b"<title>hopyard</title>"),
                        ("/assets/app.css", b"--accent"), ("/assets/app.js", b"/api/v1")):
        reply = inside.request(path)
        assert reply.status == 200 and words in gzip.decompress(reply.body)
        known = inside.request(path, if_none_match=reply.headers["ETag"])
        assert (known.status, known.body) == (304, b"")


# ---- clients that do not behave -----------------------------------------------------------------------------------------

def test_requests_on_one_connection_are_answered_in_their_order(inside: Ui) -> None:
    head = f"Host: localhost:{inside.port}\r\nCookie: {inside.cookie}\r\n"
    requests = "".join(f"{method} {path} HTTP/1.1\r\n{head}\r\n" for method, path in
                       (("GET", "/api/v1/runs"), ("HEAD", "/api/v1/runs"), ("GET", "/api/v1/runs/7"), ("PUT", "/login")))
    replies = inside.send(requests + f"GET /api/v1/nothing HTTP/1.1\r\n{head}Connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1\.1 (\d+) ", replies) == [b"200", b"200", b"404", b"403", b"404"]
    assert replies.count(b'"runs":[]') == 1


@pytest.mark.parametrize(("text", "status"), [
    ("nonsense\r\n\r\n", 400),
    ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: HOST\r\n" + "X: y\r\n" * 200 + "\r\n", 431),
    ("GET /" + "a" * 40000, 431),
    ("POST /logout HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
    ("POST /api/v1/runs/1/stop HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\nCookie: COOKIE\r\nContent-Length: 1001\r\n\r\n", 413),
    ("POST /api/v1/runs/1/stop HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\nCookie: COOKIE\r\n"
     "Content-Length: 18446744073709551615\r\n\r\n", 413),
])
def test_malformed_and_long_requests_are_refused_and_disconnected(inside: Ui, text: str, status: int) -> None:
    reply = inside.send(text.replace("HOST", f"localhost:{inside.port}").replace("COOKIE", inside.cookie))
    assert reply.startswith(f"HTTP/1.1 {status} ".encode()) and b'{"error":"' in reply
    assert inside.get("/api/v1/runs")["runs"] == []


def test_slow_and_silent_clients_do_not_hold_others_up(inside: Ui) -> None:
    with ExitStack() as stack:
        for i in range(600):  # more than the server keeps
            s = stack.enter_context(inside.connect())
            if i % 2:
                s.sendall(b"GET /api/v1/runs HTTP/1.1\r\nHo")
        for _ in range(20):
            assert inside.get("/api/v1/runs")["runs"] == []
        body = stack.enter_context(inside.connect())
        body.sendall(f"POST /api/v1/runs/1/stop HTTP/1.1\r\nHost: localhost:{inside.port}\r\nCookie: {inside.cookie}\r\n"
                     f"Origin: http://localhost:{inside.port}\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert inside.get("/api/v1/runs")["runs"] == []
        body.close()
        assert inside.get("/api/v1/runs")["runs"] == []


def test_a_client_that_reads_nothing_uses_a_bounded_amount_of_memory(yard: Yard, inside: Ui) -> None:
    """It asks for the page again and again: the server answers no further request before it has sent a reply."""
    request = f"GET /assets/app.js HTTP/1.1\r\nHost: localhost:{inside.port}\r\n\r\n".encode()
    with inside.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(2)
        with pytest.raises(TimeoutError):
            for _ in range(100000):
                s.sendall(request * 100)
        assert inside.get("/api/v1/runs")["runs"] == []


# ---- the program ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_whoever_is_connected(inside: Ui, number: int) -> None:
    with inside.connect() as idle, inside.connect() as live:
        live.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost:{inside.port}\r\nCookie: {inside.cookie}\r\n\r\n".encode())
        assert live.recv(8) == b"HTTP/1.1"
        inside.end(number)
        assert idle.recv(1) == b""


def test_a_port_in_use_is_replaced_only_where_none_was_asked_for(yard: Yard, ui: Ui) -> None:
    taken = yard.run("ui", "--no-browser", "--port", str(ui.port), rc=1)
    assert f"cannot listen on 127.0.0.1 port {ui.port}: Address already in use" in taken.stderr
    wrong = yard.run("ui", "--port", "many", rc=2)
    assert "--port takes a number from 0 (any free port) to 65535, not 'many'" in wrong.stderr


def test_a_store_that_is_replaced_is_read_anew(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--name", "old", "--", "true")
    assert [r["name"] for r in inside.get("/api/v1/runs")["runs"]] == ["old"]
    yard.wait_idle()
    for path in yard.folder.glob("store.db*"):
        path.unlink()
    yard.run("run", "--name", "new", "--", "true")
    assert [r["name"] for r in inside.get("/api/v1/runs")["runs"]] == ["new"]
