# SPDX-License-Identifier: Apache-2.0
"""Files by URL in the extension: its functions, the type File, their errors, threads and signals.

What HDFS is needed for is tests/e2e/test_hdfs_module.py's.
"""

import array
import errno
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

import hopyard
from hopyard import _hopyard, allreduce, cluster
from hopyard._base.files import Raw, open_url
from hopyard._hopyard import File
from hopyard._trial import runner as _runner
from needs import need_root


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(256)) * 1024)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_bytes(b"x")
    return str(tmp_path)


# ---- files that are unpickled


class Planted:
    def __reduce__(self):
        return os.putenv, ("PLANTED", "1")


def returned_by(folder):
    """What the two readers of results make of it."""
    trial = SimpleNamespace(state="done", logdir=str(folder), params={}, number=1)
    return allreduce._returned(SimpleNamespace(trials=[trial])), cluster._returned(trial)


def test_result_is_read_if_no_other_user_can_have_written_it(tmp_path):
    (tmp_path / "result.pickle").write_bytes(pickle.dumps((0, "mine")))
    (tmp_path / "result.pickle").chmod(0o644)
    assert returned_by(tmp_path) == (["mine"], ("mine",))
    assert cluster._returned(SimpleNamespace(logdir=str(tmp_path / "missing"))) is None


def give_away(path):
    need_root("to give files away")
    os.chown(path, 65533, 65533)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (give_away, "belongs to another user (user ID 65533)"),
        (lambda path: path.chmod(0o664), "can be written by other users (mode 0664)"),
        (lambda path: path.chmod(0o602), "can be written by other users (mode 0602)"),
        (lambda path: os.link(path, f"{path}.other"), "has 2 hard links"),
        (lambda path: path.symlink_to(path.rename(f"{path}.other")), "is a symbolic link"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is not a regular file"),
    ],
)
def test_a_result_that_another_user_may_have_written_is_not_read(tmp_path, spoil, why):
    path = tmp_path / "result.pickle"
    path.write_bytes(pickle.dumps((0, Planted())))
    path.chmod(0o644)
    spoil(path)
    for read in (allreduce._returned, cluster._returned):
        trial = SimpleNamespace(state="done", logdir=str(tmp_path), params={}, number=1)
        with pytest.raises(hopyard.Error) as refused:
            read(SimpleNamespace(trials=[trial]) if read is allreduce._returned else trial)
        assert why in str(refused.value) and f"'{path}'" in str(refused.value)


def test_result_is_not_written_through_a_link(tmp_path):
    (tmp_path / "kept").write_bytes(b"precious")
    (tmp_path / f"result.json.{os.getpid()}.tmp").symlink_to("kept")
    before = os.umask(0)
    try:
        _runner._put(str(tmp_path / "result.json"), b"{}")
    finally:
        os.umask(before)
    assert (tmp_path / "kept").read_bytes() == b"precious" and (tmp_path / "result.json").read_bytes() == b"{}"
    assert (tmp_path / "result.json").lstat().st_mode & 0o777 == 0o644 and len(list(tmp_path.iterdir())) == 2


# ---- errors


@pytest.mark.parametrize(
    ("call", "kind", "number"),
    [
        (lambda d: _hopyard.stat(f"{d}/none"), FileNotFoundError, errno.ENOENT),
        (lambda d: File(f"{d}/none"), FileNotFoundError, errno.ENOENT),
        (lambda d: File(f"{d}/file", "x"), FileExistsError, errno.EEXIST),
        (lambda d: _hopyard.rename(f"{d}/full/x", f"{d}/file"), FileExistsError, errno.EEXIST),
        (lambda d: File(f"{d}/full", "w"), IsADirectoryError, errno.EISDIR),
        (lambda d: _hopyard.list(f"{d}/file"), NotADirectoryError, errno.ENOTDIR),
        (lambda d: _hopyard.remove(f"{d}/full"), OSError, errno.ENOTEMPTY),
        (lambda d: File(f"{d}/file").write(b"x"), OSError, errno.EBADF),
        (lambda d: _hopyard.stat("s3://bucket/x"), OSError, errno.EPROTONOSUPPORT),
    ],
)
def test_errors_derive_from_hopyards_and_pythons_classes(folder, call, kind, number):
    with pytest.raises(hopyard.Error) as caught:
        call(folder)
    error = caught.value
    assert isinstance(error, kind) and isinstance(error, hopyard.FileError) and error.errno == number
    assert error.filename and "[Errno" not in str(error)


NOBODY = """
import os, sys
from hopyard import _hopyard
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for call in (lambda: _hopyard.File(sys.argv[1]), lambda: _hopyard.chmod(sys.argv[1], 0o777)):
    try:
        call()
    except PermissionError as error:
        print(type(error).__name__, error.filename == sys.argv[1])
print(_hopyard.access(sys.argv[1], os.R_OK), _hopyard.access(sys.argv[1], os.F_OK))
"""


