#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the first inputs of fuzz targets: of those that simulate an HDFS cluster (scripted.h has the format), and others.

    tests/fuzz/seeds.py FOLDER      creates FOLDER/hdfs_block, hdfs_calls, and so on

A session succeeds, or fails at a known position; a fuzzer starts from them. What it finds is in tests/fuzz/corpus,
minimized with `-merge=1`: run this again only after a change of the format or of a message.
"""

import os
import struct
import sys

(RAW, ANSWER, EXCEPTION, SASL, PROOF, MESSAGE, PACKET, LAST, ACK, READ, END, ODD, REFUSE, FILES) = range(14)
PLAIN, TOKEN, INTEGRITY, PRIVACY, KERBEROS, PATTERN, DATA_AES, DATA_INTEGRITY, LOCAL, HA, SMALL, NONSENSE, FIXED, \
    NO_PRINCIPAL, DATA_RC4, OTHER_TOKEN = range(16)
TOKEN_CHALLENGE = 1
AES, NO_PROOF, SHORT_IV = 2, 4, 8


def varint(n: int) -> bytes:
    out = b""
    n &= (1 << 64) - 1
    while True:
        out += bytes([n & 0x7F | (0x80 if n > 0x7F else 0)])
        n >>= 7
        if not n:
            return out


def message(fields: list[tuple[int, object]]) -> bytes:
    """A protobuf message of (number, value): numbers are varints, the rest is bytes."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def segment(kind: int, data: bytes = b"") -> bytes:
    assert len(data) < 65536
    return bytes([kind, len(data) & 0xFF, len(data) >> 8]) + data


def session(setting: int, actions: list[int], segments: list[bytes], fault: int = 0, step: int = 0) -> bytes:
    return bytes([setting, fault, step, len(actions), *actions]) + b"".join(segments)


def answer(*fields: tuple[int, object]) -> bytes:
    return segment(ANSWER, message(list(fields)))


def exception(kind: int, text: str, status: int = 1) -> bytes:
    return segment(EXCEPTION, bytes([status, kind]) + text.encode())


# ---- messages ----

PERMISSION = message([(1, 0o644)])
NOTHING = answer()
TRUE = answer((1, 1))
FALSE = answer((1, 0))


def token(secret: str = "secret") -> bytes:
    return message([(1, "identifier"), (2, secret), (3, "HDFS_BLOCK_TOKEN"), (4, "")])


def status(name: str = "", kind: int = 2, length: int = 100, block_size: int = 32) -> bytes:
    return message([(1, kind), (2, name), (3, length), (4, PERMISSION), (5, "owner"), (6, "group"), (7, 1000), (8, 2000),
                    (10, 3), (11, block_size), (13, 77)])


def node(number: int, port: int = 9866) -> bytes:
    return message([(1, message([(1, f"10.0.0.{number}"), (2, f"host{number}"), (3, f"uuid-{number}"), (4, port),
                                 (5, 9864), (6, 8867)]))])


def block(number: int = 1, length: int = 0) -> bytes:
    return message([(1, "pool"), (2, number), (3, 1001), (4, length)])


def located(offset: int, length: int, nodes: list[int], number: int = 1, corrupt: int = 0, units: bytes = b"",
            port: int = 9866, is_bare: bool = False) -> bytes:
    fields: list[tuple[int, object]] = [(1, block(number, length)), (2, offset)]
    fields += [(3, node(n, port)) for n in nodes]
    fields += [(4, corrupt), (5, token())]
    if not is_bare:
        fields += [(7, 1) for _ in nodes] + [(8, f"storage-{n}") for n in nodes]
    if units:
        fields += [(9, units)] + [(10, token()) for _ in nodes]
    return message(fields)


def locations(length: int, blocks: list[bytes], last: bytes = b"", more: list[tuple[int, object]] | None = None) -> bytes:
    fields: list[tuple[int, object]] = [(1, length)] + [(2, b) for b in blocks]
    fields += [(3, 1 if last else 0)] + ([(4, last)] if last else []) + [(5, 0 if last else 1)] + (more or [])
    return answer((1, message(fields)))


def policy(number: int, codec: str = "", data: int = 0, parity: int = 0, cell: int = 0) -> tuple[int, bytes]:
    schema = [(2, message([(1, codec), (2, data), (3, parity)]))] if codec else []
    return 7, message([(1, "policy"), *schema, *([(3, cell)] if cell else []), (4, number)])


def defaults(encrypts: int = 0, block_size: int = 32, chunk: int = 4, sums: int = 2) -> bytes:
    return answer((1, message([(1, block_size), (2, chunk), (3, 65536), (4, 3), (5, 4096), (6, encrypts), (8, sums)])))


def refusal(code: int, text: str = "", bad_link: str = "") -> bytes:
    return segment(MESSAGE, message([(1, code), *([(2, bad_link)] if bad_link else []), (5, text)]))


READY = segment(MESSAGE, message([(1, 0)]))
DATA = b"The quick brown fox jumps over the lazy dog. " * 4


def reads(data: bytes, chunk: int = 4, sums: int = 2, piece: int = 16) -> list[bytes]:
    """A block, from its first byte on."""
    out = [segment(READ, bytes([sums, chunk & 0xFF, chunk >> 8]))]
    out += [segment(PACKET, data[i : i + piece]) for i in range(0, len(data), piece)]
    return [*out, segment(LAST)]


# ---- authentication ---

def sasl(state: int, data: bytes | None = None, ways: list[bytes] | None = None) -> bytes:
    fields: list[tuple[int, object]] = [(2, state)]
    fields += [(3, data)] if data is not None else []
    return segment(SASL, message(fields + [(4, w) for w in ways or []]))


def way(method: str, mechanism: str, host: str = "nn", challenge: bytes | None = None) -> bytes:
    more = [(5, challenge)] if challenge is not None else []
    return message([(1, method), (2, mechanism), (3, "hdfs"), (4, host), *more])


def challenge(qop: str, more: str = "") -> bytes:
    return f'realm="default",nonce="server-nonce",qop="{qop}",charset=utf-8,algorithm=md5-sess,cipher="rc4"{more}'.encode()


def by_token(qop: str) -> list[bytes]:
    return [sasl(1, ways=[way("TOKEN", "DIGEST-MD5", challenge=challenge(qop))]), segment(PROOF, b"\0")]


def by_ticket(qop: int, host: str = "nn") -> list[bytes]:
    return [sasl(1, ways=[way("KERBEROS", "GSSAPI", host)]), sasl(3, b"\0complete"),
            sasl(3, b"\0" + bytes([qop, 0, 0xFF, 0xFF])), segment(PROOF, b"\0")]


