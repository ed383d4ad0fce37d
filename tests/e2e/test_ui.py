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
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import jsonschema
import openapi
import pytest
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


def test_the_browser_is_opened_without_the_login_in_a_command_line(yard: Yard) -> None:
    (yard.project / "bin").mkdir()
    opened, copy = yard.project / "opened", yard.project / "copy"
    program = yard.script("bin/xdg-open", f'cp "$1" {copy} && printf %s "$1" >{opened}.new && mv {opened}.new {opened}\n')
    yard.env |= {"DISPLAY": ":99", "PATH": f"{program.parent}:{yard.env['PATH']}"}
    ui = Ui(yard, browser=True)
    wait_for(opened.exists, "the browser is opened")
    page = Path(opened.read_text())
    assert page.parent == yard.runtime / "hopyard" and page.stat().st_mode & 0o777 == 0o600
    assert ui.login in copy.read_text()
    ui.log_in()
    assert not page.exists()
    end(ui)


def test_nothing_of_a_project_is_shown_without_a_login(ui: Ui, gate_run: None) -> None:
    for cookie in ("", f"hopyard-{ui.port}=", f"hopyard-{ui.port}={'0' * 64}", f"hopyard-{ui.port}={'0' * 6000}"):
        for path in ("/api/v1/runs", "/api/v1/runs/1", "/api/v1/runs/1/trials", "/api/v1/events"):
            reply = ui.request(path, cookie=cookie)
            assert reply.status == 401 and b"digits" not in reply.body
        assert ui.post("/api/v1/runs/1/stop", cookie=cookie).status == 401
    assert ui.request("/").status == 200 and b"digits" not in ui.request("/").body


def test_a_cookie_set_by_a_script_of_an_app_does_not_break_the_session(inside: Ui) -> None:
    """Cookies do not depend on ports: such a script can set one of our name for a path, and the browser sends it first."""
    name, shadow = f"hopyard-{inside.port}", "0" * 64
    for cookies in (f"{name}={shadow}; {inside.cookie}", f"{inside.cookie}; {name}={shadow}", f"{name}=; {name}; {inside.cookie}",
                    f"{name}={'0' * 6000}; {inside.cookie}", f"{name}={shadow}; " * 200 + inside.cookie):
        assert inside.request("/api/v1/runs", cookie=cookies).status == 200
    assert inside.request("/api/v1/runs", cookie=f"{name}={shadow}; x{inside.cookie}").status == 401
    assert inside.post("/logout", cookie=f"{name}={shadow}; {inside.cookie}").status == 204
    assert inside.request("/api/v1/runs").status == 401  # the session of either has ended


def test_a_logout_ends_the_session_and_its_streams(inside: Ui) -> None:
    with inside.connect() as s:
        s.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost:{inside.port}\r\nCookie: {inside.cookie}\r\n\r\n".encode())
        stream = s.makefile("rb")
        assert b" 200 " in stream.readline()
        assert inside.post("/logout").status == 204
        for _ in stream:  # until the server disconnects
            pass
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


# ---- proxies ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("url, origin", [("/user/ada/hopyard", None), ("https://hub.example/ada/", "https://hub.example")])
def test_the_page_works_below_the_path_of_a_proxy(yard: Yard, url: str, origin: str | None) -> None:
    base = url.removeprefix(origin or "").rstrip("/")
    server = Ui(yard, "--base-url", url)
    try:
        host = "hub.example" if origin else f"127.0.0.1:{server.port}"
        own = origin or f"http://{host}"
        for shown in (base, ""):  # a proxy keeps the path, or removes it
            login = server.request(shown + server.login, host=host)
            cookie = login.headers["Set-Cookie"]
            assert (login.status, login.headers["Location"]) == (303, base + "/")
            assert f"; Path={base}/;" in cookie and ("; Secure" in cookie) == (origin is not None)
            server.cookie = cookie.partition(";")[0]
            server.port, server.login = server.next_address()
            assert f'<base href="{base}/">'.encode() in server.request(shown + "/runs/3", host=host).body
            assert server.request(shown + "/assets/app.js", host=host).status == 200
            assert server.request(shown + "/api/v1/runs", host=host).json()["runs"] == []
            assert server.request(shown + "/api/v1/runs/7/stop", "POST", host=host, origin=own).status == 404
        assert server.request(base + "x/api/v1/runs", host=host).body.startswith(b"<!doctype html>")  # another path
        assert server.request(base + "/logout", "POST", host=host, origin="https://evil.example").status == 403
    finally:
        server.end()


