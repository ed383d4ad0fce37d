# SPDX-License-Identifier: Apache-2.0
"""Our HDFS client while daemons of a real cluster die, stop and restart, disks fail, and other clients interfere.

Each case ends with equal bytes or with one clear message; never with a short file that looks complete.
"""
from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN
from hdfs import Hdfs, HdfsHa
from hdfs_client import (MIB, Client, are_equal, assert_no_wrong_byte_is_read, content, corrupt_blocks, flip_a_byte, pieces,
                         replicas)
from needs import need_root
from spark import held, repair
from waiting import wait_for

# Each round kills DataNodes at two times, each during a read and a write.
ROUNDS = 25 if os.environ.get("HOPYARD_TEST_CLUSTER") == "all" else 2
DATA = content(16 * MIB + 12_345)


@pytest.fixture
def client(hdfs: Hdfs, tmp_path: Path) -> Iterator[Client]:
    with closing(Client(hdfs, BIN, tmp_path)) as made:
        made.set(dfs_replication=3)
        yield made


@pytest.fixture
def ha_client(hdfs_ha: HdfsHa, tmp_path: Path) -> Iterator[Client]:
    with closing(Client(hdfs_ha, BIN, tmp_path)) as made:
        made.set(dfs_replication=3)
        yield made


# ---- a read and a write with controlled progress ---------------------------------------------------------------------


class Put:
    """`fs put -`, fed in chunks."""

    def __init__(self, client: Client, path: str) -> None:
        self.program = client.start("put", "-f", "-", client / path, stdin=subprocess.PIPE)
        self.at = 0

    def advance_to(self, end: int) -> None:
        assert self.program.stdin
        try:
            self.program.stdin.write(DATA[self.at : end])
            self.program.stdin.flush()
        except BrokenPipeError:
            return  # it has failed; finish() returns the reason
        self.at = end

    def finish(self) -> str:
        """Its standard error."""
        self.advance_to(len(DATA))
        _, output = self.program.communicate(timeout=300)
        assert (self.program.returncode == 0) == (output == b""), output
        return output.decode()


class Cat:
    """`fs cat`, read in chunks."""

    def __init__(self, client: Client, path: str) -> None:
        self.program = client.start("cat", client / path)
        self.got = b""

    def advance_to(self, end: int) -> None:
        assert self.program.stdout
        self.got += self.program.stdout.read(end - len(self.got))

    def finish(self) -> str:
        assert self.program.stdout and self.program.stderr
        self.got += self.program.stdout.read()
        output = self.program.stderr.read().decode()
        assert (self.program.wait(300) == 0) == (output == ""), output
        assert are_equal(self.got, DATA[: len(self.got)]), "bytes that are not from the file"
        return output

    def is_whole(self) -> bool:
        return are_equal(self.got, DATA)


class FlushedWrite:
    """A file of the Python API, written in chunks of varying size and flushed now and then, in a thread."""

    def __init__(self, client: Client, path: str, seed: int) -> None:
        self.file, self.seed = client.open(path, "w"), seed
        self.at = self.limit = 0
        self.may_go = threading.Condition()
        self.error: str | None = None  # until it has finished
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            self.write()
            self.error = ""
        except OSError as error:
            self.error = str(error)

    def write(self) -> None:
        rng = random.Random(self.seed)
        with self.file as file:
            for piece in pieces(DATA, self.seed, 200_000):
                with self.may_go:
                    self.may_go.wait_for(lambda: self.at < self.limit)
                file.write(piece)
                if rng.random() < 0.1:
                    file.flush()
                self.at += len(piece)

    def allow(self, end: int) -> None:
        with self.may_go:
            self.limit = end
            self.may_go.notify()

    def advance_to(self, end: int) -> None:
        self.allow(end)
        wait_for(lambda: self.at >= end or self.error is not None, "the writer continues", 240)

    def finish(self) -> str:
        self.allow(len(DATA))
        self.thread.join(300)
        assert self.error is not None, "the writer has not finished"
        return self.error


def recover_lease(client: Client, path: str) -> None:
    hadoop = client.hdfs.hadoop()
    wait_for(lambda: hadoop.files().recoverLease(hadoop.hadoop.fs.Path(client.path(path))), "its lease is recovered")


# ---- DataNodes -------------------------------------------------------------------------------------------------------


