# SPDX-License-Identifier: Apache-2.0
"""Hadoop's servers: their jars, and what all of them have in common."""
from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from functools import cached_property
from pathlib import Path

from part import Part
from processes import ClusterError
from system import ROOT, find_java, find_pyspark, locked

NATIVE = "io.trino.hadoop:hadoop-apache:3.3.5-3"
LOGGING = """\
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""


def hadoop_clients() -> tuple[str, list[Path]]:
    """The version of Hadoop that pyspark includes, and its two jars."""
    folder = find_pyspark() / "jars"
    found = sorted(folder.glob("hadoop-client-api-*.jar"))
    if len(found) != 1:
        raise ClusterError(f"{folder} should contain one hadoop-client-api-VERSION.jar, but contains {len(found)}.")
    version = found[0].stem.removeprefix("hadoop-client-api-")
    return version, [found[0], folder / f"hadoop-client-runtime-{version}.jar"]


def fetch_jars() -> list[str]:
    """Hadoop's servers as a class path; Maven fetches them once for each version and pom.xml."""
    version, clients = hadoop_clients()
    pom, jars = Path(__file__).with_name("pom.xml"), ROOT / "build/cluster-jars"
    jars.parent.mkdir(exist_ok=True)
    with locked(jars.with_suffix(".lock")):
        stamp = f"{version} {hashlib.sha256(pom.read_bytes()).hexdigest()} decompressed\n"
        if not (jars / "stamp").exists() or (jars / "stamp").read_text() != stamp:
            print(f"fetching Hadoop {version} from Maven's repository", flush=True)
            shutil.rmtree(jars, ignore_errors=True)
            run_maven(["-f", str(pom), f"-Dhadoop.version={version}", f"-DoutputDirectory={jars}"])
            for jar in jars.glob("*.jar"):
                decompress(jar)
            (jars / "stamp").write_text(stamp)
    return [str(jars / "*"), *map(str, clients)]


def decompress(jar: Path) -> None:
    """Daemons then start with two thirds of the CPU: a NameNode reads the whole jar, to find the classes of its pages."""
    new = jar.with_suffix(".new")
    with zipfile.ZipFile(jar) as packed, zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as plain:
        for entry in packed.infolist():
            plain.writestr(zipfile.ZipInfo(entry.filename, entry.date_time), packed.read(entry))
    new.replace(jar)


def fetch_native() -> Path:
    """The directory of Hadoop's native library, which a DataNode needs for unix sockets. Hadoop's own artifacts do not
    contain it; one of Trino's does."""
    folder = ROOT / "build/cluster-native"
    folder.parent.mkdir(exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not (folder / "libhadoop.so").exists():
            print("fetching Hadoop's native library from Maven's repository", flush=True)
            run_maven([f"-Dartifact={NATIVE}", f"-DoutputDirectory={folder}", "-Dmdep.stripVersion=true"], goal="copy")
            with zipfile.ZipFile(folder / "hadoop-apache.jar") as jar:
                new = folder / "libhadoop.new"
                machine = {"x86_64": "amd64"}.get(os.uname().machine, os.uname().machine)
                new.write_bytes(jar.read(f"nativelib/Linux-{machine}/libhadoop.so"))
                new.rename(folder / "libhadoop.so")
            (folder / "hadoop-apache.jar").unlink()
    return folder


def run_maven(options: list[str], goal: str = "copy-dependencies") -> None:
    try:
        done = subprocess.run(["mvn", "-q", "-B", f"dependency:{goal}", *options], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError:
        raise ClusterError("Maven (mvn) is not installed; run `make cluster`, which installs it.") from None
    if done.returncode:
        raise ClusterError(f"Maven could not fetch Hadoop's jars:\n{done.stdout[-3000:]}")


class Hadoop(Part):
    """Daemons from those jars."""

    heap = "512m"
    classes = {
        "resourcemanager": "yarn.server.resourcemanager.ResourceManager",
        "nodemanager": "yarn.server.nodemanager.NodeManager",
        "namenode": "hdfs.server.namenode.NameNode",
        "datanode": "hdfs.server.datanode.DataNode",
        "journalnode": "hdfs.qjournal.server.JournalNode",
    }

    @cached_property
    def class_path(self) -> str:
        return ":".join([str(self.conf), *fetch_jars()])

    def configure(self) -> None:
        (self.conf / "log4j.properties").write_text(LOGGING)

    def settings(self, daemon: str) -> dict[str, object]:
        """Settings that are not in a file."""
        return {}

    def java(self, main: str) -> list[str]:
        return [str(find_java() / "bin/java"), f"-Xmx{self.heap}", "-cp", self.class_path, f"org.apache.hadoop.{main}"]

    def command(self, daemon: str) -> list[str]:
        settings = [word for k, v in self.settings(daemon).items() for word in ("-D", f"{k}={v}")]
        return [*self.java(self.classes[daemon.rstrip("0123456789")]), *settings]

    def succeeds(self, command: list[str], daemon: str, log: str) -> bool:
        """Runs a program to its end, in the environment of a daemon."""
        with open(self.log(log), "ab") as file:
            done = subprocess.run(command, env=self.environment(daemon), cwd=self.folder, stdin=subprocess.DEVNULL,
                                  stdout=file, stderr=file)
        return done.returncode == 0

    def format(self, namenode: str) -> None:
        """Creates its directory, which only an empty cluster lacks."""
        if (self.folder / namenode).exists():
            return
        if not self.succeeds([*self.command(namenode), "-format", "-nonInteractive"], namenode, "format"):
            self.fail("the NameNode's folder could not be formatted", "format")


if __name__ == "__main__":  # to fetch them before a start without network
    fetch_jars()
    fetch_native()
