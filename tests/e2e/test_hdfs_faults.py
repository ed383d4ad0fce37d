# SPDX-License-Identifier: Apache-2.0
"""Our HDFS client while daemons of a real cluster die, stop and come back, disks fail, and others get in its way.

Each ends in equal bytes or in one clear sentence; never in a short file that looks whole.
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

# Each round has two moments at which a DataNode is killed, each in the midst of a read and of a write.
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


# ---- a read and a write that go as far as they are told --------------------------------------------------------------


class Put:
    """`fs put -`, fed by the piece."""

    def __init__(self, client: Client, path: str) -> None:
        self.program = client.start("put", "-f", "-", client / path, stdin=subprocess.PIPE)
        self.at = 0

    def go_to(self, end: int) -> None:
        assert self.program.stdin
        try:
            self.program.stdin.write(DATA[self.at : end])
            self.program.stdin.flush()
        except BrokenPipeError:
            return  # it has given up, and finish() tells why
        self.at = end

    def finish(self) -> str:
        """What it complained about."""
        self.go_to(len(DATA))
        _, output = self.program.communicate(timeout=300)
        assert (self.program.returncode == 0) == (output == b""), output
        return output.decode()


class Cat:
    """`fs cat`, read by the piece."""

    def __init__(self, client: Client, path: str) -> None:
        self.program = client.start("cat", client / path)
        self.got = b""

    def go_to(self, end: int) -> None:
        assert self.program.stdout
        self.got += self.program.stdout.read(end - len(self.got))

    def finish(self) -> str:
        assert self.program.stdout and self.program.stderr
        self.got += self.program.stdout.read()
        output = self.program.stderr.read().decode()
        assert (self.program.wait(300) == 0) == (output == ""), output
        assert are_equal(self.got, DATA[: len(self.got)]), "bytes that are not the file's"
        return output

    def is_whole(self) -> bool:
        return are_equal(self.got, DATA)


class FlushedWrite:
    """The face's file, written in odd pieces and flushed now and then, in a thread."""

    def __init__(self, client: Client, path: str, seed: int) -> None:
        self.file, self.seed = client.open(path, "w"), seed
        self.at = self.limit = 0
        self.may_go = threading.Condition()
        self.error: str | None = None  # until it is over
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

    def go_to(self, end: int) -> None:
        self.allow(end)
        wait_for(lambda: self.at >= end or self.error is not None, "the writer goes on", 240)

    def finish(self) -> str:
        self.allow(len(DATA))
        self.thread.join(300)
        assert self.error is not None, "it still writes"
        return self.error


def recover_lease(client: Client, path: str) -> None:
    hadoop = client.hdfs.hadoop()
    wait_for(lambda: hadoop.files().recoverLease(hadoop.hadoop.fs.Path(client.path(path))), "its lease is recovered")


# ---- DataNodes -------------------------------------------------------------------------------------------------------


def kill_at_random_moments(client: Client, seed: int) -> None:
    """Two of three, one after the other, while one file is read and another is written."""
    rng = random.Random(seed)
    names = rng.sample(client.hdfs.datanodes, 2)
    moments = sorted(rng.randint(0, len(DATA)) for _ in range(2))
    write = FlushedWrite(client, "written", seed) if seed % 3 == 0 else Put(client, "written")
    read = Cat(client, "read")
    for moment, victim in zip(moments, names):
        for one in (write, read):
            one.go_to(moment)
        time.sleep(rng.random() * 0.02)  # any moment, also one between two packets
        os.kill(victim.pid, signal.SIGKILL)
    told = f"seed {seed}, {[v.name for v in names]} at {moments}"
    assert read.finish() == "" and read.is_whole(), told
    assert write.finish() == "", told
    client.hdfs.repair()
    assert are_equal(client.shell_cat("written"), DATA), told


def test_datanodes_killed_at_random_moments_harm_neither_reads_nor_writes(client: Client) -> None:
    client.put("read", DATA)
    base = random.SystemRandom().randrange(1 << 20)
    for i in range(ROUNDS):
        kill_at_random_moments(client, base + i)


def replicas_of_last_block(client: Client, path: str) -> int:
    blocks = client.hdfs.hadoop().files().getClient().getLocatedBlocks(client.path(path), 0)
    return len(blocks.getLastLocatedBlock().getLocations())


def test_a_pipeline_loses_the_datanode_that_died_and_no_other(client: Client) -> None:
    files = {name: client.open(name, "w") for name in "abcdef"}  # in some of them it is not the first
    for file in files.values():
        file.write(DATA[:65_536])
        file.flush()
    client.hdfs.datanodes[0].kill()
    for at in range(65_536, 6 * 65_536, 65_536):
        for file in files.values():
            file.write(DATA[at : at + 65_536])
        time.sleep(0.1)  # packets meet each state of the connections
    for name, file in files.items():
        file.flush()
        assert replicas_of_last_block(client, name) == 2, name
        file.close()
        assert are_equal(client.read(name), DATA[: 6 * 65_536])


