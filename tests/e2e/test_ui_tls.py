# SPDX-License-Identifier: Apache-2.0
"""`hopyard ui` with TLS: everything that works with plain HTTP, and invalid clients and files."""
from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import ssl
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from apps import App, use_echo_app
from certificates import Certificate, issue
from conftest import Yard, wait_for
from ui import Ui, end

MB = 1 << 20
T = TypeVar("T")
@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return issue(tmp_path, "first")


@pytest.fixture
def ui(yard: Yard, certificate: Certificate) -> Iterator[Ui]:
    use_echo_app(yard)
    server = Ui(yard, *certificate.options, tls=certificate.client())
    server.log_in()
    yield server
    end(server)


@pytest.fixture
def app(yard: Yard, ui: Ui) -> App:
    yard.run("run", "--max", "acc", "--", "echo", "acc=1")
    app = App(ui)
    app.log_in()
    return app


class RawClient:
    """A TLS client whose records a test sends as it likes."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = tls.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.until_done(self.tls.do_handshake)

    def until_done(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.flush()
                received = self.socket.recv(65536)
                if received:
                    self.incoming.write(received)
                else:
                    self.incoming.write_eof()
            finally:
                self.flush()

    def flush(self) -> None:
        if pending := self.outgoing.read():
            self.socket.sendall(pending)

    def end(self) -> None:
        """The end of what this client sends, but not of what it reads."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()

    def read_all(self) -> bytes:
        received = b""
        while part := self.until_done(self.read_some):
            received += part
        return received

    def read_some(self) -> bytes:
        try:
            return self.tls.read(65536)
        except ssl.SSLZeroReturnError:
            return b""


def get(ui: Ui, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost:{ui.port}\r\nCookie: {ui.cookie}\r\n\r\n".encode()


# ---- what works ------------------------------------------------------------------------------------------------------

@pytest.mark.smoke
def test_a_login_over_https_has_a_secure_cookie_and_the_address_says_https(yard: Yard, certificate: Certificate) -> None:
    server = yard.start("ui", "--no-browser", "--port", "0", *certificate.options)
    assert server.stdout
    assert server.stdout.readline().startswith("Open https://127.0.0.1:")
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=30) == 0
    ui = Ui(yard, *certificate.options, tls=certificate.client())
    try:
        assert ui.log_in().headers["Set-Cookie"].endswith("; Path=/; HttpOnly; SameSite=Lax; Secure")
        assert ui.get("/api/v1/runs")["runs"] == []
        assert ui.post("/api/v1/runs/7/stop").status == 404
        assert ui.request("/api/v1/runs/7/stop", "POST", origin=f"http://127.0.0.1:{ui.port}").status == 403  # not this server
        assert "frame-src https://127.0.0.1:" in ui.request("/").headers["Content-Security-Policy"]
    finally:
        end(ui)


def test_names_of_the_certificate_are_names_of_the_server(yard: Yard, certificate: Certificate, ui: Ui) -> None:
    for host, status in ((f"hub.example:{ui.port}", 200), ("hub.example", 421), (f"evil.example:{ui.port}", 421)):
        assert ui.request("/api/v1/runs", host=host).status == status
    page = ui.request("/", host=f"hub.example:{ui.port}")
    assert "frame-src https://hub.example:" in page.headers["Content-Security-Policy"]
    any_address = yard.start("ui", "--no-browser", "--port", "0", "--listen", "0.0.0.0", *certificate.options)
    assert any_address.stdout
    assert any_address.stdout.readline().startswith("Open https://localhost:")  # the certificate's first name
    any_address.send_signal(signal.SIGTERM)
    assert any_address.wait(timeout=30) == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_large_file_arrives_with_identical_bytes(yard: Yard, ui: Ui, version: ssl.TLSVersion) -> None:
    assert ui.tls
    ui.tls.minimum_version = ui.tls.maximum_version = version
    data = os.urandom(40 * MB + 12345)
    (yard.project / "big").write_bytes(data)
    assert ui.request("/api/v1/files/content?path=big").body == data
    upload = f"/api/v1/files/uploads?path=copy&size={len(data)}&modified=1"
    offset = ui.post(upload).json()["offset"]
    while offset < len(data):
        offset = ui.post(f"{upload}&offset={offset}", "PATCH", data[offset:offset + 8 * MB]).json()["offset"]
    assert (yard.project / "copy").read_bytes() == data


