# SPDX-License-Identifier: Apache-2.0
"""What attached clients cost the driver of a run with a long history.

    .venv/bin/python bench/clients.py            (make bench-clients; some ten minutes)
    .venv/bin/python bench/clients.py --quick    a tenth of the history, to see that it works

One run of `true`, two trials at a time, whose first 100,000 trials were written
into the store beforehand. In turns nobody is attached, 50 clients attach (half of
them `--json`, which read the whole history, half of them live tables), and these
stay attached. The figure is the driver's own CPU time per trial: the clients take
their share of the machine's cores, so that the rate of trials says little.
"""

import argparse
import contextlib
import glob
import os
import pty
import re
import select
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from report import ROOT, Figure, machine, results, save

HOPYARD = os.environ.get("HOPYARD_BIN", os.path.join(ROOT, ".venv", "bin", "hopyard"))
WORK = os.path.join(ROOT, "build", "bench", "clients")
RESULTS = results("clients")
CLIENTS = 50
PATIENCE_S = 600  # for anything that is waited for

HISTORY = """
WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i < :last)
INSERT INTO trials(run, number, params, dir, state, attempts, started, ended, asked_seq, told_seq, ended_seq)
SELECT 1, i, '{"i": ' || i || '}', 'i=' || i, 2, 1, :now, :now + 5, :seq + 2 * i, :seq + 2 * i + 1, :seq + 2 * i + 1 FROM n
"""


@dataclass
class Window:
    """Some further trials of the run."""

    cpu_ms: float  # of the driver, per trial
    per_second: float
    wal_mb: float  # size of the store's -wal file at its end


# --- the run ---------------------------------------------------------------