def kill_at_random_times(client: Client, seed: int) -> None:
    """Two of three, one after the other, while one file is read and another is written."""
    rng = random.Random(seed)
    names = rng.sample(client.hdfs.datanodes, 2)
    moments = sorted(rng.randint(0, len(DATA)) for _ in range(2))
    write = FlushedWrite(client, "written", seed) if seed % 3 == 0 else Put(client, "written")
    read = Cat(client, "read")
    for moment, victim in zip(moments, names):
        for one in (write, read):
            one.advance_to(moment)
        time.sleep(rng.random() * 0.02)  # at any time, also between two packets
        os.kill(victim.pid, signal.SIGKILL)
    context = f"seed {seed}, {[v.name for v in names]} at {moments}"
    assert read.finish() == "" and read.is_whole(), context
    assert write.finish() == "", context
    client.hdfs.repair()
    assert are_equal(client.shell_cat("written"), DATA), context


def test_reads_and_writes_survive_datanodes_killed_at_random_times(client: Client) -> None:
    client.put("read", DATA)
    base = random.SystemRandom().randrange(1 << 20)
    for i in range(ROUNDS):
        kill_at_random_times(client, base + i)


def replicas_of_last_block(client: Client, path: str) -> int:
    blocks = client.hdfs.hadoop().files().getClient().getLocatedBlocks(client.path(path), 0)
    return len(blocks.getLastLocatedBlock().getLocations())


def test_pipeline_recovery_drops_only_the_dead_datanode(client: Client) -> None:
    files = {name: client.open(name, "w") for name in "abcdef"}  # in some pipelines it is not the first
    for file in files.values():
        file.write(DATA[:65_536])
        file.flush()
    client.hdfs.datanodes[0].kill()
    for at in range(65_536, 6 * 65_536, 65_536):
        for file in files.values():
            file.write(DATA[at : at + 65_536])
        time.sleep(0.1)  # packets see each state of the connections
    for name, file in files.items():
        file.flush()
        assert replicas_of_last_block(client, name) == 2, name
        file.close()
        assert are_equal(client.read(name), DATA[: 6 * 65_536])


def test_writer_uses_restarted_datanodes_again(client: Client) -> None:
    first, second, third = client.hdfs.datanodes
    put = Put(client, "written")
    put.advance_to(2 * MIB)
    first.kill()
    second.kill()
    put.advance_to(6 * MIB)
    client.hdfs.repair()
    third.kill()
    assert put.finish() == ""
    client.hdfs.repair()
    assert are_equal(client.shell_cat("written"), DATA)


def test_open_file_has_no_length_without_its_datanodes(client: Client) -> None:
    file = client.open("open", "w")
    file.write(DATA[:1000])
    file.flush()
    assert client.read("open") == DATA[:1000]
    for datanode in client.hdfs.datanodes:
        datanode.kill()
    with pytest.raises(OSError, match="none of its DataNodes reports its length"):
        client.read("open")
    with pytest.raises(OSError, match="all DataNodes of the block failed"):  # also after the writer is closed
        file.write(DATA)
    with pytest.raises(OSError, match="all DataNodes of the block failed"):
        file.close()
    client.hdfs.repair()


def test_read_continues_with_another_replica_if_a_datanode_hangs(client: Client) -> None:
    client.put("read", DATA)
    cat = Cat(client, "read")
    cat.advance_to(3 * MIB)
    client.hdfs.datanodes[0].stop()
    assert cat.finish() == "" and cat.is_whole()
    client.hdfs.datanodes[0].resume()


def test_restart_of_all_datanodes_delays_a_read_and_fails_a_write_with_a_message(client: Client) -> None:
    client.put("read", DATA)
    cat, put, write = Cat(client, "read"), Put(client, "put"), FlushedWrite(client, "flushed", 1)
    for one in (cat, put, write):
        one.advance_to(5 * MIB + 4321)
    for datanode in client.hdfs.datanodes:
        datanode.kill()
    client.hdfs.repair()
    assert cat.finish() == "" and cat.is_whole(), "a read waits for the DataNodes"
    for one, name in ((put, "put"), (write, "flushed")):
        output = one.finish()
        assert "all DataNodes of the block failed" in output, output
    assert client.names() == ["flushed", "read"], "a copy is complete or absent"
    with pytest.raises(OSError, match="can be read after: hdfs debug recoverLease -path /.*/flushed"):
        client.read("flushed")
    recover_lease(client, "flushed")
    left = client.read("flushed")
    assert are_equal(left, DATA[: len(left)]) and len(left) >= 5 * MIB, "complete files stay"


# ---- NameNodes -------------------------------------------------------------------------------------------------------


def test_namenode_restart_delays_operations_and_loses_nothing(client: Client) -> None:
    client.put("read", DATA)
    cat, put, write = Cat(client, "read"), Put(client, "put"), FlushedWrite(client, "flushed", 2)
    for one in (cat, put, write):
        one.advance_to(3 * MIB + 1234)
    client.hdfs.namenode.kill()
    with ThreadPoolExecutor(3) as pool:
        finished = [pool.submit(one.finish) for one in (cat, put, write)]
        client.hdfs.repair()
        assert [f.result() for f in finished] == ["", "", ""]
    assert cat.is_whole()
    assert are_equal(client.shell_cat("put"), DATA) and are_equal(client.shell_cat("flushed"), DATA)


