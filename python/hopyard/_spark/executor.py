# SPDX-License-Identifier: Apache-2.0
"""Code of Spark tasks: unpacks hopyard and runs an agent, or makes `import hopyard` work in a worker.

Executors need not have hopyard: this module is pickled by value, so it uses Python's standard library only. An agent's
task returns one string, the reason why the agent has ended.
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

BUSY = "busy"  # another agent runs on this executor
LEFT = "left"  # the agent continues without this task
LOST = "its executor was lost"
KILLED = "the agent was killed by signal"
MFD_EXEC = 0x10  # since Linux 6.3; older ones have no vm.memfd_noexec
_PRIVATE = ("PYTHON_WORKER_FACTORY_", "SPARK_AUTH", "SPARK_BUFFER", "_PYSPARK")  # Spark's internal variables


def run(order: dict[str, Any], archive: bytes, digest: str) -> Iterator[str]:
    """Returns the reason instead of raising: Spark would retry the task, and start a second agent with the same
    name."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context.attemptNumber() > 0:
        return iter([LOST])
    where = f"executor {_id()} on {socket.gethostname()}"
    try:
        reason = _run_alone(order, archive, digest, context)
    except Exception as error:  # for example a full disk; the reason would be lost with Spark's retry
        reason = f"the agent cannot be started: {error}"
    return iter([reason if reason in (BUSY, LEFT) else f"{where}: {reason}"])


def _run_alone(order: dict[str, Any], archive: bytes, digest: str, context: Any) -> str:
    lock = _lock_executor()
    if lock is None:
        return BUSY
    with lock, contextlib.ExitStack() as held:
        return _problem() or _agent(order, _unpacked(archive, digest, held), context, lock)


# ---- one agent per executor ----------------------------------------------------------------------