# ---- calls ----

LISTING = answer((1, message([(1, status("a")), (1, status("b", 1)), (1, status("c", 3)), (2, 0)])))
PAGE = answer((1, message([(1, status("a")), (1, status("b")), (2, 5)])))
SUMMARY = answer((1, message([(1, 10), (2, 2), (3, 3), (4, 0), (5, 30), (6, 0)])))
ROOM = answer((1, 100), (2, 40), (3, 60))
INFO = answer((1, status()))


def acl(*entries: tuple[int, int, int, str], mode: int = 0o750) -> bytes:
    """A list of (type, scope, permissions, name)."""
    fields: list[tuple[int, object]] = [(1, b"o"), (2, b"g"), (3, 0)]
    for kind, scope, rights, name in entries:
        fields.append((4, message([(1, kind), (2, scope), (3, rights), *([(4, name.encode())] if name else [])])))
    return answer((1, message([*fields, (5, message([(1, mode)]))])))


def calls() -> dict[str, bytes]:
    well = [INFO, LISTING, TRUE, TRUE, TRUE, NOTHING, NOTHING, NOTHING, NOTHING, SUMMARY, ROOM]
    out = {
        "all": session(PLAIN, list(range(11)), well),
        "step": session(PLAIN, list(range(11)), well, step=3),
        "pages": session(PLAIN, [1, 1], [PAGE, PAGE, LISTING, answer((1, message([(2, 3)])))]),
        "not-there": session(PLAIN, [0, 1, 3, 4], [NOTHING, NOTHING, FALSE, FALSE]),
        "file-listed": session(PLAIN, [1], [answer((1, message([(1, status("")), (2, 0)])))]),
        "bad-names": session(PLAIN, [1, 1, 1], [answer((1, message([(1, status("a")), (1, status(n)), (2, 0)])))
                                                for n in ("a/b", "\0", "..")]),
        "acl": session(PLAIN, [12, 12, 13], [acl(), acl((0, 0, 5, "u"), (1, 0, 5, ""), (0, 1, 7, ""), (1, 1, 5, ""),
                                                        (0, 1, 5, "u"), (2, 1, 7, ""), (3, 1, 0, "")), NOTHING]),
        "acl-bad": session(PLAIN, [12] * 7, [acl((0, 0, 5, "u")), acl((0, 0, 5, "")), acl((4, 0, 5, "u")),
                                             acl((0, 2, 5, "u")), acl((0, 1, 8, "u")), acl((2, 0, 5, "u")),
                                             acl((0, 0, 5, "u"), (0, 0, 4, "u"), (1, 0, 5, ""))]),
        "acl-refused": session(PLAIN, [12, 13], [exception(1, "ACLs are off"), exception(1, "denied")]),
        "no-default": session(PLAIN, [11], []),
        "unreadable": session(PLAIN, [0, 2, 9], [segment(ANSWER, b"\xff"), NOTHING, NOTHING]),
        "refused": session(PLAIN, [0, 0], [segment(REFUSE), INFO, segment(REFUSE), segment(REFUSE), segment(REFUSE)]),
        "ends": session(PLAIN, [0, 0, 0], [segment(END), INFO, segment(END), segment(END), INFO]),
        "standby": session(HA, [0, 1], [exception(2, "standby"), exception(2, "standby"), exception(3, "later"), INFO,
                                        exception(2, "standby", 2), LISTING]),
        "ha-token": session(HA, [0], [*by_token("auth"), INFO]),
        "ha-gone": session(HA, [0], [segment(END)] * 12),
        "exceptions": session(PLAIN, [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1],
                              [exception(0, "File does not exist: /x"), exception(9, "there"), exception(1, "is non empty"),
                               exception(1, "/a is non empty"), exception(8, "denied"), exception(4, "safe mode"),
                               exception(6, "token"), exception(10, ""), exception(1, "Path is not a file: /a"),
                               exception(1, "SIMPLE authentication is not enabled"), exception(5, "")]),
        "fatal": session(PLAIN, [0, 0], [exception(1, "too old", 2), INFO]),
        "foreign-calls": session(PLAIN, [0], [segment(RAW, b"\0\0\0\x08\x06\x08\xe7\x07\x10\0\0\x00"), INFO]),
        "negative-call": session(PLAIN, [0], [segment(RAW, b"\0\0\0\x0d\x0c\x08" + varint(0xFFFFFFFF) + b"\x10\x01\x22\x02xy")]),
        "long-frame": session(PLAIN, [0], [segment(RAW, b"\x7f\0\0\0")]),
        "odd-frames": session(PLAIN, [0, 0, 0], [segment(RAW, b"\0\0\0\0"), segment(RAW, b"\0\0\0\1\xff"),
                                                 segment(RAW, b"\0\0\0\2\5\5"), segment(RAW, b"\0\0\0\2\1\xff")]),
        "token-auth": session(TOKEN, [0, 1], [*by_token("auth"), INFO, LISTING]),
        "token-integrity": session(INTEGRITY, [0, 1], [*by_token("auth,auth-int"), INFO, LISTING]),
        "token-privacy": session(PRIVACY, [0, 1, 10], [*by_token("auth-conf"), INFO, LISTING, ROOM]),
        "token-later": session(TOKEN, [0], [sasl(1, ways=[way("TOKEN", "DIGEST-MD5")]), sasl(3, challenge("auth")),
                                            segment(PROOF, b"\0"), INFO]),
        "token-proof-first": session(TOKEN, [0], [*by_token("auth")[:1], segment(PROOF, b"\1"), sasl(0), INFO]),
        "token-no-proof": session(TOKEN, [0], [*by_token("auth")[:1], segment(PROOF, b"\4"), INFO]),
        "token-wrong": session(TOKEN, [0], [*by_token("auth")[:1], sasl(0, b"rspauth=00000000000000000000000000000000")]),
        "token-refused": session(TOKEN, [0], [*by_token("auth")[:1], exception(6, "expired")]),
        "token-standby": session(TOKEN, [0], [exception(2, "standby"), exception(3, "later"), *by_token("auth"), INFO]),
        "two-offers": session(TOKEN, [0], [*by_token("auth")[:1], *by_token("auth")[:1]]),
        "no-way": session(TOKEN, [0], [sasl(1, ways=[way("KERBEROS", "GSSAPI"), way("X", "Y")])]),
        "no-way-kerberos": session(KERBEROS, [0], [sasl(1, ways=[way("TOKEN", "DIGEST-MD5"), way("X", "Y")])]),
        "simple": session(TOKEN, [0], [sasl(1, ways=[way("SIMPLE", "")]), INFO]),
        "simple-at-once": session(PATTERN, [0], [sasl(0), INFO]),
        "simple-not-allowed": session(KERBEROS, [0], [sasl(1, ways=[way("SIMPLE", "")])]),
        "odd-states": session(TOKEN, [0, 0], [sasl(3, b"x"), sasl(5)]),
        "sasl-unreadable": session(TOKEN, [0, 0], [segment(SASL, b"\xff"), segment(ANSWER, b"")]),
        "sasl-on-and-on": session(TOKEN, [0], [*by_token("auth")[:1], *[sasl(3, challenge("auth"))] * 3]),
        "sasl-rounds": session(KERBEROS, [0], [sasl(1, ways=[way("KERBEROS", "GSSAPI")]), *[sasl(3, b"\1go on")] * 17]),
        "small-pieces": session(INTEGRITY, [0], [*by_token("auth-int")[:0], sasl(1, ways=[way(
            "TOKEN", "DIGEST-MD5", challenge=challenge("auth-int", ",maxbuf=64"))]), segment(PROOF, b"\0"), INFO]),
        "wrapped-nonsense": session(INTEGRITY, [0], [*by_token("auth-int"), sasl(5, b"not signed by anybody at all")]),
        "not-wrapped": session(INTEGRITY, [0], [*by_token("auth-int"), sasl(3, b"x")]),
        "no-cipher": session(PRIVACY, [0], [sasl(1, ways=[way("TOKEN", "DIGEST-MD5", challenge=b'nonce="n",'
                             b'algorithm=md5-sess,qop="auth-conf"')])]),
        "no-nonce": session(TOKEN, [0], [sasl(1, ways=[way("TOKEN", "DIGEST-MD5", challenge=b'realm="r"')])]),
        "no-protection": session(INTEGRITY, [0], [sasl(1, ways=[way("TOKEN", "DIGEST-MD5", challenge=challenge("auth"))])]),
        "nonsense": session(NONSENSE, [0], by_token("auth")),
        "kerberos": session(KERBEROS, [0, 1], [*by_ticket(1), INFO, LISTING]),
        "kerberos-integrity": session(PATTERN, [0, 1], [*by_ticket(7), INFO, LISTING]),
        "kerberos-privacy": session(PATTERN, [0], [*by_ticket(4), INFO]),
        "kerberos-no-pieces": session(PATTERN, [0], [*by_ticket(4)[:2], sasl(3, b"\0\4\0\0\1")]),
        "kerberos-bad-offer": session(KERBEROS, [0], [*by_ticket(1)[:2], sasl(3, b"\0\1")]),
        "kerberos-fixed": session(FIXED, [0], [*by_ticket(1, "fixed"), INFO]),
        "kerberos-other": session(FIXED, [0], by_ticket(1)),
        "kerberos-hdfs": session(KERBEROS, [0], by_ticket(1, "elsewhere")),
        "kerberos-not-known": session(NO_PRINCIPAL, [0], by_ticket(1)),
        "kerberos-no-name": session(KERBEROS, [0], [sasl(1, ways=[message([(1, "KERBEROS"), (2, "GSSAPI")])])]),
        "kerberos-import": session(PATTERN, [0], by_ticket(1, "!")),
        "other-token": session(OTHER_TOKEN, [0], [sasl(1, ways=[way("TOKEN", "DIGEST-MD5")])]),
    }
    for how in range(2, 11):
        out[f"kerberos-fails-{how}"] = session(KERBEROS, [0], [sasl(1, ways=[way("KERBEROS", "GSSAPI")]),
                                                               sasl(3, bytes([how]))])
    for how in range(1, 5):
        out[f"kerberos-unwrap-{how}"] = session(PATTERN, [0], [*by_ticket(4), sasl(5, bytes([how]) + b"xyz")])
        out[f"kerberos-offer-{how}"] = session(KERBEROS, [0], [*by_ticket(4)[:2], sasl(3, bytes([how]) + b"\1\0\0\0")])
    for name in ("all", "token-privacy", "kerberos-integrity", "standby", "ha-token"):
        for fault in range(1, 120, 1 if name == "token-privacy" else 3):
            head = bytearray(out[name])
            head[1] = fault
            out[f"{name}-fault-{fault}"] = bytes(head)
    return out


