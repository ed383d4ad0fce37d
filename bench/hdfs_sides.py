# SPDX-License-Identifier: Apache-2.0
"""The clients of HDFS that hdfs.py measures: what each needs, and how it is asked.

What pip has to give lands below build/bench. libhdfs is in no package; its sources are in that of pydoop, so it is
compiled from there.
"""

import getpass
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from typing import IO, Protocol

from hdfs_peer import BLOCK, PIECE, crc
from report import ROOT

BENCH = pathlib.Path(ROOT, "bench")
WORK = pathlib.Path(ROOT, "build", "bench")
JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
PYDOOP = "pydoop==2.0.0"  # the last one


@dataclass
class Cluster:
    url: str
    page: str  # http://HOST:PORT of the NameNode
    conf: pathlib.Path
    jars: list[str]
    folder: pathlib.Path  # for logs
    native: str = ""  # the folder of Hadoop's native library, without which Java's client knows no unix sockets

    def environment(self) -> dict[str, str]:
        """A client's. JVMs are as they come, and JNI knows no wildcards."""
        kept = {k: v for k, v in os.environ.items() if k not in JAVA_OPTIONS}
        jars = [found for jar in self.jars for found in sorted(glob.glob(jar))]
        return {**kept, "HADOOP_CONF_DIR": str(self.conf), "CLASSPATH": ":".join([str(self.conf), *jars]),
                "HADOOP_USER_NAME": getpass.getuser(), "JAVA_HOME": str(java_home()),
                "LIBHDFS_OPTS": " ".join(self.java_options())}

    def java_options(self) -> list[str]:
        return [f"-Djava.library.path={self.native}"] if self.native else []


@dataclass
class Answer:
    seconds: float
    cpu: float
    count: int  # bytes or answers, or a CRC-32


class Side(Protocol):
    def ask(self, command: str, path: str, count: int = 0) -> Answer | None:
        """Has it read, write, stat or sum; None: there is no such thing to measure."""

    def close(self) -> None: ...


# --- those that stay ---------------------------------------------------------


class Resident:
    """A process that is told what to do (hdfs_peer.py, HdfsPeer.java)."""

    def __init__(self, command: list[str], env: dict[str, str], log: pathlib.Path) -> None:
        self.command, self.log = command, log
        with open(log, "wb") as errors:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(command, env=env, text=True, **pipes)

    def pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin and self.process.stdout
        return self.process.stdin, self.process.stdout

    def ask(self, command: str, path: str, count: int = 0) -> Answer:
        to, back = self.pipes()
        try:
            print(command, path, count, file=to, flush=True)
            seconds, cpu, found = back.readline().split()
        except (BrokenPipeError, ValueError):
            said = self.log.read_text(errors="replace")[-3000:]
            raise SystemExit(f"{' '.join(self.command)} did not {command} {path}:\n{said}") from None
        return Answer(float(seconds), float(cpu), int(found))

    def close(self) -> None:
        for pipe in self.pipes():
            pipe.close()
        self.process.wait()


def peer(python: str, name: str, cluster: Cluster, data: pathlib.Path, **more: str) -> Resident:
    command = [python, str(BENCH / "hdfs_peer.py"), name, cluster.url, str(data)]
    return Resident(command, {**cluster.environment(), **more}, cluster.folder / f"{name}.log")


def hopyard(cluster: Cluster, data: pathlib.Path) -> Resident:
    return peer(sys.executable, "hopyard", cluster, data)


def java(cluster: Cluster, data: pathlib.Path) -> Resident:
    command = [str(java_home() / "bin" / "java"), *cluster.java_options(), str(BENCH / "HdfsPeer.java"), str(data)]
    return Resident(command, cluster.environment(), cluster.folder / "java.log")


def pyarrow(cluster: Cluster, data: pathlib.Path) -> Resident:
    return peer(sys.executable, "pyarrow", cluster, data, ARROW_LIBHDFS_DIR=str(libhdfs().parent))


def hdfs_native(cluster: Cluster, data: pathlib.Path) -> Resident:
    return peer(native_python(), "hdfs-native", cluster, data)


# --- those that are a process each time --------------------------------------


