# SPDX-License-Identifier: Apache-2.0
"""Our HDFS client and Hadoop's own read each other's files byte for byte, and report the same metadata."""
from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN
from hdfs import Hdfs
from hdfs_client import MIB, SIZES, Client, are_equal, assert_same, content, files_in, make_files, pieces, wrong_reads


@pytest.fixture
def client(hdfs: Hdfs, tmp_path: Path) -> Iterator[Client]:
    with closing(Client(hdfs, BIN, tmp_path)) as made:
        yield made


# ---- contents ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sums", ["CRC32C", "CRC32"])
def test_hadoop_and_our_client_read_each_others_files(client: Client, tmp_path: Path, sums: str) -> None:
    client.set(dfs_checksum_type=sums)
    wanted = make_files(tmp_path / "from", SIZES)
    client.run("put", tmp_path / "from", client / "ours")
    client.shell("-get", client.path("ours"), tmp_path / "got-ours")
    assert_same(files_in(tmp_path / "got-ours"), wanted)
    client.shell("-D", f"dfs.checksum.type={sums}", "-put", tmp_path / "from", client.path("theirs"))
    client.run("get", client / "theirs", tmp_path / "got-theirs")
    assert_same(files_in(tmp_path / "got-theirs"), wanted)
    checksum = client.shell("-checksum", client.path("ours/of65537"), client.path("theirs/of65537")).text.split("\n")
    assert checksum[0].split("\t")[1:] == checksum[1].split("\t")[1:], "chunks and checksums are the same"
    assert f"MD5-of-0MD5-of-512{sums}" in checksum[0]


