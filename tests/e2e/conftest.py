# SPDX-License-Identifier: Apache-2.0
"""The yard fixture: one project directory, one runtime directory, and the real program.

Every process that a test starts, directly or not, has the runtime directory in
its environment, so that a test can check at its end that no process is left.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from contextlib import suppress
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import pytest
from browser import browser, page  # noqa: F401  (fixtures)
from hdfs import hdfs, hdfs_cluster, hdfs_ha, hdfs_ha_cluster  # noqa: F401  (fixtures)
from hdfs import hdfs_kerberos, hdfs_kerberos_cluster, hdfs_sockets, hdfs_sockets_cluster  # noqa: F401
from needs import need_root
from submission import submission, submitted
from spark import session, spark_cluster, yarn_cluster, yarn_session  # noqa: F401  (fixtures)
from waiting import wait_for as wait_for  # re-exported for the tests

ROOT = Path(__file__).absolute().parents[2]
BIN = os.environ.get("HOPYARD_BIN", str(ROOT / ".venv/bin/hopyard"))
RELEASE_BIN = os.environ.get("HOPYARD_RELEASE_BIN", str(ROOT / ".venv/bin/hopyard"))

TRIAL_STATES = {1: "running", 2: "done", 3: "failed", 4: "stopped", 5: "pruned", 6: "paused"}
ATTEMPT_STATES = {1: "running", 2: "done", 3: "failed", 4: "lost", 5: "stopped"}
RUN_STATES = {1: "running", 2: "done", 3: "stopped", 4: "failed"}


def engine_of(item: pytest.Item) -> str | None:
    return item.callspec.params.get("engine") if hasattr(item, "callspec") else None


def clusters_of(item: pytest.Item) -> set[str]:
    """"spark", "yarn", "hdfs": from its fixtures ("hdfs_ha_cluster") or from an engine parameter."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else []
    asked = {p for p in parameters if isinstance(p, str) and p in ("spark", "yarn", "hdfs")}
    fixtures = {name.partition("_")[0] for name in getattr(item, "fixturenames", []) if name.endswith("_cluster")}
    return asked | fixtures | ({"spark", "yarn"} if item.path.name.startswith("test_cluster") else set())


