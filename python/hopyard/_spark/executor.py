# SPDX-License-Identifier: Apache-2.0
"""What runs in a Spark task: an agent, unpacked beside it; or, for others that want it there, hopyard itself.

An executor has no hopyard: this module goes there by value, so it knows nothing of the others, and only Python's own
library. What an agent's task returns is one sentence, why it is over.
"""

import collections
import contextlib
import errno
import fcntl
import importlib.machinery
import importlib.util
import io
import mmap
import os
import platform
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

BUSY = "busy"  # another agent is on this executor
LEFT = "left"  # the agent lives on without this task
LOST = "the executor that it ran on was lost"
KILLED = "the agent was ended by signal"
MFD_EXEC = 0x10  # of Linux 6.3: else vm.memfd_noexec decides
_PRIVATE = ("PYTHON_WORKER_FACTORY_", "SPARK_AUTH", "SPARK_BUFFER", "_PYSPARK")  # of Spark's own channels


def run(order: dict[str, Any], archive: bytes, digest: str) -> Iterator[str]:
    """Spark would try a task that raises again, and so a second agent of the same name: it returns why, instead."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context.attemptNumber() > 0:
        return iter([LOST])
    where = f"executor {_id()} on {socket.gethostname()}"
    try:
        why = _alone(order, archive, digest, context)
    except Exception as error:  # a full disk, say; what it was would be lost with Spark's next try
        why = f"the agent cannot be started: {error}"
    return iter([why if why in (BUSY, LEFT) else f"{where}: {why}"])


def _alone(order: dict[str, Any], archive: bytes, digest: str, context: Any) -> str:
    lock = _only_one()
    if lock is None:
        return BUSY
    with lock, contextlib.ExitStack() as held:
        return _problem() or _agent(order, _unpacked(archive, digest, held), context, lock)


# ---- one on each executor ----------------------------------------------------------------------


def _java() -> int:
    """The executor itself: the first of our parents that is a JVM."""
    process = os.getpid()
    while process > 1:
        with open(f"/proc/{process}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        with open(f"/proc/{process}/comm") as file:
            if file.read().strip() == "java":
                return process
        process = int(words[1])
    return os.getppid()


def _said(option: str, otherwise: str) -> str:
    """What this executor was started with."""
    with open(f"/proc/{_java()}/cmdline", errors="replace") as file:
        words = file.read().split("\0")
    return words[words.index(option) + 1] if option in words else otherwise


def _id() -> str:
    """By which Spark's page knows this executor."""
    return _said("--executor-id", "?")


def cores() -> int:
    """Of this executor."""
    return int(_said("--cores", "1"))


def _only_one() -> BinaryIO | None:
    """In a folder that is this executor's alone. The kernel gives it to one process at a time, and takes it back when
    that has died."""
    fd = os.open(".hopyard-lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    lock = os.fdopen(fd, "r+b", buffering=0)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _problem() -> str | None:
    """What would go wrong later, and less clearly. Spark itself refuses another Python than its driver's."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        return (
            f"spark.executor.pyspark.memory limits its address space to {limit >> 20} MB, under which TensorFlow aborts; "
            "leave that setting out, and raise spark.executor.memoryOverhead instead"
        )
    return None


# ---- the package ---------------------------------------------------------------------------------


def package(name: str, digest: str, version: str) -> None:
    """From here on `import hopyard` works, in a Python worker of Spark's that may have none: `name` is the archive, which
    has come by SparkContext.addFile. One that is installed there serves, if it is the session's."""
    found = importlib.util.find_spec("hopyard")
    if found is None or found.origin is None:  # a folder of that name is none
        _fetch(name, digest)
    import hopyard

    if hopyard.__version__ != version:
        raise RuntimeError(
            f"hopyard {hopyard.__version__} is installed for {sys.executable} on {socket.gethostname()}, and the session has "
            f"{version}; install that one there, or none"
        )


def _fetch(name: str, digest: str) -> None:
    from pyspark import SparkFiles

    root = os.path.abspath(SparkFiles.getRootDirectory())
    archive, folder = os.path.join(root, name), os.path.join(root, f".hopyard-{digest}")
    if not os.path.isdir(folder):
        _unpack(_content(archive), folder)
    _check_private(folder)
    sys.path.append(os.path.join(folder, "site"))
    if not _may_execute(os.path.join(folder, "site", "hopyard", "__init__.py")):
        _import_from_memory(_content(archive))


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _import_from_memory(archive: bytes) -> None:
    """The extension, where its file may not be loaded."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = next(m for m in tar if m.name.startswith("site/hopyard/_hopyard.") and m.name.endswith(".so"))
        fd = _in_memory(os.path.basename(member.name), _read(tar, member))
    try:
        loader = importlib.machinery.ExtensionFileLoader("hopyard._hopyard", f"/proc/self/fd/{fd}")
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    finally:
        os.close(fd)
    sys.modules[loader.name] = module


# ---- the agent ---------------------------------------------------------------------------------


def _unpacked(archive: bytes, digest: str, held: contextlib.ExitStack) -> str:
    """The folder of what has come along; what is there of an earlier task serves again."""
    folder = os.path.join(os.getcwd(), f".hopyard-{digest}")
    if not os.path.isdir(folder):
        _unpack(archive, folder)
    _check_private(folder)
    if not _may_execute(os.path.join(folder, "site", "hopyard", "__init__.py")):
        _keep_in_memory(archive, folder, held)
    return folder


def _unpack(archive: bytes, folder: str) -> None:
    made = tempfile.mkdtemp(prefix=".hopyard-", dir=os.path.dirname(folder))
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                tar.extractall(made, filter="data")
            else:
                tar.extractall(made)
        os.rename(made, folder)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        # Another task was faster, and that is fine.
        if getattr(error, "errno", 0) not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _check_private(folder: str) -> None:
    """Whoever can write there chooses what is run as this user."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(
            f"{folder} is a symbolic link, belongs to another user, or can be written by others, and no program is run "
            "from there: remove it"
        )


