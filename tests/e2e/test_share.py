# SPDX-License-Identifier: Apache-2.0
"""Data sets shared between the projects of two users: real users and ACLs locally, two users on HDFS."""
from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BIN, Yard
from hdfs import Hdfs
from needs import need_root
from waiting import wait_for

ALICE, BOB, CAROL = 64001, 64002, 64003


class Users:
    """alice's project `churn` with a data set, and bob's project `fraud`; each user has a home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = shutil.copy(BIN, folder / "hopyard")  # the build directory may be closed to others
        self.churn, self.fraud = folder / "alice" / "churn", folder / "bob" / "fraud"
        self.train = self.churn / "Resources" / "train"
        (self.train / "sub").mkdir(parents=True)
        (self.train / "a.csv").write_text("1,2\n")
        (self.train / "sub" / "tool").write_text("#!/bin/sh\necho ran\n")
        (self.train / "sub" / "tool").chmod(0o700)
        (self.churn / "secret.txt").write_text("secret")
        self.fraud.mkdir(parents=True)
        for path in (self.churn, self.churn / "Resources", self.train, self.train / "sub"):
            path.chmod(0o700)
        (self.train / "a.csv").chmod(0o600)
        for user, home in ((ALICE, folder / "alice"), (BOB, folder / "bob")):
            for path in (home, *home.rglob("*")):
                os.chown(path, user, user)

    def run(self, user: int, *args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        home = self.folder / ("alice" if user == ALICE else "bob")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
        return subprocess.run([*map(str, args)], env=env, cwd=cwd or (self.churn if user == ALICE else self.fraud),
                              text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120, user=user,
                              group=user, extra_groups=[], umask=0o022)

    def hopyard(self, user: int, *args: object, rc: int = 0) -> subprocess.CompletedProcess[str]:
        done = self.run(user, self.bin, *args)
        assert done.returncode == rc, (args, done.stdout, done.stderr)
        return done

    def share(self, *more: object) -> str:
        return self.hopyard(ALICE, "share", "add", "Resources/train", "--with", BOB, *more).stdout

    def accept(self) -> str:
        return self.hopyard(BOB, "share", "accept", "--as", "churn::train", self.train).stdout

    def can(self, user: int, *command: object) -> bool:
        return self.run(user, *command).returncode == 0

    def rights(self) -> dict[str, tuple[int, list[bytes]]]:
        """Mode and ACLs of everything in alice's project but hopyard's own data."""
        found = {}
        for path in (self.churn, *self.churn.rglob("*")):
            if ".hopyard" in path.parts or path.is_symlink():
                continue
            names = sorted(os.listxattr(path))
            found[str(path)] = (path.stat().st_mode, [os.getxattr(path, n) for n in names])
        return found


@pytest.fixture
def users() -> Iterator[Users]:
    need_root("to become another user")
    folder = Path(tempfile.mkdtemp(prefix="hy-share-"))
    folder.chmod(0o755)
    try:
        yield Users(folder)
    finally:
        shutil.rmtree(folder)


# ---- local -----------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_shared_data_set_can_be_read_and_not_written(users: Users) -> None:
    assert not users.can(BOB, "cat", users.train / "a.csv")
    printed = users.share()
    assert f"hopyard share accept --as churn::train {users.train}" in printed
    assert "which you can read." in users.accept()
    assert users.hopyard(BOB, "fs", "cat", "Shared/churn::train/a.csv").stdout == "1,2\n"
    assert users.run(BOB, users.train / "sub" / "tool").stdout == "ran\n"  # executable stays executable
    assert not users.can(BOB, "touch", users.train / "new")
    assert not users.can(BOB, "sh", "-c", f"echo 3 >> {users.train}/a.csv")
    assert "Permission denied" in users.hopyard(BOB, "fs", "put", "/etc/hostname", "Shared/churn::train/x", rc=1).stderr


def test_parents_can_be_passed_and_not_listed(users: Users) -> None:
    users.share()
    for closed in (users.churn, users.churn / "Resources", users.churn / ".hopyard"):
        assert not users.can(BOB, "ls", closed)
    assert not users.can(BOB, "cat", users.churn / ".hopyard" / "shares.json")
    (users.churn / "Resources" / "other").mkdir(mode=0o700)
    os.chown(users.churn / "Resources" / "other", ALICE, ALICE)
    assert not users.can(BOB, "ls", users.churn / "Resources" / "other")
    assert users.can(BOB, "ls", users.train)
    assert not users.can(CAROL, "ls", users.train)


def test_a_writable_share_can_be_written_and_its_owner_reads_new_files(users: Users) -> None:
    users.share("--write")
    assert "which you can read and write." in users.accept()
    assert users.can(BOB, "sh", "-c", f"umask 077; echo mine > {users.train}/sub/bobs")
    assert users.run(ALICE, "cat", users.train / "sub" / "bobs").stdout == "mine\n"
    users.hopyard(BOB, "fs", "put", "/etc/hostname", "Shared/churn::train/host")
    assert (users.train / "host").exists()
    done = users.hopyard(ALICE, "share", "remove", "Resources/train", "--with", BOB)
    assert "belong to other users and keep their permissions" in done.stderr
    assert not users.can(BOB, "cat", users.train / "sub" / "bobs")


def test_new_files_and_directories_are_covered(users: Users) -> None:
    users.share()
    assert users.can(ALICE, "sh", "-c", f"mkdir -p {users.train}/deep/er && echo new > {users.train}/deep/er/file")
    assert users.run(BOB, "cat", users.train / "deep" / "er" / "file").stdout == "new\n"
    assert not users.can(BOB, "rm", users.train / "deep" / "er" / "file")


def test_a_revocation_removes_only_what_was_added(users: Users) -> None:
    (users.train / "before").write_text("x")
    os.chown(users.train / "before", ALICE, ALICE)
    access = b"\x02\x00\x00\x00" + b"".join(
        tag.to_bytes(2, "little") + perm.to_bytes(2, "little") + id.to_bytes(4, "little")
        for tag, perm, id in ((1, 6, 0xFFFFFFFF), (2, 4, BOB), (2, 6, CAROL), (4, 0, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF),
                              (32, 0, 0xFFFFFFFF)))  # fmt: skip
    os.setxattr(users.train / "before", "system.posix_acl_access", access)
    rights = users.rights()
    users.share("--write")
    assert users.rights() != rights
    users.hopyard(ALICE, "share", "remove", "Resources/train", "--with", BOB)
    assert users.rights() == rights
    assert not users.can(BOB, "ls", users.train)
    assert json.loads(users.hopyard(ALICE, "share", "list", "--json").stdout)["given"] == []


def test_links_in_a_data_set_are_not_followed(users: Users) -> None:
    outside = users.folder / "alice" / "outside"
    outside.mkdir(mode=0o700)
    (outside / "file").write_text("private")
    for path in (outside, outside / "file"):
        os.chown(path, ALICE, ALICE)
    (users.train / "link").symlink_to(outside)
    (users.train / "file").symlink_to(outside / "file")
    users.share()
    users.accept()
    assert not os.listxattr(outside) and not os.listxattr(outside / "file")
    failed = users.hopyard(BOB, "fs", "cat", "Shared/churn::train/link/file", rc=1)
    assert "links of shares are not followed" in failed.stderr


def test_a_data_set_replaced_by_a_link_is_not_written_to(users: Users) -> None:
    """Its owner could otherwise make the receiver overwrite the receiver's own files."""
    users.share("--write")
    users.accept()
    mine = users.fraud / "mine"
    mine.mkdir()
    os.chown(mine, BOB, BOB)
    users.train.rename(users.train.with_name("moved"))
    users.train.symlink_to(mine)
    failed = users.hopyard(BOB, "fs", "put", "/etc/hostname", "Shared/churn::train/x", rc=1)
    assert "is now a symbolic link" in failed.stderr and not list(mine.iterdir())


