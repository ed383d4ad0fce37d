# SPDX-License-Identifier: Apache-2.0
"""Our HDFS client where everybody has to prove who they are, by ticket or by token, and where others may not listen."""
from __future__ import annotations

import os
import select
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import pytest
from conftest import BIN
from hdfs import HdfsKerberos
from hdfs_client import MIB, Client, are_equal, assert_same, content, files_in, make_files
from hopyard import _hopyard
from spark import held
from waiting import wait_for

SIZES = [0, 1, 513, 65_536, 65_537, 2 * MIB + 513]
PROTECTIONS = ["authentication", "integrity", "privacy"]


@pytest.fixture
def client(hdfs_kerberos: HdfsKerberos, tmp_path: Path) -> Iterator[Client]:
    """Of the superuser, with a folder that is anybody's."""
    with closing(Client(hdfs_kerberos, BIN, tmp_path)) as made:
        made.run("chmod", "777", made / "")
        yield made


@pytest.fixture
def token(hdfs_kerberos: HdfsKerberos, tmp_path: Path) -> Path:
    """A file with a token of alice's."""
    hdfs_kerberos.fetch_token("alice", tmp_path / "token")
    return tmp_path / "token"


def assert_exchanged(client: Client, folder: Path) -> None:
    """What we wrote is read by Hadoop's own client, and the reverse."""
    wanted = make_files(folder / "from", SIZES)
    client.run("put", folder / "from", client / "ours")
    client.shell("-get", client.path("ours"), folder / "got-ours")
    assert_same(files_in(folder / "got-ours"), wanted)
    client.shell("-put", folder / "from", client.path("theirs"))
    client.run("get", client / "theirs", folder / "got-theirs")
    assert_same(files_in(folder / "got-theirs"), wanted)


# ---- who comes in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_with_a_ticket_and_any_protection_bytes_are_the_same(
        client: Client, hdfs_kerberos: HdfsKerberos, tmp_path: Path, protection: str) -> None:
    client.env = hdfs_kerberos.env("alice", protection)
    assert_exchanged(client, tmp_path)
    assert client.shell("-stat", "%u", client.path("ours/of1")).text == "alice\n", "the ticket says who it is"
    with client.open("ours/of513", "a") as file:
        file.write(b"and more")
    assert client.shell_cat("ours/of513") == content(513) + b"and more"


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_a_token_is_enough(client: Client, hdfs_kerberos: HdfsKerberos, token: Path, protection: str) -> None:
    wanted = content(MIB + 1)
    client.env = hdfs_kerberos.env_with_token(token) | {
        "HADOOP_CONF_DIR": hdfs_kerberos.env("alice", protection)["HADOOP_CONF_DIR"]}
    client.put("file", wanted)
    assert are_equal(client.cat("file"), wanted) and are_equal(client.shell_cat("file"), wanted)
    assert client.shell("-stat", "%u", client.path("file")).text == "alice\n"


def test_who_is_refused_is_told_what_to_do(
        client: Client, hdfs_kerberos: HdfsKerberos, token: Path, tmp_path: Path) -> None:
    def refused(words: str, env: dict[str, str]) -> None:
        client.env = env
        client.fails(words, "ls", client / "")

    refused("no Kerberos ticket: run kinit (or set KRB5CCNAME)", hdfs_kerberos.env_without_ticket())
    (tmp_path / "empty").mkdir()
    refused("set hadoop.security.authentication to kerberos in core-site.xml",
            {"HADOOP_CONF_DIR": str(tmp_path / "empty"), "HADOOP_USER_NAME": "alice"})
    refused("is damaged or truncated", hdfs_kerberos.env_with_token(cut(token, tmp_path / "cut")))
    refused("it rejected the token", hdfs_kerberos.env_with_token(spoilt(token, tmp_path / "spoilt")))
    refused("none: No such file", hdfs_kerberos.env_with_token(tmp_path / "none"))
    hdfs_kerberos.run_class("hdfs.tools.DelegationTokenFetcher", "--cancel", token, user="alice")
    refused("can't be found in cache; get a new token, or a Kerberos ticket", hdfs_kerberos.env_with_token(token))


