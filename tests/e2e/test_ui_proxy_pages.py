# SPDX-License-Identifier: Apache-2.0
"""The page in Chromium below a path: behind nginx, with the configuration of docs/cli.md, and behind JupyterHub's proxy."""
from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from apps import use_echo_app
from browser import shoot
from certificates import issue
from conftest import ROOT, Yard, wait_for
from playwright.sync_api import Browser, Page, expect
from ui import Ui, end

SETTINGS = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  ssl_certificate {cert}; ssl_certificate_key {key};
{servers}
}}
"""


def documented(page: int, apps: int, fronts: list[int]) -> str:
    """The two servers of the documentation, at these ports."""
    text = re.search(r"```nginx\n(.*?)```", (ROOT / "docs/cli.md").read_text(), re.S)
    assert text
    servers = text[1].replace("127.0.0.1:4677", f"127.0.0.1:{page}").replace("127.0.0.1:4678", f"127.0.0.1:{apps}")
    for port in fronts:
        servers = servers.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl reuseport", 1)
    return servers


@pytest.fixture
def fronts() -> Iterator[list[int]]:
    """Two ports, held for nginx by sockets that do not listen."""
    with socket.socket() as first, socket.socket() as second:
        for s in (first, second):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            s.bind(("127.0.0.1", 0))
        yield [s.getsockname()[1] for s in (first, second)]


def listening(pid: int) -> set[int]:
    """The TCP ports of a process."""
    sockets = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


@contextmanager
def nginx(folder: Path, servers: str) -> Iterator[Path]:
    """Yields its log of errors."""
    certificate, settings, log = issue(folder, "nginx"), folder / "nginx.conf", folder / "error.log"
    settings.write_text(SETTINGS.format(folder=folder, cert=certificate.cert, key=certificate.key, servers=servers))
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    assert program
    with subprocess.Popen([program, "-e", log, "-c", settings]) as process:
        wait_for(lambda: (folder / "nginx.pid").exists() or process.poll() is not None, "nginx starts")
        try:
            yield log
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.fixture
def behind(yard: Yard, fronts: list[int], browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A browser that is logged in through nginx."""
    use_echo_app(yard)
    server = Ui(yard, "--base-url", f"https://localhost:{fronts[0]}/ada", "--apps-url", f"https://localhost:{fronts[1]}")
    [apps] = listening(server.process.pid) - {server.port}
    context = browser.new_context(viewport={"width": 1200, "height": 800}, ignore_https_errors=True)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    with nginx(tmp_path, documented(server.port, apps, fronts)) as log:
        page.goto(f"https://localhost:{fronts[0]}/ada{server.login}")
        yield page
        context.close()
    end(server)
    assert complaints == [] and "[error]" not in log.read_text()


