# SPDX-License-Identifier: Apache-2.0
"""The messages of `hopyard driver --submit` (Submission and Submitted in proto/hopyard.proto), written by hand."""
from __future__ import annotations

from collections.abc import Iterator, Sequence


def varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, value: str | bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def submission(options: Sequence[tuple[str, object]], argv: Sequence[object], command: str = "run", function: bytes = b"",
               roles: Sequence[tuple[str, int]] = (), address: str = "") -> bytes:
    """The same options as on the command line; True is a flag."""
    spec = b"".join(field(2, str(word)) for word in argv) + field(27, function)
    spec += b"".join(field(42, field(1, name) + field(2, count)) for name, count in roles)
    if address:
        spec += field(35, "spark") + field(37, address)
    pairs = b"".join(field(2, field(1, name) + field(2, "" if value is True else str(value))) for name, value in options)
    return field(1, command) + pairs + field(4, spec)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (message[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if message[at - 1] < 128:
                return value, at

    at = 0
    while at < len(message):
        key, at = number(at)
        value, at = number(at)
        if key & 7 == 2:
            yield key >> 3, message[at:at + value]
            at += value
        else:
            yield key >> 3, value


def submitted(message: bytes) -> dict[str, int | str]:
    """run and socket, or option and text."""
    names = {1: "run", 2: "socket", 3: "option", 4: "text"}
    return {names[key]: value.decode() if isinstance(value, bytes) else value for key, value in fields(message)}
