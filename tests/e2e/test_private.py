# SPDX-License-Identifier: Apache-2.0
"""Existing directories are used only if no other user can have written to them."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BIN, Yard, wait_for, yard_in
from needs import need_root

VICTIM, ATTACKER, GROUP = 65534, 65533, 65532

# Each of them uses the project's store, for reading or for writing.
COMMANDS = [
    ["ls"], ["ls", "--json"], ["show", "1"], ["best", "1"], ["logs", "1"], ["attach", "1"], ["stop", "1"],
    ["resume", "1"], ["rm", "--force", "1"], ["gc", "--logs"], ["import", "/dev/null"], ["tensorboard", "1"],
    ["run", "--", "touch", "ran"], ["train", "-np", "1", "touch", "ran"],
]  # fmt: skip


class Users:
    """A project in a directory like /tmp, and two users of the machine with a runtime directory each."""

    def __init__(self, yard: Yard, folder: Path) -> None:
        self.yard, self.folder = yard, folder
        yard.bin = shutil.copy(BIN, folder / "hopyard")  # accessible to everybody
        yard.project.chmod(0o1777)
        for user in (VICTIM, ATTACKER):
            (yard.runtime / str(user)).mkdir(mode=0o700)
            (folder / f"home-{user}").mkdir(mode=0o755)
            for path in (yard.runtime / str(user), folder / f"home-{user}"):
                os.chown(path, user, user)
        yard.runtime.chmod(0o755)

    def call(self, user: int, *args: object, **env: str) -> subprocess.CompletedProcess[str]:
        names = {**self.yard.env, "HOME": str(self.folder / f"home-{user}"), **env}
        names["XDG_RUNTIME_DIR"] = f"{self.yard.runtime}/{user}"
        return subprocess.run(self.yard.command(*args), env=names, cwd=self.yard.project, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=120, user=user, group=user, extra_groups=[])  # fmt: skip

    def refused(self, sentence: str, **env: str) -> None:
        for args in COMMANDS:
            done = self.call(VICTIM, *args, **env)
            assert done.returncode == 1 and sentence in done.stderr, (args, done)
            assert done.stderr.count("\n") == 1 and not done.stdout.strip(), (args, done)
        assert not (self.yard.project / "ran").exists()


@pytest.fixture
def users() -> Iterator[Users]:
    need_root("to become another user")
    folder = Path(tempfile.mkdtemp(prefix="hy-users-"))
    folder.chmod(0o755)
    try:
        with yard_in(folder) as yard:
            yield Users(yard, folder)
    finally:
        shutil.rmtree(folder)


def give(folder: Path, user: int) -> None:
    for path in (folder, *folder.iterdir()):
        os.chown(path, user, user, follow_symlinks=False)


def test_directory_of_another_user_is_refused_by_every_command(users: Users) -> None:
    assert users.call(ATTACKER, "run", "--", "touch", "ran").returncode == 0
    (users.yard.project / "ran").unlink()
    users.yard.wait_idle()
    users.yard.folder.chmod(0o755)
    users.refused(f"/.hopyard' belongs to another user (user ID {ATTACKER})")


def test_file_of_another_user_is_refused_by_every_command(users: Users) -> None:
    assert users.call(VICTIM, "run", "--", "true").returncode == 0
    users.yard.wait_idle()
    planted = users.yard.folder / "url"
    planted.write_text("hdfs://attacker/project")
    os.chown(planted, ATTACKER, ATTACKER)
    users.refused(f"/.hopyard/url' belongs to another user (user ID {ATTACKER})")
    planted.unlink()
    assert users.call(VICTIM, "ls").returncode == 0


def test_symlink_is_refused_by_every_command(users: Users) -> None:
    assert users.call(VICTIM, "run", "--", "true").returncode == 0
    users.yard.wait_idle()
    real = users.folder / "elsewhere"
    users.yard.folder.rename(real)
    users.yard.folder.symlink_to(real)
    users.refused("/.hopyard' is a symbolic link and is not followed")
    assert users.yard.run("ls", rc=1).stderr.count("is a symbolic link") == 1, "not even for root"


def test_directory_writable_by_others_is_refused_until_its_user_fixes_it(users: Users) -> None:
    assert users.call(VICTIM, "run", "--", "true").returncode == 0
    users.yard.wait_idle()
    users.yard.folder.chmod(0o777)
    users.refused(f"check them, then run: chmod go-w '{users.yard.folder}'")
    users.yard.folder.chmod(0o755)  # as chmod go-w does
    done = users.call(VICTIM, "ls")
    assert done.returncode == 0 and done.stderr.startswith("note: other users could read '"), done
    assert users.yard.folder.stat().st_mode & 0o777 == 0o700
    assert users.call(VICTIM, "ls").stderr == ""


def test_root_may_use_a_directory_of_a_user_without_changing_its_owner(users: Users) -> None:
    assert users.call(VICTIM, "run", "--", "true").returncode == 0
    users.yard.run("run", "--listen", "127.0.0.1:0", "--", "true")
    users.yard.wait_idle()
    assert {path.stat().st_uid for path in users.yard.folder.rglob("*")} == {VICTIM}
    done = users.call(VICTIM, "ls")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3, done


def test_local_directory_of_a_remote_project_is_checked_too(users: Users) -> None:
    env = {"HOPYARD_PROJECT": "hdfs://nowhere/project", "XDG_STATE_HOME": str(users.folder / "state")}
    (users.folder / "state").mkdir()
    give(users.folder / "state", VICTIM)
    assert "has no runs yet" in users.call(VICTIM, "ls", **env).stdout
    (url,) = users.folder.glob("state/hopyard/*/files/.hopyard/url")
    assert url.read_text() == env["HOPYARD_PROJECT"] and url.stat().st_mode & 0o777 == 0o600
    os.chown(url, ATTACKER, ATTACKER)
    users.refused("/url' belongs to another user", **env)
    os.chown(url, VICTIM, VICTIM)
    os.chown(users.folder / "state/hopyard", ATTACKER, ATTACKER)
    (users.folder / "state/hopyard").chmod(0o755)
    users.refused("/state/hopyard' belongs to another user", **env)


# ---- projects that a group can write to ---------------------------------------------------------------------------------

WAITING = "[ {i} != 1 ] || until [ -e go ]; do sleep 0.05; done; echo printed {i}"


def start_as(users: Users, user: int, *args: object, **env: str) -> subprocess.Popen[str]:
    names = {**users.yard.env, "HOME": str(users.folder / f"home-{user}"), "XDG_RUNTIME_DIR": f"{users.yard.runtime}/{user}"}
    return subprocess.Popen(users.yard.command(*args), env={**names, **env}, cwd=users.yard.project, text=True, user=user,
                            group=GROUP, extra_groups=[], umask=0o002, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)  # fmt: skip


def as_user(user: int, act: Callable[[], object]) -> None:
    """In a process of that user, in the group."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(GROUP)
            os.setuid(user)
            act()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def share_with_group(users: Users) -> None:
    os.chown(users.yard.project, VICTIM, GROUP)
    users.yard.project.chmod(0o2775)


