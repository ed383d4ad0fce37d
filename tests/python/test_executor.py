# SPDX-License-Identifier: Apache-2.0
"""Code of Spark tasks, without Spark: unpacking, noexec directories, programs that do not run, agents."""
from __future__ import annotations

import contextlib
import errno
import io
import os
import platform
import re
import signal
import site
import socket
import subprocess
import sys
import tarfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

import hopyard
from feeding import wait_for
from hopyard._run import program as _program
from hopyard._spark import executor as _executor
from hopyard._spark import package_archive as _package_archive
from needs import need_root


@pytest.fixture
def noexec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, and one that may not execute."""
    need_root("to mount a file system")
    folder = tmp_path / "noexec"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "hopyard-test", folder], check=True)
    monkeypatch.chdir(folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def bare(folder: Path) -> str:
    """Of a Python that has all but hopyard, its libraries: TensorFlow would find the plugin in site-packages."""
    folder.mkdir()
    places = [
        Path(place) for place in site.getsitepackages() if Path(place).is_dir()
    ]  # Debian's has more than there are
    for path in (path for place in places for path in place.iterdir()):
        if not path.name.startswith(("hopyard", "_hopyard", "tensorflow-plugins")):
            (folder / path.name).symlink_to(path)
    return str(folder)


def test_unpacked_archive_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as held:
        folder = Path(_executor._unpacked(*_package_archive.archive(), held))
        (folder / "mark").touch()
        assert _executor._unpacked(*_package_archive.archive(), held) == str(folder)
        assert (folder / "mark").exists() and [p.name for p in tmp_path.iterdir()] == [folder.name]
        assert (folder / "bin/hopyard").is_file() and not (folder / "bin/hopyard").is_symlink()


def test_directory_writable_by_others_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as held:
        folder = Path(_executor._unpacked(*_package_archive.archive(), held))
        folder.chmod(0o770)
        with pytest.raises(PermissionError, match="no program is run from there; remove it"):
            _executor._unpacked(*_package_archive.archive(), held)
        folder.chmod(0o700)
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(PermissionError, match="is a symbolic link"):
            _executor._unpacked(*_package_archive.archive(), held)


def test_a_full_disk_leaves_nothing_half_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_root("to mount a small disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "hopyard-test", tmp_path], check=True)
    try:
        monkeypatch.chdir(tmp_path)
        with contextlib.ExitStack() as held, pytest.raises(OSError, match="No space left"):
            _executor._unpacked(*_package_archive.archive(), held)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_program_and_libraries_run_from_memory_on_noexec_file_systems(noexec: Path, tmp_path: Path) -> None:
    """By a Python that has no hopyard, but TensorFlow, which loads the plugin."""
    code = "import hopyard._tensorflow.ops as t; t.ensure_loaded(); print(t.library(), t._hopyard.__file__)"
    for _ in range(2):
        with contextlib.ExitStack() as held:
            folder = _executor._unpacked(*_package_archive.archive(), held)
            said = subprocess.run([f"{folder}/bin/hopyard", "--version"], capture_output=True, text=True, check=True)
            assert said.stdout.startswith("hopyard ")
    with contextlib.ExitStack() as held:
        folder = _executor._unpacked(*_package_archive.archive(), held)
        env = {**os.environ, "PYTHONPATH": f"{folder}/site:{bare(tmp_path / 'libraries')}", "TF_CPP_MIN_LOG_LEVEL": "3"}
        said = subprocess.run([f"{sys.base_prefix}/bin/python3", "-c", code], env=env, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        assert said.stdout.split() == [
            f"{folder}/site/tensorflow-plugins/hopyard_ops.so",
            f"{folder}/site/hopyard/_hopyard.abi3.so",
        ]
    assert not os.path.exists(f"{folder}/bin/hopyard"), "what was in memory is gone with the task"


# ---- programs that do not fit --------------------------------------------------------------------


def started(folder: Path, program: bytes) -> str:
    """What is said of a program that the system refuses."""
    path = folder / "bin/hopyard"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(program)
    path.chmod(0o755)
    with pytest.raises(OSError) as refused:
        _executor._started(str(folder), ["--version"], dict(os.environ))
    return str(refused.value)


def test_program_for_another_architecture_is_an_error(tmp_path: Path) -> None:
    ours = bytearray(Path(_program.find()).read_bytes())
    ours[18:20] = b"\x16\x00"  # e_machine: S/390
    assert started(tmp_path, bytes(ours)) == f"hopyard's program is not built for this machine ({platform.machine()})"


def test_machine_without_glibc_is_an_error(tmp_path: Path) -> None:
    ours = Path(_program.find()).read_bytes()
    loader = re.search(rb"/lib[^\0]*/ld-linux[^\0]*", ours)
    assert loader
    other = ours.replace(loader[0], loader[0][:-1] + b"9", 1)
    assert started(tmp_path, other) == "hopyard's program needs a Linux with glibc, which this machine does not have"


def test_machine_without_executable_memory_or_disk_is_an_error(noexec: Path) -> None:
    """Neither in its folders nor from memory: no link has taken the program's place."""
    folder = noexec / "unpacked"
    folder.mkdir()
    assert started(folder, b"\x7fELF") == f"cannot execute programs in {noexec}, nor from memory (vm.memfd_noexec)"


