# SPDX-License-Identifier: Apache-2.0
"""Self-signed certificates, for servers on this machine."""
from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]


class Certificate(NamedTuple):
    cert: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        return "--tls-cert", str(self.cert), "--tls-key", str(self.key)

    def client(self) -> ssl.SSLContext:
        """One that accepts this certificate only."""
        return ssl.create_default_context(cafile=self.cert)

    def renew(self, other: Certificate) -> None:
        for new, own in zip(other, self, strict=True):
            own.write_bytes(new.read_bytes())


def issue(folder: Path, name: str, kind: list[str] = CURVE, names: str = "DNS:localhost,DNS:hub.example,IP:127.0.0.1") -> Certificate:
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    subprocess.run(["openssl", "req", "-x509", *kind, "-nodes", "-subj", "/CN=ui", "-addext", f"subjectAltName={names}", "-days", "2",
                    "-keyout", made.key, "-out", made.cert], check=True, capture_output=True)
    made.key.chmod(0o600)
    return made