# ---- reading ----

def read_file(length: int, blocks: list[bytes], streams: list[bytes], actions: list[int], setting: int = PLAIN,
              first: list[bytes] | None = None, second: list[bytes] | None = None, **kwargs) -> bytes:
    """`second`: after the locations, before the first DataNode answers: usually the cluster's defaults."""
    return session(setting, actions, [*(first or []), locations(length, blocks), *(second or [defaults()]), *streams],
                   **kwargs)


def shakes(qop: str, bits: int = 0) -> list[bytes]:
    """A DataNode's side of the authentication."""
    return [segment(MESSAGE, message([(1, 0), (2, challenge(qop))])), segment(PROOF, bytes([bits]))]


def read() -> dict[str, bytes]:
    whole = located(0, len(DATA), [1, 2, 3])
    n = len(DATA)
    key = answer((1, message([(1, 5), (2, "pool"), (3, "nonce"), (4, "key"), (5, 1 << 62)])))
    old_key = answer((1, message([(1, 5), (2, "pool"), (3, "nonce"), (4, "key"), (5, 1)])))
    out = {
        "one-block": read_file(n, [whole], reads(DATA), [0, 255]),
        "odd-steps": read_file(n, [whole], reads(DATA), [0, 255], step=1),
        "pieces": read_file(n, [whole], reads(DATA), [0, 2, 2, 3, 10, 1, 20, 200]),
        "crc32": read_file(n, [whole], reads(DATA, 5, 1), [0, 255]),
        "no-sums": read_file(n, [whole], reads(DATA, 5, 0), [0, 255]),
        "whole-chunks": read_file(n, [whole], reads(DATA, 4, 2, 64), [0, 36]),
        "two-blocks": read_file(2 * n, [whole, located(n, n, [2], 2)], [*reads(DATA), *reads(DATA)], [0, 36, 36, 36]),
        "again": read_file(n, [whole], [*reads(DATA), *reads(DATA), *reads(DATA)], [0, 255, 0, 255, 0, 3]),
        "in-the-middle": read_file(n, [whole], [segment(READ, b"\2\4\0"), segment(PACKET, DATA[48:64]), segment(LAST)],
                                   [10, 2]),
        "not-there": session(PLAIN, [0, 1], [NOTHING]),
        "empty": session(PLAIN, [0, 1], [locations(0, [])]),
        "gap": session(PLAIN, [0, 1], [locations(n, [located(5, n, [1])])]),
        "encrypted": session(PLAIN, [0, 1], [locations(n, [whole], more=[(6, message([
            (1, 1), (2, 2), (3, "k"), (4, "i"), (5, "n"), (6, "v")]))])]),
        "nobody-has-it": session(PLAIN, [0, 10], [locations(n, [located(0, n, [])])] * 5),
        "shorter": session(PLAIN, [0, 255], [locations(n + 50, [whole]), defaults(), *reads(DATA), locations(n, [whole])]),
        "corrupt": session(PLAIN, [0, 255], [locations(n, [located(0, n, [1], corrupt=1)]), defaults(),
                                             segment(READ, b"\2\4\0"), segment(ODD, b"\0\2" + DATA[:16]), NOTHING,
                                             locations(n, [located(0, n, [1], corrupt=1)]), segment(READ, b"\2\4\0"),
                                             segment(ODD, b"\0\2" + DATA[:16]), NOTHING]),
        "another-replica": read_file(n, [whole], [refusal(1, "gone"), *reads(DATA)], [0, 255]),
        "asked-again": session(PLAIN, [0, 255], [locations(n, [located(0, n, [1])]), defaults(), refusal(5, "expired"),
                                                 locations(n, [located(0, n, [1])]), *reads(DATA)]),
        "refused": read_file(n, [whole], [segment(REFUSE), segment(END), refusal(2), refusal(4),
                                          locations(n, [whole]), *reads(DATA)], [0, 255]),
        "less": read_file(n, [whole], [segment(READ, b"\2\4\0"), segment(PACKET, DATA[:16]), segment(LAST)], [0, 255]),
        "more": read_file(n, [whole], [segment(READ, b"\2\4\0"), segment(PACKET, DATA + b"1234"),
                                       segment(PACKET, b"56789abc"), segment(LAST)], [0, 255]),
        "odd-offset": read_file(n, [whole], [segment(READ, b"\2\4\0"), segment(ODD, b"\4\0" + DATA)], [0, 255]),
        "odd-last": read_file(n, [whole], [segment(READ, b"\2\4\0"), segment(ODD, b"\0\1" + DATA)], [0, 255]),
        "odd-head": read_file(n, [whole], [segment(READ, b"\2\4\0"), segment(RAW, b"\0\0\0\0\0\x19")], [0, 255]),
        "no-checksums": read_file(n, [whole], [READY], [0, 255]),
        "odd-checksums": read_file(n, [whole], [segment(MESSAGE, message([(1, 0), (4, message([
            (1, message([(1, 2), (2, 0)])), (2, 0)]))]))], [0, 255]),
        "long-answer": read_file(n, [whole], [segment(RAW, b"\xff\xff\xff\x07"), segment(RAW, b"\xff\xff\xff\xff\xff"),
                                              segment(RAW, b"\x02\xff\xff")], [0, 255]),
        "growing": session(PLAIN, [0, 255], [
            locations(n, [whole], located(n, 5, [1, 2], 2)), *by_token("auth"), answer((1, 20)), defaults(), *reads(DATA),
            *reads(b"12345678901234567890")]),
        "growing-not-there": session(PLAIN, [0, 255], [
            locations(n, [whole], located(n, 5, [1, 2], 2)), *by_token("auth"), exception(5, "none"), *by_token("auth"),
            answer((1, 3)), defaults(), *reads(DATA),
            *reads(b"12345")]),
        "growing-unknown": session(PLAIN, [0, 255], [
            locations(n, [whole], located(n, 5, [1, 2], 2)), *by_token("auth"), exception(1, "no"), *by_token("auth"),
            segment(ANSWER, b"\xff")]),
        "growing-silent": session(PLAIN, [0, 255], [
            locations(n, [whole], located(n, 5, [1], 2)), *by_token("auth"), segment(END), segment(REFUSE)]),
        "growing-elsewhere": session(PLAIN, [0, 255], [
            locations(n, [], located(5 * n, 5, [1], 2)), *by_token("auth"), answer((1, 20)), defaults(), *reads(DATA)]),
        "token-rc4": read_file(n, [whole], [*shakes("auth-conf"), *reads(DATA)], [0, 255], DATA_RC4),
        "token-aes": read_file(n, [whole], [*shakes("auth-conf", AES), *reads(DATA)], [0, 255], DATA_AES),
        "token-aes-steps": read_file(n, [whole], [*shakes("auth-conf", AES), *reads(DATA)], [0, 255], DATA_AES, step=7),
        "token-integrity": read_file(n, [whole], [*shakes("auth-int"), *reads(DATA)], [0, 255], DATA_INTEGRITY),
        "token-integrity-steps": read_file(n, [whole], [*shakes("auth-int"), *reads(DATA)], [0, 255], DATA_INTEGRITY, step=2),
        "token-auth": read_file(n, [whole], [*shakes("auth"), *reads(DATA)], [0, 255], DATA_INTEGRITY),
        "token-wrong": read_file(n, [whole], [shakes("auth")[0], segment(MESSAGE, message([(1, 0), (2, "rspauth=1")]))],
                                 [0, 255], DATA_INTEGRITY),
        "token-unproven": read_file(n, [whole], [shakes("auth")[0], segment(MESSAGE, message([(1, 0), (2, challenge("auth"))]))],
                                    [0, 255], DATA_INTEGRITY),
        "token-bad-key": read_file(n, [whole], [*shakes("auth-conf", AES | TOKEN_CHALLENGE)], [0, 255], DATA_AES),
        "token-bad-iv": read_file(n, [whole], [*shakes("auth-conf", AES | SHORT_IV)], [0, 255], DATA_AES),
        "token-refused": read_file(n, [whole], [segment(MESSAGE, message([(1, 2), (3, "InvalidToken")])),
                                                segment(MESSAGE, message([(1, 2), (6, 1)])),
                                                segment(MESSAGE, message([(1, 2)]))], [0, 255], DATA_AES),
        "token-suite": read_file(n, [whole], [shakes("auth-conf")[0], segment(MESSAGE, message([
            (1, 0), (4, message([(1, 9)]))]))], [0, 255], DATA_AES),
        "token-silent": read_file(n, [whole], [segment(END), segment(END), segment(END)], [0, 255], DATA_AES),
        "token-not-used": read_file(n, [whole], [segment(END), segment(END), *reads(DATA)], [0, 255]),
        "token-nonsense": read_file(n, [whole], [], [0, 255], NONSENSE, first=by_token("auth")),
        "root-port": read_file(n, [located(0, n, [1], port=1004)], reads(DATA), [0, 255], DATA_INTEGRITY),
        "key": session(PLAIN, [0, 255], [locations(n, [whole]), defaults(1), key, *shakes("auth-conf"), *reads(DATA)]),
        "key-unknown": session(PLAIN, [0, 255], [locations(n, [whole]), defaults(1), key,
                                                 segment(MESSAGE, message([(1, 1), (3, "who?")])), key,
                                                 *shakes("auth-conf"), *reads(DATA)]),
        "key-old": session(PLAIN, [0, 255, 0, 3], [locations(n, [whole]), defaults(1), old_key, *shakes("auth-conf"),
                                                   *reads(DATA)[:2], segment(END), key, *shakes("auth-conf"), *reads(DATA)]),
        "key-missing": session(PLAIN, [0, 255], [locations(n, [whole]), defaults(1), NOTHING]),
        "local": session(LOCAL, [0, 255], [locations(n, [whole]), READY, segment(FILES, b"\2\2\4\0\0" + DATA)]),
        "local-parts": session(LOCAL, [0, 1, 7, 2, 3, 1, 20, 200], [locations(n, [whole]), READY,
                                                                  segment(FILES, b"\2\1\7\0\0" + DATA)] * 1),
        "local-far": session(LOCAL, [0, 1, 30, 2], [locations(n, [whole]), READY, segment(FILES, b"\2\2\20\0\0" + DATA),
                                                    READY, segment(FILES, b"\2\2\20\0\0" + DATA)]),
        "local-refused": session(LOCAL, [0, 255], [locations(n, [whole]), refusal(7, "no"), defaults(), *reads(DATA)]),
        "local-expired": session(LOCAL, [0, 255], [locations(n, [whole]), refusal(5, "no"), defaults(), *reads(DATA)]),
        "local-no-files": session(LOCAL, [0, 255, 0, 2], [locations(n, [whole]), READY, segment(FILES, b"\1"), defaults(),
                                                          *reads(DATA), *reads(DATA)]),
        "local-many-files": session(LOCAL, [0, 255], [locations(n, [whole]), READY, segment(FILES, b"\3\2\4\0\0" + DATA)]),
        "local-version": session(HA, [0, 255], [*by_token("auth"), locations(n, [whole]), READY,
                                                segment(FILES, b"\2\2\4\0\2" + DATA), defaults(), *reads(DATA)]),
        "local-short": session(LOCAL, [0, 255], [locations(n, [whole]), READY, segment(FILES, b"\2\2\4\0\4" + DATA)]),
        "local-damaged": session(LOCAL, [0, 255], [locations(n, [whole]), READY, segment(FILES, b"\2\2\4\0\1" + DATA),
                                                   NOTHING, READY, segment(FILES, b"\2\2\4\0\0" + DATA)]),
        "local-too-short": session(LOCAL, [0, 255], [locations(n, [whole]), READY, segment(FILES, b"\2\2\4\0\0" + DATA[:9]),
                                                     READY, segment(FILES, b"\2\2\4\0\0" + DATA)]),
        "local-ends": session(LOCAL, [0, 255], [locations(n, [whole]), READY, segment(END), defaults(), *reads(DATA)]),
        "local-not-there": session(LOCAL, [0, 255], [locations(n, [whole]), segment(REFUSE), defaults(), *reads(DATA)]),
    }
    out.update(striped())
    for name in ("one-block", "token-aes", "token-rc4", "key", "local", "local-parts", "growing", "rs-lost", "two-blocks"):
        for fault in range(1, 150, 2 if name in ("local-parts", "rs-lost") else 1):
            head = bytearray(out[name])
            head[1] = fault
            out[f"{name}-fault-{fault}"] = bytes(head)
    return out