def test_output_is_followed_and_its_end_is_not_a_cut_connection(yard: Yard, ui: Ui) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--", "sh", "-c", f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; seq 1 200000")
    wait_for(lambda: ui.request("/api/v1/runs/1/trials/1/output/stdout").body == b"first\n", "no output")
    with ui.connect() as events, ui.connect() as output:
        events.sendall(get(ui, "/api/v1/events"))
        changes = (line for line in events.makefile("r") if line.startswith("event: "))
        assert next(changes) == "event: change\n"
        output.sendall(get(ui, "/api/v1/runs/1/trials/1/output/stdout?follow=1"))
        stream = output.makefile("rb")
        while stream.readline().strip():
            pass
        assert stream.readline() == b"first\n"
        gate.touch()
        assert stream.read() == "".join(f"{i}\n" for i in range(1, 200001)).encode()  # without close_notify: SSLEOFError
        assert next(changes) == "event: change\n"


def test_requests_of_one_connection_may_arrive_in_one_record_or_byte_by_byte(ui: Ui) -> None:
    assert ui.tls
    client = RawClient(ui.port, ui.tls)
    with client.socket:
        request = get(ui, "/api/v1/runs")
        client.tls.write(request * 3)
        pending = client.outgoing.read()
        for i in range(0, len(pending), 7):
            client.socket.sendall(pending[i:i + 7])
        for byte in request:
            client.tls.write(bytes([byte]))
        client.flush()
        received = b""
        while received.count(b'"runs":[]') < 4:
            received += client.until_done(client.read_some)
        assert received.count(b"HTTP/1.1 200 OK\r\n") == 4


def test_sessions_are_resumed(ui: Ui) -> None:
    assert ui.tls
    with socket.create_connection(("127.0.0.1", ui.port)) as plain, ui.tls.wrap_socket(plain, server_hostname="localhost") as first:
        first.sendall(get(ui, "/api/v1/runs"))
        assert b" 200 " in first.recv(100)
        session = first.session
    with socket.create_connection(("127.0.0.1", ui.port)) as plain:
        with ui.tls.wrap_socket(plain, server_hostname="localhost", session=session) as second:
            second.sendall(get(ui, "/api/v1/runs"))
            assert b" 200 " in second.recv(100) and second.session_reused


# ---- apps --------------------------------------------------------------------------------------------------------------

def test_apps_are_behind_https_as_well(ui: Ui, app: App) -> None:
    assert app.enter.startswith(f"https://127.0.0.1:{app.port}/enter?ticket=")
    reply = app.request("echo", "POST", b"x" * 5 * MB, origin=app.origin)
    assert reply.status == 200 and reply.json()["body"] == 5 * MB and "x-forwarded-proto: https" in reply.json()["head"]
    assert f"frame-ancestors 'self' {ui.origin}" in reply.headers["Content-Security-Policy"]
    for kind in ("", "chunked,"):
        assert app.request(f"big?{kind}{20 * MB}").body == b"x" * 20 * MB
    assert app.request("echo", "POST", origin=f"http://127.0.0.1:{app.port}").status == 403


def test_a_websocket_passes_bytes_and_each_side_may_end_first(app: App) -> None:
    assert app.tls
    with app.switch("socket") as s:
        s.sendall(b"\x81\x05hello")
        assert s.recv(100) == b"\x81\x05hello"
    client = RawClient(app.port, app.tls)
    with client.socket:
        client.tls.write(app.head("socket", "GET", "Connection: Upgrade", "Upgrade: websocket"))
        client.flush()
        head = client.until_done(client.read_some)
        assert head.startswith(b"HTTP/1.1 101 ")
        client.tls.write(b"x" * 100_000)
        client.end()  # in one piece with the last bytes
        client.flush()
        assert client.read_all() == b"x" * 100_000 + b"received 100000\n"