@pytest.mark.parametrize(("path", "reason"), [
    (".", "a project cannot be shared as a whole: it contains '.hopyard'"),
    (".hopyard", "contains hopyard's own data"),
    ("Logs", "hopyard writes its own data there"),
    ("Resources/nested", "'Resources/nested/deep/.hopyard'"),
    ("/etc", "is not in the project"),
    ("Resources/train/a.csv", "is a file; share the directory"),
])  # fmt: skip
def test_paths_that_must_not_be_shared_are_refused(users: Users, path: str, reason: str) -> None:
    users.hopyard(ALICE, "run", "--", "true")
    assert users.can(ALICE, "mkdir", "-p", "Resources/nested/deep/.hopyard", "Logs")
    rights = users.rights()
    failed = users.run(ALICE, users.bin, "share", "add", path, "--with", BOB)
    assert failed.returncode in (1, 2) and reason in failed.stderr and failed.stderr.count("\n") == 1
    assert users.rights() == rights


def test_a_file_of_another_user_is_not_shared_by_its_path(users: Users) -> None:
    failed = users.hopyard(BOB, "share", "add", "--project", users.fraud, users.train, "--with", CAROL, rc=1)
    assert "Permission denied" in failed.stderr


def test_killed_in_the_middle_is_completed_by_list_and_add(users: Users) -> None:
    many = users.train / "many"
    many.mkdir(mode=0o700)
    for i in range(20_000):
        (many / str(i)).touch()
    for path in (many, *many.iterdir()):
        os.chown(path, ALICE, ALICE)
    rights = users.rights()
    record = users.churn / ".hopyard" / "shares.json"
    with subprocess.Popen([users.bin, "share", "add", "Resources/train", "--with", str(BOB)], cwd=users.churn,
                          env={"HOME": str(users.folder / "alice"), "PATH": "/usr/bin:/bin"}, user=ALICE, group=ALICE,
                          extra_groups=[], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:  # fmt: skip
        wait_for(record.exists, "the share is recorded")
        process.send_signal(signal.SIGKILL)
    assert json.loads(record.read_text())["shares"][0]["state"] == "granting"
    assert not users.can(BOB, "ls", users.train)  # the way to it is opened last
    listed = users.hopyard(ALICE, "share", "list")
    assert "completed an interrupted change of shares" in listed.stderr and "incomplete" not in listed.stdout
    assert users.can(BOB, "sh", "-c", f"cat {users.train}/a.csv {many}/0 {many}/19999")
    text = record.read_text().replace('"granted"', '"revoking"')
    record.write_text(text)
    users.hopyard(ALICE, "share", "add", "Resources/train", "--with", BOB)
    assert users.can(BOB, "cat", users.train / "a.csv")
    users.hopyard(ALICE, "share", "remove", "Resources/train", "--with", BOB)
    assert users.rights() == rights


def test_a_directory_above_the_project_that_is_closed_is_named(users: Users) -> None:
    (users.folder / "alice").chmod(0o700)
    done = users.hopyard(ALICE, "share", "add", "Resources/train", "--with", BOB)
    assert f"cannot pass through {users.folder}/alice yet" in done.stderr and "setfacl -m u:" in done.stderr
    failed = users.hopyard(BOB, "share", "accept", "--as", "churn::train", users.train, rc=1)
    assert f"you cannot pass through {users.folder}/alice;" in failed.stderr


def test_a_file_system_without_acls_is_named(users: Users) -> None:
    data = users.churn / "Resources" / "ram"
    data.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "none", data], check=True)
    try:
        os.chown(data, ALICE, ALICE)
        failed = users.hopyard(ALICE, "share", "add", "Resources/ram", "--with", BOB, rc=1)
        assert "has no access control lists (ACLs)" in failed.stderr
    finally:
        subprocess.run(["umount", data], check=True)