@pytest.mark.parametrize("url", ["ada", "ftp://hub.example/", "https:///x", "/a b", "/a/../b", "//evil.example", '/"><script>'])
def test_a_base_url_is_checked(yard: Yard, url: str) -> None:
    assert "--base-url takes a path" in yard.run("ui", "--no-browser", "--base-url", url, rc=2).stderr


def test_other_addresses_need_a_flag(yard: Yard) -> None:
    refused = yard.run("ui", "--no-browser", "--listen", "0.0.0.0", rc=2).stderr
    assert "--listen 0.0.0.0 would send logins over the network as plain text" in refused and "ssh -L" in refused
    server = yard.start("ui", "--no-browser", "--port", "0", "--listen", "0.0.0.0", "--without-tls", "--allow-host", "hub")
    assert server.stdout
    lines = server.stdout.readline() + server.stdout.readline()
    port = int(re.search(r"listens on \S+:(\d+);", lines)[1])  # type: ignore[index]
    with socket.create_connection(("127.0.0.2", port), timeout=30) as s:  # not the address of loopback's name
        s.sendall(b"GET /api/v1/runs HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
        assert b" 401 " in s.makefile("rb").readline()
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=30) == 0


# ---- projects --------------------------------------------------------------------------------------------------------

def test_one_server_shows_all_projects_of_its_user(yard: Yard, inside: Ui, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    yard.run("run", "--name", "mine", "--", "true")
    yard.run("run", "--name", "theirs", "--project", str(other), "--", "echo", "hello")
    own, second = inside.get("/api/v1/projects")["projects"]
    assert (own["path"], own["is_own"]) == (str(yard.project), True)
    assert (second["name"], second["path"], second["is_own"]) == ("other", str(other), False)
    of_other = f"project={second['id']}"
    assert [r["name"] for r in inside.get("/api/v1/runs")["runs"]] == ["mine"]
    assert inside.get(f"/api/v1/runs?{of_other}")["runs"][0]["name"] == "theirs"
    assert inside.get(f"/api/v1/runs/1/trials/1?{of_other}")["state"] == "done"
    assert inside.request(f"/api/v1/runs/1/trials/1/output/stdout?{of_other}").body == b"hello\n"
    for endpoint in ("runs", "apps"):  # in the pool, and on the loop
        for wrong in ("0" * 16, "x", "..", ""):
            reply = inside.request(f"/api/v1/{endpoint}?project={wrong}")
            assert reply.status == 404 and "no project" in reply.json()["error"]
        assert inside.request(f"/api/v1/{endpoint}?project=%zz").status == 400
    fresh = Ui(yard)
    fresh.log_in()
    assert fresh.get(f"/api/v1/apps?{of_other}")["apps"] == []  # a bookmark: the list was not asked for yet
    fresh.end()
    shutil.rmtree(other)
    fresh = Ui(yard)
    fresh.log_in()
    assert [p["path"] for p in fresh.get("/api/v1/projects")["projects"]] == [str(yard.project)]
    fresh.end()


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
    assert columns["since"] == 0 and columns["messages"] == {} and all(s >= 0 for s in columns["start"])
    yard.run("run", "--oversubscribe", "--", "true")
    assert inside.get("/api/v1/runs/2/columns")["params"] == {}


def test_columns_since_a_reply_have_only_what_has_changed(yard: Yard, inside: Ui) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--parallel", "2", "--grid", "x=1..6", "--max", "acc", "--", "sh", "-c",
             f"echo acc={{x}}; [ {{x}} -ne 3 ] || exit 3; [ {{x}} -le 4 ] || while [ ! -e {gate} ]; do sleep 0.02; done")
    wait_for(lambda: sum(t["state"] in ("done", "failed") for t in yard.trials()) == 4, "four trials are not over")
    first = inside.get("/api/v1/runs/1/columns")
    assert (first["number"], first["state"], first["messages"]) == ([1, 2, 3, 4, 5, 6], "ddfdrr", {"3": "exit status 3"})
    seq = first["seq"]
    again = inside.get(f"/api/v1/runs/1/columns?since={seq}")
    assert (again["since"], again["seq"], sorted(again["number"]), again["state"]) == (seq, seq, [5, 6], "rr")
    gate.touch()
    wait_for(lambda: yard.state(1) == "done", "the run is not over")
    last = inside.get(f"/api/v1/runs/1/columns?since={seq}")
    assert last["seq"] > seq and sorted(last["number"]) == [5, 6] and last["state"] == "dd"
    assert sorted(last["params"]["x"]) == [5, 6] and sorted(last["value"]) == [5, 6]
    assert inside.get(f"/api/v1/runs/1/columns?since={last['seq']}")["number"] == []
    other = inside.get(f"/api/v1/runs/1/columns?since={last['seq'] + 1}")  # not of this run: all of it
    assert other["since"] == 0 and other["number"] == [1, 2, 3, 4, 5, 6]