def test_datanodes_that_come_back_are_used_again_by_the_same_writer(client: Client) -> None:
    first, second, third = client.hdfs.datanodes
    put = Put(client, "written")
    put.go_to(2 * MIB)
    first.kill()
    second.kill()
    put.go_to(6 * MIB)
    client.hdfs.repair()
    third.kill()
    assert put.finish() == ""
    client.hdfs.repair()
    assert are_equal(client.shell_cat("written"), DATA)


def test_a_file_that_is_written_has_no_length_when_no_datanode_tells_it(client: Client) -> None:
    file = client.open("open", "w")
    file.write(DATA[:1000])
    file.flush()
    assert client.read("open") == DATA[:1000]
    for datanode in client.hdfs.datanodes:
        datanode.kill()
    with pytest.raises(OSError, match="none of its DataNodes reports its length"):
        client.read("open")
    with pytest.raises(OSError, match="all DataNodes of the block failed"):  # who wrote it is told, too
        file.write(DATA)
    with pytest.raises(OSError, match="all DataNodes of the block failed"):
        file.close()
    client.hdfs.repair()


def test_a_read_goes_on_with_another_replica_when_a_datanode_falls_silent(client: Client) -> None:
    client.put("read", DATA)
    cat = Cat(client, "read")
    cat.go_to(3 * MIB)
    client.hdfs.datanodes[0].stop()
    assert cat.finish() == "" and cat.is_whole()
    client.hdfs.datanodes[0].resume()


def test_all_datanodes_gone_and_back_delay_a_read_and_end_a_write_with_a_sentence(client: Client) -> None:
    client.put("read", DATA)
    cat, put, write = Cat(client, "read"), Put(client, "put"), FlushedWrite(client, "flushed", 1)
    for one in (cat, put, write):
        one.go_to(5 * MIB + 4321)
    for datanode in client.hdfs.datanodes:
        datanode.kill()
    client.hdfs.repair()
    assert cat.finish() == "" and cat.is_whole(), "a read waits for them"
    for one, name in ((put, "put"), (write, "flushed")):
        output = one.finish()
        assert "all DataNodes of the block failed" in output, output
    assert client.names() == ["flushed", "read"], "a copy is there whole or not at all"
    with pytest.raises(OSError, match="can be read after: hdfs debug recoverLease -path /.*/flushed"):
        client.read("flushed")
    recover_lease(client, "flushed")
    left = client.read("flushed")
    assert are_equal(left, DATA[: len(left)]) and len(left) >= 5 * MIB, "what is whole stays"


# ---- NameNodes -------------------------------------------------------------------------------------------------------


def test_a_namenode_that_is_killed_and_comes_back_delays_and_loses_nothing(client: Client) -> None:
    client.put("read", DATA)
    cat, put, write = Cat(client, "read"), Put(client, "put"), FlushedWrite(client, "flushed", 2)
    for one in (cat, put, write):
        one.go_to(3 * MIB + 1234)
    client.hdfs.namenode.kill()
    with ThreadPoolExecutor(3) as pool:
        finished = [pool.submit(one.finish) for one in (cat, put, write)]
        client.hdfs.repair()
        assert [f.result() for f in finished] == ["", "", ""]
    assert cat.is_whole()
    assert are_equal(client.shell_cat("put"), DATA) and are_equal(client.shell_cat("flushed"), DATA)


def test_a_writer_waits_for_a_namenode_that_has_just_started(client: Client) -> None:
    """It is in safe mode until DataNodes have told what they have: the blocks of a file that is whole."""
    client.put("whole", DATA)
    file = client.open("file", "w")
    file.write(DATA[:MIB])  # a whole block: the next byte asks for another
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


def test_writing_goes_on_when_another_namenode_takes_over_from_one_that_lives_or_died(ha_client: Client) -> None:
    ha: Any = ha_client.hdfs
    put, write = Put(ha_client, "put"), FlushedWrite(ha_client, "flushed", 3)
    for one in (put, write):
        one.go_to(4 * MIB + 77)
    second = ha.failover()
    for one in (put, write):
        one.go_to(9 * MIB)
    second.kill()
    with ThreadPoolExecutor(2) as pool:
        finished = [pool.submit(one.finish) for one in (put, write)]
        ha.failover()
        assert [f.result() for f in finished] == ["", ""]
    assert are_equal(ha_client.shell_cat("put"), DATA) and are_equal(ha_client.shell_cat("flushed"), DATA)
    assert are_equal(ha_client.cat("put"), DATA)