def _may_execute(path: str) -> bool:
    """Whether code may be run from files there, or the folder was mounted noexec: as a library is loaded."""
    with open(path, "rb") as file:
        try:
            mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
        except PermissionError:
            return False
    return True


def _keep_in_memory(archive: bytes, folder: str, held: contextlib.ExitStack) -> None:
    """Program and libraries become links to files in memory, which no folder's noexec reaches. They last as long as
    this task, and so as the agent."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if member.name.startswith("bin/") or member.name.endswith(".so"):
                fd = _in_memory(os.path.basename(member.name), _read(tar, member))
                held.callback(os.close, fd)
                _link(f"/proc/{os.getpid()}/fd/{fd}", os.path.join(folder, member.name))


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None, "programs and libraries are regular files"
    return file.read()


def _in_memory(name: str, data: bytes) -> int:
    flags = getattr(os, "MFD_CLOEXEC", 1)
    try:
        fd = os.memfd_create(name, flags | MFD_EXEC)
    except OSError:  # of a kernel that does not know the flag, and needs none
        fd = os.memfd_create(name, flags)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    return fd


def _link(target: str, path: str) -> None:
    """In the place of what is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ".new")  # of a task that was killed
    os.symlink(target, path + ".new")
    os.replace(path + ".new", path)


def _environment(folder: str, context: Any) -> dict[str, str]:
    """The executor's own. Of GPUs the agent lends those that Spark has given to this task, if it gives any."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    paths = [os.path.join(folder, "site"), *filter(None, [kept.get("PYTHONPATH")])]
    gpus = context.resources().get("gpu")
    seen = {"CUDA_VISIBLE_DEVICES": ",".join(gpus.addresses)} if gpus else {}
    programs = [*filter(None, [kept.get("PATH")]), os.path.join(folder, "bin")]
    names = {"PATH": os.pathsep.join(programs), "PYTHONPATH": os.pathsep.join(paths), "HOPYARD_EXECUTOR": _id()}
    return {**kept, **seen, **names}


def _started(folder: str, words: list[str], environment: dict[str, str], **more: Any) -> subprocess.Popen[bytes]:
    program = os.path.join(folder, "bin", "hopyard")
    try:
        return subprocess.Popen(
            [program, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **more
        )
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            raise OSError(f"hopyard's program is not made for this machine, {platform.machine()}") from None
        if error.errno == errno.ENOENT and os.path.exists(program):  # what it is to be loaded by is not there
            raise OSError("hopyard's program needs a Linux with glibc, and here is none") from None
        if error.errno == errno.EACCES:
            raise OSError(
                f"nothing may be executed in {os.path.dirname(folder)}, nor from memory (vm.memfd_noexec)"
            ) from None
        raise


def _agent(order: dict[str, Any], folder: str, context: Any, lock: BinaryIO) -> str:
    """Runs it to its end. Its standard input is its life: when this task is gone, so is the agent. One that leaves lives
    as long as the executor does, and has the lock from then on."""
    words = ["agent", "--join", order["join"], "--identity", order["identity"], "--key-file", "-",
             "--own-environment", "--work", os.getcwd(), "--python", sys.executable, "--slots", str(cores()),
             "--name", f"{order['name']}-{_id()}@{socket.gethostname()}"]  # fmt: skip
    if order.get("container"):
        words += ["--container", f"{_java()}:{order['container']}"]
    # What is in memory goes.
    leaves = order.get("leaves") and not os.path.islink(os.path.join(folder, "bin", "hopyard"))
    if leaves:
        words += ["--companion", str(_java()), "--hold-fd", str(lock.fileno())]
        more = {"stdout": subprocess.PIPE, "start_new_session": True, "pass_fds": [lock.fileno()]}
    else:
        words, more = [*words, "--until-eof"], {}
    agent = _started(folder, words, _environment(folder, context), **more)
    assert agent.stdin is not None
    said: collections.deque[str] = collections.deque(maxlen=5)
    reader = threading.Thread(target=_keep, args=(agent.stderr, said), daemon=True)
    reader.start()
    try:
        agent.stdin.write(order["key"].encode() + b"\n")
        agent.stdin.flush()
    except BrokenPipeError:
        said.append("it did not take its key")
    if agent.stdout is not None and agent.stdout.readline() == b"leaves\n":
        return LEFT
    status = agent.wait()
    reader.join(1)
    return _verdict(status, list(said))


def _verdict(status: int, said: list[str]) -> str:
    """What the loader has against it is in many words."""
    needed = re.findall(r"version `GLIBC_([\d.]+)' not found", "\n".join(said))
    if needed:
        newest = max(needed, key=lambda version: [int(n) for n in version.split(".")])
        return (
            f"its glibc is {platform.libc_ver()[1]}, and hopyard's program needs {newest}; "
            "have executors on a newer system, or build hopyard on one like theirs"
        )
    if status < 0:
        return f"{KILLED} {-status}"
    return f"agent ended with status {status}" + (f": {said[-1]}" if status and said else "")


def _keep(stream: BinaryIO, said: collections.deque[str]) -> None:
    for line in stream:
        said.append(line.decode(errors="replace").rstrip())
