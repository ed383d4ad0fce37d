# SPDX-License-Identifier: Apache-2.0
"""Hosts: network namespaces with a real sshd each, connected to a switch.

    root ── hyXXXX ══ up0 ┐
                          br0   (the switch's namespace)
    host a ── eth0 ══ a ──┤
    host b ── eth0 ══ b ──┘

A host has its own network, host name, HOME, /run and ssh keys. One that does
not share files sees neither the project nor the program. `cut` unplugs its
cable: as with a real one, no process is notified.

Nothing here has a name in the system: a namespace lives as long as a process
in it, and its cables and mounts as long as the namespace. A reaper kills those
processes when the test ends or its process dies.
"""
from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterable, Iterator

import pytest
from conftest import Yard, wait_for
from needs import need_root

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
TOOLS = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client", "ip": "iproute2", "ss": "iproute2",
         "unshare": "util-linux", "nsenter": "util-linux", "mount": "util-linux", "hostname": "hostname"}

SSHD_CONFIG = """\
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
LogLevel VERBOSE
"""

# Reads from standard input which networks are ours; at end of file it kills their processes.
REAPER = """\
import os, shutil, signal, subprocess, sys, time
ip, link, folder = sys.argv[1:]
networks = {int(line) for line in sys.stdin}
def inside():
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}/ns/net").st_ino in networks:
                yield int(entry)
        except OSError:
            pass
end = time.monotonic() + 30
while (left := list(inside())) and time.monotonic() < end:
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    time.sleep(0.02)
subprocess.run([ip, "link", "del", link], stderr=subprocess.DEVNULL)
shutil.rmtree(folder, ignore_errors=True)
sys.exit(f"these cannot be killed: {left}" if left else 0)
"""

# $1 name, $2 its directory, $3 the user's home, the rest: directories that are hidden from it.
HOST_SCRIPT = """\
set -e
name=$1 folder=$2 home=$3
shift 3
hostname "$name"
ip link set lo up
mount --bind "$folder/ssh" /etc/ssh
mount --bind "$folder/home" "$home"
mount -t tmpfs -o mode=755 hopyard-test /run
mkdir /run/sshd
for hidden; do mount -t tmpfs -o mode=755 hopyard-test "$hidden"; done
echo ready
exec "$SSHD" -D -e
"""


def tool(name: str) -> str:
    path = shutil.which(name, path=os.environ["PATH"] + ":" + SBIN)
    if not path:
        pytest.fail(f"'{name}' is not installed; it is in the package {TOOLS[name]}", pytrace=False)
    return path


def need_hosts() -> None:
    need_root("to make network namespaces with an sshd in each")
    for name in TOOLS:
        tool(name)