def test_writer_waits_for_a_namenode_in_startup_safe_mode(client: Client) -> None:
    """It is in safe mode until DataNodes have reported the blocks of complete files."""
    client.put("whole", DATA)
    file = client.open("file", "w")
    file.write(DATA[:MIB])  # a full block: the next byte needs another one
    client.hdfs.namenode.kill()
    for datanode in client.hdfs.datanodes:
        datanode.stop()
    with ThreadPoolExecutor(2) as pool:
        started = pool.submit(repair, client.hdfs.part, client.hdfs.cluster)
        try:
            wait_for(lambda: "Safe mode is ON" in client.hdfs.dfsadmin("-safemode", "get", rc=None).text, "safe mode")
            with pytest.raises(OSError, match="safe mode"):
                client.open("new", "w")
            written = pool.submit(file.write, DATA[MIB:])
        finally:
            for datanode in client.hdfs.datanodes:
                datanode.resume()
        started.result()
        written.result()
    file.close()
    assert are_equal(client.shell_cat("file"), DATA)


def test_writes_continue_after_failover_from_a_live_or_dead_namenode(ha_client: Client) -> None:
    ha: Any = ha_client.hdfs
    put, write = Put(ha_client, "put"), FlushedWrite(ha_client, "flushed", 3)
    for one in (put, write):
        one.advance_to(4 * MIB + 77)
    second = ha.failover()
    for one in (put, write):
        one.advance_to(9 * MIB)
    second.kill()
    with ThreadPoolExecutor(2) as pool:
        finished = [pool.submit(one.finish) for one in (put, write)]
        ha.failover()
        assert [f.result() for f in finished] == ["", ""]
    assert are_equal(ha_client.shell_cat("put"), DATA) and are_equal(ha_client.shell_cat("flushed"), DATA)
    assert are_equal(ha_client.cat("put"), DATA)


@contextmanager
def standby_as_observer(ha: Any) -> Iterator[str]:
    """Makes the NameNode that is not active an observer; returns its name."""
    name = ha.ids[1 if ha.is_active(0) else 0]
    ha.haadmin("-transitionToObserver", name)
    try:
        yield name
    finally:
        ha.haadmin("-transitionToStandby", name)


def test_observer_is_skipped_for_the_active_namenode(ha_client: Client) -> None:
    """Also if it is asked first: it may not have the latest edits yet."""
    ha: Any = ha_client.hdfs
    with standby_as_observer(ha) as name:
        others = [i for i in ha.ids if i != name]
        ha_client.set(**{f"dfs.ha.namenodes.{ha.url.removeprefix('hdfs://')}": ",".join([name, *others])})
        for n in range(5):
            ha_client.put(f"file{n}", DATA[: n * 1000])
            assert are_equal(ha_client.cat(f"file{n}"), DATA[: n * 1000])
        assert ha_client.names() == [f"file{n}" for n in range(5)]
        ha_client.fails("File does not exist", "cat", ha_client / "missing")


# ---- corrupt replicas ------------------------------------------------------------------------------------------------


def test_corrupt_replica_is_reported_and_another_one_is_read(client: Client) -> None:
    data = content(2 * MIB, 5)
    client.put("three", data)
    before, damaged = corrupt_blocks(client.hdfs), replicas(client.hdfs, data[MIB:])
    assert len(damaged) == 3
    flip_a_byte(damaged[0], 300_000)
    flip_a_byte(damaged[1], 700_000)
    wait_for(lambda: are_equal(client.cat("three"), data) and corrupt_blocks(client.hdfs) > before,
             "the corrupt replica is reported to the NameNode")
    client.run("rm", client / "three")