def striped() -> dict[str, bytes]:
    """Two data units and one parity unit; and three with two. Cells of 8 bytes."""
    text = DATA[:32]
    cells = [text[i : i + 8] for i in range(0, 32, 8)]
    unit0, unit1 = cells[0] + cells[2], cells[1] + cells[3]
    parity = bytes(a ^ b for a, b in zip(unit0, unit1))
    group = located(0, 32, [1, 2, 3], units=bytes([0, 1, 2]))
    xor = policy(0x40, "xor", 2, 1, 8)

    def session_of(streams: list[bytes], ec: tuple[int, bytes] = xor, g: bytes = group, actions: list[int] | None = None,
                   length: int = 32, again: list[bytes] | None = None) -> bytes:
        return session(PLAIN, actions or [0, 255], [locations(length, [g], more=[ec]), defaults(), *streams, *(again or [])])

    wide = located(0, 24, [1, 2, 3, 4, 5], units=bytes([0, 1, 2, 3, 4]))
    missing = located(0, 24, [1, 2, 4, 5], units=bytes([0, 2, 3, 4]))
    return {
        "xor": session_of([*reads(unit0), *reads(unit1)]),
        "xor-odd": session_of([*reads(unit0), *reads(unit1)], actions=[1, 2, 3, 1, 0, 255]),
        "xor-lost": session_of([refusal(1, "gone"), *reads(unit1), *reads(parity)]),
        "xor-lost-two": session_of([refusal(1, "gone"), refusal(1, "gone"), refusal(1, "gone")] * 4),
        "xor-ends": session_of([*reads(unit0)[:2], segment(END), *reads(unit1), *reads(parity)]),
        "rs-lost": session_of([*reads(text[:8]), *reads(text[8:16]), *reads(text[16:24]), *reads(text[:8])],
                              policy(0x41, "rs", 3, 2, 8), missing, length=24),
        "rs": session_of([*reads(text[:8]), *reads(text[8:16]), *reads(text[16:24])], policy(0x41, "rs", 3, 2, 8), wide,
                         length=24),
        "rs-own": session_of([*reads(text)], policy(2), wide, length=24),
        "rs-all-lost": session_of([*reads(text[:8]), refusal(1), refusal(1), refusal(1), refusal(1)] * 2,
                                  policy(0x41, "rs", 3, 2, 8), wide, length=24),
        "own-policies": session_of([], policy(3)),
        "unknown-policy": session_of([], policy(99)),
        "unknown-codec": session_of([], policy(0x42, "lrc", 3, 2, 8)),
        "odd-units": session_of([*reads(unit0)], g=located(0, 32, [1, 2, 3], units=bytes([9, 0, 0]))),
        "shorter": session(PLAIN, [0, 255], [locations(64, [group], more=[xor]), defaults(), *reads(unit0), *reads(unit1),
                                             locations(64, [group], more=[xor])]),
        "groups": session(PLAIN, [0, 255], [locations(64, [group, located(32, 32, [1, 2, 3], 9, units=bytes([0, 1, 2]))],
                                                      more=[xor]), defaults(), *(reads(unit0) + reads(unit1)) * 2]),
    }


