# SPDX-License-Identifier: Apache-2.0
"""A rank of a training that implements only the rendezvous: its messages to the agent, byte by byte.

    python rank.py STEP …       each step is a verb: see `STEPS`
"""
from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator

HEADER = struct.Struct("<IBBHI")  # length, version, type, zero, stream
MESSAGE = 6


# ---- minimal protobuf ----------------------------------------------------------------

def varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            assert key & 7 == 2, key
            n = number()
            yield key >> 3, data[at:at + n]
            at += n


# ---- messages -----------------------------------------------------------------------------

class Member:
    def __init__(self, data: bytes) -> None:
        f = list(fields(data))
        self.host = dict(f).get(1, 0)
        self.addresses = [v.decode() for k, v in f if k == 2]
        self.port = dict(f).get(3, 0)
        self.bell = dict(f).get(4, b"").decode()
        self.trial = dict(f).get(5, 0)


class Roster:
    def __init__(self, data: bytes) -> None:
        f = list(fields(data))
        one = dict(f)
        self.generation, self.rank = one.get(1, 0), one.get(2, 0)
        self.members = [Member(v) for k, v in f if k == 3]
        self.key, self.shared = one.get(4, b""), one.get(5, b"").decode()


class Lost:
    def __init__(self, data: bytes) -> None:
        one = dict(fields(data))
        self.generation, self.rank, self.why = one.get(1, 0), one.get(2, 0), one.get(3, b"").decode()


class Refused(Exception):
    pass


class Rank:
    """A connection to the agent."""

    def __init__(self, port: int = 4711, bell: str = "") -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.environ["HOPYARD_SOCKET"])
        self.port, self.bell = port, bell or f"bell-{os.getpid()}-{time.monotonic_ns()}"
        self.data = b""
        self.generation = 0

    def send(self, word: bytes, token: str = "") -> None:
        report = field(1, token or os.environ["HOPYARD_TAG"]) + field(6, word)
        self.socket.sendall(HEADER.pack(len(report), 1, MESSAGE, 0, 0) + report)

    def join(self) -> None:
        self.send(field(3, field(1, "127.0.0.1") + field(2, self.port) + field(3, self.bell)))

    def leave(self) -> None:
        self.send(field(8, 1))

    def note(self, text: str) -> None:
        self.send(field(4, text))

    def fail(self, why: str) -> None:
        self.send(field(9, why))

    def answer(self, seconds: float = 60) -> tuple[str, Any]:
        """The next message: ("taken", None), ("roster", Roster), ("lost", Lost), ("outdated", None)."""
        self.socket.settimeout(seconds)
        while len(self.data) < HEADER.size or len(self.data) < HEADER.size + HEADER.unpack_from(self.data)[0]:
            more = self.socket.recv(1 << 16)
            if not more:
                raise EOFError("the agent closed the connection")
            self.data += more
        n = HEADER.size + HEADER.unpack_from(self.data)[0]
        body, self.data = dict(fields(self.data[HEADER.size:n])), self.data[n:]
        if body.get(1):
            raise Refused(body[1].decode())
        if 2 not in body:
            return "taken", None
        word = dict(fields(body[2]))
        if 5 in word:
            roster = Roster(word[5])
            self.generation = roster.generation
            return "roster", roster
        return ("lost", Lost(word[6])) if 6 in word else ("outdated", None)

    def until(self, kind: str) -> Any:
        while True:
            got, body = self.answer()
            if got == kind:
                return body
            if got == "lost":
                raise SystemExit(f"lost: {body.why}")


# ---- steps ----------------------------------------------------------------------------------