def _java() -> int:
    """The process id of the executor: the nearest ancestor that is a JVM."""
    process = os.getpid()
    while process > 1:
        with open(f"/proc/{process}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        with open(f"/proc/{process}/comm") as file:
            if file.read().strip() == "java":
                return process
        process = int(words[1])
    return os.getppid()


def _option(name: str, default: str) -> str:
    """An option of the executor's command line."""
    with open(f"/proc/{_java()}/cmdline", errors="replace") as file:
        words = file.read().split("\0")
    return words[words.index(name) + 1] if name in words else default


def _id() -> str:
    """The executor's id, as in Spark's web UI."""
    return _option("--executor-id", "?")


def cores() -> int:
    """The number of cores of this executor."""
    return int(_option("--cores", "1"))


def _lock_executor() -> BinaryIO | None:
    """Locks a file in the executor's directory; None if another agent holds the lock. The kernel releases it when the
    holder dies."""
    fd = os.open(".hopyard-lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    lock = os.fdopen(fd, "r+b", buffering=0)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _problem() -> str | None:
    """A problem that would otherwise show up later and less clearly. Spark checks Python's version itself."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        return (
            f"spark.executor.pyspark.memory limits its address space to {limit >> 20} MB, and TensorFlow aborts under "
            "such a limit; remove that setting, and raise spark.executor.memoryOverhead instead"
        )
    return None


# ---- the package ---------------------------------------------------------------------------------


def ensure_package(name: str, digest: str, version: str) -> None:
    """Makes `import hopyard` work in a Python worker of Spark: `name` is the archive that SparkContext.addFile has
    sent. An installed hopyard is used if its version is the session's."""
    found = importlib.util.find_spec("hopyard")
    if found is None or found.origin is None:  # a directory of that name is not a package
        _fetch(name, digest)
    import hopyard

    if hopyard.__version__ != version:
        raise RuntimeError(
            f"hopyard {hopyard.__version__} is installed for {sys.executable} on {socket.gethostname()}, but the "
            f"session has {version}; install that version there, or remove it"
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
    """Loads the extension from memory, if its file system is mounted noexec."""
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
    """The directory of the unpacked archive; that of an earlier task is reused."""
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
        # Another task may have been faster.
        if getattr(error, "errno", 0) not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _check_private(folder: str) -> None:
    """A user who can write there could run code as this user."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(
            f"{folder} is a symbolic link, belongs to another user, or is writable by others, so no program is run "
            "from there; remove it"
        )


def _may_execute(path: str) -> bool:
    """Whether the file can be mapped executable, as a library is; False if it is mounted noexec."""
    with open(path, "rb") as file:
        try:
            mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
        except PermissionError:
            return False
    return True


def _keep_in_memory(archive: bytes, folder: str, held: contextlib.ExitStack) -> None:
    """Replaces program and libraries by links to files in memory, which noexec does not affect. They exist as long as
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
    except OSError:  # an older kernel, which does not need the flag
        fd = os.memfd_create(name, flags)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    return fd


def _link(target: str, path: str) -> None:
    """Creates or replaces a symbolic link."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ".new")  # left by a task that was killed
    os.symlink(target, path + ".new")
    os.replace(path + ".new", path)


def _environment(folder: str, context: Any) -> dict[str, str]:
    """The executor's environment. The agent leases the GPUs that Spark has assigned to this task, if any."""
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
            raise OSError(f"hopyard's program is not built for this machine ({platform.machine()})") from None
        if error.errno == errno.ENOENT and os.path.exists(program):  # its loader is missing
            raise OSError("hopyard's program needs a Linux with glibc, which this machine does not have") from None
        if error.errno == errno.EACCES:
            raise OSError(
                f"cannot execute programs in {os.path.dirname(folder)}, nor from memory (vm.memfd_noexec)"
            ) from None
        raise


def _agent(order: dict[str, Any], folder: str, context: Any, lock: BinaryIO) -> str:
    """Runs the agent until it ends. It ends when its standard input closes, that is, with this task. An agent that
    leaves the task lives as long as the executor, and holds the lock."""
    words = ["agent", "--join", order["join"], "--identity", order["identity"], "--key-file", "-",
             "--own-environment", "--work", os.getcwd(), "--python", sys.executable, "--slots", str(cores()),
             "--name", f"{order['name']}-{_id()}@{socket.gethostname()}"]  # fmt: skip
    if order.get("container"):
        words += ["--container", f"{_java()}:{order['container']}"]
    # Files in memory end with this task.
    leaves = order.get("leaves") and not os.path.islink(os.path.join(folder, "bin", "hopyard"))
    if leaves:
        words += ["--companion", str(_java()), "--hold-fd", str(lock.fileno())]
        more = {"stdout": subprocess.PIPE, "start_new_session": True, "pass_fds": [lock.fileno()]}
    else:
        words, more = [*words, "--until-eof"], {}
    agent = _started(folder, words, _environment(folder, context), **more)
    assert agent.stdin is not None
    output: collections.deque[str] = collections.deque(maxlen=5)
    reader = threading.Thread(target=_collect, args=(agent.stderr, output), daemon=True)
    reader.start()
    try:
        agent.stdin.write(order["key"].encode() + b"\n")
        agent.stdin.flush()
    except BrokenPipeError:
        output.append("it did not read its key")
    if agent.stdout is not None and agent.stdout.readline() == b"leaves\n":
        return LEFT
    status = agent.wait()
    reader.join(1)
    return _end_reason(status, list(output))


def _end_reason(status: int, output: list[str]) -> str:
    """Why the agent has ended: a loader's message about glibc is shortened."""
    needed = re.findall(r"version `GLIBC_([\d.]+)' not found", "\n".join(output))
    if needed:
        newest = max(needed, key=lambda version: [int(n) for n in version.split(".")])
        return (
            f"its glibc is {platform.libc_ver()[1]}, but hopyard's program needs {newest}; "
            "run executors on a newer system, or build hopyard on a system like theirs"
        )
    if status < 0:
        return f"{KILLED} {-status}"
    return f"agent ended with status {status}" + (f": {output[-1]}" if status and output else "")


def _collect(stream: BinaryIO, output: collections.deque[str]) -> None:
    for line in stream:
        output.append(line.decode(errors="replace").rstrip())