def test_a_websocket_carries_much_in_both_directions(app: App) -> None:
    """In one thread: before Python 3.13, two must not use the same TLS socket."""
    sent, received, done = os.urandom(8 * MB), bytearray(), 0
    with app.switch("socket") as s:
        s.setblocking(False)
        while len(received) < len(sent):
            select.select([s], [s] if done < len(sent) else [], [], 30)
            with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                done += s.send(sent[done:done + MB]) if done < len(sent) else 0
            with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                while part := s.recv(1 << 16):
                    received += part
                raise AssertionError("the connection was closed")
    assert bytes(received) == sent


# ---- invalid clients ---------------------------------------------------------------------------------------------------

def test_plain_http_gets_an_error_that_mentions_https(ui: Ui) -> None:
    plain = Ui.__new__(Ui)
    plain.port, plain.tls = ui.port, None
    reply = plain.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ") and b"this port speaks HTTPS" in reply
    assert ui.get("/api/v1/runs")["runs"] == []


def test_old_versions_of_tls_are_refused(ui: Ui) -> None:
    for version in ("-tls1", "-tls1_1"):
        client = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{ui.port}", version, "-cipher", "ALL:@SECLEVEL=0"],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert client.returncode != 0 and "alert protocol version" in client.stderr, client.stderr
    assert ui.get("/api/v1/runs")["runs"] == []


def test_renegotiation_is_refused(ui: Ui) -> None:
    client = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{ui.port}", "-tls1_2"], input="R\n",
                            capture_output=True, text=True, timeout=60)
    assert "RENEGOTIATING" in client.stdout + client.stderr and "no renegotiation" in client.stderr
    assert ui.get("/api/v1/runs")["runs"] == []


def test_a_client_may_ask_for_new_keys(ui: Ui) -> None:
    client = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{ui.port}", "-tls1_3"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert client.stdin and client.stdout
    for _ in range(5):
        client.stdin.write(b"K\n")
        client.stdin.flush()
        while b"KEYUPDATE" not in client.stdout.readline():
            pass
    client.stdin.write(get(ui, "/api/v1/runs"))
    client.stdin.flush()
    received = b""
    while b'"runs":[]' not in received:
        part = client.stdout.read1()  # type: ignore[attr-defined]
        assert part, received
        received += part
    client.kill()
    client.communicate()