class Program:
    def __init__(self) -> None:
        self.rank: Rank | None = None
        self.number = int(os.environ["HOPYARD_TRIAL"]) - 1
        self.attempt = int(os.environ["HOPYARD_ATTEMPT"])
        self.folder = Path(os.environ["HOPYARD_TRIAL_DIR"])
        self.run = self.folder.parent

    def print(self, *words: object) -> None:
        print(*words, flush=True)

    def meet(self) -> Roster:
        """Joins, waits for the roster and prints it."""
        self.rank = Rank(port=1000 + self.number)
        self.rank.join()
        r = self.rank.until("roster")
        trials = ",".join(str(m.trial) for m in r.members)
        hosts = ",".join(str(m.host) for m in r.members)
        self.print(f"generation={r.generation} rank={r.rank} size={len(r.members)} trials={trials} hosts={hosts} "
                   f"ports={','.join(str(m.port) for m in r.members)} key={r.key.hex()} shared={r.shared}")
        return r

    def join(self) -> None:
        """The same, and waits until all ranks of this machine have written to their shared memory."""
        r = self.meet()
        if r.shared:
            with open(r.shared, "r+b") as f:
                os.truncate(f.fileno(), 4096)  # every rank sets the size of the memory, to the same value
                with mmap.mmap(f.fileno(), 4096) as memory:
                    memory[r.rank] = r.rank + 1
                    while any(memory[i] != i + 1 for i in range(len(r.members))):
                        time.sleep(0.005)
        self.print("shared ok")

    def again(self) -> None:
        """Joins again as long as ranks are lost or added: what an elastic program does."""
        while True:
            self.join()
            kind, body = self.rank.answer(120)
            while kind == "taken":
                kind, body = self.rank.answer(120)
            self.print(f"{kind} {body.why if body else ''}")
            (self.folder / f"{kind}-{self.rank.generation}").touch()

    def lost(self) -> None:
        """Waits for a lost rank, and fails with the message."""
        kind, body = self.rank.answer(120)
        while kind != "lost":
            kind, body = self.rank.answer(120)
        self.print("reported:", body.why, "rank", body.rank, "generation", body.generation)
        sys.exit(7)

    def leave(self) -> None:
        assert self.rank
        self.rank.leave()
        while self.rank.answer()[0] != "taken":
            pass  # which rank is lost does not matter any more

    def fail(self, why: str) -> None:
        """The process stays alive, but cannot take part any more."""
        assert self.rank
        self.rank.fail(why)
        self.until_taken()

    def impostor(self) -> None:
        """Sends tokens of other ranks, and messages that no rank may send."""
        run, trial, attempt = os.environ["HOPYARD_TAG"].split(".")
        join = field(3, field(2, 1) + field(3, "bell"))
        for token, word in ((f"{run}.{trial}.{int(attempt) + 1}", join), (f"{run}.99.1", join), (f"{int(run) + 1}.{trial}.1", join),
                            ("", field(6, field(1, 1))), ("", field(7, 1)), ("", field(5, field(1, 9)))):
            other = Rank()
            other.send(word, token)
            try:
                self.print("taken:", other.answer())
            except Refused as e:
                self.print("refused:", e)

    def rejoin(self) -> None:
        """Until no rank is lost for a while."""
        assert self.rank
        kind, _ = self.rank.answer(120)
        while kind != "lost":
            kind, _ = self.rank.answer(120)
        self.join()

    def notes(self, count: str) -> None:
        for i in range(int(count)):
            self.note(f"note {i}")
            self.until_taken()

    def until_taken(self) -> None:
        assert self.rank
        self.rank.until("taken")

    def count(self) -> None:
        """The number of attempts that have written to the checkpoint."""
        folder = Path(os.environ["HOPYARD_CHECKPOINT"])
        self.print("attempts so far:", len(list(folder.iterdir())))
        (folder / str(self.attempt)).touch()

    def child(self) -> None:
        """Leaves a child process that ignores SIGTERM."""
        ready, notify = os.pipe()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(notify, b"x")
            time.sleep(300)
        os.read(ready, 1)

    def waitmarks(self, count: str) -> None:
        while len(list(self.run.glob("rank=*/mark.1"))) < int(count):
            time.sleep(0.01)

    def sleep(self) -> None:
        time.sleep(300)

    def mark(self) -> None:
        (self.folder / f"mark.{self.attempt}").touch()

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def exit(self, status: str) -> None:
        os._exit(int(status))

    def env(self) -> None:
        self.print(*(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("HOROVOD_") or k == "HOPYARD_GROUP"))

    def note(self, text: str) -> None:
        assert self.rank
        self.rank.note(text)

    def wait(self, name: str) -> None:
        """Waits until a file appears in the run's directory."""
        while not (self.run / name).exists():
            time.sleep(0.01)

    def step(self, text: str) -> None:
        """`verb[:argument][@rank[.attempt]]`"""
        text, _, target = text.partition("@")
        verb, _, argument = text.partition(":")
        rank, _, attempt = target.partition(".")
        if (rank and int(rank) != self.number) or (attempt and int(attempt) != self.attempt):
            return
        call: Callable[..., None] = getattr(self, verb)
        call(*([argument] if argument else []))


if __name__ == "__main__":
    program = Program()
    for each in sys.argv[1:]:
        program.step(each)
