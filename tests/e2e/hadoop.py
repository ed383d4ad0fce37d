# SPDX-License-Identifier: Apache-2.0
"""Hadoop's own programs, for comparison with hopyard's.

A JVM takes 1.5 s to start, so one stays alive and executes calls (over py4j, which comes with pyspark). It exits with
this process, however that ends.
"""
from __future__ import annotations

import os
import shlex
import subprocess
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TOOLS = {
    "FsShell": "fs.FsShell",
    "DFSAdmin": "hdfs.tools.DFSAdmin",
    "DFSHAAdmin": "hdfs.tools.DFSHAAdmin",
    "ECAdmin": "hdfs.tools.ECAdmin",
    "DFSck": "hdfs.tools.DFSck",
}


@dataclass
class Answer:
    rc: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


def java(env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command line of a JVM with a part's environment. Options are arguments: a JVM prints those from its environment."""
    env = {**os.environ, **env}
    options = shlex.split(env.pop("JAVA_TOOL_OPTIONS", ""))
    program = os.path.join(env["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in env else "java"
    return [program, "-Xmx256m", *options], env


def run_class(env: dict[str, str], name: str, *args: object, rc: int | None = 0) -> Answer:
    """Runs any of Hadoop's programs, in a new JVM."""
    command, env = java(env)
    done = subprocess.run([*command, f"org.apache.hadoop.{name}", *map(str, args)], env=env, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=120)
    return checked(Answer(done.returncode, done.stdout, done.stderr.decode(errors="replace")), [name, *args], rc)


def checked(answer: Answer, words: Any, rc: int | None) -> Answer:
    assert rc is None or answer.rc == rc, f"{' '.join(map(str, words))}: {answer.rc}, not {rc}\n{answer.err[-4000:]}"
    return answer


class Hadoop:
    """A JVM that runs Hadoop's programs for one user."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway  # not every environment that collects tests has it

        command, env = java(env)
        jar = next(Path(find_spec("pyspark").origin).parent.glob("jars/py4j-*.jar"))
        path = f"{env['CLASSPATH']}:{jar}"
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                [*command, "-cp", path, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"],
                env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        assert self.process.stdout
        port, token = self.process.stdout.readline(), self.process.stdout.readline().strip()
        assert token, f"no JVM for Hadoop's programs: {log.read_text(errors='replace')[-3000:]}"
        self.gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=token, auto_convert=True))
        self.jvm = self.gateway.jvm
        self.hadoop = self.jvm.org.apache.hadoop
        self.conf = self.hadoop.hdfs.HdfsConfiguration()
        self.one = threading.Lock()  # System.out is a PrintStream

    def run(self, tool: str, *args: object, rc: int | None = 0) -> Answer:
        """One of TOOLS: `hdfs dfs`, `dfsadmin`, `haadmin`, `ec` or `fsck`."""
        words = self.gateway.new_array(self.jvm.java.lang.String, len(args))
        for i, word in enumerate(args):
            words[i] = str(word)
        with self.one:
            out, err = self.catch("setOut"), self.catch("setErr")
            conf = self.conf_for(args)
            made = self.find(TOOLS[tool])(*(() if tool == "DFSHAAdmin" else (conf,)))
            status = self.hadoop.util.ToolRunner.run(conf, made, words)
            self.jvm.System.out.flush()
            self.jvm.System.err.flush()
            answer = Answer(status, out.toByteArray(), out_of(err))
        return checked(answer, [tool, *args], rc)

    def conf_for(self, args: tuple[object, ...]) -> Any:
        """Options (-D) apply to one program only, and take effect only in a FileSystem that is not cached."""
        conf = self.hadoop.hdfs.HdfsConfiguration(self.conf)
        if "-D" in args:
            conf.set("fs.hdfs.impl.disable.cache", "true")
        return conf

    def catch(self, setter: str) -> Any:
        buffer = self.jvm.java.io.ByteArrayOutputStream()
        getattr(self.jvm.System, setter)(self.jvm.java.io.PrintStream(buffer))
        return buffer

    def find(self, name: str) -> Any:
        """A class below org.apache.hadoop."""
        found = self.hadoop
        for word in name.split("."):
            found = getattr(found, word)
        return found

    def files(self) -> Any:
        """The FileSystem itself, for operations without a program: hflush, a lease that is held, unusual block sizes."""
        return self.hadoop.fs.FileSystem.get(self.conf)

    def close(self) -> None:
        self.gateway.close()
        self.process.kill()
        self.process.wait()


def out_of(buffer: Any) -> str:
    return bytes(buffer.toByteArray()).decode(errors="replace")