def repeated_on_clusters(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of tests with a Spark and a YARN variant, one or the other in turns."""
    variants: dict[tuple[Any, ...], dict[str, pytest.Item]] = {}
    for item in items:
        values = list(item.callspec.params.values()) if hasattr(item, "callspec") else []
        for part in {"spark", "yarn"} & {value for value in values if isinstance(value, str)}:
            others = repr([value for value in values if value != part])
            variants.setdefault((item.path, item.originalname, others), {})[part] = item
    both = [variant for variant in variants.values() if len(variant) == 2]
    return [variant[("spark", "yarn")[turn % 2]] for turn, variant in enumerate(both)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests that need a cluster, those that need YARN, and those that need only HDFS.

    Of the suites for all engines (engines.py), clusters run what is not marked `full`, and what both Spark and YARN
    could run, one of them does; or everything with HOPYARD_TEST_CLUSTER=all (make test-cluster). Of the tests in a
    browser (test_ui*_pages.py), those that are marked `view` run, or every one with HOPYARD_TEST_UI=all (make test-ui),
    as do tests of the page that are marked `full`.
    """
    ui = [i for i in items if i.path.name.startswith("test_ui")]
    for item in items:
        if clusters := clusters_of(item):
            item.add_marker("cluster")
        if "yarn" in clusters:
            item.add_marker("yarn")
        if clusters == {"hdfs"}:
            item.add_marker("hdfs")
    left: list[pytest.Item] = []
    if os.environ.get("HOPYARD_TEST_CLUSTER") != "all":
        left += [i for i in items if i.get_closest_marker("full") and engine_of(i) in (None, "spark", "yarn") and i not in ui]
        if not config.option.keyword:
            left += repeated_on_clusters([i for i in items if i not in left])
    if os.environ.get("HOPYARD_TEST_UI") != "all" and not config.option.keyword:
        left += [i for i in ui if i.get_closest_marker("full") or
                 i.path.name.endswith("_pages.py") and not i.get_closest_marker("view")]
    config.hook.pytest_deselected(items=left)
    items[:] = [i for i in items if i not in left]


def all_pids() -> frozenset[str]:
    return frozenset(entry for entry in os.listdir("/proc") if entry.isdigit())


def pids_with(mark: str, older: frozenset[str] = frozenset()) -> dict[int, str]:
    """Processes whose environment contains `mark`, with their command lines; not those in `older`.

    Tests call it up to 100 times a second while they wait, so of most processes it reads one file or none.
    """
    found, wanted = {}, mark.encode()
    for entry in all_pids() - older:
        if int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb", buffering=0) as environ:
                if wanted not in environ.readall():
                    continue
            command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if state != "Z":
            found[int(entry)] = command.strip()
    return found


def cgroups_left() -> set[str]:
    """Cgroups below ours whose agents have exited (hopyard-agent-KEEPER.PID.STARTTIME)."""
    own = {line.rsplit(":", 1)[1].strip() for line in open("/proc/self/cgroup")} - {"/"} or {""}
    found = set()
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        if folder.endswith(tuple(own)):
            found |= {os.path.join(folder, n) for n in names
                      if n.startswith("hopyard-agent-") and not os.path.exists(f"/proc/{n.split('.')[1]}")}
    return found


class Yard:
    def __init__(self, folder: Path, binary: str = BIN) -> None:
        self.bin = binary
        self.older_pids = all_pids()
        self.cgroups_before = cgroups_left()
        self.project = folder / "project"
        self.project.mkdir()
        self.runtime = Path(tempfile.mkdtemp(prefix="hy-"))  # short: a socket path has at most 107 bytes
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HOPYARD_")}
        self.env.update(
            XDG_RUNTIME_DIR=str(self.runtime),
            XDG_STATE_HOME=str(folder / "state"),
            HOPYARD_PROJECT=str(self.project),
            PATH=f"{Path(binary).parent}:{os.environ['PATH']}",
            NO_COLOR="1",
        )

    # ---- the program ----
    def command(self, *args: object) -> list[str]:
        return [self.bin, *map(str, args)]

    def start(self, *args: object, **kw: Any) -> subprocess.Popen[str]:
        kw.setdefault("env", self.env)
        kw.setdefault("cwd", self.project)
        kw.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(self.command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)

    def run(self, *args: object, rc: int | None = 0, timeout: float = 240, env: dict[str, str] | None = None,
            cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        p = subprocess.run(self.command(*args), env={**self.env, **(env or {})}, cwd=cwd or self.project, text=True,
                           errors="replace", capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL)
        if rc is not None and p.returncode != rc:
            raise AssertionError(f"{' '.join(map(str, args))}: exit status {p.returncode}, not {rc}\n"
                                 f"--- stdout\n{p.stdout[-4000:]}\n--- stderr\n{p.stderr[-4000:]}\n--- driver\n{self.driver_log()}")
        return p

    def submit(self, options: Sequence[tuple[str, object]], argv: Sequence[object], env: dict[str, str] | None = None,
               **fields: Any) -> dict[str, int | str]:
        """Starts a run as a client library does."""
        p = subprocess.run(self.command("driver", "--submit"), input=submission(options, argv, **fields),
                           env={**self.env, **(env or {})}, cwd=self.project, capture_output=True, timeout=240)
        return submitted(p.stdout)

    def events(self, *args: object, **kw: Any) -> list[dict[str, Any]]:
        """The events of `hopyard run --json …`."""
        return [json.loads(line) for line in self.run(args[0], "--json", *args[1:], **kw).stdout.splitlines()]

    def script(self, name: str, text: str) -> Path:
        path = self.project / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path

    # ---- the store ----
    @property
    def folder(self) -> Path:
        return self.project / ".hopyard"

    def checkpointed(self) -> tuple[Any, ...] | None:
        """Changes after a checkpoint of store.db-wal into store.db: the (coarse) modification time, the change counter in
        its header, and the salt in the header of the -wal file, which a checkpoint may also remove."""
        path, wal = self.folder / "store.db", self.folder / "store.db-wal"
        try:
            with open(path, "rb") as file:
                head = file.read(32)
            stat = path.stat()
        except FileNotFoundError:
            return None
        try:
            with open(wal, "rb") as file:
                salt = file.read(32)
        except FileNotFoundError:
            salt = None
        return stat.st_mtime_ns, stat.st_size, head, salt

    def rows(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        """Reads a copy: reading in place would need free space on a full disk."""
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(50):
                before = self.checkpointed()
                for name in ("store.db", "store.db-wal"):
                    with suppress(FileNotFoundError):  # the last process that closes the store removes the -wal file
                        shutil.copyfile(self.folder / name, f"{folder}/{name}")
                if self.checkpointed() != before:  # the copy of store.db is older than that of the -wal file
                    Path(folder, "store.db-wal").unlink(missing_ok=True)
                    continue
                db = sqlite3.connect(f"{folder}/store.db")
                db.row_factory = sqlite3.Row
                try:
                    return [dict(r) for r in db.execute(sql, args)]
                except sqlite3.DatabaseError as e:
                    if "no such table" in str(e):  # it is being created
                        return []
                    if "malformed" not in str(e):  # copied during a write: retry
                        raise
                finally:
                    db.close()
                    for left in Path(folder).iterdir():
                        left.unlink()
            raise AssertionError("cannot read the store")

    def trials(self, run: int = 1) -> list[dict[str, Any]]:
        rows = self.rows("SELECT * FROM trials WHERE run = ? ORDER BY number", run)
        for r in rows:
            r["state"] = TRIAL_STATES[r["state"]]
            r["params"] = json.loads(r["params"])
        return rows

    def attempts(self, run: int = 1, trial: int | None = None) -> list[dict[str, Any]]:
        rows = self.rows("SELECT * FROM attempts WHERE run = ? ORDER BY trial, number", run)
        for r in rows:
            r["state"] = ATTEMPT_STATES[r["state"]]
        return [r for r in rows if trial is None or r["trial"] == trial]

    def state(self, run: int = 1) -> str:
        rows = self.rows("SELECT state FROM runs WHERE id = ?", run) if (self.folder / "store.db").exists() else []
        return RUN_STATES[rows[0]["state"]] if rows else ""

    def logdir(self, run: int = 1) -> Path:
        return Path(self.rows("SELECT logdir FROM runs WHERE id = ?", run)[0]["logdir"])

    def driver_log(self) -> str:
        logs = sorted(self.folder.glob("run-*.log")) if self.folder.exists() else []
        return "\n".join(p.read_text(errors="replace")[-4000:] for p in logs)

    # ---- its processes ----
    def processes(self, pattern: str = "") -> dict[int, str]:
        return {p: c for p, c in pids_with(f"XDG_RUNTIME_DIR={self.runtime}", self.older_pids).items() if re.search(pattern, c)}

    def process(self, name: str) -> int:
        """The PID of the only hopyard process of this kind ("driver", "agent"), not of its reaper."""
        def find() -> int | None:
            for pid in self.processes(rf"hopyard {name}\b"):
                try:
                    if Path(f"/proc/{pid}/comm").read_text().strip() == f"hopyard-{name}":
                        return pid
                except FileNotFoundError:
                    pass
            return None
        return int(wait_for(find, f"no {name} is running"))

    def wait_idle(self) -> None:
        """Waits until no driver or agent of this yard is left (a client exits slightly earlier)."""
        wait_for(lambda: not self.processes(r"hopyard (driver|agent)"), "drivers and agents exit")

    def may_kill_anything(self) -> None:
        """LeakSanitizer checks a process by a child with the same name, and waits forever if that is killed."""
        self.env["ASAN_OPTIONS"] = f"{self.env.get('ASAN_OPTIONS', '')}:detect_leaks=0"

    def kill_everything(self) -> None:
        for _ in range(50):
            left = self.processes()
            if not left:
                return
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)

    def cgroups_left(self) -> set[str]:
        """Only of this yard's agents: other tests may kill agents with their reapers meanwhile."""
        logs = [p.read_text(errors="replace") for p in self.folder.glob("run-*.log")]
        agents = {pid for log in logs for pid in re.findall(r"agent has joined .* pid=(\d+)", log)}
        return {path for path in cgroups_left() - self.cgroups_before if path.rsplit(".", 2)[1] in agents}

    def assert_nothing_left(self, seconds: float = 40) -> None:
        try:
            wait_for(lambda: not self.processes(), "all processes end", seconds)
        except AssertionError:
            raise AssertionError(f"processes are left after {seconds:.0f} s: {self.processes()}") from None
        wait_for(lambda: not self.cgroups_left(), f"cgroups are left: {self.cgroups_left()}", seconds)
        sockets = list(self.runtime.rglob("*.sock"))
        assert not sockets, f"sockets are left: {sockets}"

    def assert_no_sanitizer_reports(self) -> None:
        log = self.driver_log()
        assert "AddressSanitizer" not in log and "runtime error:" not in log and "LeakSanitizer" not in log, log


@contextmanager
def yard_in(folder: Path) -> Iterator[Yard]:
    """A yard of which nothing may be left at the end."""
    y = Yard(folder)
    try:
        yield y
        y.assert_nothing_left()
        y.assert_no_sanitizer_reports()
    finally:
        y.kill_everything()
        shutil.rmtree(y.runtime, ignore_errors=True)


@contextmanager
def small_disk_at(yard: Yard, folder: Path, options: str) -> Iterator[Path]:
    """A separate file system mounted there, unused at the end."""
    need_root("to mount a small disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)
    try:
        yield folder
        yard.assert_nothing_left()
    finally:
        yard.kill_everything()
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with yard_in(tmp_path) as y:
        yield y