def hopyard(*words: str) -> str:
    env = {**os.environ, "HOPYARD_PROJECT": WORK, "XDG_RUNTIME_DIR": WORK}
    done = subprocess.run([HOPYARD, *words], env=env, cwd=WORK, stdin=subprocess.DEVNULL, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"hopyard {' '.join(words)} ended with status {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def store() -> sqlite3.Connection:
    return sqlite3.connect(os.path.join(WORK, ".hopyard", "store.db"), isolation_level=None, timeout=60)


def trials_done() -> int:
    with contextlib.closing(store()) as db:
        return db.execute("SELECT done FROM tallies WHERE run = 1").fetchone()[0]


def wait_for(what: str, seconds: float, condition) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited {seconds:.0f} s in vain until {what}")
        time.sleep(0.02)


def make_run(history: int) -> None:
    """A run that has begun, is stopped, gets its history, and goes on."""
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    hopyard("run", "--detach", "--grid", "i=1..100000000", "--parallel", "2", "--", "true")
    wait_for("its first trials have ended", PATIENCE_S, lambda: trials_done() > 10)
    hopyard("stop", "1")
    with contextlib.closing(store()) as db:
        db.execute("BEGIN IMMEDIATE")
        first, seq = db.execute("SELECT max(number) + 1, max(max(asked_seq, ifnull(ended_seq, 0))) FROM trials").fetchone()
        db.execute(HISTORY, {"first": first, "last": history, "now": int(time.time() * 1000), "seq": seq})
        db.execute("UPDATE tallies SET done = (SELECT count(*) FROM trials WHERE run = 1 AND state = 2) WHERE run = 1")
        db.execute("COMMIT")
    hopyard("resume", "1", "--detach")
    wait_for("it goes on", PATIENCE_S, lambda: trials_done() > history + 100)


def driver_pid() -> int:
    with open(os.path.join(WORK, ".hopyard", "run-1.lock")) as lock:
        return int(lock.read())


def cpu_ms(pid: int) -> float:
    """Of all its threads, in the scheduler's nanoseconds: utime and stime count in steps of 10 ms."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path) as schedstat:
            total += int(schedstat.read().split()[0])
    return total / 1e6


def measure(trials: int) -> Window:
    pid, first = driver_pid(), trials_done()
    before, started = cpu_ms(pid), time.monotonic()
    wait_for("further trials have ended", PATIENCE_S, lambda: trials_done() >= first + trials)
    after, seconds, count = cpu_ms(pid), time.monotonic() - started, trials_done() - first
    wal = os.path.getsize(os.path.join(WORK, ".hopyard", "store.db-wal"))
    return Window((after - before) / count, count / seconds, wal / 2**20)


# --- its clients -------------------------------------------------------------


class Client:
    """`hopyard attach`, as a program or in a terminal. All that it prints is read, and its last trial's number kept."""

    def __init__(self, json: bool) -> None:
        env = {**os.environ, "HOPYARD_PROJECT": WORK, "XDG_RUNTIME_DIR": WORK, "TERM": "xterm"}
        ours, theirs = os.pipe() if json else pty.openpty()
        command = [HOPYARD, "attach", "1", *(["--json"] if json else [])]
        self.process = subprocess.Popen(command, env=env, cwd=WORK, stdin=subprocess.DEVNULL, stdout=theirs,
                                        stderr=theirs)
        os.close(theirs)
        self.json, self.fd, self.read, self.tail = json, ours, 0, b""

    def take(self) -> bool:
        try:
            piece = os.read(self.fd, 1 << 16)
        except OSError:  # a terminal's end
            piece = b""
        self.read += len(piece)
        self.tail = (self.tail + piece)[-2000:]
        return bool(piece)

    def has_reached(self, trial: int) -> bool:
        """A table is complete with its first frame."""
        if not self.json:
            return self.read > 0
        numbers = re.findall(rb'"number": (\d+)', self.tail)
        return bool(numbers) and int(numbers[-1]) >= trial

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


@contextlib.contextmanager
def attached(count: int) -> Iterator[list[Client]]:
    clients = [Client(json=i % 2 == 0) for i in range(count)]
    over = threading.Event()

    def drain() -> None:
        open_ones = list(clients)
        while open_ones and not over.is_set():
            ready = select.select([c.fd for c in open_ones], [], [], 0.2)[0]
            open_ones = [c for c in open_ones if c.fd not in ready or c.take()]

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield clients
    finally:
        over.set()
        reader.join()
        for client in clients:
            client.close()


# --- the report --------------------------------------------------------------


def bench(trials: int, rounds: int, history: int) -> dict[str, list[Window]]:
    kinds: dict[str, list[Window]] = {"nobody": [], f"{CLIENTS} clients attach": [], f"{CLIENTS} clients": []}
    for _ in range(rounds):
        for kind, window in one_round(trials, history):
            kinds[kind if kind in kinds else f"{CLIENTS} {kind}"].append(window)
            print(f"  {kind}: driver {window.cpu_ms:.3f} ms/trial, {window.per_second:.0f} trials/s, "
                  f"wal {window.wal_mb:.1f} MB", flush=True)
    return kinds


def one_round(trials: int, history: int) -> Iterator[tuple[str, Window]]:
    yield "nobody", measure(trials)
    with attached(CLIENTS) as clients:
        yield "clients attach", measure(trials // 4)
        wait_for("all clients have read the history", PATIENCE_S, lambda: all(c.has_reached(history) for c in clients))
        yield "clients", measure(trials)
        if dead := [c for c in clients if c.process.poll() is not None]:
            sys.exit(f"{len(dead)} clients have ended: {dead[0].tail.decode(errors='replace')}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the history, fewer trials")
    options = parser.parse_args()
    history, trials, rounds = (10_000, 500, 2) if options.quick else (100_000, 3000, 5)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # leaves no clients behind
    make_run(history)
    kinds = bench(trials, rounds, history)
    hopyard("stop", "1")
    medians = {kind: Window(*(statistics.median(getattr(w, name) for w in windows)
                              for name in ("cpu_ms", "per_second", "wal_mb"))) for kind, windows in kinds.items()}
    alone = medians["nobody"].cpu_ms
    ratios = [b.cpu_ms / a.cpu_ms for a, b in zip(kinds["nobody"], kinds[f"{CLIENTS} clients"])]
    print(f"  multiples of the rounds: {', '.join(f'{r:.2f}' for r in ratios)}")  # their spread says what the median is worth
    figures = [Figure(f"driver's CPU per trial with {CLIENTS} clients, as a multiple", statistics.median(ratios), "×", 1.1)]
    print(f"\n  {history:,} trials have ended; attached are{'':<13} {'driver ms/trial':>15} {'multiple':>9} {'trials/s':>9} {'wal MB':>7}")
    for kind, window in medians.items():
        print(f"  {kind:<45} {window.cpu_ms:>15.3f} {window.cpu_ms / alone:>9.2f} {window.per_second:>9.0f} {window.wal_mb:>7.1f}")
    print()
    for figure in figures:
        print(figure.row(width=58))
    print(f"  {machine()}; all of it is in {os.path.relpath(RESULTS)}")
    save(RESULTS, figures, history=history, trials=trials,
         windows={kind: [asdict(w) for w in windows] for kind, windows in kinds.items()})
    return 0 if all(f.met for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
