# SPDX-License-Identifier: Apache-2.0
"""Agents that join by hand, and clients that falsely claim to be agents or drivers."""
from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import stat
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import BIN, RELEASE_BIN, Yard, wait_for
from needs import open_files


class Joinable:
    """A run that waits at a gate and listens for agents."""

    def __init__(self, yard: Yard, trials: int, *command: str) -> None:
        self.yard, self.gate = yard, yard.project / "gate"
        command = command or ("sh", "-c", f"while [ ! -e {self.gate} ]; do sleep 0.05; done; echo v={{x}}")
        self.client = yard.start("run", "--listen", "127.0.0.1:0", "--grid", f"x=1..{trials}", "--max", "v", "--", *command)
        match = wait_for(lambda: re.search(r"agents join by: hopyard agent --join HOST:(\d+) --key-file (\S+)", yard.driver_log()),
                         "the log sends how to join")
        self.port, self.key = int(match[1]), Path(match[2])
        wait_for(lambda: yard.state() and yard.attempts(), "its own agent runs a trial")

    def agent(self, *args: object, key: Path | None = None, **kw: Any) -> subprocess.Popen[str]:
        return self.yard.start("agent", "--join", f"127.0.0.1:{self.port}", "--key-file", key or self.key, *args, **kw)

    def dropped(self, address: tuple[str, int] | None = None) -> list[str]:
        """The driver's log lines on connections that it has rejected."""
        where = f"address={address[0]}:{address[1]} " if address else "address="
        return [line for line in (self.yard.folder / "run-1.log").read_text().splitlines() if "link dropped" in line and where in line]

    def finish(self) -> str:
        self.gate.touch()
        out, err = self.client.communicate(timeout=240)
        assert self.client.returncode == 0, out + err
        trials = self.yard.trials()
        assert [t["value"] for t in trials] == [t["number"] for t in trials]
        assert all(t["attempts"] == 1 for t in trials)
        return out + err


