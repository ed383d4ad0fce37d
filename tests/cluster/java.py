# SPDX-License-Identifier: Apache-2.0
"""A Java that starts Spark with two thirds of the CPU: it maps the classes that Spark loads from an archive.

A JVM accepts an archive only if its class path begins with the jars that the archive was made of, and Spark's begins
with a folder of settings. So this java moves folders behind jars, none of which has files of the same names.
"""
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from processes import ClusterError
from system import ROOT, find_java, find_pyspark, locked

FOLDER = ROOT / "build/cluster-java"
ARCHIVE = FOLDER / "spark.jsa"
# Short lives: a JVM that compiles thoroughly takes twice as long to start; verifying classes is an eighth of the rest.
OPTIONS = ("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -XX:+UnlockDiagnosticVMOptions "
           "-XX:-BytecodeVerificationRemote")
# A JVM reports an archive that does not match on standard output.
SHARE = f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"
LAUNCHER = """\
#!/bin/sh
# Moves the folders of a class path behind its jars.
reorder() {
    jars= folders=
    for entry in $1; do
        case $entry in
        *.jar|*/\\*) jars=$jars:$entry ;;
        *) folders=$folders:$entry ;;
        esac
    done
    path=$jars$folders
    path=${path#:}
}
set -f
before=$IFS
IFS=:
option= found=
for word do
    shift
    case $found$option in
    -cp|-classpath|--class-path) reorder "$word"; word=$path found=yes ;;
    esac
    option=$word
    set -- "$@" "$word"
done
if [ -n "$CLASSPATH" ]; then
    reorder "$CLASSPATH"
    export CLASSPATH="$path"
fi
IFS=$before
exec 'JAVA' "$@"
"""
# What most sessions use: functions on rows, a DataFrame, a barrier.
PROGRAM = """
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.port", 0).getOrCreate()
numbers = spark.sparkContext.parallelize(range(4), 2)
numbers.map(lambda x: x + 1).collect()
numbers.barrier().mapPartitions(lambda rows: (BarrierTaskContext.get().barrier(), rows)[1]).collect()
spark.createDataFrame([(1, "a"), (2, "b")], ["x", "y"]).filter("x > 1").collect()
spark.stop()
"""


def options() -> str:
    """With the archive, if there is one. Sessions on this machine need no other java: their path begins with jars."""
    return f"{OPTIONS} {SHARE}" if ARCHIVE.exists() else OPTIONS


def java_home() -> Path:
    """The home of this java, which is made once for each Java and pyspark."""
    home = find_java()
    if home == (FOLDER / "home").resolve():  # JAVA_HOME is of a cluster's environment
        return FOLDER / "home"
    jars = sorted((find_pyspark() / "jars").glob("*.jar"))
    facts = [str(home), LAUNCHER, PROGRAM, OPTIONS, *(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)]
    stamp = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with locked(FOLDER.with_suffix(".lock")):
        if not (FOLDER / "stamp").exists() or (FOLDER / "stamp").read_text() != stamp:
            write_home(home)
            write_archive()
            (FOLDER / "stamp").write_text(stamp)
    return FOLDER / "home"


def write_home(home: Path) -> None:
    """Links to everything in the other home except its java."""
    (FOLDER / "home/bin").mkdir(parents=True, exist_ok=True)
    for path in [*home.iterdir(), *(home / "bin").iterdir()]:
        link = FOLDER / "home" / path.relative_to(home)
        if path.name not in ("bin", "java"):
            link.unlink(missing_ok=True)
            link.symlink_to(path)
    java = FOLDER / "home/bin/java"
    java.write_text(LAUNCHER.replace("JAVA", str(home / "bin/java")))
    java.chmod(0o755)


def write_archive() -> None:
    """A new file, which replaces the old one when it is whole: JVMs may have that open.

    A Java without an archive of its own classes cannot make one of others; it works as well, but slower.
    """
    ARCHIVE.unlink(missing_ok=True)
    new = ARCHIVE.with_suffix(".new")
    new.unlink(missing_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "HADOOP_"))}
    env = {**kept, "JAVA_HOME": str(FOLDER / "home"), "PYSPARK_PYTHON": sys.executable,
           "JAVA_TOOL_OPTIONS": f"{OPTIONS} -XX:ArchiveClassesAtExit={new}"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, cwd=folder, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    if done.returncode:
        raise ClusterError(f"Spark does not start:\n{done.stdout[-3000:]}")
    if new.exists():
        new.replace(ARCHIVE)
    else:
        print(f"There is no archive of Spark's classes:\n{done.stdout[-3000:]}", file=sys.stderr)