def test_trials_are_sorted_by_any_column_with_those_that_lack_it_last(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--grid", "lr=0.1,0.02,0.003", "--grid", 'act=["relu", "Tanh"]', "--max", "acc", "--", "sh", "-c",
             "[ {lr}{act} != 0.1relu ] || exit 3; echo acc={lr}", rc=1)

    def order(query: str) -> list[int]:
        page = inside.get(f"/api/v1/runs/1/trials?{query}")
        return [t["number"] for t in page["trials"]]

    table = {t["number"]: (t["params"]["lr"], t["params"]["act"]) for t in inside.get("/api/v1/runs/1/trials")["trials"]}
    assert [table[n] for n in order("sort=param:lr&limit=3")] == [(0.003, "relu"), (0.003, "Tanh"), (0.02, "relu")]
    assert [table[n][1] for n in order("sort=-param:act")] == ["relu"] * 3 + ["Tanh"] * 3
    assert [table[n][0] for n in order("sort=value")] == [0.1, 0.02, 0.02, 0.003, 0.003, 0.1]  # the failed one is last
    assert [table[n][0] for n in order("sort=-value")] == [0.003, 0.003, 0.02, 0.02, 0.1, 0.1]
    assert order("sort=-number") == [6, 5, 4, 3, 2, 1] and order("sort=param:none") == [1, 2, 3, 4, 5, 6]
    [failed] = order("state=failed")
    assert table[failed] == (0.1, "relu") and order("sort=-state")[0] == failed
    assert inside.get("/api/v1/runs/1/trials?state=done&limit=2")["count"] == 5
    times = [t["elapsed_ms"] for t in inside.get("/api/v1/runs/1/trials?sort=-time")["trials"]]
    assert times == sorted(times, reverse=True)


def test_curves_of_the_best_trials_are_thinned_and_keep_their_ends(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--grid", "x=1..3", "--max", "acc", "--", "sh", "-c",
             "for s in 0 1 2 3 4 5 6 7 8 9; do hopyard report acc=0.{x}$s loss=$s step=$s; done")
    best = inside.get("/api/v1/runs/1/curves?best=2")
    assert (best["names"], best["name"], [c["trial"] for c in best["curves"]]) == (["acc", "loss"], "acc", [3, 2])
    assert best["curves"][0]["step"] == list(range(10)) and best["curves"][0]["value"][:2] == [0.3, 0.31]
    some = inside.get("/api/v1/runs/1/curves?trials=1,9&name=loss&points=4")
    assert [(c["trial"], c["step"], c["value"]) for c in some["curves"]] == [(1, [0, 3, 6, 9], [0, 3, 6, 9])]
    assert len(some["curves"][0]["time"]) == 4
    assert inside.get("/api/v1/runs/1/curves?name=none")["curves"] == []


