# SPDX-License-Identifier: Apache-2.0
"""HDFS only: one or two NameNodes, and three DataNodes that keep their ports and names across restarts."""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from hadoop import Hadoop, fetch_native
from part import NotReady, over_tmpfs
from processes import ClusterError
from system import ask_json, tail, write_site

DATANODES = [f"datanode{i + 1}" for i in range(3)]
NAMESERVICE = "yard"


class Hdfs(Hadoop):
    """A NameNode and DataNodes. Blocks may be tiny, and dead DataNodes are detected soon."""

    name = "hdfs"
    heap = "256m"
    namenodes = ["namenode"]
    # Daemons that wait for others come first: they start while a NameNode's directory is formatted.
    daemons = [*DATANODES, *namenodes]
    joiners: list[str] = []
    ports_of = {
        "namenode": ["namenode", "namenode_page"],
        **{d: [d, f"{d}_page", f"{d}_ipc"] for d in DATANODES},
    }

    def __init__(self, state: Path, options: argparse.Namespace) -> None:
        super().__init__(state, options)
        self.options = options

    def choose(self) -> dict[str, Any]:
        return {"disk": self.options.disk, "sockets": str(self.sockets / "dn._PORT") if self.options.sockets else ""}

    # ---- configuration
    def url(self) -> str:
        return f"hdfs://{self.address('namenode')}"

    def configure(self) -> None:
        super().configure()
        write_site(self.conf / "core-site.xml", self.core_site())
        write_site(self.conf / "hdfs-site.xml", self.hdfs_site())

    def core_site(self) -> dict[str, object]:
        return {
            "fs.defaultFS": self.url(),
            "hadoop.tmp.dir": self.folder / "tmp",
            # The system does not have these users, and would be asked each time.
            "hadoop.user.group.static.mapping.overrides": "alice=alice,users;bob=bob,users;hdfs=hdfs",
        }

    def hdfs_site(self) -> dict[str, object]:
        return {
            "dfs.replication": 1,
            "dfs.blocksize": 1 << 20,
            "dfs.namenode.fs-limits.min-block-size": 512,
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.redundancy.considerLoad": "false",  # else a single remaining DataNode is too busy for a replica
            "dfs.namenode.edits.noeditlogchannelflush": "true",  # tests do not cut the power
            "dfs.namenode.ec.system.default.policy": "XOR-2-1-1024k",  # the policy that needs only three DataNodes
            **self.where_namenodes_are(),
            # A DataNode is stale after 3 s, dead after 2 * 0.5 s and ten heartbeats, and its blocks are copied at once.
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.heartbeat.recheck-interval": 500,
            "dfs.namenode.stale.datanode.interval": 3000,
            "dfs.namenode.redundancy.interval.seconds": 1,
            "dfs.namenode.lease-recheck-interval-ms": 200,
            "dfs.datanode.hostname": "localhost",
            # A corrupt replica is found by its readers only.
            "dfs.block.scanner.volume.bytes.per.second": 0,
            "dfs.datanode.directoryscan.interval": -1,
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": 0,  # else 1 GB is reserved
            **({"dfs.client.read.shortcircuit": "true", "dfs.domain.socket.path": self.choices["sockets"]}
               if self.choices["sockets"] else {}),
        }

    @property
    def sockets(self) -> Path:
        """Only its owner may write to any parent directory: DataNodes require that."""
        name = hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]
        return Path("/run", f"hopyard-{name}") if os.geteuid() == 0 else Path.home() / f".hopyard-{name}"

    def java_options(self) -> str:
        return super().java_options() + (f" -Djava.library.path={fetch_native()}" if self.choices["sockets"] else "")

    def stop(self) -> bool:
        found = super().stop()
        shutil.rmtree(self.sockets, ignore_errors=True)
        return found

    def where_namenodes_are(self) -> dict[str, object]:
        return {"dfs.namenode.http-address": self.address("namenode_page")}

    def settings(self, daemon: str) -> dict[str, object]:
        """Only daemons retry that long to find each other."""
        folder = (self.folder / daemon).as_uri()
        patience = {"ipc.client.connect.retry.interval": 100, "ipc.client.connect.max.retries": 600}
        if daemon not in DATANODES:
            return {**patience, "dfs.namenode.name.dir": folder}
        return {
            **patience,
            "dfs.datanode.data.dir": folder,
            "dfs.datanode.address": self.address(daemon),
            "dfs.datanode.http.address": self.address(f"{daemon}_page"),
            "dfs.datanode.ipc.address": self.address(f"{daemon}_ipc"),
        }

    def prepare(self, daemon: str) -> None:
        if daemon in self.namenodes:
            self.format(daemon)
        elif daemon in DATANODES:
            (self.folder / daemon).mkdir(mode=0o700, exist_ok=True)
            if self.choices["sockets"]:
                self.sockets.mkdir(mode=0o755, exist_ok=True)

    def mount_prefix(self, daemon: str) -> list[str]:
        disk = self.choices["disk"]
        if not disk or daemon not in DATANODES:
            return []
        return over_tmpfs(self.folder / daemon, f"mode=700,size={disk}m")

    # ---- readiness
    def ask_about(self, daemon: str, bean: str, *wanted: str) -> list[Any] | None:
        """The JMX data of a daemon; None during its start, when values may be missing."""
        service = self.classes[daemon.rstrip("0123456789")].rpartition(".")[2]
        page = ask_json(self.address(f"{daemon}_page"), f"/jmx?qry=Hadoop:service={service},name={bean}")
        found = page["beans"][0] if page and page["beans"] else {}
        words = [found.get(w) for w in wanted]
        return None if None in words else words

    def not_ready(self) -> NotReady | None:
        return self.namenodes_not_ready() or self.datanodes_not_ready()

    def namenodes_not_ready(self) -> NotReady | None:
        for namenode in self.namenodes:
            if self.ask_about(namenode, "NameNodeStatus", "State") is None:
                return NotReady(f"{namenode}'s page does not answer", namenode)
        return None

    def datanodes_not_ready(self) -> NotReady | None:
        """According to both sides: a NameNode considers a killed DataNode alive for a while."""
        held = {}
        for datanode in DATANODES:
            actors, = self.ask_about(datanode, "DataNodeInfo", "BPServiceActorInfo") or ("[]",)
            states = [actor["ActorState"] for actor in json.loads(actors)]
            if states != ["RUNNING"] * len(self.namenodes):
                return NotReady(f"{datanode} has not joined every NameNode", datanode)
            held[datanode] = self.finalized_blocks(datanode)
        for namenode in self.namenodes:
            if not_ready := self.not_ready_according_to(namenode, held):
                return not_ready
        return None

    def finalized_blocks(self, datanode: str) -> int:
        """A DataNode also counts blocks whose writer died with it, which no NameNode counts. The files of one with a separate
        mount (mount_prefix) are not visible, and do not survive a restart."""
        return sum(1 for _ in (self.folder / datanode).glob("current/BP-*/current/finalized/**/blk_*.meta"))

    def not_ready_according_to(self, namenode: str, held: dict[str, int]) -> NotReady | None:
        """A NameNode knows a DataNode's blocks slightly later than the DataNode. But some may belong to files that were removed
        just before the NameNode died: it neither knows nor misses these."""
        safemode, alive = self.ask_about(namenode, "NameNodeInfo", "Safemode", "LiveNodes") or ("not known yet", "{}")
        if safemode:
            return NotReady(f"{namenode} is in safe mode", namenode)
        misses_none = self.ask_about(namenode, "FSNamesystemState", "UnderReplicatedBlocks") == [0]
        known = {node["xferaddr"]: node["numBlocks"] for node in json.loads(alive).values()}
        for datanode, blocks in held.items():
            if known.get(self.address(datanode), -1) < (0 if misses_none else blocks):
                return NotReady(f"{namenode} does not know {datanode}, or not all of its blocks", namenode)
        return None

    # ---- published values
    def addresses(self) -> dict[str, str]:
        return {self.name: self.url(), f"{self.name}_conf": str(self.conf)}

    def program_environment(self) -> dict[str, str]:
        """For Hadoop's own programs: `java org.apache.hadoop.fs.FsShell -ls /`."""
        return {"HADOOP_CONF_DIR": str(self.conf), "CLASSPATH": self.class_path, "JAVA_TOOL_OPTIONS": self.java_options()}