def started(users: Users) -> Path:
    """The directory of a run whose first trial waits."""
    return wait_for(lambda: next(users.yard.project.glob("Logs/TensorFlow/*/1/i=1"), None), "the first trial runs").parent


def test_group_members_cannot_write_to_directories_of_a_run(users: Users) -> None:
    share_with_group(users)
    run = start_as(users, VICTIM, "run", "--grid", "i=1,2", "--parallel", 1, "--max", "m", "--", "sh", "-c", f"{WAITING}; echo m=1")
    folder = started(users)
    for place in (folder, folder / "i=1", folder / "i=1/checkpoint"):
        with pytest.raises(AssertionError):
            as_user(ATTACKER, (place / "planted").mkdir)
    (users.yard.project / "go").touch()
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    assert len(folders) == 3 and {path.stat().st_mode & 0o022 for path in folders} == {0}


def test_trial_directories_of_another_user_fail_only_their_trials(users: Users) -> None:
    """In a run's directory that others can write to, as with earlier versions."""
    share_with_group(users)
    kept = users.folder / "kept"
    kept.mkdir()
    (kept / "stdout").write_text("precious")
    give(kept, VICTIM)
    run = start_as(users, VICTIM, "run", "--grid", "i=1..4", "--parallel", 1, "--max", "m", "--", "sh", "-c", f"{WAITING}; echo m={{i}}")
    folder = started(users)
    folder.chmod(0o2775)

    def plant() -> None:
        os.umask(0)
        (folder / "i=2/checkpoint").mkdir(parents=True)
        (folder / "i=2/result.json").write_text('{"m": 1000}')
        os.mkfifo(folder / "i=2/stdout")
        (folder / "i=3").symlink_to(kept)

    as_user(ATTACKER, plant)
    reader = os.open(folder / "i=2/stdout", os.O_RDONLY | os.O_NONBLOCK)
    (users.yard.project / "go").touch()
    output, _ = run.communicate(timeout=120)
    os.close(reader)
    trials = users.yard.trials()
    assert [t["state"] for t in trials] == ["done", "failed", "failed", "done"], output
    assert f"belongs to another user (user ID {ATTACKER})" in trials[1]["message"]
    assert "is a symbolic link" in trials[2]["message"]
    assert (kept / "stdout").read_text() == "precious" and len(list(kept.iterdir())) == 1
    assert (folder / "i=4/stdout").read_text() == "printed 4\nm=4\n"