def cut(token: Path, path: Path) -> Path:
    path.write_bytes(token.read_bytes()[:60])
    return path


def spoilt(token: Path, path: Path) -> Path:
    """Its password, which stands before the kind, is another."""
    data = bytearray(token.read_bytes())
    data[data.index(b"HDFS_DELEGATION_TOKEN") - 5] ^= 1
    path.write_bytes(data)
    return path


def test_a_ticket_that_has_run_out_is_said_to_have(client: Client, hdfs_kerberos: HdfsKerberos, tmp_path: Path) -> None:
    """Where clocks may differ by a second; else it is good for five minutes more."""
    client.env = hdfs_kerberos.env("bob")
    strict = Path(client.env["KRB5_CONFIG"]).read_text().replace("[libdefaults]", "[libdefaults]\n    clockskew = 1")
    (tmp_path / "krb5.conf").write_text(strict)
    client.env |= {"KRB5CCNAME": f"FILE:{tmp_path}/short", "KRB5_CONFIG": f"{tmp_path}/krb5.conf"}
    words = ["kinit", "-l", "1", "-k", "-t", hdfs_kerberos.keytab("bob"), hdfs_kerberos.principal("bob")]
    subprocess.run(words, env={**os.environ, **client.env}, check=True, stdin=subprocess.DEVNULL, timeout=60)
    wait_for(lambda: client.start("ls", client / "").wait() == 1, "the ticket runs out")
    client.fails("the Kerberos ticket has expired: run kinit", "ls", client / "")


def test_rights_are_those_of_the_ticket_whatever_the_environment_says(
        client: Client, hdfs_kerberos: HdfsKerberos) -> None:
    client.run("mkdir", client / "mine")
    client.env = hdfs_kerberos.env("bob") | {"HADOOP_USER_NAME": "hdfs"}
    client.fails("Permission denied: user=bob", "put", __file__, client / "mine/x")
    client.env = hdfs_kerberos.env("bob") | {"HADOOP_PROXY_USER": "alice"}
    client.fails("bob@HOPYARD.TEST is not allowed to impersonate alice", "ls", client / "")


def test_a_server_that_is_not_the_one_of_the_settings_gets_no_ticket(client: Client) -> None:
    client.set(dfs_namenode_kerberos_principal="hdfs/elsewhere@HOPYARD.TEST")
    client.fails("its principal is hdfs/localhost@HOPYARD.TEST, but dfs.namenode.kerberos.principal is hdfs/elsewhere",
                 "ls", client / "")
    client.set(dfs_namenode_kerberos_principal="hdfs/_HOST@HOPYARD.TEST")
    client.run("ls", client / "")
    client.set(dfs_namenode_kerberos_principal_pattern="hdfs/l*@HOPYARD.TEST")
    client.run("ls", client / "")
    client.set(dfs_namenode_kerberos_principal_pattern="hdfs/m*")
    client.fails("kerberos.principal.pattern is hdfs/m*", "ls", client / "")


# ---- what travels ----------------------------------------------------------------------------------------------------


