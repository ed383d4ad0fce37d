# SPDX-License-Identifier: Apache-2.0
"""TensorBoard with a run: the real program, in its own process."""
from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Yard, wait_for
from needs import need_root

ADDRESS = re.compile(r"TensorBoard (http://127\.0\.0\.1:(\d+)/)\n")
VIEWER = r"tensorboard\.main"  # its process
FRAME = struct.Struct("<IBBHI")  # src/wire/frame.c
TENSORBOARD_PROCESSES = r"tensorboard[._](main|data_server)"  # with its children


@pytest.fixture
def gate(yard: Yard) -> Iterator[Path]:
    """A run whose trial ends when the gate exists."""
    yard.env["HOPYARD_PYTHON"] = sys.executable
    path = yard.project / "gate"
    yard.run("run", "--detach", "--", "sh", "-c", f"while [ ! -e {path} ]; do sleep 0.05; done")
    yield path
    path.touch()
    yard.wait_idle()


def first_line(p: subprocess.Popen[str]) -> tuple[str, int]:
    assert p.stdout
    line = p.stdout.readline()
    found = ADDRESS.fullmatch(line)
    assert found, f"{line!r}, {p.stderr.read() if p.stderr and not line else ''}"
    return found[1], int(found[2])


def fetch(address: str, path: str) -> bytes:
    """Ignores proxies of the environment."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address + path, timeout=30) as answer:
        assert answer.status == 200
        return bytes(answer.read())


def answers(address: str) -> bool:
    try:
        fetch(address, "data/environment")
    except OSError:
        return False
    return True


def listening(pids: dict[int, str]) -> list[str]:
    """The addresses on which these processes listen, as in /proc/net."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
            if found:
                inodes.add(found[1])
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return [f[1] for f in lines if f[3] == "0A" and f[9] in inodes]


def wait_gone(yard: Yard) -> None:
    wait_for(lambda: not yard.processes(TENSORBOARD_PROCESSES), "TensorBoard exits")


def test_tensorboard_shows_a_running_run_and_exits_with_its_owner(yard: Yard, gate: Path) -> None:
    owner = subprocess.Popen(["sleep", "1000"])
    p = yard.start("tensorboard", 1, "--owner", owner.pid)
    address, port = first_line(p)

    # Watchers get the address when TensorBoard serves it, so that it works when they click.
    watcher = yard.start("attach", 1)
    assert watcher.stdout
    wait_for(lambda: watcher.stdout and watcher.stdout.readline() == f"tensorboard {address}\n", "the address is printed")
    environment = json.loads(fetch(address, "data/environment"))
    assert environment["data_location"] == str(yard.logdir())

    processes = yard.processes(TENSORBOARD_PROCESSES)
    assert any(re.search(VIEWER, c) for c in processes.values()), processes
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in processes] == [10] * len(processes), "it has a low priority"
    addresses = listening(processes)
    assert f"0100007F:{port:04X}" in addresses
    assert all(re.fullmatch(r"0100007F:.*|0{24}01000000:.*", a) for a in addresses), "loopback only"
    viewer = next(pid for pid, command in processes.items() if re.search(VIEWER, command))
    assert b"\0CUDA_VISIBLE_DEVICES=\0" in Path(f"/proc/{viewer}/environ").read_bytes(), "it takes no GPU"

    taken = yard.run("tensorboard", 1, "--port", port, rc=1)
    assert taken.stdout == "" and re.search(rf"port {port} is in use by process {viewer} \(", taken.stderr), taken.stderr

    page = yard.start("attach", 1, "--html")
    assert page.stdout and f'href="{address}"' in page.stdout.readline()
    page.terminate()
    assert page.wait(60) == 0
    page.communicate()

    owner.kill()
    owner.wait()
    assert p.wait(60) == 0
    wait_gone(yard)
    p.communicate()
    page = yard.start("attach", 1, "--html")
    assert page.stdout and "href" not in page.stdout.readline(), "it is not in the first line any more"
    page.terminate()
    page.communicate()

    gate.touch()
    assert watcher.wait(60) == 0
    assert "'hopyard tensorboard 1' shows them" in watcher.communicate()[0]


