# SPDX-License-Identifier: Apache-2.0
"""Code of Spark tasks that can be tested without Spark: unpacking, noexec directories, programs that do not run."""
from __future__ import annotations

import contextlib
import os
import platform
import re
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
