# SPDX-License-Identifier: Apache-2.0
"""An HDFS with authentication, and its Kerberos.

The KDC is MIT's, an ordinary process: its configuration, its database and the
keytabs are in the state directory, and the system's own Kerberos is not changed.
"""
from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from part import NotReady
from processes import ClusterError
from system import listens, write_site

from hdfs import Hdfs

REALM = "HOPYARD.TEST"
PROTECTIONS = ("authentication", "integrity", "privacy")
# The users; NameNode and DataNodes run as one user, the superuser.
PRINCIPALS = {
    "hdfs": f"hdfs/localhost@{REALM}",
    "alice": f"alice@{REALM}",
    "bob": f"bob@{REALM}",
}
PAGES = f"HTTP/localhost@{REALM}"  # in the superuser's keytab

KRB5_CONF = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = {kdc}
    }}
[domain_realm]
    localhost = {realm}
"""

KDC_CONF = """\
[kdcdefaults]
    kdc_listen = {kdc}
    kdc_tcp_listen = {kdc}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
        supported_enctypes = aes256-cts-hmac-sha1-96:normal
        max_life = 1d
        max_renewable_life = 7d
    }}
[logging]
    kdc = STDERR
"""


def find_program(name: str) -> str:
    """Debian installs most of Kerberos in root's PATH only."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if not found:
        raise ClusterError(f"{name} (MIT Kerberos) is not installed; run `make cluster`, which installs it.")
    return found


class HdfsKerberos(Hdfs):
    """A NameNode, DataNodes and a KDC. Clients choose the protection of their data with conf-PROTECTION."""

    name = "hdfs-kerberos"
    daemons = ["kdc", *Hdfs.daemons]
    ports_of = {**Hdfs.ports_of, "kdc": ["kdc"]}

    def choose(self) -> dict[str, Any]:
        return {**super().choose(), "protection": self.options.protection, "encrypt": self.options.encrypt}

    @property
    def krb5_conf(self) -> Path:
        return self.folder / "krb5.conf"

    def keytab(self, user: str) -> Path:
        return self.folder / "keytabs" / f"{user}.keytab"

    def java_options(self) -> str:
        return f"{super().java_options()} -Djava.security.krb5.conf={self.krb5_conf}"

    # ---- the KDC
    def kerberos_environment(self) -> dict[str, str]:
        return {"KRB5_CONFIG": str(self.krb5_conf), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}

    def environment(self, daemon: str) -> dict[str, str]:
        return {**super().environment(daemon), **self.kerberos_environment()}

    def command(self, daemon: str) -> list[str]:
        return [find_program("krb5kdc"), "-n"] if daemon == "kdc" else super().command(daemon)

    def prepare(self, daemon: str) -> None:
        if daemon == "kdc":
            self.make_realm()
        else:
            super().prepare(daemon)

    def make_realm(self) -> None:
        folder = self.folder / "kdc"
        if folder.exists():
            return
        folder.mkdir(mode=0o700)
        self.keytab("").parent.mkdir()
        self.ask_kdc("kdb5_util", "create", "-s", "-r", REALM, "-P", "nobody needs to know")
        words = [f"addprinc -randkey {p}" for p in (*PRINCIPALS.values(), PAGES)]
        words += [f"ktadd -k {self.keytab(user)} {p}" for user, p in PRINCIPALS.items()]
        words += [f"ktadd -k {self.keytab('hdfs')} {PAGES}"]
        self.ask_kdc("kadmin.local", "-r", REALM, script="\n".join(words))
        if missing := [user for user in PRINCIPALS if not self.keytab(user).exists()]:
            self.fail(f"the KDC made no keytab for {', '.join(missing)}", "kadmin")

    def ask_kdc(self, program: str, *words: str, script: str = "") -> None:
        with open(self.log("kadmin"), "a") as log:
            done = subprocess.run([find_program(program), *words], input=script, text=True, stdout=log, stderr=log,
                                  env=self.environment("kdc"), cwd=self.folder)
        if done.returncode:
            self.fail(f"{program} failed", "kadmin")

    def spawn(self, daemon: str) -> None:
        """The others contact the KDC as soon as they start."""
        super().spawn(daemon)
        if daemon == "kdc":
            self.wait_while(self.kdc_not_ready, 10, [daemon])

    def kdc_not_ready(self) -> NotReady | None:
        return None if listens(self.ports["kdc"]) else NotReady("the KDC does not listen", "kdc")

    # ---- HDFS
    def configure(self) -> None:
        names = {"realm": REALM, "kdc": self.address("kdc"), "folder": self.folder / "kdc"}
        self.krb5_conf.write_text(KRB5_CONF.format(**names))
        (self.folder / "kdc.conf").write_text(KDC_CONF.format(**names))
        super().configure()
        for protection in PROTECTIONS:
            self.configure_client(protection)

    def configure_client(self, protection: str) -> None:
        """A directory next to the daemons' own with another requested protection."""
        folder = self.conf.with_name(f"conf-{protection}")
        shutil.copytree(self.conf, folder, dirs_exist_ok=True)
        write_site(folder / "core-site.xml", {**self.core_site(), "hadoop.rpc.protection": protection})
        write_site(folder / "hdfs-site.xml", {**self.hdfs_site(), "dfs.data.transfer.protection": protection})

    def core_site(self) -> dict[str, object]:
        return {
            **super().core_site(),
            "hadoop.security.authentication": "kerberos",
            "hadoop.security.authorization": "true",
            "hadoop.rpc.protection": self.choices["protection"],
        }

    def hdfs_site(self) -> dict[str, object]:
        principal, keytab = PRINCIPALS["hdfs"], self.keytab("hdfs")
        return {
            **super().hdfs_site(),
            "dfs.namenode.kerberos.principal": principal,
            "dfs.namenode.keytab.file": keytab,
            "dfs.datanode.kerberos.principal": principal,
            "dfs.datanode.keytab.file": keytab,
            "dfs.web.authentication.kerberos.principal": PAGES,
            "dfs.web.authentication.kerberos.keytab": keytab,
            "dfs.block.access.token.enable": "true",
            "dfs.data.transfer.protection": self.choices["protection"],
            "dfs.encrypt.data.transfer": str(self.choices["encrypt"]).lower(),
            "dfs.encrypt.data.transfer.cipher.suites": "AES/CTR/NoPadding",
            "ignore.secure.ports.for.testing": "true",  # else DataNodes require HTTPS, or privileged ports
        }

    def not_ready(self) -> NotReady | None:
        return self.kdc_not_ready() or super().not_ready()

    def addresses(self) -> dict[str, str]:
        return {**super().addresses(), f"{self.name}_keytabs": str(self.keytab("").parent), f"{self.name}_realm": REALM}

    def program_environment(self) -> dict[str, str]:
        return {**super().program_environment(), "KRB5_CONFIG": str(self.krb5_conf)}