class HdfsHa(Hdfs):
    """Two NameNodes that share their edits through a JournalNode; `failover` selects the active one."""

    name = "hdfs-ha"
    namenodes = ["namenode1", "namenode2"]
    daemons = ["journalnode", *DATANODES, *namenodes]
    ports_of = {
        **{d: Hdfs.ports_of[d] for d in DATANODES},
        **{n: [n, f"{n}_page"] for n in namenodes},
        "journalnode": ["journalnode", "journalnode_page"],
    }
    ids = {"namenode1": "nn1", "namenode2": "nn2"}

    def url(self) -> str:
        return f"hdfs://{NAMESERVICE}"

    def where_namenodes_are(self) -> dict[str, object]:
        return {
            "dfs.nameservices": NAMESERVICE,
            f"dfs.ha.namenodes.{NAMESERVICE}": ",".join(self.ids.values()),
            **{f"dfs.namenode.rpc-address.{NAMESERVICE}.{i}": self.address(n) for n, i in self.ids.items()},
            **{f"dfs.namenode.http-address.{NAMESERVICE}.{i}": self.address(f"{n}_page") for n, i in self.ids.items()},
            f"dfs.client.failover.proxy.provider.{NAMESERVICE}":
                "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider",
            "dfs.namenode.shared.edits.dir": f"qjournal://{self.address('journalnode')}/{NAMESERVICE}",
            "dfs.ha.fencing.methods": "shell(/bin/true)",  # the JournalNode fences its writer: no other fencing is needed
            "dfs.ha.tail-edits.period": 1,
            "dfs.namenode.state.context.enabled": "true",  # an observer must be as current as its clients
        }

    def settings(self, daemon: str) -> dict[str, object]:
        if daemon == "journalnode":
            return {
                "dfs.journalnode.edits.dir": self.folder / daemon,
                "dfs.journalnode.rpc-address": self.address(daemon),
                "dfs.journalnode.http-address": self.address(f"{daemon}_page"),
            }
        names = {"dfs.ha.namenode.id": self.ids[daemon]} if daemon in self.ids else {}
        return {**super().settings(daemon), **names}

    def prepare(self, daemon: str) -> None:
        first, second = self.namenodes
        if daemon == second and not (self.folder / second).exists():
            shutil.copytree(self.folder / first, self.folder / second, ignore=shutil.ignore_patterns("in_use.lock"))
        else:
            super().prepare(daemon)

    def wait_ready(self, seconds: float) -> None:
        """Both NameNodes start as standby."""
        self.wait_while(self.namenodes_not_ready, seconds, self.daemons)
        if not self.active() and not self.admin("-transitionToActive", "--forceactive", "nn1"):
            self.fail("no NameNode could be made active", "haadmin")
        super().wait_ready(seconds)

    def not_ready(self) -> NotReady | None:
        if not self.namenodes_not_ready() and not self.active():
            return NotReady("no NameNode is active", self.namenodes[0])
        return super().not_ready()

    def active(self) -> str | None:
        for namenode in self.namenodes:
            if self.ask_about(namenode, "NameNodeStatus", "State") == ["active"]:
                return namenode
        return None

    def admin(self, *words: str) -> bool:
        return self.succeeds([*self.java("hdfs.tools.DFSHAAdmin"), *words], "haadmin", "haadmin")

    def failover(self) -> None:
        """To the NameNode that is not active; the other one may be dead."""
        active = self.active()
        ready = [n for n in self.namenodes if n != active and self.is_alive(n)]
        if not ready:
            raise ClusterError(f"no other NameNode of {self.name} is running; `cluster.py start {self.name}` restarts it.")
        chosen = ready[0]
        other = next(n for n in self.namenodes if n != chosen)
        if not self.admin("-failover", self.ids[other], self.ids[chosen]):
            log = self.log("haadmin")
            raise ClusterError(f"{chosen} could not be made active. The end of {log}:\n{tail(log)}")
        print(f"{self.name}: {chosen} is active", flush=True)

    def addresses(self) -> dict[str, str]:
        return {**super().addresses(), **{f"{self.name}_{i}": f"hdfs://{self.address(n)}" for n, i in self.ids.items()}}
