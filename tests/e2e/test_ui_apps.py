# SPDX-License-Identifier: Apache-2.0
"""Apps behind the page: what their port lets in, what the proxy passes on, and how they start and end."""
from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest
from apps import App, receive_all, start, use_echo_app, wait_started
from conftest import Yard, wait_for
from hdfs import Hdfs
from ui import Ui, end

MB = 1 << 20


@pytest.fixture
def ui(yard: Yard) -> Iterator[Ui]:
    use_echo_app(yard)
    yard.run("run", "--max", "acc", "--", "echo", "acc=1")
    server = Ui(yard)
    server.log_in()
    yield server
    end(server)
    assert processes(yard) == {}


@pytest.fixture
def app(ui: Ui) -> App:
    app = App(ui)
    app.log_in()
    return app


def processes(yard: Yard) -> dict[int, str]:
    return dict(yard.processes(r"echo_app\.py|path_prefix"))


def peak(ui: Ui) -> int:
    """The most memory that the server has used, in bytes."""
    status = Path(f"/proc/{ui.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


# ---- access ----------------------------------------------------------------------------------------------------------

def test_a_ticket_enters_once_and_its_cookie_is_for_this_port_only(ui: Ui) -> None:
    app = App(ui)
    path = app.enter.partition(app.url.netloc)[2]
    assert app.port != ui.port and path.startswith("/enter?ticket=")
    reply = app.log_in()
    cookie = reply.headers["Set-Cookie"]
    assert reply.headers["Location"] == app.url.path == f"/tensorboard/{app.row['id']}/"
    assert cookie.startswith(f"hopyard-apps-{app.port}=") and cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert app.request("echo").status == 200
    app.cookie = ""
    assert app.request(path).status == 403
    assert app.request("/enter?ticket=" + "0" * 64).status == 403 and app.request("/enter").status == 403


def test_the_page_and_the_apps_do_not_accept_each_others_cookies(ui: Ui, app: App) -> None:
    assert app.request("echo", cookie=ui.cookie).status == 401
    assert app.request("echo", cookie="").status == 401
    value = app.cookie.partition("=")[2]
    for cookie in (app.cookie, f"hopyard-{ui.port}={value}"):
        assert ui.request("/api/v1/runs", cookie=cookie).status == 401
    assert app.request("echo", cookie=f"hopyard-apps-{app.port}={ui.cookie.partition('=')[2]}").status == 401


def test_a_logout_of_the_page_logs_out_of_the_apps(ui: Ui, app: App) -> None:
    assert app.request("echo").status == 200
    with app.switch("socket") as s:
        assert ui.post("/logout").status == 204
        assert s.recv(1) == b""
    assert app.request("echo").status == 401
    ui.cookie = ""


def test_tickets_are_for_the_page_alone(ui: Ui, app: App) -> None:
    """A script of an app has the apps' origin, and the browser adds the page's cookie to what it sends."""
    for headers in ({"origin": app.origin}, {}, {"origin": "null"}):
        assert ui.request(f"/api/v1/apps/{app.row['id']}/open", "POST", **headers).status == 403
        assert ui.request("/api/v1/apps/tensorboard?runs=1", "POST", **headers).status == 403
        assert ui.request(f"/api/v1/apps/{app.row['id']}", "DELETE", **headers).status == 403
    cookie, ui.cookie = ui.cookie, ""
    assert ui.post(f"/api/v1/apps/{app.row['id']}/open").status == 401
    ui.cookie = cookie


def test_a_script_of_an_app_cannot_use_the_pages_session(ui: Ui, app: App) -> None:
    """It is on the same site, so the browser sends the cookie, together with the origin of the request."""
    for mode in ("cors", "no-cors", "websocket"):
        reply = ui.request("/api/v1/runs", sec_fetch_site="same-site", sec_fetch_mode=mode, origin=app.origin)
        assert reply.status == 403 and "Access-Control-Allow-Origin" not in reply.headers
    headers = ui.request("/api/v1/runs", sec_fetch_site="same-origin", sec_fetch_mode="cors").headers
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin" and "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_the_port_of_apps_knows_its_names_and_origins(ui: Ui, app: App) -> None:
    for host in ("evil.example", f"127.0.0.1:{ui.port}", "127.0.0.1", f"evil.example:{app.port}"):
        assert app.request("echo", host=host).status == 421
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{ui.port}", f"http://localhost:{app.port}"):
        assert app.request("echo", "POST", "x", origin=origin).status == 403
        upgrade = app.request("socket", connection="Upgrade", upgrade="websocket", origin=origin)
        assert upgrade.status == 403
    assert app.request("echo", "POST", "x").status == 403
    assert app.request("socket", connection="Upgrade", upgrade="websocket").status == 403
    assert app.request("echo", "POST", "x", origin=app.origin).status == 200
    assert app.request("echo", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status == 403
    assert app.request("echo", sec_fetch_site="same-site", sec_fetch_mode="navigate").status == 200


def test_the_page_may_frame_apps_and_no_other_origin_may(ui: Ui, app: App) -> None:
    page = f"http://127.0.0.1:{ui.port}"
    assert f"frame-src {app.origin}" in ui.request("/").headers["Content-Security-Policy"]
    by_name = ui.request("/", host=f"localhost:{ui.port}").headers["Content-Security-Policy"]
    assert f"frame-src http://localhost:{app.port}" in by_name
    reply = app.request("raw?" + quote(
        "HTTP/1.1 200 OK\r\nX-Frame-Options: DENY\r\nAccess-Control-Allow-Origin: *\r\nClear-Site-Data: \"cookies\"\r\n"
        "Content-Security-Policy: default-src 'self'; Frame-Ancestors *; img-src data:, frame-ancestors 'none'\r\n"
        "Service-Worker-Allowed: /\r\nX-Own: kept\r\n\r\nbody"))
    assert reply.body == b"body" and reply.headers["X-Own"] == "kept"
    assert reply.headers.get_all("Content-Security-Policy") == [
        "default-src 'self';; img-src data:,", f"frame-ancestors 'self' {page}"]
    for name in ("X-Frame-Options", "Access-Control-Allow-Origin", "Clear-Site-Data", "Service-Worker-Allowed"):
        assert name not in reply.headers
    assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert f"frame-ancestors {page}" in app.request("/nowhere").headers["Content-Security-Policy"]


# ---- what the proxy passes on ----------------------------------------------------------------------------------------

def test_an_app_sees_neither_our_cookies_nor_fields_of_the_connection(ui: Ui, app: App) -> None:
    cookies = f'a=1; {ui.cookie}; {app.cookie};b="x; hopyard-1=y"; =hopyard-2=z; HOPYARD-3=u; c=hopyard-4'
    reply = app.request("echo?q=%20&x", "POST", "abc", cookie=cookies, origin=app.origin, authorization="Basic eA==",
                        x_forwarded_for="1.2.3.4", x_real_ip="1.2.3.4", connection="close, x-mine", x_mine="1", te="trailers",
                        x_kept="yes", expect="100-continue")
    head = reply.json()["head"]
    assert head[0] == f"POST {app.url.path}echo?q=%20&x HTTP/1.1" and reply.json()["body"] == 3
    fields = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in head[1:]}
    assert len(fields) == len(head) - 1, "each field once"
    assert fields["cookie"] == 'a=1; b="x; c=hopyard-4'
    assert fields["host"] == fields["x-forwarded-host"] == f"127.0.0.1:{app.port}" and fields["x-forwarded-proto"] == "http"
    assert fields["authorization"].startswith("token ") and len(fields["authorization"]) == 6 + 64
    assert fields["connection"] == "close" and fields["x-kept"] == "yes" and fields["content-length"] == "3"
    assert not {"x-forwarded-for", "x-real-ip", "x-mine", "te", "expect", "keep-alive", "upgrade"} & set(fields)
    assert ui.cookie.partition("=")[2] not in str(head)


def test_an_app_cannot_set_our_cookies(ui: Ui, app: App) -> None:
    reply = app.request("raw?" + quote(
        f"HTTP/1.1 200 OK\r\nSet-Cookie: hopyard-{ui.port}=x\r\nSet-Cookie: own=1; Path=/\r\nSet-Cookie: =hopyard-1=x\r\n"
        f"Set-Cookie: Hopyard-apps-{app.port}=x\r\nContent-Length: 0\r\n\r\n"))
    assert reply.headers.get_all("Set-Cookie") == ["own=1; Path=/"]


@pytest.mark.parametrize(("lines", "status"), [
    (["Content-Length: 4", "Transfer-Encoding: chunked"], 411),
    (["Transfer-Encoding: chunked"], 411),
    (["Transfer-Encoding : chunked"], 400),
    (["Transfer_Encoding: chunked", "Content-Length: 4"], 200),  # not the field: its '_' does not reach the app
    (["Content-Length: 4", "Content-Length: 4"], 400),
    (["Content-Length: 4, 4"], 400),
    (["Content-Length: +4"], 400),
    (["Content-Length: 0x4"], 400),
    (["X: y\nContent-Length: 4"], 400),
    (["X: y\r\n Content-Length: 4"], 400),
    (["Host: evil.example"], 400),
])
def test_requests_that_two_servers_could_read_differently_are_refused(app: App, lines: list[str], status: int) -> None:
    with app.connect() as s:
        s.sendall(app.head("echo", "POST", *lines) + b"0\r\n\r\n" + app.head("die"))
        reply = receive_all(s)
    assert reply.startswith(f"HTTP/1.1 {status} ".encode()) and reply.count(b"HTTP/1.1 ") == 1
    if status == 200:
        echoed = json.loads(reply.partition(b"\r\n\r\n")[2])
        assert echoed["body"] == 4 and "_" not in str(echoed["head"][1:])
    assert app.request("echo").status == 200  # the second request was not sent to it


def test_bytes_after_a_request_are_not_another_request(app: App) -> None:
    with app.connect() as s:
        s.sendall(app.head("echo") + app.head("die"))
        assert receive_all(s).count(b"HTTP/1.1 ") == 1
    assert app.request("echo").status == 200


@pytest.mark.parametrize(("reply", "words"), [
    ("invalid\r\n\r\n", "not HTTP"),
    ("HTTP/2 200 OK\r\n\r\n", "not HTTP"),
    ("HTTP/1.1 2000 OK\r\n\r\n", "not HTTP"),
    ("HTTP/1.1 200 OK\nX: y\n\n\r\n\r\n", "not HTTP"),
    ("HTTP/1.1 200 OK\r\nX y\r\n\r\n", "invalid name"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "more than one length"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx", "more than one length"),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx", "encoding"),
    ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx", "invalid length"),
    ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", "does not fit"),
    ("HTTP/1.1 103 Early Hints\r\n\r\n" * 9, "does not fit"),
    ("HTTP/1.1 200 OK\r\n", "without a reply"),
    ("", "without a reply"),
])
def test_a_malformed_reply_is_replaced_by_an_error_message(app: App, reply: str, words: str) -> None:
    got = app.request("raw?" + quote(reply))
    assert got.status == 502 and words in got.json()["error"], got.body


def test_replies_of_each_form_are_passed_on(app: App) -> None:
    early = app.request("raw?" + quote("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\nok!"))
    assert (early.status, early.body) == (201, b"ok") and "Link" not in early.headers
    chunked = app.request("raw?" + quote("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"))
    assert chunked.body == b"abc"
    assert app.request("raw?" + quote("HTTP/1.0 200 OK\r\n\r\nto the end")).body == b"to the end"
    head = app.request("raw?" + quote("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), "HEAD")
    assert (head.status, head.headers["Content-Length"]) == (200, "5")
    assert app.request("raw?" + quote("HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")).status == 304
    with app.connect() as s:  # bytes that are missing are seen
        s.sendall(app.head("raw?" + quote("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")))
        assert receive_all(s).endswith(b"\r\n\r\nabc")


def test_large_bodies_pass_in_both_directions_in_little_memory(ui: Ui, app: App) -> None:
    size = 256 * MB
    before = peak(ui)
    part, total = os.urandom(MB), hashlib.sha256()

    def body() -> Iterator[bytes]:
        for _ in range(size // MB):
            total.update(part)
            yield part

    echoed = app.request("echo", "PUT", body(), origin=app.origin, content_length=str(size)).json()
    assert (echoed["body"], echoed["sum"]) == (size, total.hexdigest())
    assert len(app.request(f"big?{size}").body) == size
    assert len(app.request(f"big?chunked,{size}").body) == size
    assert peak(ui) - before < 48 * MB


def test_slow_apps_and_browsers_do_not_block_others(ui: Ui, app: App, yard: Yard) -> None:
    gate = yard.project / "gate"
    before = peak(ui)
    with ExitStack() as stack:
        silent = [stack.enter_context(app.connect()) for _ in range(30)]
        for s in silent[:10]:
            s.sendall(app.head(f"wait?{gate}"))  # the app is slow
        for s in silent[10:20]:
            s.sendall(app.head(f"stall?{gate}", "POST", f"Content-Length: {64 * MB}"))  # it does not read, either
            s.settimeout(0.3)
            with pytest.raises(TimeoutError):
                for _ in range(64):
                    s.sendall(b"x" * MB)
        for s in silent[20:]:
            s.sendall(app.head(f"big?{64 * MB}"))  # the browser does not read
        for _ in range(20):
            assert app.request("echo").status == 200
            assert ui.get("/api/v1/runs")["runs"][0]["run"] == 1
        assert peak(ui) - before < 48 * MB
        gate.touch()
        for s in silent[:10]:
            assert receive_all(s).endswith(b"waited")


def test_a_websocket_passes_bytes_and_each_side_may_end_first(app: App) -> None:
    with app.switch("socket") as s:
        s.sendall(b"\x81\x05hello")
        assert s.recv(100) == b"\x81\x05hello"
        sent = os.urandom(8 * MB)
        received = bytearray()

        def send() -> None:
            s.sendall(sent)
            s.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        received += receive_all(s)
        sender.join()
        tail = b"received %d\n" % (len(sent) + 7)
        assert received.endswith(tail) and received[:-len(tail)] == sent


def test_a_websocket_that_is_not_read_slows_the_app_down(ui: Ui, app: App, yard: Yard) -> None:
    before, report = peak(ui), yard.project / "sent"
    with app.switch(f"flood?{report}"):
        wait_for(lambda: report.exists() and report.read_text(), "the app can send for ever")
        assert int(report.read_text()) < 32 * MB and peak(ui) - before < 32 * MB
    assert app.request("echo").status == 200


def test_too_many_connections_are_refused_and_the_page_answers(ui: Ui, app: App, yard: Yard) -> None:
    gate = yard.project / "gate"
    with ExitStack() as stack:
        for _ in range(256):
            stack.enter_context(app.connect()).sendall(app.head(f"wait?{gate}"))
        wait_for(lambda: app.request("echo").status == 503, "more than 256 are under way")
        assert ui.get("/api/v1/apps")["apps"][0]["state"] == "ready"
        gate.touch()
    wait_for(lambda: app.request("echo").status == 200, "there is room again")


# ---- lifetime ---------------------------------------------------------------------------------------------------------

def test_one_app_serves_the_same_runs_and_ends_on_request(yard: Yard, ui: Ui, app: App) -> None:
    assert start(ui)["id"] == app.row["id"]
    yard.run("run", "--", "true")
    other = wait_started(ui, start(ui, "1,2"))
    assert other["id"] != app.row["id"] and other["key"] == "1,2"
    assert [a["id"] for a in ui.get("/api/v1/apps")["apps"]] == [app.row["id"], other["id"]]
    assert len(processes(yard)) == 2
    ended = ui.request(f"/api/v1/apps/{other['id']}", "DELETE", origin=f"http://127.0.0.1:{ui.port}")
    assert ended.status == 204
    assert ui.request(f"/api/v1/apps/{other['id']}").status == 404
    wait_for(lambda: len(processes(yard)) == 1, "it ends")
    gone = app.request(f"/tensorboard/{other['id']}/")
    assert gone.status == 404 and "open it again" in gone.json()["error"]


def test_an_idle_app_is_ended_and_one_in_use_is_not(yard: Yard, ui: Ui) -> None:
    end(ui)
    yard.env["HOPYARD_TEST_APP_IDLE_MS"] = "1000"
    yard.run("run", "--", "true")
    server = Ui(yard)
    try:
        server.log_in()
        used = App(server, "1")
        used.log_in()
        with used.switch("socket") as s:
            unused = start(server, "2")
            wait_for(lambda: [a["key"] for a in server.get("/api/v1/apps")["apps"]] == ["1"], "the unused one ends")
            assert unused["key"] == "2"
            s.sendall(b"still there")
            assert s.recv(100) == b"still there"
        wait_for(lambda: server.get("/api/v1/apps")["apps"] == [], "the other one ends, too")
        wait_for(lambda: processes(yard) == {}, "their processes end")
    finally:
        end(server)


def test_the_number_of_apps_is_bounded(ui: Ui) -> None:
    """Those that have failed make room first."""
    for run in range(100, 120):
        wait_started(ui, start(ui, str(run)))
    assert [a["key"] for a in ui.get("/api/v1/apps")["apps"]] == [str(run) for run in range(104, 120)]


def test_an_app_that_dies_is_reported_and_can_be_started_again(ui: Ui, app: App) -> None:
    died = app.request("die")
    assert died.status == 502 and "without a reply" in died.json()["error"]
    wait_for(lambda: ui.get(f"/api/v1/apps/{app.row['id']}")["state"] == "failed", "its end is seen")
    after = app.request("echo")
    assert after.status == 502 and "it exited with status 3" in after.json()["error"]
    assert ui.post(f"/api/v1/apps/{app.row['id']}/open").status == 502
    again = wait_started(ui, start(ui))
    assert again["id"] != app.row["id"] and again["state"] == "ready"


def test_an_app_that_cannot_start_has_an_error_of_one_line(yard: Yard, ui: Ui) -> None:
    missing = wait_started(ui, start(ui, "7"))
    assert missing["state"] == "failed" and missing["message"] == "no run '7' here; the newest is 1"
    end(ui)
    yard.env["ECHO_APP_FAILS"] = "1"
    failing = Ui(yard)
    failing.log_in()
    assert wait_started(failing, start(failing))["message"] == "ValueError: this app never starts"
    end(failing)


@pytest.mark.parametrize("runs", ["", "x", "1,", ",1", "1;2", "-1", "1,2x", ",".join("1" * 21), "1" * 30])
def test_runs_of_a_tensorboard_are_numbers(ui: Ui, runs: str) -> None:
    reply = ui.post(f"/api/v1/apps/tensorboard?runs={quote(runs)}")
    assert reply.status == 400 and "at most 20 run numbers" in reply.json()["error"]
    assert ui.get("/api/v1/apps")["apps"] == []


def test_other_users_cannot_reach_the_socket(yard: Yard, app: App) -> None:
    [command] = processes(yard).values()
    path = Path(next(word for word in command.split() if word.endswith(".sock")))
    mode = path.parent.stat()
    assert stat.S_IMODE(mode.st_mode) == 0o700 and mode.st_uid == os.getuid()
    token = app.request("echo").json()["head"]
    assert "token" in str(token) and "authorization" not in command, "secrets are not arguments"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_apps_end_with_the_server_and_leave_nothing_behind(yard: Yard, ui: Ui, app: App, number: int) -> None:
    [command] = processes(yard).values()
    path = Path(next(word for word in command.split() if word.endswith(".sock")))
    with app.switch("socket") as s:
        ui.end(number)
        assert s.recv(1) == b""
    assert processes(yard) == {} and not path.exists()


def test_apps_end_when_their_server_is_killed(yard: Yard, ui: Ui, app: App) -> None:
    assert len(processes(yard)) == 1
    ui.process.kill()
    ui.process.communicate()
    wait_for(lambda: processes(yard) == {}, "its apps are killed with it")
    assert len(list(yard.runtime.rglob("app-*.sock"))) == 1
    end(Ui(yard))  # the next one removes stale files
    assert not list(yard.runtime.rglob("app-*.sock"))


def test_the_port_of_apps_can_be_chosen(yard: Yard, ui: Ui, app: App) -> None:
    taken = yard.run("ui", "--no-browser", "--port", "0", "--apps-port", str(app.port), rc=1)
    assert f"cannot listen on 127.0.0.1 port {app.port}: Address already in use" in taken.stderr
    end(ui)
    server = Ui(yard, "--apps-port", str(app.port))
    assert f"frame-src {app.origin}" in server.request("/").headers["Content-Security-Policy"]
    end(server)


# ---- a proxy in front of the server -----------------------------------------------------------------------------------

def test_behind_a_proxy_apps_have_a_url_of_their_own(yard: Yard, ui: Ui) -> None:
    end(ui)
    server = Ui(yard, "--base-url", "https://hub.example/ada", "--apps-url", "https://apps.hub.example")
    try:
        login = server.request(server.login, host="hub.example")
        server.cookie = login.headers["Set-Cookie"].partition(";")[0]
        assert "frame-src https://apps.hub.example" in server.request("/", host="hub.example").headers["Content-Security-Policy"]
        row = wait_started(server, start(server))
        opened = server.request(f"/api/v1/apps/{row['id']}/open", "POST", host="hub.example", origin="https://hub.example").json()
        assert opened["enter"].startswith("https://apps.hub.example/enter?ticket=")
        assert opened["url"] == f"https://apps.hub.example/tensorboard/{row['id']}/"
        local = App(server)  # for its port
        entered = local.request(opened["enter"].removeprefix("https://apps.hub.example"), host="apps.hub.example")
        assert entered.status == 303 and entered.headers["Set-Cookie"].endswith("; Secure")
        reply = local.request("echo", host="apps.hub.example", cookie=entered.headers["Set-Cookie"].partition(";")[0])
        assert "x-forwarded-proto: https" in reply.json()["head"] and "host: apps.hub.example" in reply.json()["head"]
        assert "frame-ancestors 'self' https://hub.example" in reply.headers["Content-Security-Policy"]
    finally:
        end(server)


def test_a_proxy_without_a_url_for_apps_gets_an_error_with_the_remedy(yard: Yard, ui: Ui) -> None:
    end(ui)
    server = Ui(yard, "--allow-host", "hub.example")
    try:
        server.log_in()
        row = wait_started(server, start(server))
        reply = server.request(f"/api/v1/apps/{row['id']}/open", "POST", host="hub.example", origin="https://hub.example")
        assert reply.status == 403 and "--apps-url" in reply.json()["error"]
        assert "frame-src 'none'" in server.request("/", host="hub.example").headers["Content-Security-Policy"]
    finally:
        end(server)
    for options, words in ((("--apps-url", "https://apps.hub.example"), "needs --base-url"),
                           (("--base-url", "https://hub.example", "--apps-url", "https://hub.example/apps"), "without a path"),
                           (("--apps-port", "x"), "takes a number")):
        assert words in yard.run("ui", *options, rc=2).stderr


# ---- TensorBoard itself ----------------------------------------------------------------------------------------------

def test_tensorboard_shows_scalars_and_hyperparameters_of_several_runs(yard: Yard, ui: Ui) -> None:
    end(ui)
    yard.env["HOPYARD_PYTHON"] = sys.executable
    yard.run("run", "--grid", "lr=[0.1,0.2]", "--max", "acc", "--", "sh", "-c",
             "for s in 1 2 3; do hopyard report acc=0.$s step=$s; done; echo acc={lr}")
    server = Ui(yard)
    try:
        server.log_in()
        app = App(server, "1,2")
        assert app.request("").status == 401
        app.log_in()
        page = app.request("")
        assert page.status == 200 and b"<tb-webapp>" in page.body
        wait_for(lambda: len(app.request("data/runs").json()) == 3, "the runs are read")
        names = app.request("data/runs").json()
        assert names[0].startswith("1") and names[1:] == ["2/lr=0.1", "2/lr=0.2"]
        scalars = app.request("data/plugin/scalars/scalars?tag=acc&run=2%2Flr%3D0.1").json()
        assert [value for _, step, value in scalars][:3] == pytest.approx([0.1, 0.2, 0.3])
        experiment = app.request("data/plugin/hparams/experiment", "POST", '{"experimentName":"","includeMetrics":true}',
                                 origin=app.origin).json()
        assert [info["name"] for info in experiment["hparamInfos"]] == ["lr"]
        [command] = yard.processes("path_prefix").values()
        assert "--load_fast false" in command, "no data server, which would listen on TCP"
    finally:
        end(server)
    wait_for(lambda: not yard.processes("path_prefix"), "it ends with the server")


def scalars(app: App, run: str, tag: str) -> list[float]:
    """Its values, once TensorBoard has read them."""
    path = f"data/plugin/scalars/scalars?tag={tag}&run={quote(run, safe='')}"
    wait_for(lambda: app.request(path).status == 200, f"TensorBoard has read {run}: {app.request('data/runs').body!r}")
    return [value for _, _, value in app.request(path).json()]


def test_tensorboard_shows_a_project_on_hdfs(yard: Yard, hdfs: Hdfs, tmp_path: Path) -> None:
    yard.env |= {**hdfs.env(), "HOPYARD_PROJECT": f"{hdfs.url}/Projects/board", "XDG_STATE_HOME": str(tmp_path / "state"),
                 "HOPYARD_PYTHON": sys.executable}
    for rates in ("[0.1,0.2]", "[0.3]"):
        yard.run("run", "--grid", f"lr={rates}", "--max", "acc", "--", "sh", "-c",
                 "for s in 1 2 3; do hopyard report acc=0.$s step=$s; done; echo acc={lr}")
    yard.wait_idle()
    [logs] = (tmp_path / "state").rglob("Logs/TensorFlow")
    shutil.rmtree(logs)  # what this machine has of them
    server = Ui(yard)
    try:
        server.log_in()
        app = App(server, "1")  # --logdir hdfs://…
        app.log_in()
        assert scalars(app, "lr=0.2", "acc")[:3] == pytest.approx([0.1, 0.2, 0.3])
        experiment = app.request("data/plugin/hparams/experiment", "POST", '{"experimentName":"","includeMetrics":true}',
                                 origin=app.origin).json()
        assert [info["name"] for info in experiment["hparamInfos"]] == ["lr"]
        both = App(server, "1,2")  # --logdir_spec 1:hdfs://…,2:hdfs://…
        both.log_in()
        assert scalars(both, "2/lr=0.3", "acc")[:3] == pytest.approx([0.1, 0.2, 0.3])
        assert "1/lr=0.1" in both.request("data/runs").json()
        commands = yard.processes("path_prefix").values()
        assert len(commands) == 2 and all(f" {hdfs.url}/" in c or f"1:{hdfs.url}/" in c for c in commands), commands
    finally:
        end(server)


def test_a_python_without_tensorboard_is_named(yard: Yard, ui: Ui) -> None:
    end(ui)
    program = yard.project / "plain-python"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    yard.env["HOPYARD_PYTHON"] = str(program)
    server = Ui(yard)
    try:
        server.log_in()
        row = wait_started(server, start(server))
        assert row["state"] == "failed" and "TensorBoard is not installed for" in row["message"]
        assert "-m pip install tensorboard" in row["message"]
    finally:
        end(server)