# ---- writing ----

CREATED = answer((1, status(length=0)))


def added(nodes: list[int], number: int = 1, length: int = 0) -> bytes:
    return answer((1, located(0, length, nodes, number)))


def acks(count: int, nodes: int = 3) -> list[bytes]:
    return [segment(ACK, bytes(nodes)) for _ in range(count)]


def write() -> dict[str, bytes]:
    begin = [defaults(), CREATED]
    stamped = answer((1, located(0, 0, [1, 2, 3])))
    appended = answer((1, located(0, 10, [1, 2, 3])), (2, status(length=10)))
    out = {
        "one-block": session(PLAIN, [0, 8], [*begin, added([1, 2, 3]), READY, *acks(2), TRUE]),
        "create": session(PLAIN, [1, 8], [*begin, added([1]), READY, *acks(2, 1), TRUE]),
        "empty": session(PLAIN, [0], [*begin, TRUE]),
        "blocks": session(PLAIN, [0, 40], [*begin, *[s for i in range(4) for s in (added([1, 2, 3], i), READY, *acks(2))],
                                           TRUE]),
        "small": session(SMALL, [0, 14, 1, 2, 3, 14], [*begin, *[s for i in range(4) for s in (added([1, 2, 3], i), READY,
                                                       *acks(5), NOTHING, *acks(2), NOTHING, *acks(6))], TRUE]),
        "flushes": session(PLAIN, [0, 4, 1, 2, 3, 3, 1, 2], [*begin, added([1, 2, 3]), READY, *acks(1), NOTHING, *acks(1),
                                                            NOTHING, *acks(1), NOTHING, *acks(2), TRUE]),
        "not-complete": session(PLAIN, [0, 4], [*begin, added([1, 2, 3]), READY, *acks(2), FALSE, FALSE, TRUE]),
        "never-complete": session(PLAIN, [0, 4], [*begin, added([1, 2, 3]), READY, *acks(2), *[FALSE] * 6]),
        "steps": session(PLAIN, [0, 8], [*begin, added([1, 2, 3]), READY, *acks(2), TRUE], step=1),
        "no-nodes": session(PLAIN, [0, 8], [*begin, added([])]),
        "bad-link": session(PLAIN, [0, 8], [*begin, added([1, 2, 3]), refusal(1, "no", "10.0.0.2:9866"), NOTHING,
                                            added([1, 3]), READY, *acks(2, 2), TRUE]),
        "bad-link-unknown": session(PLAIN, [0, 8], [*begin, added([1, 2, 3]), refusal(1, "no", "elsewhere"), NOTHING,
                                                    added([1, 3]), READY, *acks(2, 2), TRUE]),
        "refused": session(PLAIN, [0, 8], [*begin, *[s for _ in range(9) for s in (added([1, 2, 3]), segment(REFUSE), NOTHING)]]),
        "no-room": session(PLAIN, [0, 8], [*begin, added([1]), segment(REFUSE), NOTHING,
                                           exception(1, "could only be replicated to 0 nodes"), added([1]), READY,
                                           *acks(2, 1), TRUE]),
        "no-room-later": session(PLAIN, [0, 8, 8], [*begin, added([1]), segment(REFUSE), NOTHING, added([2]), READY,
                                                    *acks(2, 1), exception(1, "could only be replicated to 0 nodes"),
                                                    added([1], 2), READY, *acks(2, 1), TRUE]),
        "abandon-fails": session(PLAIN, [0, 8], [*begin, added([1]), segment(REFUSE), exception(8, "no")]),
        "recovery": session(PLAIN, [0, 4, 1, 4], [*begin, added([1, 2, 3]), READY, *acks(1), NOTHING,
                                                  segment(ACK, b"\0\1\0"),
                                                  added([1, 3, 4]), READY, stamped, READY, NOTHING, segment(RAW, b""),
                                                  *acks(3), TRUE]),
        "recovery-first": session(PLAIN, [0, 4], [*begin, added([1, 2, 3]), READY, segment(END), stamped, READY, NOTHING,
                                                  *acks(2, 2), TRUE]),
        "recovery-closing": session(PLAIN, [0, 4], [*begin, added([1, 2, 3]), READY, *acks(1), segment(END), stamped, READY,
                                                    NOTHING, TRUE]),
        "recovery-again": session(PLAIN, [0, 4], [*begin, added([1, 2, 3]), READY, segment(END), stamped, refusal(1, "x"),
                                                  stamped, segment(REFUSE)]),
        "recovery-none": session(PLAIN, [0, 4], [*begin, added([1, 2, 3]), READY, segment(END), exception(8, "no")]),
        "replaced": session(PLAIN, [2, 4], [defaults(), appended, stamped, READY, NOTHING, segment(END),
                                            added([2, 3, 4]), READY, stamped, READY, NOTHING, *acks(3), TRUE]),
        "replaced-bare": session(PLAIN, [2, 4], [
            defaults(), answer((1, located(0, 8, [1, 2, 3], is_bare=True)), (2, status(length=8))), stamped, READY, NOTHING,
            segment(END), answer((1, located(0, 8, [2, 3, 4], is_bare=True))), READY, stamped, READY, NOTHING, *acks(3), TRUE]),
        "odd-ack": session(PLAIN, [0, 4], [*begin, added([1, 2, 3]), READY,
                                           segment(MESSAGE, message([(1, 99), (2, 0)])), stamped, READY, NOTHING,
                                           segment(RAW, b"\xff\xff\xff\xff\xff"), stamped, READY, NOTHING,
                                           segment(RAW, b"\xff\x7f")]),
        "unreadable-ack": session(PLAIN, [0, 4], [*begin, added([1]), READY, segment(RAW, b"\1\xff")]),
        "beat-ack": session(PLAIN, [0, 4], [*begin, added([1, 2, 3]), READY, segment(MESSAGE, message([(1, 1), (2, 0)])),
                                            *acks(2), TRUE]),
        "append": session(PLAIN, [2, 4], [defaults(), answer((2, status(length=32))), added([1]), READY, *acks(2, 1), TRUE]),
        "append-block": session(PLAIN, [2, 4], [defaults(), answer((1, located(0, 8, [1, 2, 3])), (2, status(length=8))),
                                                stamped, READY, NOTHING, *acks(2), TRUE]),
        "append-chunk": session(PLAIN, [2, 4], [defaults(), appended, locations(10, [located(0, 10, [1])]),
                                                segment(READ, b"\2\4\0"), segment(PACKET, b"90"), segment(LAST), stamped,
                                                READY, NOTHING, *acks(2), TRUE]),
        "append-chunk-short": session(PLAIN, [2, 4], [defaults(), appended, locations(9, [located(0, 9, [1])]),
                                                      segment(READ, b"\2\4\0"), segment(PACKET, b"9"), segment(LAST)]),
        "append-chunk-gone": session(PLAIN, [2, 4], [defaults(), appended, NOTHING]),
        "append-none": session(PLAIN, [2, 4], [defaults(), exception(0, "none"), CREATED, added([1]), READY, *acks(2, 1), TRUE]),
        "append-busy": session(PLAIN, [2, 4], [defaults(), exception(8, "no")]),
        "append-no-status": session(PLAIN, [2, 4], [defaults(), answer((1, located(0, 8, [1])))]),
        "append-elsewhere": session(PLAIN, [2, 40, 1], [defaults(), answer((1, located(900, 8, [1, 2, 3])),
                                    (2, status(length=8))), stamped, READY, NOTHING, *acks(2), TRUE]),
        "no-status": session(PLAIN, [0, 4], [defaults(), NOTHING]),
        "odd-block-size": session(PLAIN, [0, 4], [defaults(), answer((1, status(block_size=33)))]),
        "no-block-size": session(PLAIN, [0, 4], [defaults(), answer((1, status(block_size=0)))]),
        "odd-defaults": session(PLAIN, [0, 4], [defaults(chunk=0), CREATED]),
        "large-chunks": session(PLAIN, [0, 4], [defaults(chunk=1 << 24), answer((1, status(block_size=1 << 24))), added([1]),
                                                READY, *acks(2, 1), TRUE]),
        "crc32": session(PLAIN, [0, 4], [defaults(sums=1), CREATED, added([1]), READY, *acks(2, 1), TRUE]),
        "ha": session(HA, [0, 4], [*by_token("auth"), *begin, added([1, 2, 3]), READY, segment(END), stamped, READY, NOTHING,
                                   *acks(2, 2), TRUE]),
        "sealed": session(DATA_AES, [0, 8], [*begin, added([1, 2, 3]), *shakes("auth-conf", AES), READY, *acks(2), TRUE]),
        "wrapped": session(DATA_INTEGRITY, [0, 8], [*begin, added([1, 2, 3]), *shakes("auth-int"), READY, *acks(2), TRUE]),
        "flush-fails": session(PLAIN, [0, 4, 1, 4], [*begin, added([1]), READY, *acks(1, 1), exception(7, "lease")]),
        "starting": session(PLAIN, [0, 4], [*begin, exception(4, "The reported blocks 0 needs"), added([1]), READY,
                                            *acks(2, 1), TRUE]),
    }
    for name in ("one-block", "flushes", "append-chunk", "recovery", "replaced", "wrapped", "no-room"):
        for fault in range(1, 200, 2 if name in ("flushes", "wrapped") else 1):
            head = bytearray(out[name])
            head[1] = fault
            out[f"{name}-fault-{fault}"] = bytes(head)
    return out