class Relay:
    """Passes on what comes to its port, and keeps it."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self.target, self.seen = (host, int(port)), bytearray()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    @property
    def url(self) -> str:
        return "hdfs://127.0.0.1:%d" % self.listener.getsockname()[1]

    def serve(self) -> None:
        """One connection at a time: a program has one to its NameNode."""
        while True:
            near, _ = self.listener.accept()
            with near, socket.create_connection(self.target) as far:
                if not self.carry(near, far):
                    return

    def carry(self, near: socket.socket, far: socket.socket) -> bool:
        """False when it was told to end."""
        while True:
            for one in select.select([near, far], [], [])[0]:
                data = one.recv(65536)
                if data == b"end":
                    return False
                if not data:
                    return True
                self.seen += data
                (far if one is near else near).sendall(data)

    def close(self) -> None:
        with socket.create_connection(self.listener.getsockname()) as last:
            last.sendall(b"end")
            self.thread.join()
        self.listener.close()


@contextmanager
def relayed(client: Client) -> Iterator[Relay]:
    with closing(Relay(client.hdfs.namenode.address)) as relay:
        yield relay


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_only_privacy_hides_what_is_said_to_a_namenode(
        client: Client, hdfs_kerberos: HdfsKerberos, protection: str) -> None:
    client.env = hdfs_kerberos.env("alice", protection)
    with relayed(client) as relay:
        client.run("mkdir", f"{relay.url}{client.path('a-name-like-no-other')}")
    assert (b"a-name-like-no-other" in relay.seen) == (protection != "privacy")
    assert client.names() == ["a-name-like-no-other"]


def test_many_threads_share_a_connection_that_is_private(client: Client, hdfs_kerberos: HdfsKerberos) -> None:
    wanted = content(2 * MIB)
    client.env = hdfs_kerberos.env("alice", "privacy")
    client.write("file", wanted)

    def work(i: int) -> None:
        for k in range(20):
            _hopyard.mkdirs(client / f"of-{i}/{k}")
        with _hopyard.File(client / "file", "r") as file:
            at = i * 65_537
            assert are_equal(file.pread(70_000, at), wanted[at : at + 70_000])

    with mock.patch.dict(os.environ, client.env), ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))
    assert sorted(client.names()) == sorted(["file", *(f"of-{i}" for i in range(16))])
    assert len(client.names("of-7")) == 20


def test_what_is_flushed_is_seen_by_others_before_the_end(client: Client, hdfs_kerberos: HdfsKerberos) -> None:
    """How long it is by now is said by a DataNode, to those who have the block's token."""
    client.env = hdfs_kerberos.env("alice", "privacy")
    with client.open("open", "w") as file:
        file.write(b"so far")
        file.flush()
        assert client.cat("open") == b"so far"


# ---- keys that change ------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_who_reads_goes_on_when_all_keys_are_new(client: Client, hdfs_kerberos: HdfsKerberos) -> None:
    """Daemons that were killed have new ones: tokens of before are not good any more."""
    wanted = content(3 * MIB)
    client.env = hdfs_kerberos.env("alice", "integrity")
    client.write("file", wanted)
    with mock.patch.dict(os.environ, client.env), client.open("file") as file:
        assert file.pread(10, 0) == wanted[:10]
        renew_keys(hdfs_kerberos)
        assert are_equal(file.pread(-1, 0), wanted)


def renew_keys(hdfs: HdfsKerberos) -> None:
    for daemon in [*hdfs.datanodes, hdfs.namenode]:
        daemon.kill()
    hdfs.repair()


@pytest.fixture(scope="module")
def encrypting_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsKerberos]:
    """One whose DataNodes take nothing that is not encrypted."""
    with held("hdfs-kerberos", tmp_path_factory.mktemp("encrypting"), "--encrypt") as cluster:
        with closing(HdfsKerberos(cluster)) as found:
            yield found


@pytest.mark.full
@pytest.mark.parametrize("cipher", ["AES/CTR/NoPadding", ""])
def test_data_is_encrypted_by_the_clusters_key_where_it_wants_that(encrypting_cluster: HdfsKerberos, tmp_path: Path,
                                                                   cipher: str) -> None:
    with closing(Client(encrypting_cluster, BIN, tmp_path)) as client:
        client.set(**{"dfs.encrypt.data.transfer.cipher.suites": cipher})
        assert_exchanged(client, tmp_path)
        wanted = content(2 * MIB)
        client.write("file", wanted)
        with mock.patch.dict(os.environ, client.env), client.open("file") as file:
            assert file.pread(10, 0) == wanted[:10]
            renew_keys(encrypting_cluster)  # ours is known to nobody any more
            assert are_equal(file.pread(-1, 0), wanted)
