# SPDX-License-Identifier: Apache-2.0
"""The web page: its latency, and the cost of its server.

    .venv/bin/python bench/ui.py            (make bench-ui; a minute)

A run with 100,000 trials is written into a store. Chromium opens its page, and sorts its table; wrk requests the list
of runs; 50 clients follow the output of a trial that prints. Then Optuna Dashboard and MLflow show 10,000 trials, and
hopyard the same ones: the time until Chromium has the first row of the table, and the server's memory after that.
"""

import argparse
import gzip
import http.client
import json
import math
import os
import random
import re
import select
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from report import ROOT, Figure, machine, results, save

HOPYARD = os.environ.get("HOPYARD_BIN", os.path.join(ROOT, ".venv", "bin", "hopyard"))
WORK = os.path.join(ROOT, "build", "bench", "ui")
RESULTS = results("ui")
PEERS = os.path.join(ROOT, "build", "bench", "ui-peers")  # their environment
PACKAGES = ["optuna==5.0.0", "optuna-dashboard==0.21.0", "mlflow==3.17.2"]
TRIALS = 100_000
PEER_TRIALS = 10_000
RUNS = 100  # in the list that wrk requests
FOLLOWERS = 50
ROUNDS = 5
PATIENCE_S = 120

INSERT = """INSERT INTO trials(run, number, params, dir, state, value, score, attempts, started, ended, asked_seq, told_seq,
ended_seq) VALUES (?, ?, ?, ?, 2, ?, ?, 1, ?, ?, ?, ?, ?)"""


# --- trials --------------------------------------------------------------------


def trials(count: int) -> Iterator[tuple[dict[str, Any], float]]:
    """Hyperparameters and a value; the same for all."""
    source = random.Random(1)
    for _ in range(count):
        params = {"lr": 10 ** source.uniform(-5, -1), "units": int(2 ** source.uniform(4, 10)),
                  "dropout": source.uniform(0, 0.5), "act": source.choice(["relu", "tanh", "gelu"])}
        yield params, 0.95 - 0.08 * (math.log10(params["lr"]) + 3) ** 2 - (params["dropout"] - 0.2) ** 2 + source.gauss(0, 0.02)