def test_directory_is_shown_and_tensorboard_dies_with_a_killed_command(yard: Yard) -> None:
    yard.env["HOPYARD_PYTHON"] = sys.executable
    logs = yard.project / "a folder, named=so"
    logs.mkdir()
    (yard.project / "json.py").write_text("raise SystemExit('modules of the folder it is started in are not its own')")
    p = yard.start("tensorboard", "./a folder, named=so")
    address, _ = first_line(p)
    wait_for(lambda: p.poll() is not None or answers(address), "TensorBoard answers")
    assert json.loads(fetch(address, "data/environment"))["data_location"] == str(logs)
    p.kill()
    p.wait()
    wait_gone(yard)
    p.communicate()


def test_run_started_with_tensorboard_stops_it(yard: Yard) -> None:
    yard.env["HOPYARD_PYTHON"] = sys.executable
    gate = yard.project / "gate"
    p = yard.start("run", "--tensorboard", "--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    assert p.stdout
    seen: list[str] = []

    def has_address() -> bool:
        assert p.stdout
        seen.append(p.stdout.readline())
        return seen[-1].startswith("tensorboard ")
    wait_for(has_address, "the address is printed")
    assert answers(seen[-1].split()[1])
    gate.touch()
    assert p.wait(60) == 0
    wait_gone(yard)
    p.communicate()
    yard.wait_idle()


def test_tensorboard_of_a_detached_run_exits_with_its_driver(yard: Yard) -> None:
    yard.env["HOPYARD_PYTHON"] = sys.executable
    output = yard.run("run", "--tensorboard", "--detach", "--", "sleep", 1000).stdout
    assert re.match(r"tensorboard http://127\.0\.0\.1:\d+/\nrun 1 continues", output), output
    wait_for(lambda: yard.processes(VIEWER), "TensorBoard starts")
    yard.run("stop")
    wait_gone(yard)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_command_and_tensorboard(yard: Yard, gate: Path, number: signal.Signals) -> None:
    p = yard.start("tensorboard")
    first_line(p)
    wait_for(lambda: yard.processes(VIEWER), "TensorBoard starts")
    p.send_signal(number)
    assert p.wait(60) == 0
    wait_gone(yard)
    assert p.communicate()[1] == ""


def test_tensorboard_is_not_started_for_a_dead_owner(yard: Yard, gate: Path) -> None:
    owner = subprocess.Popen(["true"])
    owner.wait()
    p = yard.run("tensorboard", "--owner", owner.pid)
    assert p.stdout == p.stderr == ""


def without_tensorboard(yard: Yard) -> Path:
    """A python without packages."""
    return yard.script("bare-python", f'exec {sys.executable} -S "$@"\n')


def test_missing_tensorboard_is_reported_with_a_hint(yard: Yard, gate: Path) -> None:
    python = without_tensorboard(yard)
    p = yard.run("tensorboard", rc=1, env={"HOPYARD_PYTHON": str(python)})
    assert p.stderr == (f"hopyard tensorboard: TensorBoard is not installed for {python}; "
                        f"install it with: {python} -m pip install tensorboard\n")
    assert p.stdout == ""  # no address without a server


def test_run_continues_without_tensorboard(yard: Yard) -> None:
    yard.env["HOPYARD_PYTHON"] = str(without_tensorboard(yard))
    gate = yard.project / "gate"
    p = yard.start("run", "--tensorboard", "--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    wait_for(lambda: p.stdout and p.stdout.readline().startswith("note: TensorBoard is not installed for "), "a note is written")
    gate.touch()
    assert p.wait(60) == 0
    out, err = p.communicate()
    assert "run 1 done" in out and err == ""
    yard.run("run", "--tensorboard", "--detach", "--", "true")
    wait_for(lambda: yard.state(2) == "done", "TensorBoard exits")
    yard.wait_idle()


def test_port_taken_by_another_server_is_not_announced(yard: Yard, gate: Path) -> None:
    p = yard.start("tensorboard")
    _, port = first_line(p)
    with socket.socket() as other_server:
        other_server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other_server.bind(("127.0.0.1", port))
        other_server.listen()
        assert p.wait(60) == 1
        assert re.search(rf"port {port} was taken by \S+ before TensorBoard could bind it", p.communicate()[1])
    wait_gone(yard)


def test_usage_errors(yard: Yard, gate: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        p = yard.run("tensorboard", "--port", port, rc=1)
        assert f"port {port} is in use by process {os.getpid()} (" in p.stderr and p.stdout == ""
    assert "--port takes a number from 1 to 65535" in yard.run("tensorboard", "--port", 0, rc=2).stderr
    assert "--owner takes a process ID" in yard.run("tensorboard", "--owner", "me", rc=2).stderr
    assert "no run 'nowhere'" in yard.run("tensorboard", "nowhere", rc=1).stderr
    (yard.project / "7").mkdir()
    assert "hopyard tensorboard ./7" in yard.run("tensorboard", "7", rc=1).stderr
    p = yard.run("tensorboard", rc=1, env={"HOPYARD_PYTHON": "no-such-python"})
    assert "$HOPYARD_PYTHON: program 'no-such-python' is not in PATH" in p.stderr and p.stdout == ""
    assert "choose one" in yard.run("attach", "--json", "--html", rc=2).stderr


def announce(yard: Yard, address: str) -> socket.socket:
    """As `hopyard tensorboard` does: a frame with ClientRequest{announce{tensorboard}}."""
    body = b"\x0a" + bytes([len(address)]) + address.encode()
    request = b"\x1a" + bytes([len(body)]) + body
    frame = FRAME.pack(len(request), 1, 6, 0, 0) + request
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(next((yard.runtime / "hopyard").glob("*-1.sock"))))
    client.sendall(frame)
    return client


def first_line_of_a_watcher(yard: Yard) -> str:
    """The first line of a new watcher."""
    p = yard.start("attach", 1, "--html")
    assert p.stdout
    found = re.search(r'href="([^"]*)"', p.stdout.readline())
    p.terminate()
    p.communicate()
    return found[1] if found else ""


def test_newest_announced_address_in_use_is_shown(yard: Yard, gate: Path) -> None:
    first = announce(yard, "http://127.0.0.1:1/")
    wait_for(lambda: first_line_of_a_watcher(yard) == "http://127.0.0.1:1/", "the first is shown")
    second = announce(yard, "http://127.0.0.1:2/")
    wait_for(lambda: first_line_of_a_watcher(yard) == "http://127.0.0.1:2/", "the second is shown")
    second.close()
    wait_for(lambda: first_line_of_a_watcher(yard) == "http://127.0.0.1:1/", "the first is shown again")
    first.setblocking(False)
    with pytest.raises(BlockingIOError):  # an announcing client receives nothing
        first.recv(1)
    gate.touch()
    yard.wait_idle()  # and no process waits for it
    first.setblocking(True)
    assert first.recv(1) == b""
    first.close()


def test_run_of_a_function_is_shown_with_its_own_python(yard: Yard) -> None:
    yard.env["HOPYARD_PYTHON"] = "no-such-python"
    yard.script("python", 'echo "$@" >&2; exit 5\n')
    yard.submit([], ["./python", "-m", "trial"], function=b'{"name": "training"}\n')
    yard.run("attach", rc=1)
    output = yard.run("tensorboard", 1, rc=1, cwd=yard.runtime).stderr
    assert f"could not start ({yard.project}/./python, exit status 5): -m tensorboard.main" in output, output
    yard.wait_idle()


def test_number_is_a_run_and_name_is_an_existing_directory(yard: Yard) -> None:
    python = yard.env["HOPYARD_PYTHON"] = str(yard.script("python", 'echo "$@" >&2; exit 5\n'))
    yard.run("run", "--name", "digits", "--", "true")
    logdir = str(yard.logdir())
    for word in ("digits", "1"):
        output = yard.run("tensorboard", word, rc=1).stderr
        assert f"could not start ({python}, exit status 5): -m tensorboard.main --logdir {logdir} " in output, output
    for name in ("digits", "1"):
        (yard.project / name).mkdir()
    output = yard.run("tensorboard", "1", rc=1).stderr
    assert f"--logdir {logdir} " in output, "programs rely on numbers"
    output = yard.run("tensorboard", "digits", rc=1).stderr
    assert f"--logdir {yard.project}/digits " in output and "for the run of that name, use: hopyard tensorboard 1" in output, output
    yard.wait_idle()


@pytest.mark.parametrize("is_ours", [True, False])
def test_program_from_the_store_of_another_user_is_not_started(yard: Yard, is_ours: bool) -> None:
    """A run stores the python of its TensorBoard; a command on another user's store does not run that user's programs."""
    if not is_ours:
        need_root("to give files away")
    python = yard.script("python", "touch $HOPYARD_PROJECT/was-run\n")
    yard.submit([], [python], function=b"{}\n")
    yard.run("attach")
    (yard.project / "was-run").unlink()
    yard.env["HOPYARD_PYTHON"] = "/bin/false"
    if not is_ours:
        os.chown(yard.folder, 65534, -1)
    yard.run("tensorboard", 1, rc=1)
    assert (yard.project / "was-run").exists() == is_ours