def output_of(p: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = p.communicate(timeout=120)
    return p.returncode, out + err


@pytest.fixture
def run(yard: Yard) -> Joinable:
    return Joinable(yard, (os.cpu_count() or 1) + 2)


# ---- joining -------------------------------------------------------------------------

@pytest.mark.smoke
def test_agent_joins_with_the_key_of_the_run(yard: Yard, run: Joinable) -> None:
    assert stat.S_IMODE(run.key.stat().st_mode) == 0o600
    extra = run.agent("--slots", 2, "--name", "extra")
    wait_for(lambda: Counter(a["agent"] for a in yard.attempts())["extra"] == 2, "the agent runs a trial")
    note = "agent extra has joined with 2 slots"
    assert note in run.finish()
    assert output_of(extra)[0] == 0
    for command in (["attach", 1], ["attach", 1, "--json"], ["attach", 1, "--html"], ["show", 1]):
        assert yard.run(*command).stdout.count(note) == 1, f"{command} shows it later, too"
    assert note in json.loads(yard.run("show", 1, "--json").stdout)["notes"]


def test_trials_of_a_killed_or_terminated_agent_run_on_other_agents(yard: Yard, run: Joinable) -> None:
    agents = {name: run.agent("--slots", 1, "--name", name) for name in ("killed", "asked")}
    wait_for(lambda: {"killed", "asked"} <= {a["agent"] for a in yard.attempts()}, "both agents run a trial")
    agents["asked"].terminate()
    assert output_of(agents["asked"])[0] == 0
    wait_for(lambda: "lost" in {a["state"] for a in yard.attempts() if a["agent"] == "asked"}, "its trial runs elsewhere")
    agents["killed"].kill()  # kills its reaper; the agent notices and exits
    output_of(agents["killed"])
    wait_for(lambda: "lost" in {a["state"] for a in yard.attempts() if a["agent"] == "killed"}, "its trial runs elsewhere")
    run.gate.touch()
    assert output_of(run.client)[0] == 0
    assert all(t["state"] == "done" for t in yard.trials())


def test_key_file_readable_by_others_is_refused(yard: Yard, run: Joinable, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(run.key.read_bytes())
    key.chmod(0o640)
    status, text = output_of(run.agent(key=key))
    assert status == 2 and f"other users have access to the key file '{key}'; run: chmod 600 '{key}'" in text
    key.chmod(0o600)
    key.write_text("not a key\n")
    status, text = output_of(run.agent(key=key))
    assert status == 2 and f"'{key}' is not a key file" in text
    status, text = output_of(run.agent(key=tmp_path / "missing"))
    assert status == 2 and "No such file" in text
    assert not run.dropped()
    run.finish()


def test_agent_with_a_wrong_key_gets_one_error(yard: Yard, run: Joinable, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text("0123456789abcdef" * 4 + "\n")
    status, text = output_of(run.agent(key=key))
    assert status == 1
    assert re.search(rf"127.0.0.1:{run.port} does not prove the key \(.*\); check that the key file", text), text
    assert len(run.dropped()) == 1
    run.finish()
    assert {a["agent"] for a in yard.attempts()} == {"local"}


@pytest.mark.slow
@open_files(2000)
def test_500_agents_at_once(tmp_path: Path) -> None:
    """Each agent has one slot, and there is a trial for each: no trial ends before all agents have joined."""
    count = 500
    yard = Yard(tmp_path, RELEASE_BIN if os.path.exists(RELEASE_BIN) else BIN)
    gate = yard.project / "gate.fifo"
    os.mkfifo(gate)
    agents: list[subprocess.Popen[str]] = []
    try:
        run = Joinable(yard, count + (os.cpu_count() or 1), "sh", "-c", f"read line < {gate}; echo v={{x}}")
        agents = [run.agent("--slots", 1, "--name", f"n{i}") for i in range(count)]
        wait_for(lambda: sum(a["state"] == "running" for a in yard.attempts()) == len(yard.trials()) == count + (os.cpu_count() or 1),
                 "every agent has a trial", 180)
        assert set(Counter(a["agent"] for a in yard.attempts() if a["agent"] != "local").values()) == {1}

        opened = os.open(gate, os.O_RDWR)  # trials that arrive later pass, too
        os.write(opened, b"\n" * len(yard.trials()))
        out, err = run.client.communicate(timeout=120)
        os.close(opened)
        assert run.client.returncode == 0, out + err
        assert [a.wait(60) for a in agents] == [0] * count
        yard.assert_nothing_left()
        assert all(t["attempts"] == 1 for t in yard.trials()) and not run.dropped()
    finally:
        yard.kill_everything()
        for a in agents:
            a.communicate()


# ---- impostors -------------------------------------------------------------------------

@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key, in one file."""
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=driver",
                    "-days", "2", "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "key").read_bytes() + (folder / "cert").read_bytes())
    return both


def connect(run: Joinable) -> socket.socket:
    return socket.create_connection(("127.0.0.1", run.port), timeout=60)


def client_hello() -> bytes:
    """The first message of a TLS client."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="driver")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()


def test_invalid_connections_are_rejected_with_one_line_each(yard: Yard, run: Joinable, certificate: Path) -> None:
    held: list[tuple[str, socket.socket]] = []

    def tls(**versions: ssl.TLSVersion) -> None:
        """A client with a certificate but without the key."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(certificate)
        for name, value in versions.items():
            setattr(context, name, value)
        s = connect(run)
        held.append((f"certificate {versions}", s))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            wrapped = context.wrap_socket(s, do_handshake_on_connect=False)
            held[-1] = (held[-1][0], wrapped)
            wrapped.do_handshake()
            wrapped.send(b"x")
            wrapped.recv(1)

    def raw(name: str, data: bytes, close: bool) -> None:
        s = connect(run)
        s.sendall(data)
        held.append((name, s))
        if close:
            s.shutdown(socket.SHUT_WR)

    tls()
    tls(maximum_version=ssl.TLSVersion.TLSv1_2)
    hello = client_hello()
    raw("garbage", b"GET / HTTP/1.1\r\n\r\n" * 10, False)
    raw("random", os.urandom(100_000), False)
    raw("half a handshake, then gone", hello[:len(hello) // 2], True)
    raw("half a handshake", hello[:len(hello) // 2], False)
    raw("nothing", b"", False)
    psk = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{run.port}", "-tls1_3", "-psk_identity", "join-0123456789ab",
                            "-psk", "00" * 32], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert "Cipher is (NONE)" in psk.communicate(timeout=60)[0]

    addresses = {name: s.getsockname() for name, s in held}
    for name, address in addresses.items():
        wait_for(lambda: run.dropped(address), f"{name} is rejected")
    wait_for(lambda: len(run.dropped()) == len(held) + 1, "openssl is rejected, too")
    for name, s in held:
        s.close()
    extra = run.agent("--slots", 1, "--name", "genuine")
    wait_for(lambda: "genuine" in {a["agent"] for a in yard.attempts()}, "a genuine agent is accepted")
    run.finish()
    assert output_of(extra)[0] == 0
    assert {name: len(run.dropped(address)) for name, address in addresses.items()} == {name: 1 for name in addresses}


def memory_of(pid: int) -> int:
    """Resident set size, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10  # type: ignore[index]


@pytest.fixture
def low_memory_yard(yard: Yard) -> Yard:
    """Freed memory is returned at once, despite the sanitizer, so that the resident set can be measured."""
    yard.env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0"
    return yard


def flood(run: Joinable, count: int, data: bytes) -> None:
    """Connections that send this much data and close."""
    for _ in range(count):
        with contextlib.suppress(ConnectionError), connect(run) as s:
            s.sendall(data)


@pytest.mark.slow
def test_thousands_of_rejected_connections_use_little_log_and_memory(low_memory_yard: Yard) -> None:
    run, log = Joinable(low_memory_yard, (os.cpu_count() or 1) + 2), low_memory_yard.folder / "run-1.log"
    driver = low_memory_yard.process("driver")
    flood(run, 500, client_hello())  # one-time allocations
    before, began = memory_of(driver), time.monotonic()
    idle = [connect(run) for _ in range(600)]  # more than the driver keeps: the oldest are dropped
    flood(run, 3000, b"")
    flood(run, 3000, b"GET / HTTP/1.1\r\n\r\n")
    flood(run, 2000, client_hello())
    genuine = run.agent("--slots", 1, "--name", "genuine")
    wait_for(lambda: "genuine" in {a["agent"] for a in low_memory_yard.attempts()}, "a genuine agent is accepted")
    assert memory_of(driver) - before < 20 << 20
    for s in idle:
        s.close()
    run.finish()
    assert output_of(genuine)[0] == 0
    lines = run.dropped()
    most = 20 + 2 * (time.monotonic() - began + 60) / 10  # a burst, then one line per 10 s with a count
    assert len(lines) <= most and log.stat().st_size < 100_000
    wait_for(lambda: sum(map(int, re.findall(r" (\d+) more lines like this were left out", log.read_text()))) > 8000,
             "the log has the number of suppressed lines")


class Impostor:
    """Listens at the address of a driver, and records what it receives."""

    def __init__(self, context: ssl.SSLContext | None = None, sends: bytes = b"") -> None:
        self.context, self.sends = context, sends
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.received = b""
        self.outcomes: list[str] = []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                s = self.listener.accept()[0]
            except OSError:
                return
            s.settimeout(60)
            try:
                with self.context.wrap_socket(s, server_side=True) if self.context else s as s:
                    self.outcomes.append("connected")
                    s.sendall(self.sends)
                    while data := s.recv(65536):
                        self.received += data
            except OSError as e:
                self.outcomes.append(str(e))

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(60)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text("0123456789abcdef" * 4 + "\n")
    return path


@pytest.fixture
def impostors(certificate: Path) -> Iterator[dict[str, Impostor]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    made = {"certificate": Impostor(context), "garbage": Impostor(sends=b"HTTP/1.1 400 Bad Request\r\n\r\n"), "silent": Impostor()}
    yield made
    for impostor in made.values():
        impostor.close()


def test_agent_reveals_nothing_to_a_false_driver(yard: Yard, key: Path, impostors: dict[str, Impostor]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        free = s.getsockname()[1]  # no process listens there any more
    ports = {name: i.port for name, i in impostors.items()} | {"closed": free}
    agents = {name: yard.start("agent", "--join", f"127.0.0.1:{port}", "--key-file", key) for name, port in ports.items()}
    whys = {"certificate": "does not prove the key (certificate verify failed)", "garbage": "for 15 s",
            "silent": "for 15 s: no answer in time", "closed": "for 15 s: connection refused"}
    for name, agent in agents.items():
        status, text = output_of(agent)
        assert status == 1, text
        assert f"127.0.0.1:{ports[name]} " in text and whys[name] in text, text
    assert impostors["certificate"].received == b"" and "connected" not in impostors["certificate"].outcomes
    assert len(impostors["certificate"].outcomes) == 1, "it has retried"
    for name in ("garbage", "silent"):  # all they received was the start of a handshake, which does not contain the key
        received = impostors[name].received
        assert received.startswith(b"\x16\x03\x01") and bytes.fromhex("0123456789abcdef" * 4) not in received and b"0123456789abcdef" not in received


# ---- the client's socket -------------------------------------------------------------------

def test_driver_socket_is_private_to_the_user(yard: Yard, run: Joinable) -> None:
    (path,) = (yard.runtime / "hopyard").glob("*-1.sock")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    log = yard.folder / "run-1.log"

    def lines() -> list[str]:
        return [line for line in log.read_text().splitlines() if "local connection dropped" in line or "a client sent an invalid request" in line]

    frame = b"".join((b"HY", b"\x01\xff", b"\xff" * 60))
    for i, data in enumerate((b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\0" * 4096, b"\xff" * 64, frame)):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(str(path))
            s.sendall(data)
            try:
                assert s.recv(1) == b"", "the driver does not answer invalid requests"
            except ConnectionError:
                pass
        wait_for(lambda: len(lines()) == i + 1, "one line is logged")
    with socket.socket(socket.AF_UNIX) as s:  # a silent client does not block others
        s.connect(str(path))
        assert "running" in yard.run("ls").stdout
        run.finish()
    assert len(lines()) == 5