# ---- one block, and settings ----

def blocks() -> dict[str, bytes]:
    pieces = [16, 16, 255, 10, 10]
    begin = segment(READ, b"\2\4\0")
    out = {
        "whole": session(PLAIN, [0, 180, *pieces], reads(DATA)),
        "part": session(PLAIN, [5, 21, *pieces], [begin, segment(PACKET, DATA[4:28]), segment(LAST)]),
        "part-steps": session(PLAIN, [5, 21, 3, 3, 3, 3, 3, 3, 3], [begin, segment(PACKET, DATA[4:28]), segment(LAST)], step=5),
        "in-one": session(PLAIN, [5, 21, 200, 200], [segment(RAW, b"")] + [begin, segment(PACKET, DATA[4:28]), segment(LAST)]),
        "beyond-the-end": session(PLAIN, [0, 18, 18, 50, 50], [begin, segment(PACKET, DATA[:20]), segment(PACKET, DATA[20:32]),
                                                               segment(LAST)]),
        "no-end": session(PLAIN, [0, 20, 20, 50], [begin, segment(PACKET, DATA[:20]), segment(PACKET, DATA[20:40]),
                                                   segment(PACKET, DATA[40:60])]),
        "empty-packets": session(PLAIN, [0, 20, 20, 50], [begin, segment(PACKET), segment(PACKET, DATA[:20]), segment(PACKET),
                                                          segment(LAST)]),
        "kept": session(PLAIN, [0, 20, 20], [begin, segment(PACKET, DATA[:20]), segment(LAST), segment(END), begin,
                                             segment(PACKET, DATA[:20]), segment(LAST)]),
        "exists": session(PLAIN, [0, 20, 20], [refusal(4, "exists"), refusal(2, "sum"), refusal(5, "token"), refusal(0)]),
        "local": session(LOCAL, [1, 50, 3, 16, 20, 50], [READY, segment(FILES, b"\2\2\4\0\0" + DATA)]),
    }
    for fault in range(1, 60):
        for name in ("whole", "kept", "local"):
            head = bytearray(out[name])
            head[1] = fault
            out[f"{name}-fault-{fault}"] = bytes(head)
    return out