def test_missing_program_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/bin/hopyard"):
        _executor._started(str(tmp_path), ["--version"], dict(os.environ))


@pytest.mark.parametrize(
    "said, sentence",
    [
        (
            [
                "hopyard: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.9' not found (required by hopyard)",
                "hopyard: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by hopyard)",
            ],
            "needs 2.38; ",
        ),
        (
            ["hopyard agent: the driver cannot be reached"],
            "agent ended with status 1: hopyard agent: the driver cannot be reached",
        ),
    ],
)
def test_loader_output_becomes_one_message(said: list[str], sentence: str) -> None:
    assert sentence in _executor._end_reason(1, said)


def test_agent_killed_by_a_signal_is_distinguished_from_failure() -> None:
    """By that the driver knows that the executor lived: a trial may have killed it."""
    assert _executor._end_reason(-9, ["its last words"]) == f"{_executor.KILLED} 9"
    assert _executor.KILLED not in _executor._end_reason(1, [])


# ---- an agent in a task ----------------------------------------------------------------------------


class Task:
    """As much of Spark's TaskContext as an agent's task uses."""

    def __init__(self, attempt: int = 0, gpus: list[str] | None = None) -> None:
        self._attempt = attempt
        self._resources = {"gpu": types.SimpleNamespace(addresses=gpus)} if gpus else {}

    def attemptNumber(self) -> int:  # noqa: N802
        return self._attempt

    def resources(self) -> dict[str, Any]:
        return self._resources


def packed(program: str) -> bytes:
    """An archive with a shell script as the program."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in (("bin/hopyard", f"#!/bin/sh\n{program}\n"), ("site/hopyard/__init__.py", "# a package\n")):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


ORDER = {"join": "192.0.2.1:4711", "identity": "ab12", "name": "agent 3", "key": "the key"}
HERE = f"executor ? on {socket.gethostname()}: "


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs the task of an agent in this process, with a shell script in place of the program; returns the reason."""
    monkeypatch.chdir(tmp_path)

    def run(program: str, task: Task | None = None, archive: bytes | None = None, **order: Any) -> str:
        monkeypatch.setattr(pyspark.TaskContext, "get", lambda: task or Task())
        digest = f"d{len(list(tmp_path.glob('.hopyard-d*')))}"
        [reason] = _executor.run({**ORDER, **order}, packed(program) if archive is None else archive, digest)
        return str(reason)

    return run


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


NOTE = 'read key; echo "$key" > key; printf "%s\\n" "$@" > words; env > environment; '


