# SPDX-License-Identifier: Apache-2.0
"""Our HDFS client on a secured cluster: authentication with tickets and tokens, and encryption."""
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
    """Of the superuser, with a world-writable directory."""
    with closing(Client(hdfs_kerberos, BIN, tmp_path)) as made:
        made.run("chmod", "777", made / "")
        yield made


@pytest.fixture
def token(hdfs_kerberos: HdfsKerberos, tmp_path: Path) -> Path:
    """A file with a token of alice."""
    hdfs_kerberos.fetch_token("alice", tmp_path / "token")
    return tmp_path / "token"


def assert_exchanged(client: Client, folder: Path) -> None:
    """Hadoop's client reads what we wrote, and vice versa."""
    wanted = make_files(folder / "from", SIZES)
    client.run("put", folder / "from", client / "ours")
    client.shell("-get", client.path("ours"), folder / "got-ours")
    assert_same(files_in(folder / "got-ours"), wanted)
    client.shell("-put", folder / "from", client.path("theirs"))
    client.run("get", client / "theirs", folder / "got-theirs")
    assert_same(files_in(folder / "got-theirs"), wanted)


# ---- authentication ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_files_are_exchanged_with_a_ticket_and_any_protection(
        client: Client, hdfs_kerberos: HdfsKerberos, tmp_path: Path, protection: str) -> None:
    client.env = hdfs_kerberos.env("alice", protection)
    assert_exchanged(client, tmp_path)
    assert client.shell("-stat", "%u", client.path("ours/of1")).text == "alice\n", "the user is that of the ticket"
    with client.open("ours/of513", "a") as file:
        file.write(b"and more")
    assert client.shell_cat("ours/of513") == content(513) + b"and more"


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_token_is_sufficient(client: Client, hdfs_kerberos: HdfsKerberos, token: Path, protection: str) -> None:
    wanted = content(MIB + 1)
    client.env = hdfs_kerberos.env_with_token(token) | {
        "HADOOP_CONF_DIR": hdfs_kerberos.env("alice", protection)["HADOOP_CONF_DIR"]}
    client.put("file", wanted)
    assert are_equal(client.cat("file"), wanted) and are_equal(client.shell_cat("file"), wanted)
    assert client.shell("-stat", "%u", client.path("file")).text == "alice\n"


def test_authentication_errors_have_a_hint(
        client: Client, hdfs_kerberos: HdfsKerberos, token: Path, tmp_path: Path) -> None:
    def refused(words: str, env: dict[str, str]) -> None:
        client.env = env
        client.fails(words, "ls", client / "")

    refused("no Kerberos ticket: run kinit (or set KRB5CCNAME)", hdfs_kerberos.env_without_ticket())
    (tmp_path / "empty").mkdir()
    refused("set hadoop.security.authentication to kerberos in core-site.xml",
            {"HADOOP_CONF_DIR": str(tmp_path / "empty"), "HADOOP_USER_NAME": "alice"})
    refused("is damaged or truncated", hdfs_kerberos.env_with_token(cut(token, tmp_path / "cut")))
    refused("it rejected the token", hdfs_kerberos.env_with_token(corrupted(token, tmp_path / "corrupted")))
    refused("none: No such file", hdfs_kerberos.env_with_token(tmp_path / "none"))
    hdfs_kerberos.run_class("hdfs.tools.DelegationTokenFetcher", "--cancel", token, user="alice")
    refused("can't be found in cache; get a new token, or a Kerberos ticket", hdfs_kerberos.env_with_token(token))


def cut(token: Path, path: Path) -> Path:
    path.write_bytes(token.read_bytes()[:60])
    return path


def corrupted(token: Path, path: Path) -> Path:
    """With another password, which is in front of the kind."""
    data = bytearray(token.read_bytes())
    data[data.index(b"HDFS_DELEGATION_TOKEN") - 5] ^= 1
    path.write_bytes(data)
    return path