def settings() -> dict[str, bytes]:
    def xml(*pairs: tuple[str, str]) -> str:
        return "<configuration>" + "".join(f"<property><name>{k}</name><value>{v}</value></property>"
                                           for k, v in pairs) + "</configuration>"

    texts = {
        "expands": xml(("a", "${b}x"), ("b", "${env.HY_FUZZ}"), ("fs.defaultFS", "hdfs://${c}/${env.NONE:-other}${env.NONE}")),
        "never-ends": xml(("a", "${a}${a}"), ("b", "${")),
        "grows": xml(("a", "x" * 2000 + "${a}" * 40)),
        "two-files": xml(("a", "1"), ("b", "true")) + "\0" + xml(("a", "128m"), ("c", "${a}")),
        "final": "<configuration><property><name>a</name><value>7</value><final>true</final></property></configuration>\0"
                 + xml(("a", "9")),
        "second-broken": xml(("a", "1")) + "\0<configuration>",
        "many": xml(*((f"k{i}", str(i)) for i in range(70))),
    }
    return {name: text.encode() for name, text in texts.items()}


def submissions() -> dict[str, bytes]:
    """Submission (proto/hopyard.proto)."""
    def submission(command: str, *options: tuple[str, str], **fields: object) -> bytes:
        numbers = {"argv": 2, "app_id": 26, "function": 27, "title": 28, "metric_optional": 29, "engine": 35, "address": 37,
                   "fed": 43, "warm_key": 56}
        spec = [(numbers[name], value) for name, value in fields.items() if name != "roles"]
        spec += [(42, message([(1, role), (2, count)])) for role, count in fields.get("roles", ())]  # type: ignore[attr-defined]
        pairs = [(2, message([(1, name), (2, value)])) for name, value in options]
        return message([(1, command), *pairs, (4, message(spec))])

    function = {"argv": "python", "function": b"{}\n", "title": "f(x)", "metric_optional": 1, "warm_key": "k"}
    return {
        "grid": submission("run", ("grid", "x=[1,2]"), ("grid", "y=a,b"), ("max", "m"), ("parallel", "2"), **function),
        "paired": submission("run", ("paired", ""), ("grid", "x=1..3"), **function),
        "random": submission("run", ("random", "5"), ("space", "x=log:1e-5..1"), ("seed", "3"), ("name", "n"), **function),
        "evolve": submission("run", ("evolve", ""), ("generations", "3"), ("population", "4"), ("mutation", "0.5"),
                             ("crossover", "1"), ("strategy", "best1bin"), ("async", ""), ("space", "x=1..2"), ("min", "m"), **function),
        "limits": submission("run", ("memory", "4G"), ("timeout", "15m"), ("disk-timeout", "1h"), ("max-transfer", "none"),
                             ("retries", "2"), ("gpus", "0.2"), ("oversubscribe", ""), ("hosts", "a:4,[::1]:2"), **function),
        "file": submission("run", ("grid", "x=@1,2"), **function), "no-file": submission("run", ("grid", "x=@none"), **function),
        "session": submission("run", engine="spark", address="10.0.0.1", app_id="app-1", **function),
        "cluster": submission("train", ("env", "A=b"), roles=[("ps", 1), ("chief", 1), ("worker", 2)], fed=1, **function),
        "train": submission("train", ("num-proc", "4"), ("min-np", "2"), ("max-np", "8"), ("hosts", "a:4,b:4"), **function),
        "unknown": submission("run", ("memroy", "4G"), **function), "flag": submission("run", ("paired", "yes"), **function),
        "resume": message([(1, "resume"), (3, "3"), (4, b"")]), "show": submission("show"), "no-spec": message([(1, "run")]),
    }


