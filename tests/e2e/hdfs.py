# SPDX-License-Identifier: Apache-2.0
"""Real HDFS clusters (tests/cluster/cluster.py): daemons that tests can kill, and Hadoop's client for comparison.

    hdfs            a NameNode and three DataNodes, blocks of 1 MB, permissions on
    hdfs_sockets    the same, with short-circuit reads over unix sockets
    hdfs_ha         two NameNodes of the nameservice "yard"
    hdfs_kerberos   secured: users are alice, bob and hdfs, the superuser

A cluster serves a whole session: all its daemons run when a test starts, and it has the files of earlier tests. The
fixtures are in conftest.py.
"""
from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hadoop import Answer, Hadoop, run_class
from spark import control, held, repair
from waiting import wait_for

# ---- daemons -------------------------------------------------------------------------------------------------------


def state_of(pid: int) -> str:
    """A letter as in ps; also Z if it no longer exists."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


class Daemon:
    def __init__(self, cluster: Hdfs, name: str) -> None:
        self.cluster, self.name = cluster, name

    @property
    def folder(self) -> Path:
        """A DataNode's blocks, a NameNode's image."""
        return self.cluster.folder / self.name

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.cluster.record()['ports'][self.name]}"

    @property
    def pid(self) -> int:
        return self.cluster.record()["daemons"][self.name][0]

    def is_alive(self) -> bool:
        return state_of(self.pid) not in "ZX"

    def kill(self) -> None:
        """With SIGKILL; it has exited when this returns."""
        pid = self.pid
        if state_of(pid) in "ZX":
            return
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: state_of(pid) in "ZX", f"{self.name} exits")

    def stop(self) -> None:
        """With SIGSTOP: its connections stay open, without answers."""
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: state_of(pid) == "T", f"{self.name} stops")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def start(self) -> None:
        """Restarts all dead daemons of the cluster, at their ports, and waits until the cluster is healthy."""
        self.cluster.repair()

    def blocks(self) -> list[Path]:
        """Files of a DataNode's finalized blocks."""
        return sorted(p for p in self.folder.glob("current/BP-*/current/finalized/**/blk_*") if p.suffix != ".meta")


# ---- clusters ------------------------------------------------------------------------------------------------------


class Hdfs:
    """`url` is its address, `conf` the directory for HADOOP_CONF_DIR."""

    part = "hdfs"

    def __init__(self, cluster: dict[str, Any]) -> None:
        self.cluster, self.state = cluster, cluster["state"]
        self.folder = self.state / self.part
        self.url: str = cluster[self.part]
        self.conf = Path(cluster[f"{self.part}_conf"])
        names = self.record()["daemons"]
        self.datanodes = [Daemon(self, n) for n in sorted(names) if n.startswith("datanode")]
        self.namenodes = [Daemon(self, n) for n in sorted(names) if n.startswith("namenode")]
        self.programs: dict[str, Hadoop] = {}

    def record(self) -> dict[str, Any]:
        return json.loads((self.folder / "daemons.json").read_text())

    @property
    def namenode(self) -> Daemon:
        return self.namenodes[0]

    def daemons(self) -> list[Daemon]:
        return [Daemon(self, name) for name in self.record()["daemons"]]

    @property
    def superuser(self) -> str:
        return getpass.getuser()

    def env(self, user: str | None = None) -> dict[str, str]:
        """Additional environment of a program that acts as this user (default: the superuser)."""
        return {"HADOOP_CONF_DIR": str(self.conf), "HADOOP_USER_NAME": user or self.superuser}

    # ---- Hadoop's own client
    def java_env(self, user: str | None = None) -> dict[str, str]:
        return {**self.cluster[f"{self.part}_env"], **self.env(user)}

    def hadoop(self, user: str | None = None) -> Hadoop:
        """A long-lived JVM for each user."""
        name = user or self.superuser
        if name not in self.programs:
            self.programs[name] = Hadoop(self.java_env(name), self.folder / "log" / f"programs-{name}.log")
        return self.programs[name]

    def shell(self, *args: object, user: str | None = None, rc: int | None = 0) -> Answer:
        """`hdfs dfs`"""
        return self.hadoop(user).run("FsShell", *args, rc=rc)

    def dfsadmin(self, *args: object, rc: int | None = 0) -> Answer:
        return self.hadoop().run("DFSAdmin", *args, rc=rc)

    def run_class(self, name: str, *args: object, user: str | None = None, rc: int | None = 0) -> Answer:
        """Any other Hadoop program, by its class below org.apache.hadoop."""
        return run_class(self.java_env(user), name, *args, rc=rc)

    # ---- repair
    def repair(self) -> None:
        """Resumes stopped daemons and restarts killed ones."""
        stopped = [d for d in self.daemons() if state_of(d.pid) == "T"]
        for daemon in stopped:
            daemon.resume()
        dead = [d.name for d in self.daemons() if not d.is_alive()]
        if not dead and not stopped:
            return
        repair(self.part, self.cluster)
        wait_for(lambda: control("status", self.part, self.state).returncode == 0, f"{self.part} is healthy again")
        if any(name.startswith("namenode") for name in dead):
            self.reconnect()

    def reconnect(self) -> None:
        """Hadoop's client notices a broken connection only when it uses it, and fails that call."""
        for program in self.programs.values():
            program.run("FsShell", "-test", "-e", "/", rc=None)

    def close(self) -> None:
        for program in self.programs.values():
            program.close()