def test_agent_gets_its_key_on_standard_input_and_ends_with_its_task(
    agent: Callable[..., str], tmp_path: Path
) -> None:
    assert agent(NOTE + "echo first >&2; echo 'cannot join' >&2; exit 3", container="300:200") == (
        HERE + "agent ended with status 3: cannot join")  # fmt: skip
    words = (tmp_path / "words").read_text().splitlines()
    assert (tmp_path / "key").read_text() == "the key\n" and "the key" not in words, "command lines are public"
    assert words[0] == "agent" and words[-1] == "--until-eof" and option(words, "--key-file") == "-"
    assert option(words, "--join") == "192.0.2.1:4711" and option(words, "--identity") == "ab12"
    assert option(words, "--name") == f"agent 3-?@{socket.gethostname()}" and option(words, "--slots") == "1"
    assert option(words, "--work") == str(tmp_path) and option(words, "--python") == sys.executable
    assert option(words, "--container") == f"{os.getppid()}:300:200"


def test_agent_has_the_executors_environment_and_the_gpus_of_its_task(
    agent: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_AUTH_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    agent(NOTE, Task(gpus=["1", "3"]))
    seen = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines() if "=" in line)
    assert seen["CUDA_VISIBLE_DEVICES"] == "1,3" and seen["HOPYARD_EXECUTOR"] == "?"
    assert seen["PYTHONPATH"] == f"{tmp_path}/.hopyard-d0/site:/mine"
    assert seen["PATH"].endswith(f":{tmp_path}/.hopyard-d0/bin"), "the executor's programs come first"
    assert "SPARK_AUTH_TOKEN" not in seen


def test_agent_that_leaves_its_task_keeps_the_executor(agent: Callable[..., str], tmp_path: Path) -> None:
    assert agent(NOTE + "echo $$ > pid; echo leaves; exec sleep 60", leaves=True) == _executor.LEFT
    words = (tmp_path / "words").read_text().splitlines()
    assert "--until-eof" not in words and option(words, "--companion") == str(os.getppid())
    assert agent("exit 0") == _executor.BUSY, "the agent holds the lock"
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert agent("read key") == HERE + "agent ended with status 0"


def test_agent_that_cannot_leave_ends_with_its_task(agent: Callable[..., str]) -> None:
    assert agent("read key; echo 'no room' >&2; exit 4", leaves=True) == HERE + "agent ended with status 4: no room"


def test_agent_killed_in_its_task_is_reported(agent: Callable[..., str]) -> None:
    assert agent("kill -9 $$") == f"{HERE}{_executor.KILLED} 9"


def test_agent_that_exits_before_it_reads_its_key_is_reported(agent: Callable[..., str]) -> None:
    long = "k" * (1 << 20)  # more than a pipe holds
    assert agent("exit 5", key=long) == HERE + "agent ended with status 5: it did not read its key"


def test_second_attempt_of_a_task_starts_no_agent(agent: Callable[..., str], tmp_path: Path) -> None:
    """Spark retries the task of a lost executor: the driver would see two agents with one name."""
    assert agent("touch started", Task(attempt=1)) == _executor.LOST
    assert list(tmp_path.iterdir()) == []


def test_reason_is_returned_if_the_agent_cannot_be_started(agent: Callable[..., str]) -> None:
    assert agent("", archive=b"no archive").startswith(HERE + "the agent cannot be started: ")


def test_limited_address_space_is_an_error(agent: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_executor.resource, "getrlimit", lambda _: (300 << 20, 300 << 20))
    reason = agent("touch started")
    assert reason.startswith(HERE + "spark.executor.pyspark.memory limits its address space to 300 MB")
    assert not os.path.exists("started")


