# SPDX-License-Identifier: Apache-2.0
"""The messages of `hopyard driver --submit` (Submission and Submitted in proto/hopyard.proto), written by hand."""
from __future__ import annotations

from collections.abc import Sequence

from namenode import message, take_delimited, varint


def submission(options: Sequence[tuple[str, object]], argv: Sequence[object], command: str = "run", function: bytes = b"",
               roles: Sequence[tuple[str, int]] = (), address: str = "") -> bytes:
    """The same options as on the command line; True is a flag."""
    spec = [(2, str(word)) for word in argv] + [(27, function)]
    spec += [(42, message((1, name), (2, count))) for name, count in roles]
    if address:
        spec += [(35, "spark"), (37, address)]
    pairs = [(2, message((1, name), (2, "" if value is True else str(value)))) for name, value in options]
    return message((1, command), *pairs, (4, message(*spec)))


def submitted(answer: bytes) -> dict[str, int | str]:
    """run and socket, or option and text."""
    names = {1: "run", 2: "socket", 3: "option", 4: "text"}
    found, _ = take_delimited(varint(len(answer)) + answer, 0)
    return {names[key]: value.decode() if isinstance(value, bytes) else value for key, value in found.items()}