def test_expired_ticket_is_reported(client: Client, hdfs_kerberos: HdfsKerberos, tmp_path: Path) -> None:
    """With an allowed clock skew of a second; by default a ticket is good for five minutes more."""
    client.env = hdfs_kerberos.env("bob")
    strict = Path(client.env["KRB5_CONFIG"]).read_text().replace("[libdefaults]", "[libdefaults]\n    clockskew = 1")
    (tmp_path / "krb5.conf").write_text(strict)
    client.env |= {"KRB5CCNAME": f"FILE:{tmp_path}/short", "KRB5_CONFIG": f"{tmp_path}/krb5.conf"}
    words = ["kinit", "-l", "1", "-k", "-t", hdfs_kerberos.keytab("bob"), hdfs_kerberos.principal("bob")]
    subprocess.run(words, env={**os.environ, **client.env}, check=True, stdin=subprocess.DEVNULL, timeout=60)
    wait_for(lambda: client.start("ls", client / "").wait() == 1, "the ticket expires")
    client.fails("the Kerberos ticket has expired: run kinit", "ls", client / "")


def test_permissions_are_those_of_the_ticket_not_of_the_environment(
        client: Client, hdfs_kerberos: HdfsKerberos) -> None:
    client.run("mkdir", client / "mine")
    client.env = hdfs_kerberos.env("bob") | {"HADOOP_USER_NAME": "hdfs"}
    client.fails("Permission denied: user=bob", "put", __file__, client / "mine/x")
    client.env = hdfs_kerberos.env("bob") | {"HADOOP_PROXY_USER": "alice"}
    client.fails("bob@HOPYARD.TEST is not allowed to impersonate alice", "ls", client / "")


def test_server_other_than_the_configured_one_gets_no_ticket(client: Client) -> None:
    client.set(dfs_namenode_kerberos_principal="hdfs/elsewhere@HOPYARD.TEST")
    client.fails("its principal is hdfs/localhost@HOPYARD.TEST, but dfs.namenode.kerberos.principal is hdfs/elsewhere",
                 "ls", client / "")
    client.set(dfs_namenode_kerberos_principal="hdfs/_HOST@HOPYARD.TEST")
    client.run("ls", client / "")
    client.set(dfs_namenode_kerberos_principal_pattern="hdfs/l*@HOPYARD.TEST")
    client.run("ls", client / "")
    client.set(dfs_namenode_kerberos_principal_pattern="hdfs/m*")
    client.fails("kerberos.principal.pattern is hdfs/m*", "ls", client / "")


# ---- eavesdropping ---------------------------------------------------------------------------------------------------


class Relay:
    """Forwards a port, and records the data."""

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
        """False after a request to stop."""
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
def test_only_privacy_encrypts_calls_to_the_namenode(
        client: Client, hdfs_kerberos: HdfsKerberos, protection: str) -> None:
    client.env = hdfs_kerberos.env("alice", protection)
    with relayed(client) as relay:
        client.run("mkdir", f"{relay.url}{client.path('a-name-like-no-other')}")
    assert (b"a-name-like-no-other" in relay.seen) == (protection != "privacy")
    assert client.names() == ["a-name-like-no-other"]


def test_many_threads_share_an_encrypted_connection(client: Client, hdfs_kerberos: HdfsKerberos) -> None:
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


def test_flushed_data_is_visible_before_the_close(client: Client, hdfs_kerberos: HdfsKerberos) -> None:
    """A DataNode returns the current length to holders of the block token."""
    client.env = hdfs_kerberos.env("alice", "privacy")
    with client.open("open", "w") as file:
        file.write(b"so far")
        file.flush()
        assert client.cat("open") == b"so far"


# ---- key rollover ----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_reader_continues_after_a_key_rollover(client: Client, hdfs_kerberos: HdfsKerberos) -> None:
    """Restarted daemons have new keys: earlier tokens are invalid."""
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
    """One whose DataNodes accept only encrypted data."""
    with held("hdfs-kerberos", tmp_path_factory.mktemp("encrypting"), "--encrypt") as cluster:
        with closing(HdfsKerberos(cluster)) as found:
            yield found


@pytest.mark.full
@pytest.mark.parametrize("cipher", ["AES/CTR/NoPadding", ""])
def test_data_transfer_is_encrypted_if_the_cluster_requires_it(encrypting_cluster: HdfsKerberos, tmp_path: Path,
                                                               cipher: str) -> None:
    with closing(Client(encrypting_cluster, BIN, tmp_path)) as client:
        client.set(**{"dfs.encrypt.data.transfer.cipher.suites": cipher})
        assert_exchanged(client, tmp_path)
        wanted = content(2 * MIB)
        client.write("file", wanted)
        with mock.patch.dict(os.environ, client.env), client.open("file") as file:
            assert file.pread(10, 0) == wanted[:10]
            renew_keys(encrypting_cluster)  # our key is unknown after that
            assert are_equal(file.pread(-1, 0), wanted)