def test_denied_access_is_a_permission_error():
    need_root("to become another user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = f"{folder}/file"
        File(path, "w").close()
        os.chmod(path, 0o600)
        done = subprocess.run([sys.executable, "-c", NOBODY, path], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["FileForbidden True", "FileForbidden True", "False True"], done.stderr


def test_errors_can_be_pickled(folder):
    with pytest.raises(hopyard.FileNotFound) as caught:
        _hopyard.stat(f"{folder}/none")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.errno, again.filename, str(again)) == (
        hopyard.FileNotFound, errno.ENOENT, f"{folder}/none", str(caught.value),
    )  # fmt: skip


def test_names_that_are_not_utf8_work_in_all_calls(tmp_path):
    name = os.fsdecode(bytes(tmp_path) + b"/\xff")
    File(name, "w").close()
    assert [os.fsencode(e.name) for e in _hopyard.list(tmp_path)] == [b"\xff"]
    assert _hopyard.glob(f"{tmp_path}/*") == [name]
    _hopyard.remove(name)
    with pytest.raises(FileNotFoundError) as caught:
        _hopyard.stat(name)
    assert caught.value.filename == name


# ---- open files


def test_bytes_are_read_at_any_offset(folder):
    with File(f"{folder}/file") as file:
        assert file.size == 256 * 1024 and not file.closed
        assert file.pread(3, 255) == b"\xff\x00\x01"
        assert file.pread(-1, 256 * 1023) == file.pread(1 << 60, 256 * 1023) == bytes(range(256))
        assert file.pread(-1, 1 << 40) == file.pread(10, 1 << 40) == b""
        with pytest.raises(ValueError, match="an offset must be 0 or more"):
            file.pread(1, -1)
    assert file.closed
    for call in (lambda: file.pread(1, 0), lambda: file.preadinto(bytearray(1), 0), lambda: file.size):
        with pytest.raises(ValueError, match="the file is closed"):
            call()


def test_every_buffer_can_be_read_into_and_written(tmp_path):
    numbers = array.array("d", [1.5, -2.5, 3.5])
    with File(tmp_path / "numbers", "w") as file:
        assert file.write(numbers) == 24 and file.write(memoryview(b"abcdef")[2:4]) == 2
        assert file.size == 26
    target = array.array("d", [0.0] * 3)
    with File(tmp_path / "numbers") as file:
        assert file.preadinto(target, 0) == 24 and target == numbers
        tail = bytearray(10)
        assert file.preadinto(memoryview(tail)[4:], 24) == 2 and tail == b"\0\0\0\0cd\0\0\0\0"
        with pytest.raises(TypeError):
            file.preadinto(b"read-only", 0)


def test_threads_read_one_file_at_once(folder):
    with File(f"{folder}/file") as file, ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda i: file.pread(1000, i * 1000), range(263)))
    assert b"".join(parts) == bytes(range(256)) * 1024


def test_close_waits_for_concurrent_reads(folder):
    for _ in range(50):
        file, begin = File(f"{folder}/file"), threading.Barrier(5)

        def read(file=file, begin=begin):
            begin.wait()
            try:
                while True:
                    assert len(file.pread(100_000, 0)) == 100_000
            except ValueError as error:
                return str(error)

        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(read) for _ in range(4)]
            begin.wait()
            file.close()
        assert {f.result() for f in found} == {"the file is closed"} and file.closed


@pytest.mark.parametrize("mode", ["", "rw", "r+", "z", "wx"])
def test_invalid_mode_is_an_error(folder, mode):
    with pytest.raises(ValueError, match="'r', 'w', 'x' or 'a'"):
        File(f"{folder}/file", mode)


def test_raw_file_is_a_python_io_object(folder):
    url = f"file://{folder}/file"
    with open_url(url, "r") as file:
        assert isinstance(file.raw, Raw) and file.name == url and file.readable() and file.seekable()
        assert file.seek(-256, os.SEEK_END) == 256 * 1023 and file.read(2) == b"\0\1" and file.tell() == 256 * 1023 + 2
        assert file.seek(10) == 10 and file.seek(5, os.SEEK_CUR) == 15 and file.read(1) == b"\x0f"
        with pytest.raises(ValueError, match="before the beginning"):
            file.raw.seek(-1)
        file.seek(0)
        assert len(file.read()) == 256 * 1024
    with open_url(f"file://{folder}/out", "w") as file:
        file.write(b"12")
        file.write("34")
        with pytest.raises(OSError):
            file.seek(0)
        file.flush()
        assert open(f"{folder}/out").read() == "1234", "what is flushed is seen"
    with open_url(f"file://{folder}/out", "a") as file:
        assert file.tell() == 4
        file.write(b"5")
    assert open(f"{folder}/out").read() == "12345"
    with pytest.raises(FileNotFoundError):
        open_url(f"file://{folder}/none", "r")


# ---- while a call waits


SCRIPT = """
import signal, sys, threading
from hopyard import _hopyard

def answer():
    for line in sys.stdin:
        print("another thread heard", line, end="", flush=True)
threading.Thread(target=answer, daemon=True).start()
signal.signal(signal.SIGUSR1, lambda number, frame: print("handled", flush=True))
try:
    _hopyard.stat(f"hdfs://127.0.0.1:{sys.argv[1]}/x")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_blocked_call_while_other_threads_run():
    """For a NameNode that takes a connection and says nothing; no real one can be made to do that."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        words = [sys.executable, "-c", SCRIPT, str(mute.getsockname()[1])]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            taken, _ = mute.accept()
            with taken:
                taken.recv(1)  # it has asked, and waits from now on
                print("a word", file=process.stdin, flush=True)
                assert process.stdout.readline() == "another thread heard a word\n"
                process.send_signal(signal.SIGUSR1)
                assert process.stdout.readline() == "handled\n"
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
            assert (out, process.returncode) == ("interrupted\n", 0), err