class HdfsHa(Hdfs):
    part = "hdfs-ha"
    ids = ("nn1", "nn2")

    def haadmin(self, *args: object, rc: int | None = 0) -> Answer:
        return self.hadoop().run("DFSHAAdmin", *args, rc=rc)

    def is_active(self, i: int) -> bool:
        """A stopped NameNode would block the call."""
        if state_of(self.namenodes[i].pid) in "ZXT":
            return False
        return self.haadmin("-getServiceState", self.ids[i], rc=None).text.strip() == "active"

    @property
    def active(self) -> Daemon | None:
        return next((n for i, n in enumerate(self.namenodes) if self.is_active(i)), None)

    def failover(self) -> Daemon:
        """Returns the other NameNode once it is active; the first one may be dead."""
        to = 1 if self.is_active(0) or not self.namenodes[0].is_alive() else 0
        self.haadmin("-failover", self.ids[1 - to], self.ids[to])
        return self.namenodes[to]


class HdfsKerberos(Hdfs):
    part = "hdfs-kerberos"
    superuser = "hdfs"

    @property
    def realm(self) -> str:
        return self.cluster[f"{self.part}_realm"]

    def principal(self, user: str) -> str:
        return f"{'hdfs/localhost' if user == self.superuser else user}@{self.realm}"

    def keytab(self, user: str) -> Path:
        return Path(self.cluster[f"{self.part}_keytabs"]) / f"{user}.keytab"

    def env(self, user: str | None = None, protection: str | None = None) -> dict[str, str]:
        """With a ticket in KRB5CCNAME; `protection` is what the client asks for."""
        conf = self.conf.with_name(f"conf-{protection}") if protection else self.conf
        return {"HADOOP_CONF_DIR": str(conf), "KRB5_CONFIG": self.cluster[f"{self.part}_env"]["KRB5_CONFIG"],
                "KRB5CCNAME": f"FILE:{self.ticket(user or self.superuser)}"}

    def env_without_ticket(self) -> dict[str, str]:
        return {**self.env(), "KRB5CCNAME": f"FILE:{self.folder}/no-ticket"}

    def env_with_token(self, file: Path) -> dict[str, str]:
        return {**self.env_without_ticket(), "HADOOP_TOKEN_FILE_LOCATION": str(file)}

    def ticket(self, user: str) -> Path:
        path = self.folder / f"ticket-{user}"
        if not path.exists():
            done = subprocess.run(["kinit", "-c", f"FILE:{path}", "-k", "-t", self.keytab(user), self.principal(user)],
                                  env={**os.environ, "KRB5_CONFIG": self.cluster[f"{self.part}_env"]["KRB5_CONFIG"]},
                                  text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
            assert done.returncode == 0, done.stderr
        return path

    def fetch_token(self, user: str, path: Path) -> None:
        """A file with a delegation token, as in containers."""
        self.run_class("hdfs.tools.DelegationTokenFetcher", "--renewer", user, path, user=user)


# ---- fixtures ------------------------------------------------------------------------------------------------------


def hold_cluster(kind: type[Hdfs], folder: Path, *options: str) -> Iterator[Hdfs]:
    with held(kind.part, folder, *options) as cluster, closing(kind(cluster)) as found:
        yield found


@pytest.fixture(scope="session")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    yield from hold_cluster(Hdfs, tmp_path_factory.mktemp("hdfs"))


@pytest.fixture(scope="session")
def hdfs_sockets_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    yield from hold_cluster(Hdfs, tmp_path_factory.mktemp("hdfs-sockets"), "--sockets")


@pytest.fixture(scope="session")
def hdfs_ha_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    yield from hold_cluster(HdfsHa, tmp_path_factory.mktemp("hdfs-ha"))


@pytest.fixture(scope="session")
def hdfs_kerberos_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    yield from hold_cluster(HdfsKerberos, tmp_path_factory.mktemp("hdfs-kerberos"))


@pytest.fixture
def hdfs(hdfs_cluster: Hdfs) -> Hdfs:
    hdfs_cluster.repair()
    return hdfs_cluster


@pytest.fixture
def hdfs_sockets(hdfs_sockets_cluster: Hdfs) -> Hdfs:
    hdfs_sockets_cluster.repair()
    return hdfs_sockets_cluster


@pytest.fixture
def hdfs_ha(hdfs_ha_cluster: HdfsHa) -> HdfsHa:
    hdfs_ha_cluster.repair()
    return hdfs_ha_cluster


@pytest.fixture
def hdfs_kerberos(hdfs_kerberos_cluster: HdfsKerberos) -> HdfsKerberos:
    hdfs_kerberos_cluster.repair()
    return hdfs_kerberos_cluster