def test_result_file_older_than_its_trial_is_ignored(users: Users) -> None:
    share_with_group(users)
    run = start_as(users, VICTIM, "run", "--grid", "i=1,2", "--parallel", 1, "--max", "m", "--", "sh", "-c", f"{WAITING}; echo m={{i}}")
    folder = started(users)
    (folder / "i=2").mkdir()
    (folder / "i=2/result.json").write_text('{"m": 1000}')
    os.mkfifo(folder / "i=2/stdout")
    give(folder / "i=2", VICTIM)
    reader = os.open(folder / "i=2/stdout", os.O_RDONLY | os.O_NONBLOCK)
    (users.yard.project / "go").touch()
    output, _ = run.communicate(timeout=120)
    os.close(reader)
    assert run.returncode == 0, output
    assert [t["value"] for t in users.yard.trials()] == [1, 2], output
    assert (folder / "i=2/stdout").read_text() == "printed 2\nm=2\n"


def test_work_directory_in_a_shared_place_is_named_after_its_user(users: Users) -> None:
    work = users.folder / "work"
    work.mkdir()
    work.chmod(0o1777)
    as_user(ATTACKER, (work / ".hopyard-work").mkdir)
    seen = users.folder / "seen"
    seen.mkdir()
    seen.chmod(0o777)
    last = (os.cpu_count() or 1) + 1  # one more than the run's own slots
    script = f"pwd > {seen}/{{i}}; until [ -s {seen}/{last} ]; do sleep 0.05; done"
    run = users.yard.start("run", "--listen", "127.0.0.1:0", "--grid", f"i=1..{last}", "--", "sh", "-c", script)
    match = wait_for(lambda: re.search(r"--join HOST:(\d+) --key-file (\S+)", users.yard.driver_log()), "the log says how to join")
    key = Path(shutil.copy(match[2], users.folder / "key"))
    os.chown(key, VICTIM, VICTIM)
    users.yard.project.chmod(0o700)  # so that the agent does not see it
    agent = start_as(users, VICTIM, "agent", "--join", f"127.0.0.1:{match[1]}", "--key-file", key, "--slots", 1, "--work", work)
    out, _ = run.communicate(timeout=120)
    output, _ = agent.communicate(timeout=60)
    assert run.returncode == 0, (out, output)
    assert any(path.read_text().startswith(f"{work}/.hopyard-work-{VICTIM}/") for path in seen.iterdir())


def test_every_file_of_a_run_is_private_to_its_user(yard: Yard) -> None:
    before = os.umask(0)
    try:
        yard.run("run", "--listen", "127.0.0.1:0", "--grid", "i=1..3", "--", "true")
    finally:
        os.umask(before)
    yard.wait_idle()
    modes = {path.name: path.stat().st_mode & 0o777 for path in yard.folder.rglob("*") if path.is_file()}
    assert set(modes.values()) == {0o600}, modes
    assert {"store.db", "store.lock", "run-1.lock", "run-1.hold", "run-1.log", "run-1.key", ".gitignore"} <= set(modes)
    assert yard.folder.stat().st_mode & 0o777 == 0o700


def test_snapshot_of_another_user_is_not_suggested_and_cannot_be_resumed(users: Users) -> None:
    theirs = users.folder / f"home-{ATTACKER}"
    users.call(ATTACKER, "run", "--project", theirs, "--", "sh", "-c", f"test $(id -u) != {ATTACKER} && touch ran; false")
    users.yard.wait_idle()
    laid = users.yard.project / "Logs/TensorFlow/x/1/run.db"
    laid.parent.mkdir(parents=True)
    shutil.copy(theirs / ".hopyard/runs/1.db", laid)
    laid.chmod(0o644)
    os.chown(laid, ATTACKER, ATTACKER)
    assert "import" not in users.call(VICTIM, "ls").stderr
    done = users.call(VICTIM, "import", laid)
    assert done.returncode == 0 and "its runs can be shown, but not resumed\n1 run added\n" in done.stdout, done
    assert "touch ran" in users.call(VICTIM, "show", "1").stdout
    done = users.call(VICTIM, "resume", "1")
    assert done.returncode == 1 and "from a file that others could write" in done.stderr, done
    assert not (users.yard.project / "ran").exists()