@contextmanager
def observing(ha: Any) -> Iterator[str]:
    """The NameNode that is not active observes; its name."""
    name = ha.ids[1 if ha.is_active(0) else 0]
    ha.haadmin("-transitionToObserver", name)
    try:
        yield name
    finally:
        ha.haadmin("-transitionToStandby", name)


def test_an_observer_is_passed_over_for_the_active_namenode(ha_client: Client) -> None:
    """Also when it is asked first: of what was written a moment ago it may know nothing yet."""
    ha: Any = ha_client.hdfs
    with observing(ha) as name:
        others = [i for i in ha.ids if i != name]
        ha_client.set(**{f"dfs.ha.namenodes.{ha.url.removeprefix('hdfs://')}": ",".join([name, *others])})
        for n in range(5):
            ha_client.put(f"file{n}", DATA[: n * 1000])
            assert are_equal(ha_client.cat(f"file{n}"), DATA[: n * 1000])
        assert ha_client.names() == [f"file{n}" for n in range(5)]
        ha_client.fails("File does not exist", "cat", ha_client / "missing")


# ---- replicas that are damaged ---------------------------------------------------------------------------------------


def test_a_damaged_replica_is_reported_and_another_one_read(client: Client) -> None:
    data = content(2 * MIB, 5)
    client.put("three", data)
    before, damaged = corrupt_blocks(client.hdfs), replicas(client.hdfs, data[MIB:])
    assert len(damaged) == 3
    flip_a_byte(damaged[0], 300_000)
    flip_a_byte(damaged[1], 700_000)
    wait_for(lambda: are_equal(client.cat("three"), data) and corrupt_blocks(client.hdfs) > before,
             "the NameNode hears of the damaged replica")
    client.run("rm", client / "three")


def test_a_replica_that_was_cut_off_is_not_taken_for_a_whole_one(client: Client) -> None:
    data = content(MIB + MIB // 2, 6)
    client.put("cut", data)
    for block in replicas(client.hdfs, data[:MIB])[:2]:
        os.truncate(block, 400_000)
    for _ in range(5):
        assert are_equal(client.cat("cut"), data)
    client.run("rm", client / "cut")


def test_of_a_file_with_no_good_replica_no_wrong_byte_is_read(client: Client) -> None:
    client.set(dfs_replication=1)
    assert_no_wrong_byte_is_read(client)


# ---- what a cluster refuses ------------------------------------------------------------------------------------------


@contextmanager
def safe_mode(hdfs: Hdfs) -> Iterator[None]:
    hdfs.dfsadmin("-safemode", "enter")
    try:
        yield
    finally:
        hdfs.dfsadmin("-safemode", "leave")


def test_in_safe_mode_files_are_read_and_nothing_is_changed(client: Client) -> None:
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


def test_a_quota_that_is_used_up_is_said_and_leaves_no_part_of_a_file(client: Client) -> None:
    client.run("mkdir", client / "names")
    client.run("mkdir", client / "space")
    client.hdfs.dfsadmin("-setQuota", 3, client.path("names"))
    client.run("touch", client / "names/1", client / "names/2")
    client.fails("NameSpace quota (directories and files) of directory", "touch", client / "names/3")
    assert client.output.rstrip().endswith("remove files there, or ask for a larger quota"), client.output
    client.hdfs.dfsadmin("-setSpaceQuota", 7 * MIB, client.path("space"))  # two blocks, three times
    client.put("space/fits", content(2 * MIB))
    client.run("rm", client / "space/fits")
    client.fails("DiskSpace quota", "put", "-", client / "space/large", stdin=DATA)
    assert client.names("space") == []
    with pytest.raises(OSError, match="DiskSpace quota") as caught:
        client.write("space/large", DATA)
    assert caught.value.errno == 122  # EDQUOT


def test_what_a_user_may_not_do_is_said(client: Client) -> None:
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


def test_disks_that_are_full_are_said_and_leave_no_part_of_a_file(tmp_path: Path) -> None:
    need_root("to mount a small disk")
    with held("hdfs", tmp_path / "small", "--disk", "24") as cluster:
        client = Client(Hdfs(cluster), BIN, tmp_path)
        client.put("fits", DATA[: 4 * MIB])
        client.fails("the DataNodes have no space for a block", "put", "-", client / "large", stdin=6 * DATA)
        assert client.names() == ["fits"] and are_equal(client.cat("fits"), DATA[: 4 * MIB])


# ---- another writer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["recovered", "replaced", "removed"])
def test_a_writer_whose_file_was_taken_over_is_told(client: Client, how: str) -> None:
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


def test_a_file_that_is_being_written_is_not_appended_to_by_another(client: Client) -> None:
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