def test_a_run_says_how_its_hyperparameters_are_chosen(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--evolve", "--generations", "1", "--space", "lr=log:0.001..0.1", "--space", "act=relu,tanh", "--max",
             "acc", "--", "sh", "-c", "echo acc={lr} {act}")
    search = inside.get("/api/v1/runs/1")["search"]
    assert (search["kind"], search["population"]) == ("evolve", 7)
    usual = {"log": False, "low": None, "high": None, "step": None, "mean": None, "deviation": None, "choices": [],
             "choice_count": 0, "condition": None}
    assert search["space"] == [
        {**usual, "name": "lr", "kind": "float", "log": True, "low": 0.001, "high": 0.1},
        {**usual, "name": "act", "kind": "category", "choices": ["relu", "tanh"], "choice_count": 2}]
    yard.run("run", "--grid", "lr=1,0.1,0.01", "--grid", 'n=["1", [2, 3], null]', "--", "echo", "{lr}", "{n}")
    lr, n = inside.get("/api/v1/runs/2")["search"]["space"]
    assert lr["log"] and lr["choices"] == ["1", "0.1", "0.01"] and not n["log"] and n["choices"] == ["1", "[2,3]", "null"]
    long = ",".join(f"v{i}" for i in range(150))
    yard.run("run", "--detach", "--grid", f"x={long}", "--", "true", "{x}")
    [x] = inside.get("/api/v1/runs/3")["search"]["space"]
    assert (x["choice_count"], x["choices"]) == (150, [f"v{i}" for i in range(100)])
    yard.run("run", "--random", "1", "--space", "opt=sgd,adam", "--space", "x=lognormal(0, 1) in ..9", "--space",
             "m=0..0.9 step 0.1 if opt == sgd", "--", "true", "{opt}{x}{m}")
    opt, x, m = inside.get("/api/v1/runs/4")["search"]["space"]
    assert x == {**usual, "name": "x", "kind": "float", "log": True, "high": 9, "mean": 0, "deviation": 1}
    assert (m["low"], m["high"], m["step"], m["condition"]) == (0, 0.9, 0.1, "opt == sgd")


def test_importance_has_the_share_of_each_hyperparameter_or_says_why_not(yard: Yard, inside: Ui, gate_run: None) -> None:
    few = inside.get("/api/v1/runs/1/importance")
    assert few["why"] == "at least 8 finished trials with a finite value are needed; there are 3"
    assert few["importance"] == few["pairs"] == [] and few["trials"] == few["used"] == 3
    yard.run("run", "--oversubscribe", "--parallel", "8", "--grid", "lr=1..6", "--grid", "act=relu,tanh", "--grid", 'units=[[8],[8,8]]',
             "--max", "acc", "--", "sh", "-c", "echo acc={lr}0; [ {act} = relu ] || echo acc={lr}2")
    known = inside.get("/api/v1/runs/2/importance")
    assert known["why"] is None and known["trials"] == known["used"] == 24 and "fANOVA" in known["method"]
    shares = {i["name"]: i["share"] for i in known["importance"]}
    assert list(shares) == ["lr", "act", "units"] and shares["lr"] > 0.9 and shares["units"] < 0.01
    assert known["pairs"][0]["names"] == ["lr", "act"] and 0 <= known["pairs"][0]["share"] < 0.05
    yard.run("run", "--oversubscribe", "--", "true")
    assert inside.get("/api/v1/runs/3/importance")["why"]