def test_removing_and_moving_the_data_set_of_another_project_is_refused(users: Users) -> None:
    users.share("--write")
    users.accept()
    for command in (["rm", "-r", "Shared/churn::train"], ["mv", "Shared/churn::train", "mine"]):
        assert "a data set of another project" in users.hopyard(BOB, "fs", *command, rc=1).stderr
    users.hopyard(BOB, "fs", "rm", "Shared/churn::train/a.csv")
    assert not (users.train / "a.csv").exists()
    users.hopyard(BOB, "share", "remove", "churn::train")
    assert users.train.exists() and not list((users.fraud / "Shared").iterdir())


def test_an_entry_in_a_project_of_another_user_is_not_followed(users: Users) -> None:
    """It could refer to files of the user who follows it."""
    (users.fraud / "Shared").mkdir()
    (users.fraud / "Shared" / "a::b").write_text(f"hopyard share 1\n{users.train}\n{ALICE}\n")
    os.chown(users.fraud / "Shared" / "a::b", BOB, BOB)
    failed = users.hopyard(ALICE, "fs", "cat", users.fraud / "Shared" / "a::b" / "a.csv", rc=1)
    assert "belongs to another user, and is not followed" in failed.stderr


def test_the_owner_of_a_project_can_be_named_by_its_directory(users: Users) -> None:
    users.hopyard(ALICE, "share", "add", "Resources/train", "--with", users.fraud)
    given = json.loads(users.hopyard(ALICE, "share", "list", "--json").stdout)["given"]
    found = [(s["path"], s["with"], s["write"], s["complete"]) for s in given]
    assert found == [("Resources/train", str(BOB), False, True)]
    assert users.can(BOB, "ls", users.train)


# ---- HDFS ------------------------------------------------------------------------------------------------------------


