# SPDX-License-Identifier: Apache-2.0
"""The HDFS clusters that other tests rely on, with Hadoop's own client: they work, survive what tests do to them, and
leave nothing behind."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import pids_with
from hadoop import Answer, run_class
from hdfs import Hdfs, HdfsHa, HdfsKerberos
from waiting import wait_for

CONTENT = bytes(range(251)) * 10_000  # 2.5 MB: three blocks


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


# ---- plain -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_restarted_datanode_has_its_blocks(hdfs: Hdfs, source: Path) -> None:
    hdfs.shell("-D", "dfs.replication=3", "-put", "-f", source, "/killed")
    for datanode in hdfs.datanodes:
        assert sum(b.stat().st_size for b in datanode.blocks()) >= len(CONTENT)
    second = hdfs.datanodes[1]
    before = second.pid, second.address
    second.kill()
    assert hdfs.shell("-cat", "/killed").out == CONTENT
    second.start()
    assert second.pid != before[0] and second.address == before[1]
    for other in hdfs.datanodes[::2]:
        other.kill()
    assert hdfs.shell("-cat", "/killed").out == CONTENT, "the restarted DataNode has all blocks"


@pytest.mark.full
def test_restarted_namenode_has_its_files(hdfs: Hdfs, source: Path) -> None:
    hdfs.shell("-put", "-f", source, "/back")
    hdfs.namenode.stop()
    hdfs.repair()
    hdfs.namenode.kill()
    hdfs.namenode.start()
    assert hdfs.shell("-cat", "/back").out == CONTENT


def test_permissions_of_users_are_enforced(hdfs: Hdfs) -> None:
    hdfs.shell("-mkdir", "-p", "/alice")
    hdfs.shell("-chown", "alice", "/alice")
    hdfs.shell("-touchz", "/alice/hers", user="alice")
    refused = hdfs.shell("-touchz", "/alice/his", user="bob", rc=1)
    assert "Permission denied: user=bob" in refused.err
    hdfs.shell("-setfacl", "-m", "user:bob:rwx", "/alice")
    hdfs.shell("-touchz", "/alice/his", user="bob")


@pytest.mark.full
def test_tiny_blocks_and_erasure_coded_files(hdfs: Hdfs, source: Path) -> None:
    hdfs.shell("-D", "dfs.blocksize=512", "-put", "-f", __file__, "/tiny")
    assert hdfs.shell("-stat", "%o", "/tiny").text == "512\n"
    hdfs.shell("-mkdir", "-p", "/coded")
    hdfs.hadoop().run("ECAdmin", "-setPolicy", "-path", "/coded")
    hdfs.shell("-put", "-f", source, "/coded/file")
    assert "XOR-2-1-1024k" in hdfs.hadoop().run("ECAdmin", "-getPolicy", "-path", "/coded/file").text
    assert hdfs.shell("-cat", "/coded/file").out == CONTENT


# ---- two NameNodes ---------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_failover_from_a_live_and_from_a_dead_namenode(hdfs_ha: HdfsHa, source: Path) -> None:
    assert hdfs_ha.url == "hdfs://yard"
    hdfs_ha.shell("-put", "-f", source, "/over")
    first = hdfs_ha.active
    assert first
    second = hdfs_ha.failover()
    assert hdfs_ha.active == second != first
    assert hdfs_ha.shell("-cat", "/over").out == CONTENT
    second.kill()
    assert hdfs_ha.failover() == first
    assert hdfs_ha.shell("-cat", "/over").out == CONTENT
    hdfs_ha.repair()
    assert hdfs_ha.active == first, "the restarted NameNode is on standby"


# ---- Kerberos --------------------------------------------------------------------------------------------------------


def cat(hdfs: HdfsKerberos, env: dict[str, str], path: str, rc: int = 0) -> Answer:
    """In a JVM with its own configuration before the cluster's."""
    known = hdfs.cluster["hdfs-kerberos_env"]
    class_path = f"{env['HADOOP_CONF_DIR']}:{known['CLASSPATH']}"
    return run_class({**known, **env, "CLASSPATH": class_path}, "fs.FsShell", "-cat", path, rc=rc)


@pytest.mark.full
def test_access_needs_a_ticket_or_a_token(
        hdfs_kerberos: HdfsKerberos, source: Path, tmp_path: Path) -> None:
    hdfs_kerberos.shell("-mkdir", "-p", "/alice")
    hdfs_kerberos.shell("-chown", "alice", "/alice")
    hdfs_kerberos.shell("-put", "-f", source, "/alice/hers", user="alice")
    assert hdfs_kerberos.shell("-stat", "%u", "/alice/hers").text == "alice\n"
    hdfs_kerberos.fetch_token("alice", tmp_path / "token")
    assert cat(hdfs_kerberos, hdfs_kerberos.env_with_token(tmp_path / "token"), "/alice/hers").out == CONTENT
    refused = cat(hdfs_kerberos, hdfs_kerberos.env_without_ticket(), "/alice/hers", rc=1)
    assert "Client cannot authenticate" in refused.err


@pytest.mark.full
@pytest.mark.full
@pytest.mark.parametrize("protection", ["authentication", "integrity", "privacy"])
def test_client_chooses_its_protection(hdfs_kerberos: HdfsKerberos, source: Path, protection: str) -> None:
    hdfs_kerberos.shell("-put", "-f", source, "/protected")
    assert cat(hdfs_kerberos, hdfs_kerberos.env("bob", protection), "/protected").out == CONTENT


# ---- stop ------------------------------------------------------------------------------------------------------------

OPTIONS = {Hdfs: ["--disk", "64"], HdfsHa: [], HdfsKerberos: ["--protection", "privacy", "--encrypt"]}


@pytest.mark.full
@pytest.mark.parametrize("kind", [Hdfs, *(pytest.param(kind, marks=pytest.mark.full) for kind in (HdfsHa, HdfsKerberos))])
def test_cluster_stops_with_the_process_that_holds_it(kind: type[Hdfs], source: Path, tmp_path: Path) -> None:
    options = OPTIONS[kind] if os.geteuid() == 0 or kind is not Hdfs else []
    state = tmp_path / "state"
    code = f"import pathlib, spark\nwith spark.held({kind.part!r}, pathlib.Path({str(state)!r}), *{options}):\n    input()"
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent, stdin=subprocess.PIPE) as holder:
        try:
            wait_for((state / "cluster.json").exists, "the cluster starts")
            cluster = kind({**json.loads((state / "cluster.json").read_text()), "state": state})
            cluster.run_class("fs.FsShell", "-put", source, "/held")
            assert cluster.run_class("fs.FsShell", "-cat", "/held").out == CONTENT
            assert len(pids_with(f"TEST_CLUSTER={state / kind.part}")) >= len(cluster.daemons())
        finally:
            holder.kill()
    wait_for(lambda: not pids_with(f"TEST_CLUSTER={state / kind.part}"), "the cluster stops")