def test_a_trial_has_its_attempts_and_reported_values(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--retries", "1", "--max", "acc", "--", "sh", "-c",
             "hopyard report acc=0.5 loss=2 step=1; hopyard report acc=0.75 step=2; exit 3", rc=1)
    trial = inside.get("/api/v1/runs/1/trials/1")
    assert trial["state"] == "failed" and [a["exit_code"] for a in trial["attempts"]] == [3, 3]
    assert all(a["state"] == "failed" and a["agent"] == "local" and a["ended"] >= a["started"] for a in trial["attempts"])
    assert trial["metrics"]["acc"]["step"] == [1, 2, 1, 2] and trial["metrics"]["acc"]["attempt"] == [1, 1, 2, 2]
    assert trial["metrics"]["acc"]["value"] == [0.5, 0.75, 0.5, 0.75] and trial["metrics"]["loss"]["value"] == [2, 2]


def test_a_trial_of_an_imported_run_may_lack_a_directory(yard: Yard, inside: Ui) -> None:
    """Its store need not have been written by hopyard."""
    yard.run("run", "--", "true")
    yard.wait_idle()
    snapshot = shutil.copy(yard.folder / "runs/1.db", yard.project / "theirs.db")
    with sqlite3.connect(snapshot) as db:
        db.execute("UPDATE trials SET dir = NULL")
    db.close()
    yard.run("rm", "--force", "1")
    yard.run("import", str(snapshot))
    [run] = [r["run"] for r in inside.get("/api/v1/runs")["runs"]]
    assert inside.get(f"/api/v1/runs/{run}/trials/1")["state"] == "done"
    assert inside.request(f"/api/v1/runs/{run}/trials/1/output/stdout").status >= 400
    assert inside.request(f"/api/v1/runs/{run}/trials/1/files").status == 404
    yard.run("show", str(run))


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