def hopyard(project: str, *words: str) -> None:
    env = {**os.environ, "HOPYARD_PROJECT": project, "XDG_STATE_HOME": os.path.join(WORK, "state")}
    subprocess.run([HOPYARD, *words], env=env, cwd=project, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def make_run(project: str, count: int) -> None:
    """A run with one trial of its own, and the others written into the store."""
    os.makedirs(project)
    hopyard(project, "run", "--random", "1", "--space", "lr=log:1e-5..1e-1", "--space", "units=log:16..1024", "--space",
            "dropout=0..0.5", "--space", "act=relu,tanh,gelu", "--max", "acc", "--", "sh", "-c",
            "echo acc=0.1 {lr} {units} {dropout} {act}")
    with sqlite3.connect(os.path.join(project, ".hopyard", "store.db"), isolation_level=None) as db:
        start = int(time.time() * 1000)
        rows = ((1, n, json.dumps(params), f"t={n}", value, -value, start + n, start + n + 900, 9 + 2 * n, 10 + 2 * n, 10 + 2 * n)
                for n, (params, value) in enumerate(trials(count), 2) if n <= count)
        db.execute("BEGIN IMMEDIATE")
        db.executemany(INSERT, rows)
        db.execute("UPDATE tallies SET done = ? WHERE run = 1", (count,))
        db.execute("UPDATE runs SET total = ? WHERE id = 1", (count,))
        db.execute("COMMIT")


# --- servers -------------------------------------------------------------------


def memory_mb(pid: int) -> float:
    """Of a process and its descendants: private memory, and the proportional share of shared memory (PSS)."""
    total = 0
    for one in [pid, *descendants(pid)]:
        with open(f"/proc/{one}/smaps_rollup") as rollup:
            total += sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    return total / 1024


def descendants(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        direct = [int(child) for child in children.read().split()]
    return direct + [one for child in direct for one in descendants(child)]


@contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, start_new_session=True, **options)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


class Server:
    """`hopyard ui`, and a cookie that is logged in."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        assert process.stdout
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)(/login\S+)", line):
                self.port, self.login = int(found[1]), found[2]
                break
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", self.login)
        self.cookie = connection.getresponse().headers["Set-Cookie"].partition(";")[0]
        connection.close()

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def served(project: str) -> Iterator[Server]:
    env = {**os.environ, "HOPYARD_PROJECT": project, "XDG_STATE_HOME": os.path.join(WORK, "state")}
    with started([HOPYARD, "ui", "--no-browser", "--port", "0"], cwd=project, env=env, stdout=subprocess.PIPE) as process:
        yield Server(process)


# --- in the browser ------------------------------------------------------------


OWN_ROW = "document.querySelector('.rows tbody tr:not(.space)')"
WATCH = """() => {
  const watch = new MutationObserver(() => {
    if (!(ROW)) return;
    watch.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => (window.tableShown = performance.now())));
  });
  watch.observe(document, { childList: true, subtree: true });
}"""


def time_to_table(browser: Browser, url: str, row: str, cookie: str = "") -> float:
    """Milliseconds from a request, by a browser that has no cache yet, to the frame after the one with the first row.

    The page itself measures it: Playwright polls for elements too rarely. `row` is an expression of JavaScript.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    if cookie:
        name, _, value = cookie.partition("=")
        context.add_cookies([{"name": name, "value": value, "url": "/".join(url.split("/")[:3])}])
    page = context.new_page()
    page.add_init_script(f"({WATCH.replace('ROW', row)})()")
    page.goto(url, wait_until="commit")
    deadline = time.monotonic() + PATIENCE_S
    while not (elapsed := page.evaluate("window.tableShown")):
        if time.monotonic() > deadline:
            sys.exit(f"{url} shows no table after {PATIENCE_S} s")
        time.sleep(0.2)
    context.close()
    return elapsed


SORT = """name => new Promise(resolve => {
  const button = [...document.querySelectorAll(".rows thead button")].find(b => b.textContent === name);
  const begin = performance.now();
  button.click();
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - begin)));
})"""


