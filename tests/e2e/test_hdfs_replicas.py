# SPDX-License-Identifier: Apache-2.0
"""Short-circuit reads: files that are read from the disks of DataNodes on this machine, on a real cluster."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN
from hdfs import Hdfs, HdfsKerberos, hold_cluster
from hdfs_client import (MIB, SIZES, Client, are_equal, assert_no_wrong_byte_is_read, content, corrupt_blocks, flip_a_byte,
                         replicas, wrong_reads)
from waiting import wait_for


@pytest.fixture
def client(hdfs_sockets: Hdfs, tmp_path: Path) -> Iterator[Client]:
    with closing(Client(hdfs_sockets, BIN, tmp_path)) as made:
        yield made


def open_blocks() -> list[str]:
    """Block files of DataNodes that this process has open."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the descriptor of the directory listing itself
            continue
    return [link for link in links if "/blk_" in link]


def opened_and_read(client: Client, path: str) -> Any:
    """An open file of which some bytes have been read."""
    file = client.open(path)
    assert len(file.pread(1000, 0)) == 1000
    return file


def test_files_of_all_sizes_are_read_from_the_disk(client: Client) -> None:
    for size in SIZES:
        client.write(f"of{size}", content(size))
        assert are_equal(client.cat(f"of{size}"), content(size)) and are_equal(client.read(f"of{size}"), content(size)), size
    with closing(opened_and_read(client, f"of{SIZES[-1]}")) as file:
        assert len(open_blocks()) == 2, "the data, and its checksums"
        assert are_equal(file.pread(-1, 1000), content(SIZES[-1])[1000:])
    assert open_blocks() == []


@pytest.mark.parametrize("sums, chunk", [("CRC32C", 512), ("CRC32", 512), ("CRC32C", 100_000), ("CRC32C", MIB), ("NULL", 512)])
def test_threads_read_at_random_offsets_with_any_checksum(client: Client, sums: str, chunk: int) -> None:
    client.set(dfs_checksum_type=sums, dfs_bytes__per__checksum=chunk, dfs_blocksize=3 * chunk if chunk > 512 else 2 * MIB)
    data = content(5 * MIB + 4321)
    client.write("data", data)
    with client.open("data") as file:
        assert wrong_reads(file, data, 4) == []
    with closing(opened_and_read(client, "data")):
        assert len(open_blocks()) == 2


def test_open_file_is_readable_without_its_datanode(client: Client) -> None:
    client.set(dfs_blocksize=32 * MIB)
    data = content(32 * MIB)
    client.write("data", data)
    with closing(opened_and_read(client, "data")) as file:
        for datanode in client.hdfs.datanodes:
            datanode.kill()
        assert are_equal(file.pread(-1, 1000), data[1000:])


def test_corrupt_replica_is_reported_and_another_one_is_read(client: Client) -> None:
    client.set(dfs_replication=3)
    data = content(2 * MIB, 5)
    client.put("three", data)
    before, damaged = corrupt_blocks(client.hdfs), replicas(client.hdfs, data[MIB:])
    assert len(damaged) == 3
    flip_a_byte(damaged[0], 300_000)
    os.truncate(damaged[1], 400_000)
    wait_for(lambda: are_equal(client.cat("three"), data) and corrupt_blocks(client.hdfs) > before,
             "the corrupt replica is reported to the NameNode")
    client.run("rm", client / "three")


def test_no_wrong_byte_is_read_without_an_intact_replica(client: Client) -> None:
    assert_no_wrong_byte_is_read(client)


def test_open_file_is_readable_up_to_its_length_at_open(client: Client) -> None:
    with client.open("open", "w") as file:
        wanted = b""
        for i, size in enumerate([1, 510, 70_000, 900_000, 100_000]):
            file.write(content(size, i))
            wanted += content(size, i)
            file.flush()
            assert are_equal(client.read("open"), wanted)
    with closing(opened_and_read(client, "open")) as file:
        with client.open("open", "a") as more:
            more.write(content(300_000))
            more.flush()
            assert are_equal(file.pread(-1, 1000), wanted[1000:])
    assert are_equal(client.cat("open"), wanted + content(300_000))


@pytest.mark.parametrize("settings", [{"dfs_client_read_shortcircuit": "false"}, {"dfs_domain_socket_path": "/run/nobody/_PORT"},
                                      {"dfs_domain_socket_path": "/run/" + "x" * 200}, {"dfs_domain_socket_path": ""}])
def test_files_are_read_over_tcp_without_short_circuit_reads(client: Client, settings: dict[str, str]) -> None:
    client.write("data", content(3 * MIB))
    client.set(**settings)
    assert are_equal(client.cat("data"), content(3 * MIB))
    with closing(opened_and_read(client, "data")) as file:
        assert open_blocks() == []
        assert are_equal(file.pread(-1, 1000), content(3 * MIB)[1000:])


@pytest.mark.cluster
def test_secured_datanode_passes_descriptors_for_a_block_token(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The socket has no authentication: the block token is sufficient."""
    for hdfs in hold_cluster(HdfsKerberos, tmp_path_factory.mktemp("hdfs-kerberos-sockets"), "--sockets"):
        with closing(Client(hdfs, BIN, tmp_path)) as client:
            client.write("data", content(3 * MIB))
            assert are_equal(client.cat("data"), content(3 * MIB))
            with closing(opened_and_read(client, "data")) as file:
                assert len(open_blocks()) == 2
                assert are_equal(file.pread(-1, 1000), content(3 * MIB)[1000:])