def test_a_part_of_the_output_is_read_with_its_length(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--", "sh", "-c", "seq 1 300000")
    whole = "".join(f"{i}\n" for i in range(1, 300001)).encode()
    path = "/api/v1/runs/1/trials/1"
    assert inside.get(path)["output"] == {"stdout": len(whole), "stderr": 0}
    for query, part in (("", whole), ("?offset=1000000", whole[1000000:]), ("?offset=7&limit=12", whole[7:19]),
                        ("?limit=0", b""), ("?offset=99999999", b""), (f"?offset={len(whole) - 3}&limit=9", whole[-3:])):
        reply = inside.request(f"{path}/output/stdout{query}")
        assert reply.body == part and reply.headers["Content-Length"] == str(len(part))


def test_a_trial_that_has_printed_nothing_has_no_output_and_one_without_files_is_an_error(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--", "true")
    for query in ("", "?follow=1", "?offset=7&limit=9"):
        reply = inside.request(f"/api/v1/runs/1/trials/1/output/stdout{query}")
        assert (reply.status, reply.body) == (200, b"")
    shutil.rmtree(yard.logdir())
    reply = inside.request("/api/v1/runs/1/trials/1/output/stdout")
    assert reply.status == 404 and "No such file or directory" in reply.json()["error"]


def test_output_is_searched_in_both_directions(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--", "sh", "-c", "seq 1 400000; echo ValueError: one; seq 1 400000; echo 'Needle nEEdle'; echo tail")
    base = "/api/v1/runs/1/trials/1/output/stdout"
    text = inside.request(base).body
    first, second = text.index(b"Needle"), text.index(b"nEEdle")

    def find(query: str) -> tuple[int | None, int | None]:
        found = inside.get(f"{base}/search?{query}")
        return found["found"], found["next"]

    assert find("") == (text.index(b"Error:"), None)  # the first failure, in any case
    assert find("text=needle") == (first, None) and find(f"text=NEEDLE&offset={first + 1}") == (second, None)
    assert find(f"text=needle&backward=1&offset={second}") == (first, None)
    assert find("text=needle&backward=1&offset=999999999") == (second, None)
    assert find(f"text=needle&offset={second + 1}") == (None, None) == find(f"text=needle&backward=1&offset={first}")
    border = text[(1 << 20) - 3:(1 << 20) + 4].decode().replace("\n", "%0A")  # on the border of two chunks
    assert find(f"text={border}")[0] == text.index(text[(1 << 20) - 3:(1 << 20) + 4])
    assert inside.request(f"{base}/search?text=").status == 400 and inside.request(f"{base}/search?text={'x' * 1001}").status == 400
    assert inside.request("/api/v1/runs/1/trials/1/output/stderr/search").json() == {"found": None, "next": None}


@pytest.mark.parametrize("failure", [
    "Traceback (most recent call last)", "ValueError: 3 is not a shape", "a.c:3: error: no such file", "ERROR:root:disk full",
    "26/11/19 ERROR SparkContext: lost", "java.lang.RuntimeException: x", "Segmentation fault", "[ERROR] y"])  # fmt: skip
def test_the_first_error_is_not_a_metric(yard: Yard, inside: Ui, failure: str) -> None:
    metrics = "mean_absolute_error: 0.41 - val_error: 3e-2\nValidation error: 0.2\nMean Squared Error: 12\nerror code 0\nterror: none\n"
    (yard.project / "out").write_text(metrics + failure + "\n")
    yard.run("run", "--", "cat", "out")
    reply = inside.get("/api/v1/runs/1/trials/1/output/stdout/search")
    found = (metrics + failure)[reply["found"]:]
    assert reply["found"] >= len(metrics) - 1 and found, (found, reply)


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
    ("/api/v1/runs/1/trials/1/output/stdout?offset=x", 400, "'offset' must be a number"),
    ("/api/v1/runs/7", 404, "no run '7' here"),
    ("/api/v1/runs/nobody/trials", 404, "nobody"),
    ("/api/v1/runs/1/trials?limit=many", 400, "'limit' must be a number up to 10000, not 'many'"),
    ("/api/v1/runs/1/trials?offset=-1", 400, "'offset' must be a number"),
    ("/api/v1/runs/1/trials?sort=color", 400, "'sort' must be number, value, state, time or param:NAME"),
    ("/api/v1/runs/1/trials?sort=param:%22", 400, "cannot sort by the hyperparameter '\"'"),
    ("/api/v1/runs/1/trials?state=odd", 400, "'state' must be running, done, failed, stopped, pruned or paused, not 'odd'"),
    ("/api/v1/runs/1/columns?since=x", 400, "'since' must be a number"),
    ("/api/v1/runs/1/curves?trials=1,x", 400, "check 'x'"),
    ("/api/v1/runs/1/curves?trials=" + ",".join(["1"] * 101), 400, "at most 100 trial numbers"),
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
    checked = set()
    for path, operations in openapi.description()["paths"].items():
        reply = operations.get("get", {}).get("responses", {}).get("200", {})
        if "application/json" not in reply.get("content", {}) or path.endswith("/preview"):  # test_ui_files.py has files to preview
            continue
        for run, trial in (("1", "1"), ("1", "5"), ("2", "1")):
            inside.get("/api/v1" + path.replace("{run}", run).replace("{trial}", trial).replace("{stream}", "stdout"))  # it checks
        checked.add(path)
    assert {"/projects", "/runs", "/runs/{run}", "/runs/{run}/trials/{trial}"} <= checked
    with pytest.raises(jsonschema.ValidationError):
        openapi.check_exchange("GET", "/api/v1/runs", None, 200, "application/json", b'{"project": "x", "runs": [{"run": 1}]}')


def test_every_endpoint_of_the_server_is_in_the_openapi_file() -> None:
    """The table of routes in src/web/site.c, and nothing else."""
    source = (Path(__file__).parents[2] / "src/web/site.c").read_text()
    entry = r'(?:(GET|POST|PATCH)\(|\.method = HY_HTTP_(\w+),\s+\.path = )"/api/v1([^"]*)"'
    routes = {(a or b, re.sub(":", "{}", path)) for a, b, path in re.findall(entry, source)}
    described = {(method.upper(), re.sub(r"\{\w+\}", "{}", path)) for path, operations in openapi.description()["paths"].items()
                 for method in operations if method not in ("parameters", "description")}
    assert routes == described


# ---- changes ---------------------------------------------------------------------------------------------------------

def test_labels_of_a_finished_run_are_in_its_snapshot(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--name", "digits", "--grid", "x=1,2", "--", "true")
    yard.wait_idle()
    run = "/api/v1/runs/1"
    changes = [(run, {"name": "renamed", "tags": ["keep"]}), (run, {"note": "a baseline"}), (f"{run}/trials/2", {"tags": ["odd"]})]
    with ThreadPoolExecutor(3) as pool:  # at once: the last snapshot has all of them
        assert [r.status for r in pool.map(lambda c: inside.change(c[0], "PATCH", c[1]), changes)] == [204] * 3
    inside.end()
    assert not list(yard.folder.glob("runs/*.tmp"))
    for file in yard.folder.glob("store.db*"):
        file.unlink()
    yard.run("import", yard.folder / "runs/1.db")
    again = Ui(yard)
    try:
        again.log_in()
        shown = again.get(run)
        assert (shown["name"], shown["tags"], shown["note"]) == ("renamed", ["keep"], "a baseline")
        assert shown["trial_labels"] == {"2": {"tags": ["odd"], "note": None}}
    finally:
        end(again)


def test_runs_and_trials_get_names_tags_and_notes(yard: Yard, inside: Ui, gate_run: None) -> None:
    run = "/api/v1/runs/1"
    assert inside.change(run, "PATCH", {"name": "renamed", "tags": ["a", "b"], "note": "look\nagain"}).status == 204
    assert inside.change(f"{run}/trials/2", "PATCH", {"tags": ["odd"]}).status == 204
    assert inside.change(f"{run}/trials/2", "PATCH", {"note": "why?"}).status == 204  # the tags stay
    shown = inside.get(run)
    assert (shown["name"], shown["tags"], shown["note"]) == ("renamed", ["a", "b"], "look\nagain")
    assert shown["trial_labels"] == {"2": {"tags": ["odd"], "note": "why?"}}
    assert (shown["kind"], shown["engine"]) == ("grid", "local")
    assert json.loads(yard.run("ls", "--json").stdout)[0]["tags"] == ["a", "b"]
    assert inside.change(run, "PATCH", {"name": None, "tags": [], "note": ""}).status == 204
    assert inside.get(run)["name"] is None and inside.get(run)["tags"] == []
    assert inside.get("/api/v1/runs/1")["state"] == "running"  # its driver continues


@pytest.mark.parametrize("value", [{"name": 1}, {"name": "x" * 201}, {"tags": "a"}, {"tags": [1]}, {"tags": [""]},
                                   {"tags": ["x"] * 33}, {"note": ["x"]}, {"state": "done"}, [], "x", 7])
def test_an_invalid_label_is_refused(yard: Yard, inside: Ui, value: object) -> None:
    yard.run("run", "--name", "kept", "--", "true")
    assert inside.change("/api/v1/runs/1", "PATCH", value).status == 400
    assert inside.get("/api/v1/runs/1")["name"] == "kept"
    assert inside.change("/api/v1/runs/1/trials/9", "PATCH", {"note": "x"}).status == 404
    assert inside.change("/api/v1/runs/9", "PATCH", {"note": "x"}).status == 404
    assert inside.change("/api/v1/runs/1/trials/1", "PATCH", {"name": "x"}).status == 400


def test_a_run_is_started_resumed_and_removed(yard: Yard, inside: Ui) -> None:
    gate = yard.project / "gate"
    started = inside.change("/api/v1/runs", "POST", {"command": ["sh", "-c", f"[ -e {gate} ] && echo acc=0.{{x}}"],
                                                     "options": [["grid", "x=1..2"], ["max", "acc"], ["name", "by hand"]]})
    assert (started.status, started.json()) == (201, {"run": 1})
    wait_for(lambda: [t["state"] for t in yard.trials()] == ["failed", "failed"], "two trials have not failed")
    yard.wait_idle()
    gate.touch()
    assert inside.change("/api/v1/runs/1/resume", "POST").status == 201
    wait_for(lambda: [t["state"] for t in yard.trials()] == ["done", "done"], "it was not resumed")
    yard.wait_idle()
    logdir = inside.get("/api/v1/runs/1")["logdir"]
    assert os.path.exists(logdir)
    assert inside.change("/api/v1/runs/1", "DELETE").status == 204
    assert inside.get("/api/v1/runs")["runs"] == [] and not os.path.exists(logdir)
    assert inside.change("/api/v1/runs/1", "DELETE").status == 404


def test_a_running_run_is_not_removed(yard: Yard, inside: Ui, gate_run: None) -> None:
    reply = inside.change("/api/v1/runs/1", "DELETE")
    assert reply.status == 409 and "stop it first" in reply.json()["error"] and yard.state() == "running"
    assert inside.change("/api/v1/runs/1/resume", "POST").status == 400


@pytest.mark.parametrize("value, option", [
    ({"command": ["true"], "options": [["parallel", "many"]]}, "parallel"),
    ({"command": ["true"], "options": [["memory", "much"]]}, "memory"),
    ({"command": ["true"], "options": [["colour", "red"]]}, None),
])
def test_a_run_that_cannot_be_started_names_the_option(yard: Yard, inside: Ui, value: object, option: str | None) -> None:
    reply = inside.change("/api/v1/runs", "POST", value)
    assert reply.status == 400 and reply.json()["error"], reply.body
    assert reply.json()["option"] == option
    assert inside.get("/api/v1/runs")["runs"] == []


@pytest.mark.parametrize("value", [{}, {"command": "true", "options": []}, {"command": [], "options": []},
                                   {"command": ["true", 1], "options": []}, {"command": ["true"], "options": [["x"]]},
                                   {"command": ["true"], "options": [["project", "/tmp"]]}])
def test_a_malformed_start_request_is_refused(inside: Ui, value: object) -> None:
    assert inside.change("/api/v1/runs", "POST", value).status == 400


def test_scripts_and_notebooks_of_a_project_are_listed(yard: Yard, inside: Ui) -> None:
    for path in ("train.py", "Jupyter/tour.ipynb", "a/b/c/deep.sh", "a/b/c/d/too_deep.py", ".hidden/x.py", "Logs/x.py",
                 "data.csv", "venv/lib.py"):
        (yard.project / path).parent.mkdir(parents=True, exist_ok=True)
        (yard.project / path).touch()
    (yard.project / "linked.py").symlink_to("/etc/passwd")
    (yard.project / "loop").symlink_to(".")
    assert inside.get("/api/v1/scripts")["scripts"] == ["Jupyter/tour.ipynb", "a/b/c/deep.sh", "train.py"]


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


def test_no_event_is_sent_while_nothing_changes(yard: Yard, inside: Ui) -> None:
    yard.run("run", "--", "true")
    yard.wait_idle()
    with inside.connect() as s:
        s.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost:{inside.port}\r\nCookie: {inside.cookie}\r\n\r\n".encode())
        events = (line.strip() for line in s.makefile("r") if line.startswith("event: "))
        assert next(events) == "event: change"  # what it is now
        assert inside.get("/api/v1/runs/1")["state"] == "done"
        assert next(events) == "event: ping"  # after 15 seconds


def test_the_page_is_compressed_and_cached_by_its_contents(inside: Ui) -> None:
    for path in ("/", "/runs/1?sort=number"):
        assert b'<base href="/">' in inside.request(path).body
    for path, words in (("/assets/app.css", b"--accent"), ("/assets/app.js", b"api/v1")):
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