@pytest.mark.parametrize("chunk, block", [(512, 512), (1024, 3072), (4096, MIB), (MIB, 2 * MIB)])
def test_other_chunk_and_block_sizes_match_hadoop(client: Client, tmp_path: Path, chunk: int,
                                                  block: int) -> None:
    client.set(dfs_bytes__per__checksum=chunk, dfs_blocksize=block)
    sizes = [0, chunk - 1, chunk, chunk + 1, block - 1, block, block + 1, 5 * block + chunk // 3]
    wanted = make_files(tmp_path / "from", sizes)
    client.run("put", tmp_path / "from", client / "ours")
    client.shell("-get", client.path("ours"), tmp_path / "got")
    assert_same(files_in(tmp_path / "got"), wanted)
    assert client.shell("-stat", "%o", client.path(f"ours/of{block}")).text == f"{block}\n"
    client.run("get", client / "ours", tmp_path / "again")
    assert_same(files_in(tmp_path / "again"), wanted)


def test_writes_in_varying_chunks_with_flushes_are_complete(client: Client, tmp_path: Path) -> None:
    wanted = {}
    client.run("mkdir", client / "odd")
    for i, (size, most) in enumerate([(5000, 300), (200_000, 3000), (3 * MIB + 777, 150_000), (2 * MIB, 100_000)]):
        wanted[f"f{i}"] = content(size, i)
        rng = random.Random(i)
        with client.open(f"odd/f{i}", "w") as file:
            for piece in pieces(wanted[f"f{i}"], i, most):
                file.write(piece)
                if rng.random() < 0.4:
                    file.flush(to_disk=rng.random() < 0.2)
            assert file.size == size
    client.shell("-get", client.path("odd"), tmp_path / "got")
    assert_same(files_in(tmp_path / "got"), wanted)
    client.run("get", client / "odd", tmp_path / "ours")
    assert_same(files_in(tmp_path / "ours"), wanted)


@pytest.mark.parametrize("more", [1, 513, MIB + 70_000])
def test_append_to_files_of_all_sizes(client: Client, tmp_path: Path, more: int) -> None:
    wanted = make_files(tmp_path / "from", SIZES)
    client.shell("-put", tmp_path / "from", client.path("grown"))
    for name in wanted:
        wanted[name] += content(more, 1)
        with client.open(f"grown/{name}", "a") as file:
            file.write(content(more, 1))
    client.shell("-get", client.path("grown"), tmp_path / "got")
    assert_same(files_in(tmp_path / "got"), wanted)


def test_repeated_appends_by_both_clients(client: Client, tmp_path: Path) -> None:
    wanted = b""
    for i, size in enumerate([100, 412, 1, 65_023, 70_001, MIB - 135_000, 3, MIB]):
        more = content(size, i)
        (tmp_path / "more").write_bytes(more)
        if i % 2:
            client.shell("-appendToFile", tmp_path / "more", client.path("both"))
        else:
            with client.open("both", "a") as file:
                file.write(more)
        wanted += more
    assert are_equal(client.cat("both"), wanted) and are_equal(client.shell_cat("both"), wanted)


def test_open_file_is_readable_up_to_its_last_flush(client: Client) -> None:
    with client.open("open", "w") as file:
        wanted = b""
        for i, size in enumerate([1, 510, 1, 70_000, 900_000, 100_000, 5]):
            file.write(content(size, i))
            wanted += content(size, i)
            file.flush()
            assert are_equal(client.read("open"), wanted)
            assert are_equal(client.shell_cat("open"), wanted)
        assert are_equal(client.cat("open"), wanted)
        file.write(b"not flushed")
    assert are_equal(client.read("open"), wanted + b"not flushed")


def test_data_flushed_by_hadoop_is_readable_during_its_write(client: Client) -> None:
    hadoop = client.hdfs.hadoop()
    stream = hadoop.files().create(hadoop.hadoop.fs.Path(client.path("theirs")))
    wanted = b""
    for i, size in enumerate([700, 100_000, MIB]):
        stream.write(bytearray(content(size, i)))
        stream.hflush()
        wanted += content(size, i)
        assert are_equal(client.read("theirs"), wanted)
    stream.close()
    assert are_equal(client.cat("theirs"), wanted)


def test_eight_threads_read_one_file_at_random_offsets(client: Client) -> None:
    data = content(6 * MIB + 4321)
    client.write("data", data)
    with client.open("data") as file:
        assert wrong_reads(file, data, 8) == []
        assert file.pread(10, len(data)) == b"" and file.pread(10, len(data) - 3) == data[-3:]


# ---- erasure-coded files -------------------------------------------------------------------------------------------


def test_erasure_coded_files_are_readable_with_a_dead_datanode(client: Client, tmp_path: Path) -> None:
    """Two data units in cells of 1 MiB, and their XOR. Blocks of one cell and of three: a group of six."""
    sizes = [0, 1, 512, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 3 * MIB + 5, 7 * MIB + 12_345]
    wanted = make_files(tmp_path / "from", sizes)
    for block in (MIB, 3 * MIB):
        client.shell("-mkdir", client.path(f"coded{block}"))
        client.hdfs.hadoop().run("ECAdmin", "-setPolicy", "-path", client.path(f"coded{block}"))
        client.shell("-D", f"dfs.blocksize={block}", "-put", tmp_path / "from", client.path(f"coded{block}/in"))
        client.run("get", client / f"coded{block}/in", tmp_path / f"whole{block}")
        assert_same(files_in(tmp_path / f"whole{block}"), wanted)
    largest = wanted[f"of{sizes[-1]}"]
    with client.open(f"coded{3 * MIB}/in/of{sizes[-1]}") as file:
        for at in (5 * MIB + 10, 100, 3 * MIB - 1, sizes[-1] - 1):
            assert are_equal(file.pread(MIB + 1, at), largest[at : at + MIB + 1])
        client.hdfs.datanodes[0].kill()
        assert are_equal(file.pread(-1, 0), largest), "the file was open before"
    for block in (MIB, 3 * MIB):
        client.run("get", client / f"coded{block}/in", tmp_path / f"decoded{block}")
        assert_same(files_in(tmp_path / f"decoded{block}"), wanted)


def test_files_written_to_an_erasure_coded_directory_are_replicated(client: Client) -> None:
    client.shell("-mkdir", client.path("coded"))
    client.hdfs.hadoop().run("ECAdmin", "-setPolicy", "-path", client.path("coded"))
    data = content(2 * MIB + 9)
    client.put("coded/file", data)
    assert are_equal(client.shell_cat("coded/file"), data) and are_equal(client.cat("coded/file"), data)


# ---- names ---------------------------------------------------------------------------------------------------------


def test_directories_of_any_size_are_listed_completely_and_in_order(client: Client) -> None:
    """A NameNode returns a thousand entries per call (dfs.ls.limit)."""
    names = [f"file-{i}" for i in range(2500)]
    client.run("mkdir", client / "many")
    for i in range(0, 2500, 500):
        client.run("touch", *(client / f"many/{name}" for name in names[i : i + 500]))
    assert client.names("many") == sorted(names)
    listed = client.shell("-ls", "-C", client.path("many")).text.split()
    assert [Path(path).name for path in listed] == sorted(names)
    client.run("rm", "-r", client / "many")
    assert client.names() == []


def test_names_with_spaces_unicode_and_percent_signs(client: Client) -> None:
    names = ["a b", "100%", "%41%2F", "Grüße", "日本 語", "a+b=c&d", "x;y", "#1", "quo'te\"s"]
    for name in names:
        client.put(name, name.encode())
        assert client.cat(name) == name.encode()
    hadoop = client.hdfs.hadoop()
    folder = hadoop.hadoop.fs.Path(client.top)
    listed = [s.getPath().getName() for s in hadoop.files().listStatus(folder)]
    assert client.names() == listed and sorted(listed) == sorted(names), "in the NameNode's order: it compares signed bytes"
    for name in names:
        stream = hadoop.files().open(hadoop.hadoop.fs.Path(folder, name))
        assert bytes(hadoop.hadoop.io.IOUtils.readFullyToByteArray(stream)) == name.encode()
        stream.close()


# ---- metadata ------------------------------------------------------------------------------------------------------


def stat_of(client: Client, path: str) -> dict[str, Any]:
    return json.loads(client.run("stat", "--json", client / path))[0]


def test_both_clients_report_the_same_metadata(client: Client) -> None:
    client.set(dfs_replication=2)
    client.run("mkdir", "-p", client / "a/b/c")
    client.put("a/b/file", content(MIB + 5))
    client.run("chmod", "640", client / "a/b/file")
    client.run("chmod", "1775", client / "a/b")
    client.run("chown", "alice:users", client / "a/b/file")
    client.run("chown", ":staff", client / "a/b")
    for path in ("a/b/file", "a/b"):
        ours = stat_of(client, path)
        kind, mode, owner, group, replicas, size = client.shell(
            "-stat", "%F|%a|%u|%g|%r|%b", client.path(path)).text.strip().split("|")
        assert (ours["type"] == "file") == (kind == "regular file"), ours
        assert int(ours["mode"], 8) == int(mode, 8)
        assert (ours["owner"], ours["group"]) == (owner, group)
        assert (ours["size"], ours.get("replication") or 0) == (int(size), int(replicas))
    assert client.shell("-stat", "%a %u %g", client.path("a/b/file")).text == "640 alice users\n"
    assert client.shell("-stat", "%a %g", client.path("a/b")).text == "1775 staff\n"
    assert client.shell("-du", "-s", client.path("a")).text.split()[:2] == [str(MIB + 5), str(2 * (MIB + 5))]
    assert client.run("du", "-s", client / "a").split()[0] == str(MIB + 5).encode()


def test_both_clients_see_moves_and_removals_of_the_other(client: Client) -> None:
    client.put("one", b"1")
    client.run("mkdir", client / "folder")
    client.run("mv", client / "one", client / "folder")
    assert client.shell("-ls", "-C", "-R", client.top).text.split() == [client.path("folder"), client.path("folder/one")]
    client.shell("-mv", client.path("folder/one"), client.path("folder/two"))
    assert client.names("folder") == ["two"]
    client.run("rm", "-r", client / "folder")
    assert client.shell("-test", "-e", client.path("folder"), rc=1).rc == 1
    client.shell("-mkdir", client.path("theirs"))
    client.shell("-rmdir", client.path("theirs"))
    assert client.names() == []