@pytest.mark.view
def test_the_page_is_used_behind_nginx_below_a_path(yard: Yard, behind: Page, fronts: list[int], tmp_path: Path) -> None:
    gate = yard.project / "gate"
    expect(behind.get_by_text("This project has no runs yet")).to_be_visible()
    assert behind.url == f"https://localhost:{fronts[0]}/ada/"
    yard.run("run", "--detach", "--name", "digits", "--grid", "x=[1]", "--max", "acc", "--", "sh", "-c",
             f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo acc=0.5")
    behind.get_by_role("link", name="digits").click()  # without a reload
    behind.get_by_role("cell", name="1", exact=True).first.get_by_role("link").click()
    expect(behind.get_by_role("log")).to_have_text("first")
    gate.touch()
    expect(behind.get_by_role("log")).to_have_text("first\nacc=0.5")  # nginx does not buffer it
    expect(behind.locator("header .state")).to_have_text("done")
    assert behind.url == f"https://localhost:{fronts[0]}/ada/runs/1/trials/1"
    behind.reload()
    expect(behind.get_by_role("heading", name="Run 1, trial 1")).to_be_visible()

    data = tmp_path / "numbers.bin"
    data.write_bytes(bytes(range(256)) * 40_000)  # 10 MB: two pieces
    behind.get_by_role("link", name="Files").click()
    behind.locator("input[type=file]").first.set_input_files(data)
    wait_for(lambda: (yard.project / "numbers.bin").exists(), "the file has arrived")
    assert (yard.project / "numbers.bin").read_bytes() == data.read_bytes()

    behind.goto(f"https://localhost:{fronts[0]}/ada/tensorboard?runs=1")
    expect(behind.locator("iframe")).to_be_visible(timeout=30_000)
    frame = behind.frames[1]
    frame.wait_for_url(f"https://localhost:{fronts[1]}/tensorboard/*/")
    assert frame.evaluate("""() => new Promise((done, fail) => {
        const s = new WebSocket(location.href.replace("https", "wss") + "websocket");
        s.onopen = () => done("open"); s.onerror = () => fail("refused"); })""") == "open"
    shoot(behind, "proxy")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def server_proxy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """jupyter-server-proxy, which is not in .venv; Jupyter's server is."""
    target = tmp_path_factory.mktemp("server-proxy")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", target]
    for packages in (["--no-deps", "jupyter-server-proxy"], ["--upgrade", "aiohttp", "simpervisor"]):
        installed = subprocess.run([*pip, *packages], capture_output=True, text=True)
        if installed.returncode:
            pytest.skip(f"needs PyPI: {installed.stderr[-200:]}")
    return target


@contextmanager
def jupyter_server(yard: Yard, port: int, server_proxy: Path, folder: Path) -> Iterator[None]:
    """As JupyterHub starts it for ada, but without a login."""
    env = {**yard.env, "PYTHONPATH": str(server_proxy), "HOME": str(folder), "JUPYTER_CONFIG_DIR": str(folder / "config")}
    options = ["--allow-root", "--no-browser", "--ServerApp.base_url=/user/ada", "--IdentityProvider.token=", f"--port={port}",
               "--ServerApp.port_retries=0", "--ServerApp.jpserver_extensions={'jupyter_server_proxy': True}"]
    with subprocess.Popen([sys.executable, "-m", "jupyter_server", *options], env=env, cwd=folder, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: process.poll() is not None or port in listening(process.pid), "the server listens")
        try:
            yield
        finally:
            process.terminate()


@pytest.mark.full
def test_the_page_is_used_behind_the_proxy_of_jupyterhub(yard: Yard, browser: Browser, server_proxy: Path, tmp_path: Path) -> None:
    gate, hub, own = yard.project / "gate", free_port(), free_port()
    base = f"http://localhost:{hub}/user/ada/proxy/absolute/{own}"
    server = Ui(yard, "--port", str(own), "--base-url", base)
    page = browser.new_page()
    with jupyter_server(yard, hub, server_proxy, tmp_path):
        page.goto(base + server.login)
        expect(page.get_by_text("This project has no runs yet")).to_be_visible()
        yard.run("run", "--detach", "--name", "digits", "--grid", "x=[1]", "--max", "acc", "--", "sh", "-c",
                 f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo acc=0.5")
        page.get_by_role("link", name="digits").click()  # without a reload
        page.get_by_role("cell", name="1", exact=True).first.get_by_role("link").click()
        expect(page.get_by_role("log")).to_have_text("first")  # this proxy passes on at once only what is requested as events
        gate.touch()
        expect(page.get_by_role("log")).to_have_text("first\nacc=0.5")
        assert page.url == f"{base}/runs/1/trials/1"
        page.get_by_role("button", name="Edit…").click()
        page.get_by_role("dialog").get_by_label("Tags").fill("night")
        page.get_by_role("dialog").get_by_role("button", name="Save").click()  # changes have the origin of the hub
        expect(page.locator("header .tag")).to_have_text("night")
        page.close()
    end(server)