def sorts_ms(browser: Browser, server: Server) -> list[float]:
    """From a click on the title of a column to the next frame, of each column."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    name, _, value = server.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": server.address("/")}])
    page: Page = context.new_page()
    page.goto(server.address("/runs/1?tab=trials"))
    page.locator(".rows tbody tr:not(.space)").first.wait_for()
    times = [page.evaluate(SORT, title) for title in ["lr", "act", "units", "dropout", "acc", "Trial"] for _ in range(2)]
    context.close()
    return times


# --- the server's figures ------------------------------------------------------


def api_ms(server: Server) -> float:
    """The slowest page of trials, of any order."""
    worst = 0.0
    for sort in ("number", "value", "-value", "state", "-time", "param:lr", "-param:act"):
        for offset in (0, TRIALS // 2, TRIALS - 100):
            request = urllib.request.Request(server.address(f"/api/v1/runs/1/trials?sort={sort}&offset={offset}"),
                                             headers={"Cookie": server.cookie})
            begin = time.monotonic()
            with urllib.request.urlopen(request) as reply:
                reply.read()
            worst = max(worst, (time.monotonic() - begin) * 1000)
    return worst


def add_small_runs(project: str) -> None:
    """Copies of a finished run, so that the list has as many as a project after some weeks."""
    hopyard(project, "run", "--name", "small", "--", "true")
    with sqlite3.connect(os.path.join(project, ".hopyard", "store.db"), isolation_level=None) as db:
        columns = ", ".join(row[1] for row in db.execute("PRAGMA table_info(runs)") if row[1] != "id")
        of_tallies = ", ".join(row[1] for row in db.execute("PRAGMA table_info(tallies)") if row[1] != "run")
        db.execute("BEGIN IMMEDIATE")
        for run in range(3, RUNS + 1):
            values = columns.replace("app_id", f"app_id || '-{run}'")  # the pair with app_run is unique
            db.execute(f"INSERT INTO runs(id, {columns}) SELECT {run}, {values} FROM runs WHERE id = 2")
            db.execute(f"INSERT INTO tallies(run, {of_tallies}) SELECT {run}, {of_tallies} FROM tallies WHERE run = 2")
        db.execute("COMMIT")


def requests_per_s(server: Server) -> float:
    done = subprocess.run(["wrk", "-t1", "-c8", "-d5s", "-H", f"Cookie: {server.cookie}", server.address("/api/v1/runs")],
                          capture_output=True, text=True, check=True)
    if "Non-2xx" in done.stdout:
        sys.exit(f"the server refused requests:\n{done.stdout}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1])


def follow(server: Server, run: int) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", server.port))
    s.sendall(f"GET /api/v1/runs/{run}/trials/1/output/stdout?follow=1 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
              f"Cookie: {server.cookie}\r\n\r\n".encode())
    return s


def await_trial(server: Server, run: int) -> None:
    """Waits for the first trial: a detached run may not have started it yet."""
    request = urllib.request.Request(server.address(f"/api/v1/runs/{run}/trials/1"), headers={"Cookie": server.cookie})
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            urllib.request.urlopen(request).close()
            return
        except urllib.error.HTTPError as refused:
            if refused.code != 404 or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def followed_mb(project: str) -> float:
    """The server's memory while clients follow a log that grows."""
    hopyard(project, "run", "--detach", "--", "sh", "-c", "while :; do seq 1000; sleep 0.05; done")
    try:
        with served(project) as server, ExitStack() as stack:
            await_trial(server, RUNS + 1)
            clients = [stack.enter_context(follow(server, RUNS + 1)) for _ in range(FOLLOWERS)]
            received, most, deadline = dict.fromkeys(clients, 0), 0.0, time.monotonic() + PATIENCE_S
            while min(received.values()) < 1_000_000:
                if time.monotonic() > deadline:
                    sys.exit(f"a follower has received {min(received.values())} bytes in {PATIENCE_S} s")
                for client in select.select(clients, [], [], 1)[0]:
                    received[client] += len(client.recv(1 << 18))
                most = max(most, memory_mb(server.pid))
            return most
    finally:
        hopyard(project, "stop", str(RUNS + 1))