# ---- batches (src/feed/batch.c has the format, fuzz_batch.c the four bytes behind it) ----

SIZES = [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8]  # of numbers, by type, from 1 on
BYTES = 13
ANY_DIMS, ANY_LENGTH = 1, 2
BY_GROW, BY_TAKE, BY_TEXTS, HAS_MORE, IN_PARTS, FLAT = 1, 2, 4, 8, 16, 32


def batch(rows: int, dtype: int, values: bytes, shape: list[int], items: int | None = None, row_ends: list[int] | None = None,
          value_ends: list[int] | None = None, text: bytes = b"a") -> bytes:
    """One column; ragged if it has row ends."""
    parts, at, places = b"", 64 + 128, []
    for part in (text, values, struct.pack(f"<{len(value_ends or [])}q", *(value_ends or [])),
                 struct.pack(f"<{len(row_ends or [])}q", *(row_ends or []))):
        places.append(at if part else 0)
        part += b"\0" * (-len(part) % 64)
        parts += part
        at += len(part)
    head = struct.pack("<4I2Q32x", 0x31627968, rows, 1, 0, places[0], len(text))
    column = struct.pack("<3B5x9Q4Q16x", dtype, len(shape), 1 if row_ends else 0, *(shape + [0] * 8)[:8], items or 0, places[1],
                         len(values), places[2], places[3])
    return head + column + parts


def batches() -> dict[str, bytes]:
    out = {}
    for dtype, size in enumerate(SIZES, 1):
        small = batch(2, dtype, bytes(2 * size), [])
        large = batch(2, dtype, b"\xff" * 2 * size, [])
        for to in range(1, 13):
            out[f"cast-{dtype}-{to}"] = small + bytes([to + 13, 0, 0, BY_TAKE])
            out[f"cast-large-{dtype}-{to}"] = large + bytes([to + 13, 0, 0, BY_GROW])
    even = batch(3, 5, bytes(range(48)), [2])
    for name, ends in (("even", [0, 2, 4, 6]), ("odd", [0, 1, 4, 6]), ("falling", [0, 4, 2, 6]), ("late", [2, 4, 6, 6])):
        ragged = batch(3, 5, bytes(range(48)), [], 6, ends)
        for how in (0, IN_PARTS, BY_GROW | IN_PARTS):
            out[f"ragged-{name}-{how}"] = ragged + bytes([0, 0, 0, how])
            out[f"ragged-{name}-as-even-{how}"] = ragged + bytes([0, 1, ANY_LENGTH, how])
            out[f"ragged-{name}-as-any-{how}"] = ragged + bytes([0, 1, ANY_DIMS, how])
    for how in (0, IN_PARTS, FLAT, FLAT | HAS_MORE):
        out[f"even-as-ragged-{how}"] = even + bytes([0, 1, 0, how])
        out[f"even-{how}"] = even + bytes([0, 0, ANY_DIMS, how])
    texts = batch(3, BYTES, b"abcdefg", [], value_ends=[0, 3, 3, 7], text=b"y")
    broken = batch(3, BYTES, b"abcdefg", [], value_ends=[0, 3, 2, 99], text=b"y")
    for how in (0, BY_TEXTS, BY_TEXTS | IN_PARTS, BY_TEXTS | BY_GROW, IN_PARTS, BY_TAKE | IN_PARTS):
        out[f"texts-{how}"] = texts + bytes([0, 0, 0, how])
        out[f"texts-broken-{how}"] = broken + bytes([0, 0, 0, how])
    out["pickle-of-no-rows"] = batch(0, 15, b"pickled", [], text=b"*") + bytes(4)
    return out


def streams() -> dict[str, bytes]:
    """As many streams, with every other number, as a mux remembers individually, and more (fuzz_mux.c)."""
    return {"many-streams": b"\xf8\x10", "some-streams": b"\xf8\x05" + b"\6\4" + struct.pack(">I", 1003) + b"\0\0\0\0\1x"}


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    for target, inputs in (("hdfs_block", blocks()), ("hdfs_calls", calls()), ("hdfs_read", read()), ("hdfs_write", write()),
                           ("hdfs_conf", settings()), ("submission", submissions()),
                           ("batch", batches()), ("mux", streams())):
        folder = os.path.join(sys.argv[1], target)
        os.makedirs(folder, exist_ok=True)
        for name, data in inputs.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        print(f"{folder}: {len(inputs)} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