def sh(*words: object) -> str:
    p = subprocess.run([str(w) for w in words], text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    if p.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: {p.stderr.strip() or p.returncode}")
    return p.stdout


def spawn(*words: object, **kw: Any) -> subprocess.Popen[str]:
    """A process that prints "ready" and stays in its new namespaces."""
    p = subprocess.Popen([str(w) for w in words], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         start_new_session=True, **kw)
    assert p.stdout is not None
    if p.stdout.readline() != "ready\n":
        raise AssertionError(f"{words[0]}: failed to start (status {p.wait(10)})")
    return p


def network_of(pid: int | str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def kill(pid: int, sig: int = signal.SIGKILL) -> bool:
    try:
        os.kill(pid, sig)
        return True
    except ProcessLookupError:
        return False


class Host:
    def __init__(self, net: "Hosts", name: str, number: int, shares: bool) -> None:
        self.net, self.name, self.shares = net, name, shares
        self.ip, self.ip6 = f"{net.prefix}.{10 + number}", f"{net.prefix6}::{10 + number}"
        self.folder = net.folder / name
        self.home = self.folder / "home"
        for part in ("home", "ssh"):
            (self.folder / part).mkdir(parents=True)
        ssh = self.folder / "ssh"
        sh(tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", ssh / "host_key")
        (ssh / "sshd_config").write_text(SSHD_CONFIG)
        shutil.copy(net.folder / "key.pub", ssh / "authorized_keys")
        hidden = [] if shares else net.hidden
        with open(self.folder / "sshd.log", "w") as log:
            self.sshd = spawn(tool("unshare"), "--net", "--mount", "--uts", "--propagation", "private", "sh", "-c", HOST_SCRIPT, "host",
                              name, self.folder, pwd.getpwuid(0).pw_dir, *hidden, stderr=log,
                              env={"PATH": f"{SBIN}:/usr/bin:/bin", "SSHD": tool("sshd")})
        self.network = net.own(self.sshd)

    # ---- its cable ----
    def ip_inside(self, *words: object) -> str:
        return sh(tool("nsenter"), "-t", self.sshd.pid, "-n", tool("ip"), *words)

    def plug(self) -> None:
        net = self.net
        net.ip_switch("link", "add", "name", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.sshd.pid)
        net.ip_switch("link", "set", "dev", self.name, "master", "br0", "up")
        self.ip_inside("addr", "add", f"{self.ip}/24", "dev", "eth0")
        self.ip_inside("link", "set", "eth0", "up")
        if net.has_ipv6():
            self.ip_inside("addr", "add", f"{self.ip6}/64", "dev", "eth0", "nodad")
        wait_for(lambda: self.answers(), f"the sshd of {self.name} answers")

    def answers(self) -> bool:
        try:
            with socket.create_connection((self.ip, 22), timeout=5) as s:
                return s.recv(4).startswith(b"SSH-")
        except OSError:
            return False

    def cut(self) -> None:
        self.net.ip_switch("link", "set", "dev", self.name, "down")

    def repair(self) -> None:
        self.net.ip_switch("link", "set", "dev", self.name, "up")

    def drop_link(self) -> None:
        """Breaks the agent's connection to the driver at both ends; ssh's stays."""
        dropped = sh(tool("nsenter"), "-t", self.sshd.pid, "-n", tool("ss"), "-K", "dst", self.net.ip, "sport", "!=", "22")
        assert self.net.ip in dropped, "this kernel cannot break a connection (ss -K, INET_DIAG_DESTROY)"

    # ---- its processes ----
    def processes(self, pattern: str = "") -> dict[int, str]:
        """All but the listening sshd."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != self.sshd.pid and network_of(entry) == self.network:
                try:
                    command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    state = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0]
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if state != "Z" and re.search(pattern, command):
                    found[int(entry)] = command
        return found

    def named(self, comm: str) -> list[int]:
        def is_it(pid: int) -> bool:
            try:
                return Path(f"/proc/{pid}/comm").read_text().strip() == comm
            except (FileNotFoundError, ProcessLookupError):
                return False
        return [p for p in self.processes() if is_it(p)]

    def agent(self) -> int:
        return int(wait_for(lambda: self.named("hopyard-agent"), f"an agent runs on {self.name}")[0])

    # ---- what hopyard leaves behind ---
    @property
    def programs(self) -> list[Path]:
        return sorted(p for p in (self.home / ".cache/hopyard/bin").rglob("*") if p.is_file())

    def assert_nothing_left(self, seconds: float = 60) -> None:
        ours = "^(?!sshd: )"  # sshd's sessions may not have noticed yet that a cable was unplugged
        wait_for(lambda: not self.processes(ours), f"processes are left on {self.name}: {self.processes(ours)}", seconds)
        left = list((self.home / ".cache/hopyard/work").glob("*"))
        assert not left, f"directories are left on {self.name}: {left}"


class Hosts:
    """A switch with its hosts; `ssh a` reaches host a if `path` is first in PATH."""

    def __init__(self, *names: str, shares: Iterable[str] = (), hidden: Iterable[Path] = ()) -> None:
        need_hosts()
        self.hidden = list(hidden)
        self.hosts: dict[str, Host] = {}
        self.owned: list[subprocess.Popen[str]] = []
        self.link = f"hy{secrets.token_hex(4)}"
        self.folder = Path(tempfile.mkdtemp(prefix="hy-hosts-"))
        self.claim = socket.socket(socket.AF_UNIX)
        self.reaper = subprocess.Popen([sys.executable, "-c", REAPER, tool("ip"), self.link, str(self.folder)], text=True,
                                       stdin=subprocess.PIPE, start_new_session=True)
        try:
            self.prefix = self.free_prefix()
            self.prefix6 = f"fd31:{0x1000 + secrets.randbelow(0xf000):x}:{0x1000 + secrets.randbelow(0xf000):x}"
            self.ip, self.ip6 = f"{self.prefix}.1", f"{self.prefix6}::1"
            sh(tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", self.folder / "key")
            sh(tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", self.folder / "wrong_key")
            self.make_switch()
            for i, name in enumerate(names):
                self.hosts[name] = Host(self, name, i, name in set(shares))
                self.hosts[name].plug()
            self.make_client()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def own(self, process: subprocess.Popen[str]) -> int:
        """Takes ownership of a process and of everything that will ever be in its network."""
        network = network_of(process.pid)
        assert network and network != network_of("self") and self.reaper.stdin
        self.owned.append(process)
        self.reaper.stdin.write(f"{network}\n")
        self.reaper.stdin.flush()
        return network

    def free_prefix(self) -> str:
        """An unused private prefix: a.b.c of a.b.c.0/24. A socket of that name reserves it against other tests."""
        taken = sh(tool("ip"), "-4", "route", "show", "table", "all")
        for _ in range(1000):
            prefix = f"10.231.{secrets.randbelow(256)}"
            try:
                self.claim.bind(f"\0hopyard-test-{prefix}")
            except OSError:
                continue
            if f"{prefix}." not in taken:
                return prefix
            self.claim.close()
            self.claim = socket.socket(socket.AF_UNIX)
        raise AssertionError("no network of 10.231.0.0/16 is free here")

    def ip_switch(self, *words: object) -> str:
        return sh(tool("nsenter"), "-t", self.switch.pid, "-n", tool("ip"), *words)

    def make_switch(self) -> None:
        self.switch = spawn(tool("unshare"), "--net", "sh", "-c", "echo ready; exec sleep infinity")
        self.own(self.switch)
        sh(tool("ip"), "link", "add", self.link, "type", "veth", "peer", "name", "up0", "netns", self.switch.pid)
        self.ip_switch("link", "add", "br0", "type", "bridge")
        self.ip_switch("link", "set", "br0", "up")
        self.ip_switch("link", "set", "up0", "master", "br0", "up")
        sh(tool("ip"), "addr", "add", f"{self.ip}/24", "dev", self.link)
        sh(tool("ip"), "link", "set", self.link, "up")
        if self.has_ipv6():
            sh(tool("ip"), "addr", "add", f"{self.ip6}/64", "dev", self.link, "nodad")

    def has_ipv6(self) -> bool:
        switch = Path(f"/proc/sys/net/ipv6/conf/{self.link}/disable_ipv6")
        return switch.exists() and switch.read_text().strip() == "0"

    def make_client(self) -> None:
        """An `ssh` that knows the hosts, and two more: `locked` rejects our key, `dark` does not answer."""
        first = next(iter(self.hosts.values()))
        addresses = {h.name: h.ip for h in self.hosts.values()} | {"locked": first.ip, "dark": f"{self.prefix}.250"}
        config = "".join(f"Host {name}\n  HostName {ip}\n" for name, ip in addresses.items())
        config += (f"Host * !locked\n  IdentityFile {self.folder}/key\n"
                   f"Host *\n  IdentityFile {self.folder}/wrong_key\n  IdentitiesOnly yes\n  IdentityAgent none\n  User root\n"
                   f"  UserKnownHostsFile {self.folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n")
        keys = [f"{h.ip},{h.ip6} {(h.folder / 'ssh/host_key.pub').read_text()}" for h in self.hosts.values()]
        (self.folder / "ssh_config").write_text(config)
        (self.folder / "known_hosts").write_text("".join(keys))
        self.path = self.folder / "bin"
        self.path.mkdir()
        wrapper = self.path / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {tool("ssh")} -F {self.folder}/ssh_config "$@"\n')
        wrapper.chmod(0o755)

    def close(self) -> None:
        assert self.reaper.stdin
        self.reaper.stdin.close()
        assert self.reaper.wait(60) == 0
        for process in self.owned:
            process.wait(10)
            assert process.stdout
            process.stdout.close()
        self.claim.close()

    def assert_nothing_left(self) -> None:
        for h in self.hosts.values():
            h.assert_nothing_left()


@contextmanager
def hosts_of(yard: Yard, *names: str, shares: Iterable[str] = ()) -> Iterator[Hosts]:
    """Hosts for this yard's driver; nothing may be left on them at the end."""
    net = Hosts(*names, shares=shares, hidden=[yard.project.parent, Path(yard.bin).resolve().parent])
    yard.env["PATH"] = f"{net.path}:{yard.env['PATH']}"
    try:
        yield net
        net.assert_nothing_left()
    finally:
        net.close()
        yard.run("gc", "--all", rc=None)  # cgroups of agents that were killed together with their reapers
