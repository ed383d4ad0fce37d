# SPDX-License-Identifier: Apache-2.0
"""Jupyter behind the page, by a plain HTTP client. In Chromium: test_ui_jupyter_pages.py."""
from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Yard, wait_for
from ui import Ui, end


@pytest.fixture
def server(yard: Yard) -> Iterator[Ui]:
    yard.env["HOPYARD_PYTHON"] = sys.executable
    ui = Ui(yard)
    yield ui
    end(ui)


def is_refused(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == errno.ECONNREFUSED


def test_same_settings_are_the_same_server_and_others_are_not(server: Ui) -> None:
    server.log_in()
    first = server.post("/api/v1/apps/jupyter?mode=experiments&parallel=2").json()
    assert server.post("/api/v1/apps/jupyter?mode=experiments&parallel=2&executors=").json()["id"] == first["id"]
    other = server.post("/api/v1/apps/jupyter?mode=allreduce").json()
    assert other["id"] != first["id"] and other["details"] == {"mode": "allreduce"}
    assert [app["id"] for app in server.get("/api/v1/apps")["apps"]] == [first["id"], other["id"]]


def test_jupyter_ends_with_a_killed_server_of_the_page(yard: Yard) -> None:
    yard.env["HOPYARD_PYTHON"] = sys.executable
    server = Ui(yard)
    server.log_in()
    app = server.post("/api/v1/apps/jupyter?mode=experiments").json()
    wait_for(lambda: server.get(f"/api/v1/apps/{app['id']}")["state"] == "ready", "it is ready", 120)
    assert yard.processes("hopyard._jupyter")
    server.process.kill()
    server.process.communicate()
    wait_for(lambda: not yard.processes("hopyard._jupyter"), "it ends")
    [path] = yard.runtime.rglob("app-*.sock")
    wait_for(lambda: is_refused(path), "its socket is closed: a process that exits has no command line before that")
    end(Ui(yard))  # the next one removes its stale files
    assert not path.exists()


@pytest.mark.parametrize(("query", "sentence"), [
    ("mode=fast", "--mode takes experiments, tfonspark or allreduce, not 'fast'"),
    ("mode=tfonspark&executors=1&parameter-servers=1", "must be less than the number of executors (1)"),
    ("executors=--help", "--executors takes an integer"),
    ("engine=%0a%22%3cscript%3e", "--engine takes local"),
])
def test_invalid_form_is_explained_in_one_line(server: Ui, query: str, sentence: str) -> None:
    server.log_in()
    app = server.post(f"/api/v1/apps/jupyter?{query}").json()
    wait_for(lambda: server.get(f"/api/v1/apps/{app['id']}")["state"] == "failed", "it fails")
    assert sentence in server.get(f"/api/v1/apps/{app['id']}")["message"]


def test_form_needs_a_session_of_the_page(server: Ui) -> None:
    assert server.post("/api/v1/apps/jupyter?mode=experiments").status == 401
    server.log_in()
    assert server.request("/api/v1/apps/jupyter?mode=experiments", "POST").status == 403, "not without an Origin"
    assert server.post(f"/api/v1/apps/jupyter?engine={'x' * 201}").status == 400
    assert server.get("/api/v1/apps") == {"apps": []}