def test_garbage_and_half_handshakes_are_disconnected_and_do_not_block_others(ui: Ui) -> None:
    assert ui.tls
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ui.tls.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    hello = out.read()
    with ExitStack() as stack:
        held = []
        for data in (b"", hello[:1], hello[:len(hello) // 2], hello, b"\x16\x03\x01\x40\x00\x01\x01\xff\xff"):
            held.append(stack.enter_context(socket.create_connection(("127.0.0.1", ui.port), timeout=30)))
            held[-1].sendall(data)
        for data in (os.urandom(100_000), b"\0" * 50_000, hello[:50] + os.urandom(5000), b"\x15\x03\x03\x00\x02\x02\x28" * 10):
            with socket.create_connection(("127.0.0.1", ui.port), timeout=30) as s, pytest.raises((ConnectionError, EOFError)):
                s.sendall(data)
                while s.recv(65536):
                    pass
                raise EOFError
        started = time.monotonic()
        for _ in range(3):
            assert ui.get("/api/v1/runs")["runs"] == []
        assert time.monotonic() - started < 5
        for s in held:  # after 10 s, regardless of the bytes sent
            while True:
                try:
                    if not s.recv(65536):
                        break
                except ConnectionError:
                    break
        assert 8 < time.monotonic() - started < 25


def test_a_first_message_that_would_take_much_memory_is_refused_at_once(ui: Ui, certificate: Certificate) -> None:
    for pieces in ([b"\x16\x03\x01\x40\x00\x01\x01\xff\xff"], [b"\x16\x03\x01\x40", b"\x00\x01\x00", b"\x40", b"\x01"]):
        with socket.create_connection(("127.0.0.1", ui.port), timeout=5) as s:  # less than the time for a handshake
            for piece in pieces:
                s.sendall(piece)
                time.sleep(0.05)
            with suppress(ConnectionResetError):
                assert s.recv(1) == b""
    client = certificate.client()
    client.set_alpn_protocols(["http/1.1", *(f"{n:0200d}" for n in range(40))])
    with socket.create_connection(("127.0.0.1", ui.port), timeout=30) as s:
        client.wrap_socket(s, server_hostname="localhost").close()  # 8 KB, and in order


def test_a_client_that_changes_a_record_is_disconnected(ui: Ui) -> None:
    assert ui.tls
    client = RawClient(ui.port, ui.tls)
    with client.socket:
        client.tls.write(get(ui, "/api/v1/runs"))
        record = bytearray(client.outgoing.read())
        record[-1] ^= 1
        client.socket.sendall(record)
        with pytest.raises(ssl.SSLError, match="(?i)bad record mac"):
            client.read_all()


def test_a_client_that_reads_nothing_costs_little(yard: Yard, ui: Ui) -> None:
    (yard.project / "big").write_bytes(b"x" * 64 * MB)

    def memory() -> int:
        status = Path(f"/proc/{ui.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    before = memory()
    with ui.connect() as s:
        s.sendall(get(ui, "/api/v1/files/content?path=big"))
        assert s.recv(9) == b"HTTP/1.1 "
        assert ui.get("/api/v1/runs")["runs"] == []
        assert memory() - before < 16 * MB
        end(ui)  # in the middle of a write


# ---- invalid files -----------------------------------------------------------------------------------------------------

def refusal(yard: Yard, *options: object, rc: int) -> str:
    refused = yard.run("ui", "--no-browser", "--port", "0", *options, rc=rc, timeout=60)
    assert refused.stdout == "" and len(refused.stderr.splitlines()) == 1, refused.stderr
    return refused.stderr


def test_both_files_are_needed_and_contradict_plain_http(yard: Yard, certificate: Certificate) -> None:
    assert "--tls-cert needs --tls-key" in refusal(yard, "--tls-cert", certificate.cert, rc=2)
    assert "--tls-key needs --tls-cert" in refusal(yard, "--tls-key", certificate.key, rc=2)
    assert "--without-tls cannot be combined with --tls-cert" in refusal(yard, "--without-tls", *certificate.options, rc=2)
    assert "use --tls-cert and --tls-key" in refusal(yard, "--listen", "0.0.0.0", rc=2)


def test_files_that_cannot_be_used_are_refused_in_one_line(yard: Yard, certificate: Certificate, tmp_path: Path) -> None:
    cert, key = certificate
    other = issue(tmp_path, "other", ["-newkey", "rsa:2048"])
    empty, garbage, encrypted, cut = (tmp_path / name for name in ("empty", "garbage", "encrypted", "cut"))
    empty.touch(0o600)
    garbage.write_bytes(os.urandom(3000))
    garbage.chmod(0o600)
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", encrypted], check=True)
    encrypted.chmod(0o600)
    cut.write_text(cert.read_text() + cert.read_text()[:300])
    for c, k, words, rc in (
            (tmp_path / "none", key, f"cannot read the certificate '{tmp_path}/none': No such file or directory", 1),
            (cert, tmp_path / "none", f"cannot read the private key '{tmp_path}/none': No such file or directory", 1),
            (tmp_path, key, f"the certificate '{tmp_path}' is not a regular file", 2),
            (empty, key, f"'{empty}' has no valid certificate in PEM format", 2),
            (garbage, key, f"'{garbage}' has no valid certificate in PEM format", 2),
            (cut, key, f"the certificate chain '{cut}' is damaged", 2),
            (cert, empty, f"'{empty}' has no valid private key in PEM format", 2),
            (cert, garbage, f"'{garbage}' has no valid private key in PEM format", 2),
            (cert, encrypted, f"the private key '{encrypted}' is encrypted", 2),
            (cert, other.key, f"the private key '{other.key}' does not belong to the certificate '{cert}'", 2),
            (issue(tmp_path, "weak", ["-newkey", "rsa:1024"]).cert, key, "cannot be used: ee key too small", 2)):
        assert words in refusal(yard, "--tls-cert", c, "--tls-key", k, rc=rc)


def test_a_key_that_others_can_read_is_refused(yard: Yard, certificate: Certificate) -> None:
    for mode in (0o644, 0o640, 0o604):
        certificate.key.chmod(mode)
        refused = refusal(yard, *certificate.options, rc=1)
        assert f"other users have access to the private key '{certificate.key}'; run: chmod 600 '{certificate.key}'" in refused


def test_a_chain_and_a_key_in_one_file_are_sent_to_clients(yard: Yard, tmp_path: Path) -> None:
    root, leaf = issue(tmp_path, "root"), issue(tmp_path, "leaf")
    request = tmp_path / "request"
    extension = tmp_path / "extension"
    extension.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    subprocess.run(["openssl", "req", "-new", "-key", leaf.key, "-subj", "/CN=leaf", "-out", request], check=True)
    subprocess.run(["openssl", "x509", "-req", "-in", request, "-CA", root.cert, "-CAkey", root.key, "-days", "2", "-extfile", extension,
                    "-out", leaf.cert], check=True, capture_output=True)
    both = tmp_path / "both.pem"
    both.write_bytes(leaf.cert.read_bytes() + root.cert.read_bytes() + leaf.key.read_bytes())
    both.chmod(0o600)
    server = Ui(yard, "--tls-cert", str(both), "--tls-key", str(both), tls=root.client())
    server.log_in()
    shown = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-showcerts"], stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=60).stdout
    assert shown.count("BEGIN CERTIFICATE") == 2
    end(server)


def test_an_expired_certificate_is_a_warning(yard: Yard, certificate: Certificate, tmp_path: Path) -> None:
    subprocess.run(["openssl", "x509", "-in", certificate.cert, "-signkey", certificate.key, "-days", "-1", "-out", tmp_path / "old"],
                   check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    server = Ui(yard, "--tls-cert", str(tmp_path / "old"), "--tls-key", str(certificate.key), tls=tls)
    server.log_in()
    server.process.send_signal(signal.SIGTERM)
    _, err = server.process.communicate(timeout=30)
    assert server.process.returncode == 0
    assert err.count("\n") == 1 and "warn: the certificate has expired" in err and str(tmp_path / "old") in err


# ---- renewal -----------------------------------------------------------------------------------------------------------

def test_sighup_uses_the_renewed_certificate_and_keeps_connections(yard: Yard, certificate: Certificate, tmp_path: Path) -> None:
    server = Ui(yard, *certificate.options, tls=certificate.client())
    server.log_in()
    renewed = issue(tmp_path, "renewed")
    assert server.process.stderr
    with server.connect() as before:
        certificate.key.write_bytes(renewed.key.read_bytes())  # half of it
        server.process.send_signal(signal.SIGHUP)
        line = server.process.stderr.readline()
        assert "the old certificate stays in use why=the private key" in line and "does not belong to the certificate" in line
        assert server.get("/api/v1/runs")["runs"] == []
        certificate.renew(renewed)
        server.process.send_signal(signal.SIGHUP)
        assert "info: the certificate was loaded again" in server.process.stderr.readline()
        with pytest.raises(ssl.SSLCertVerificationError):
            server.request("/")
        server.tls = renewed.client()
        assert server.get("/api/v1/runs")["runs"] == []
        before.sendall(get(server, "/api/v1/runs"))
        assert b"HTTP/1.1 200 OK" in before.recv(65536)
    certificate.cert.unlink()
    server.process.send_signal(signal.SIGHUP)
    assert "the old certificate stays in use why=cannot read the certificate" in server.process.stderr.readline()
    assert server.get("/api/v1/runs")["runs"] == []
    end(server)


def test_the_server_still_ends_with_its_terminal(yard: Yard, certificate: Certificate) -> None:
    def control_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    for options in ((), certificate.options):
        master, slave = os.openpty()
        env = {**yard.env, "ASAN_OPTIONS": f"{yard.env.get('ASAN_OPTIONS', '')}:detect_leaks=0"}  # a second SIGHUP would stop it
        server = subprocess.Popen(yard.command("ui", "--no-browser", "--port", "0", *options), env=env, cwd=yard.project,
                                  stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                  preexec_fn=control_terminal)
        os.close(slave)
        shown = b""
        while b"Ctrl-C ends it" not in shown:
            shown += os.read(master, 4096)
        if options:
            server.send_signal(signal.SIGHUP)
            while b"loaded again" not in shown:
                shown += os.read(master, 4096)
        os.close(master)
        assert server.wait(timeout=30) in (0, -signal.SIGHUP)