def run(command: list[str], env: dict[str, str], out: int) -> tuple[float, float]:
    """Seconds and CPU seconds of a command."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out)
    _, status, used = os.wait4(process.pid, 0)
    took, process.returncode = time.perf_counter() - begun, os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    return took, used.ru_utime + used.ru_stime


def output(command: list[str], env: dict[str, str]) -> bytes:
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout


def sum_of(command: list[str], env: dict[str, str]) -> Answer:
    """Of what it prints, which may be large."""
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout
        out = process.stdout
        return Answer(0, 0, crc(iter(lambda: out.read(PIECE), b"")))


class Curl:
    """WebHDFS. The NameNode sends it on to a DataNode, which is a client of HDFS itself."""

    def __init__(self, cluster: Cluster, file: pathlib.Path) -> None:
        self.cluster, self.file, self.env = cluster, file, dict(os.environ)

    def call(self, path: str, operation: str, *options: str) -> list[str]:
        """Without a proxy that somebody has set; an HTTP error is one."""
        url = f"{self.cluster.page}/webhdfs/v1{path}?user.name={getpass.getuser()}&op={operation}"
        return ["curl", "--silent", "--show-error", "--fail", "--location", "--noproxy", "*", *options, url]

    def ask(self, command: str, path: str, count: int = 0) -> Answer:
        return {"read": self.read, "write": self.write, "stat": self.stat, "sum": self.sum}[command](path, count)

    def read(self, path: str, _: int) -> Answer:
        with tempfile.TemporaryFile() as said:
            told = ["--output", "/dev/null", "--write-out", "%{size_download}"]
            took, cpu = run(self.call(path, f"OPEN&buffersize={PIECE}", *told), self.env, said.fileno())
            said.seek(0)
            return Answer(took, cpu, int(said.read()))

    def write(self, path: str, size: int) -> Answer:
        create = f"CREATE&overwrite=true&replication=1&blocksize={BLOCK}"
        command = self.call(path, create, "--upload-file", str(self.file))
        return Answer(*run(command, self.env, subprocess.DEVNULL), size)

    def stat(self, path: str, times: int) -> Answer:
        """All over one connection: curl counts through the brackets, and does not send what is behind a #."""
        with tempfile.TemporaryFile() as said:
            told = ["--output", "/dev/null", "--write-out", "%{http_code}\n"]
            took, cpu = run(self.call(path, f"GETFILESTATUS#[1-{times}]", *told), self.env, said.fileno())
            said.seek(0)
            return Answer(took, cpu, said.read().split().count(b"200"))

    def sum(self, path: str, _: int) -> Answer:
        return sum_of(self.call(path, "OPEN"), self.env)

    def close(self) -> None: ...


class Program:
    """Our command line."""

    def __init__(self, cluster: Cluster, file: pathlib.Path) -> None:
        self.url, self.file, self.env = cluster.url, file, cluster.environment()
        self.program = os.environ.get("HOPYARD_PROGRAM") or str(pathlib.Path(sys.executable).with_name("hopyard"))

    def ask(self, command: str, path: str, count: int = 0) -> Answer | None:
        cat = [self.program, "fs", "cat", self.url + path]
        if command == "sum":
            return sum_of(cat, self.env)
        if command == "read":
            return Answer(*run(cat, self.env, subprocess.DEVNULL), count)
        if command == "write":
            put = [self.program, "fs", "put", "--force", str(self.file), self.url + path]
            return Answer(*run(put, self.env, subprocess.DEVNULL), count)
        return None

    def close(self) -> None: ...


# --- what they need ----------------------------------------------------------


def java_home() -> pathlib.Path:
    """That of a JDK: for its compiler, and the headers of JNI."""
    home = os.environ.get("JAVA_HOME")
    compiler = os.path.join(home, "bin", "javac") if home else shutil.which("javac")
    if not compiler or not os.access(compiler, os.X_OK):
        raise SystemExit("there is no JDK (javac); run `make bench-hdfs`, which installs one, or set JAVA_HOME to one.")
    return pathlib.Path(compiler).resolve().parents[1]


def native_python() -> str:
    """An interpreter with hdfs-native."""
    folder = WORK / "hdfs-native"
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        print("installing hdfs-native below build/ …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "hdfs-native"], check=True)
        done.touch()
    return str(python)


def libhdfs() -> pathlib.Path:
    library = WORK / "libhdfs" / "libhdfs.so"
    if not library.exists():
        print("compiling libhdfs below build/ …", flush=True)
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            compile_libhdfs(fetch_libhdfs(folder), library)
    return library


def fetch_libhdfs(folder: str) -> pathlib.Path:
    fetch = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder, PYDOOP]
    subprocess.run([sys.executable, "-m", "pip", *fetch], check=True)
    [archive] = pathlib.Path(folder).glob("pydoop-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return pathlib.Path(folder, re.sub(r"\.tar\.gz$", "", archive.name), "src", "libhdfs")


def compile_libhdfs(source: pathlib.Path, library: pathlib.Path) -> None:
    """Its warnings are its own. The file is there when it is whole."""
    home = java_home()
    headers = [source, source / "include", source / "os" / "posix", home / "include", home / "include" / "linux"]
    files = [file for part in (".", "common", "os/posix") for file in (source / part).glob("*.c")]
    jvm, made = home / "lib" / "server", library.with_suffix(".new")
    subprocess.run(["cc", "-O2", "-w", "-shared", "-fPIC", "-o", made, *(f"-I{h}" for h in headers), *files,
                    f"-L{jvm}", "-ljvm", f"-Wl,-rpath,{jvm}"], check=True)  # fmt: skip
    made.rename(library)