@pytest.mark.parametrize("is_old", [False, True])
def test_agent_in_memory_stays_in_its_task(
    agent: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """Its program exists as long as the task. Kernels before 6.3 do not have a flag for executable memory."""
    create = os.memfd_create

    def memfd_create(name: str, flags: int) -> int:
        if is_old and flags & _executor.MFD_EXEC:
            raise OSError(errno.EINVAL, "Invalid argument")
        return create(name, flags & ~_executor.MFD_EXEC)

    monkeypatch.setattr(_executor.os, "memfd_create", memfd_create)
    monkeypatch.setattr(_executor, "_may_execute", lambda path: False)
    assert agent(NOTE, leaves=True) == HERE + "agent ended with status 0"
    assert (tmp_path / "words").read_text().splitlines()[-1] == "--until-eof"
    program = tmp_path / ".hopyard-d0/bin/hopyard"
    assert program.is_symlink() and not program.exists()


def test_options_of_the_executor_are_those_of_the_nearest_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "java").symlink_to("/bin/sh")
    command = [tmp_path / "java", "-c", "sleep 60 & echo $!; wait", "--executor-id", "7", "--cores", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as java:
        assert java.stdout is not None
        worker = int(java.stdout.readline())
        try:
            wait_for(lambda: Path(f"/proc/{worker}/comm").read_text() == "sleep\n")  # it is a copy of its parent first
            with monkeypatch.context() as patch:
                patch.setattr(_executor.os, "getpid", lambda: worker)
                assert _executor._java() == java.pid
                assert _executor._id() == "7" and _executor.cores() == 3
        finally:
            os.kill(worker, signal.SIGKILL)


# ---- hopyard in a worker ---------------------------------------------------------------------------


def test_installed_hopyard_of_another_version_is_an_error() -> None:
    _executor.ensure_package("unused", "unused", hopyard.__version__)
    with pytest.raises(RuntimeError, match=rf"hopyard {hopyard.__version__} is installed for .* the session has 0.0.1"):
        _executor.ensure_package("unused", "unused", "0.0.1")


def test_archive_sent_by_spark_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_executor.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(pyspark.SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "archive").write_bytes(packed(""))
    _executor.ensure_package("archive", "d", hopyard.__version__)
    assert sys.path[-1] == f"{tmp_path}/.hopyard-d/site" and (tmp_path / ".hopyard-d/site/hopyard").is_dir()
    (tmp_path / "archive").unlink()
    _executor.ensure_package("archive", "d", hopyard.__version__)


def test_extension_is_loaded_from_memory_on_noexec_file_systems(noexec: Path) -> None:
    """In a worker of Spark, whose files are there; its Python is another process, since this one has the extension."""
    (noexec / "archive").write_bytes(_package_archive.archive()[0])
    code = f"""if True:
        import importlib.util, pyspark, sys
        spec = importlib.util.spec_from_file_location("executor", {_executor.__file__!r})
        executor = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(executor)
        pyspark.SparkFiles.getRootDirectory = lambda: {str(noexec)!r}
        executor._fetch("archive", "d1")
        from hopyard import _hopyard
        print(_hopyard.__spec__.origin, _hopyard.version, sys.path[-1])"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    origin, version, place = said.stdout.split()
    assert origin.startswith("/proc/self/fd/") and version == hopyard.__version__
    assert place == f"{noexec}/.hopyard-d1/site" and Path(place, "hopyard/__init__.py").exists()


@pytest.mark.parametrize("has_filters", [True, False])
def test_slower_task_uses_what_the_faster_one_has_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_filters: bool
) -> None:
    """Python before 3.11.4 has no filters for archives."""
    if not has_filters:
        monkeypatch.delattr(tarfile, "data_filter")
    for _ in range(2):
        _executor._unpack(packed("exit 0"), str(tmp_path / "unpacked"))
    assert [path.name for path in tmp_path.iterdir()] == ["unpacked"]
    assert (tmp_path / "unpacked/bin/hopyard").read_text() == "#!/bin/sh\nexit 0\n"