class HdfsUsers:
    """The same two projects on HDFS."""

    def __init__(self, yard: Yard, hdfs: Hdfs, folder: str, state: Path) -> None:
        self.yard, self.hdfs, self.state = yard, hdfs, state
        self.churn, self.fraud = f"{hdfs.url}/{folder}/churn", f"{hdfs.url}/{folder}/fraud"
        self.train = f"{self.churn}/Resources/train"
        root = {"HOPYARD_PROJECT": hdfs.url, **hdfs.env()}
        for url, user in ((self.churn, "alice"), (self.fraud, "bob")):
            yard.run("fs", "mkdir", "-p", url, env=root)
            yard.run("fs", "chown", f"{user}:{user}", url, env=root)
            yard.run("fs", "chmod", "700", url, env=root)
        self.run("alice", "fs", "mkdir", "-p", f"{self.train}/sub")
        self.put("alice", f"{self.train}/a.csv")
        self.run("alice", "fs", "chmod", "-R", "go-rwx", self.churn)

    def run(self, user: str, *args: object, rc: int | None = 0) -> subprocess.CompletedProcess[str]:
        project = self.churn if user == "alice" else self.fraud
        env = {**self.hdfs.env(user), "HOPYARD_PROJECT": project, "XDG_STATE_HOME": str(self.state / user)}
        return self.yard.run(*args, env=env, rc=rc)

    def put(self, user: str, url: str, rc: int | None = 0) -> subprocess.CompletedProcess[str]:
        return self.run(user, "fs", "put", "/etc/hostname", url, rc=rc)

    def acls(self) -> str:
        """By Hadoop's own client."""
        return self.hdfs.shell("-getfacl", "-R", self.churn).text


@pytest.fixture
def hdfs_users(yard: Yard, hdfs: Hdfs, request: pytest.FixtureRequest, tmp_path: Path) -> HdfsUsers:
    return HdfsUsers(yard, hdfs, request.node.name.removeprefix("test_")[:40], tmp_path)


def test_hdfs_share_is_read_only_covers_new_files_and_is_revoked(hdfs_users: HdfsUsers) -> None:
    before = hdfs_users.acls()
    assert "Permission denied" in hdfs_users.run("bob", "fs", "ls", hdfs_users.train, rc=1).stderr
    added = hdfs_users.run("alice", "share", "add", "Resources/train", "--with", "bob").stdout
    assert f"hopyard share accept --as churn::train {hdfs_users.train}" in added
    assert "which you can read." in hdfs_users.run("bob", "share", "accept", "--as", "churn::train", hdfs_users.train).stdout
    place = f"{hdfs_users.fraud}/Shared/churn::train"
    assert hdfs_users.run("bob", "fs", "cat", f"{place}/a.csv").stdout == Path("/etc/hostname").read_text()
    hdfs_users.put("alice", f"{hdfs_users.train}/sub/new")
    assert hdfs_users.run("bob", "fs", "cat", f"{place}/sub/new").stdout
    assert "Permission denied" in hdfs_users.put("bob", f"{place}/mine", rc=1).stderr
    assert "Permission denied" in hdfs_users.run("bob", "fs", "ls", hdfs_users.churn, rc=1).stderr
    assert "user:bob:r-x" in hdfs_users.acls()
    hdfs_users.run("alice", "share", "remove", "Resources/train", "--with", "bob")
    assert "Permission denied" in hdfs_users.run("bob", "fs", "ls", hdfs_users.train, rc=1).stderr
    hdfs_users.run("alice", "fs", "rm", f"{hdfs_users.train}/sub/new")
    assert hdfs_users.acls() == before


def test_hdfs_writable_share_and_rights_from_before(hdfs_users: HdfsUsers) -> None:
    hdfs_users.hdfs.shell("-setfacl", "-m", "user:bob:r--,user:carol:rw-", f"{hdfs_users.train}/a.csv")
    before = hdfs_users.acls()
    hdfs_users.run("alice", "share", "add", f"{hdfs_users.train}", "--with", "bob", "--write")
    hdfs_users.run("bob", "share", "accept", "--as", "churn::train", hdfs_users.train)
    hdfs_users.put("bob", f"{hdfs_users.fraud}/Shared/churn::train/sub/bobs")
    assert hdfs_users.run("alice", "fs", "cat", f"{hdfs_users.train}/sub/bobs").stdout
    listed = json.loads(hdfs_users.run("bob", "share", "list", "--json").stdout)["received"]
    assert [(e["name"], e["target"], e["write"]) for e in listed] == [("churn::train", hdfs_users.train, True)]
    hdfs_users.run("bob", "fs", "rm", f"{hdfs_users.fraud}/Shared/churn::train/sub/bobs")
    hdfs_users.run("alice", "share", "remove", "Resources/train", "--with", "bob")
    assert hdfs_users.acls() == before and "user:carol:rw-" in before