def test_truncated_replica_is_detected(client: Client) -> None:
    data = content(MIB + MIB // 2, 6)
    client.put("cut", data)
    for block in replicas(client.hdfs, data[:MIB])[:2]:
        os.truncate(block, 400_000)
    for _ in range(5):
        assert are_equal(client.cat("cut"), data)
    client.run("rm", client / "cut")


def test_no_wrong_byte_is_read_without_an_intact_replica(client: Client) -> None:
    client.set(dfs_replication=1)
    assert_no_wrong_byte_is_read(client)


# ---- refused operations ----------------------------------------------------------------------------------------------


@contextmanager
def safe_mode(hdfs: Hdfs) -> Iterator[None]:
    hdfs.dfsadmin("-safemode", "enter")
    try:
        yield
    finally:
        hdfs.dfsadmin("-safemode", "leave")


def test_safe_mode_allows_reads_and_refuses_changes(client: Client) -> None:
    client.put("file", b"here")
    with safe_mode(client.hdfs):
        assert client.cat("file") == b"here" and client.names() == ["file"]
        client.fails("try again when the NameNode has left its safe mode", "put", "-", client / "new", stdin=b"x")
        client.fails("safe mode", "rm", client / "file")
        client.fails("safe mode", "mkdir", client / "folder")
        with pytest.raises(OSError, match="safe mode") as caught:
            client.open("new", "w")
        assert caught.value.errno == 30  # EROFS
    assert client.names() == ["file"]


def test_exceeded_quota_is_reported_and_leaves_no_partial_file(client: Client) -> None:
    client.run("mkdir", client / "names")
    client.run("mkdir", client / "space")
    client.hdfs.dfsadmin("-setQuota", 3, client.path("names"))
    client.run("touch", client / "names/1", client / "names/2")
    client.fails("NameSpace quota (directories and files) of directory", "touch", client / "names/3")
    assert client.stderr.rstrip().endswith("remove files there, or ask for a larger quota"), client.stderr
    client.hdfs.dfsadmin("-setSpaceQuota", 7 * MIB, client.path("space"))  # two blocks, three times
    client.put("space/fits", content(2 * MIB))
    client.run("rm", client / "space/fits")
    client.fails("DiskSpace quota", "put", "-", client / "space/large", stdin=DATA)
    assert client.names("space") == []
    with pytest.raises(OSError, match="DiskSpace quota") as caught:
        client.write("space/large", DATA)
    assert caught.value.errno == 122  # EDQUOT


def test_permission_errors(client: Client) -> None:
    client.put("hers", b"x")
    client.run("chmod", "700", client.hdfs.url + client.top)
    client.fails("Permission denied: user=bob, access=EXECUTE", "cat", client / "hers", user="bob")
    client.fails("Permission denied: user=bob", "put", "-", client / "his", user="bob", stdin=b"x")
    client.run("chmod", "755", client.hdfs.url + client.top)
    client.run("chmod", "600", client / "hers")
    client.fails("Permission denied: user=bob, access=READ", "cat", client / "hers", user="bob")
    client.fails("Permission denied: user=bob, access=WRITE", "put", "-f", "-", client / "hers", user="bob", stdin=b"x")
    client.fails("Permission denied", "rm", client / "hers", user="bob")
    assert client.cat("hers") == b"x" and client.names() == ["hers"]


def test_full_disks_are_reported_and_leave_no_partial_file(tmp_path: Path) -> None:
    need_root("to mount a small disk")
    with held("hdfs", tmp_path / "small", "--disk", "24") as cluster:
        client = Client(Hdfs(cluster), BIN, tmp_path)
        client.put("fits", DATA[: 4 * MIB])
        client.fails("the DataNodes have no space for a block", "put", "-", client / "large", stdin=6 * DATA)
        assert client.names() == ["fits"] and are_equal(client.cat("fits"), DATA[: 4 * MIB])


# ---- concurrent writers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["recovered", "replaced", "removed"])
def test_writer_whose_lease_was_taken_gets_an_error(client: Client, how: str) -> None:
    file = client.open("file", "w")
    file.write(DATA[: MIB + 300_000])
    file.flush()
    if how == "recovered":
        recover_lease(client, "file")
    elif how == "replaced":
        client.put("file", b"theirs")
    else:
        client.shell("-rm", "-skipTrash", client.path("file"))
    with pytest.raises(OSError, match="cannot write hdfs://.*another program has replaced, removed or taken over"):
        file.write(DATA[MIB + 300_000 : 4 * MIB])
        file.flush()
    with pytest.raises(OSError, match="cannot write hdfs://"):
        file.close()
    if how == "recovered":
        assert are_equal(client.cat("file"), DATA[: MIB + 300_000]), "as far as it was flushed"
    else:
        assert client.names() == (["file"] if how == "replaced" else [])


def test_open_file_cannot_be_appended_to_by_another_writer(client: Client) -> None:
    hadoop = client.hdfs.hadoop()
    stream = hadoop.files().create(hadoop.hadoop.fs.Path(client.path("theirs")))
    stream.write(bytearray(b"theirs"))
    stream.hflush()
    with pytest.raises(OSError, match="another program is writing this file") as caught:
        client.open("theirs", "a")
    assert caught.value.errno == 16  # EBUSY
    stream.close()
    with client.open("theirs", "a") as file:
        file.write(b" and ours")
    assert client.shell_cat("theirs") == b"theirs and ours"