def page_kb(server: Server) -> float:
    """What a browser loads before it asks for data, as it is sent."""
    total = 0
    for path in ("/", "/assets/app.js", "/assets/app.css"):
        request = urllib.request.Request(server.address(path), headers={"Cookie": server.cookie, "Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request) as reply:
            body = reply.read()
            total += len(body) if reply.headers.get("Content-Encoding") == "gzip" else len(gzip.compress(body))
    return total / 1024


# --- peers ---------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def await_reply(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            urllib.request.urlopen(url).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def peer(browser: Browser, name: str, command: list[str], path: str, row: str) -> tuple[float, float]:
    """Time to the first row in ms, and the server's memory then in MB."""
    port = free_port()
    command = [*command, "--host", "127.0.0.1", "--port", str(port)]
    with (open(os.path.join(WORK, f"{name}.log"), "w") as log,
          started(command, stdout=log, stderr=log, cwd=WORK) as process):
        await_reply(f"http://127.0.0.1:{port}/")
        url = f"http://127.0.0.1:{port}{path}"
        times = [time_to_table(browser, url, row) for _ in range(3)]
        return statistics.median(times), memory_mb(process.pid)


def make_peers() -> None:
    if not os.path.exists(os.path.join(PEERS, "bin", "mlflow")):
        subprocess.run([sys.executable, "-m", "venv", "--clear", PEERS], check=True)
        subprocess.run([os.path.join(PEERS, "bin", "pip"), "install", "--quiet", *PACKAGES], check=True)
    with open(os.path.join(WORK, "trials.json"), "w") as file:
        json.dump(list(trials(PEER_TRIALS)), file)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as fast:  # Optuna commits each trial
        for name in ("optuna", "mlflow"):
            subprocess.run([os.path.join(PEERS, "bin", "python"), os.path.join(ROOT, "bench", "ui_peers.py"), name,
                            os.path.join(fast, f"{name}.db"), os.path.join(WORK, "trials.json")], check=True)
            shutil.move(os.path.join(fast, f"{name}.db"), WORK)


def peer_figures(browser: Browser) -> list[Figure]:
    make_peers()
    project = os.path.join(WORK, "small")
    make_run(project, PEER_TRIALS)
    with served(project) as server:
        row = OWN_ROW
        own_ms = statistics.median(time_to_table(browser, server.address("/runs/1"), row, server.cookie) for _ in range(3))
        own_mb = memory_mb(server.pid)
    program = os.path.join(PEERS, "bin")
    shown = {
        "Optuna Dashboard": peer(browser, "optuna", [f"{program}/optuna-dashboard", f"sqlite:///{WORK}/optuna.db"],
                                 "/dashboard/studies/1/trials", "[...document.querySelectorAll('li')].some(e => e.textContent.includes('Complete'))"),
        "MLflow": peer(browser, "mlflow", [f"{program}/mlflow", "server", "--backend-store-uri", f"sqlite:///{WORK}/mlflow.db"],
                       "/#/experiments/1/runs", "document.querySelector('[role=row] [role=gridcell]')"),
    }
    figures = []
    for name, (ms, mb) in shown.items():
        print(f"  {PEER_TRIALS:,} trials: {name} {ms:.0f} ms, {mb:.0f} MB; hopyard {own_ms:.0f} ms, {own_mb:.1f} MB")
        figures.append(Figure(f"first table of {PEER_TRIALS:,} trials, against {name}", ms / own_ms, "×", 1, less=False))
        figures.append(Figure(f"server's memory then, against {name}", mb / own_mb, "×", 1, less=False))
    return figures


# --- the report ----------------------------------------------------------------


def own_figures(browser: Browser, project: str) -> list[Figure]:
    with served(project) as server:
        row = OWN_ROW
        paint = statistics.median(time_to_table(browser, server.address("/runs/1"), row, server.cookie) for _ in range(ROUNDS))
        sorts = sorts_ms(browser, server)
        figures = [
            Figure(f"first table of a run with {TRIALS:,} trials", paint, "ms", 1000),
            Figure("a sort of these in the page, slowest column", max(sorts), "ms", 200),
            Figure("a page of these in any order, slowest", api_ms(server), "ms", 200),
            Figure("page weight, compressed", page_kb(server), "KB", 300),
        ]
    add_small_runs(project)
    with served(project) as server:
        figures.append(Figure(f"requests for a list of {RUNS} runs", requests_per_s(server), "/s", 2000, less=False))
    figures.append(Figure(f"server's memory with {FOLLOWERS} followers of a log", followed_mb(project), "MB", 30))
    return figures


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # leaves no servers behind
    shutil.rmtree(WORK, ignore_errors=True)
    project = os.path.join(WORK, "large")
    os.makedirs(WORK)
    make_run(project, TRIALS)
    with sync_playwright() as playwright:
        path = next(p for p in ("/usr/bin/chromium", "/usr/bin/google-chrome") if os.path.exists(p))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        figures = []
        for measure in (lambda: own_figures(browser, project), lambda: peer_figures(browser)):
            part = measure()
            for figure in part:
                print(figure.row(width=58), flush=True)
            figures += part
        browser.close()
    print(f"  {machine()}; all of it is in {os.path.relpath(RESULTS)}")
    save(RESULTS, figures, trials=TRIALS)
    return 0 if all(f.met for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
