# SPDX-License-Identifier: Apache-2.0
"""hopyard.collective in a group of one, and at its ends: who is interrupted, and who never waits."""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import hopyard.collective as hvd
from hopyard import _hopyard


@pytest.fixture()
def alone() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


# ---- a group of one --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["<f4", ">f4", ">i8", ">u2"])
def test_arrays_of_either_byte_order_work(alone: None, kind: str) -> None:
    given = np.array([1, 2, 3], kind)
    out = hvd.allreduce(given, op=hvd.Sum, prescale_factor=2)
    assert out.dtype.isnative
    assert out.tolist() == [2, 4, 6]
    assert hvd.allgather(given).tolist() == hvd.broadcast(given, 0).tolist() == [1, 2, 3]


def test_the_extension_without_a_group_has_a_message() -> None:
    with pytest.raises(_hopyard.GroupError, match=r"Horovod has not been initialized; use hvd.init\(\)."):
        _hopyard.group_query(0)


def test_request_without_a_wait_blocks_nothing(alone: None) -> None:
    given = np.ones(1000)
    for _ in range(100):
        hvd.allreduce_async(given, name="never waited for")
    assert hvd.allreduce(given, name="never waited for").sum() == 1000
    hvd.allreduce_async(given)
    hvd.shutdown()
    hvd.init()
    assert hvd.size() == 1


def test_waiting_threads_get_an_error_when_another_leaves() -> None:
    for _ in range(20):
        hvd.init()
        ended: list[str] = []

        def work() -> None:
            try:
                while True:
                    names = [f"{threading.get_ident()}.{i}" for i in range(5)]
                    handles = [hvd.allgather_async(np.ones((100, 100)), name=name) for name in names]
                    for handle in handles:
                        hvd.synchronize(handle)
            except Exception as e:
                ended.append(str(e))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        hvd.shutdown()
        for thread in threads:
            thread.join()
        assert len(ended) == 3


# ---- ranks that wait -----------------------------------------------------------------------------


def words() -> ModuleType:
    """What ranks say to their agent, byte by byte, as the trainings' tests have it."""
    path = Path(__file__).parents[1] / "e2e" / "rank.py"
    spec = importlib.util.spec_from_file_location("rank_words", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Agent:
    """Of some ranks, each on a machine of its own. It answers their joins when all are there."""

    def __init__(self, folder: Path, size: int) -> None:
        self.path, self.size, self.words = str(folder / "agent"), size, words()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.ranks: list[subprocess.Popen[str]] = []

    def start(self, program: str) -> None:
        env = dict(os.environ, HOPYARD_GROUP="1", HOPYARD_SOCKET=self.path, HOPYARD_TAG="1.1.1")
        self.ranks.append(subprocess.Popen([sys.executable, "-c", program], env=env, text=True, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE))  # fmt: skip

    def receive(self, conn: socket.socket) -> dict[int, bytes]:
        head = self.words.HEADER
        length = head.unpack(conn.recv(head.size, socket.MSG_WAITALL))[0]
        report = dict(self.words.fields(conn.recv(length, socket.MSG_WAITALL)))
        return dict(self.words.fields(report[6]))

    def send(self, conn: socket.socket, word: bytes) -> None:
        answer = self.words.field(2, word)
        conn.sendall(self.words.HEADER.pack(len(answer), 1, self.words.MESSAGE, 0, 0) + answer)

    def accept(self, count: int) -> list[tuple[socket.socket, bytes]]:
        """Connections, and what they have joined with."""
        conns = [self.listener.accept()[0] for _ in range(count)]
        return [(conn, self.receive(conn)[3]) for conn in conns]

    def serve(self, conn: socket.socket) -> None:
        """Takes whatever a rank says, until it hangs up."""
        while conn.recv(1, socket.MSG_PEEK):
            self.receive(conn)
            conn.sendall(self.words.HEADER.pack(0, 1, self.words.MESSAGE, 0, 0))

    def gather(self) -> None:
        field, fields = self.words.field, self.words.fields
        members, conns = b"", self.accept(self.size)
        for host, (_, join) in enumerate(conns):
            said = list(fields(join))
            addresses = b"".join(field(2, value) for key, value in said if key == 1)
            members += field(3, field(1, host) + addresses + field(3, dict(said)[2]) + field(4, dict(said)[3]))
        for rank, (conn, _) in enumerate(conns):
            self.send(conn, field(5, field(1, 1) + field(2, rank) + members + field(4, bytes(32))))
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
        self.listener.close()


@pytest.fixture()
def agent(tmp_path: Path) -> Iterator[Agent]:
    a = Agent(tmp_path, 2)
    yield a
    a.close()


def interrupt(rank: subprocess.Popen[str]) -> str:
    """What it says to Ctrl-C."""
    rank.send_signal(signal.SIGINT)
    out, err = rank.communicate(timeout=30)
    return out + err


def test_a_rank_that_waits_for_others_to_join_can_be_interrupted(agent: Agent) -> None:
    agent.start("import hopyard.collective as hvd; hvd.init()")
    conns = agent.accept(1)
    assert "KeyboardInterrupt" in interrupt(agent.ranks[0])
    assert len(conns) == 1


HANDLER = """
import signal
import hopyard.collective as hvd
signal.signal(signal.SIGINT, lambda *_: print("handled", flush=True))
hvd.init()
"""


def test_signal_handler_that_returns_does_not_end_the_wait(agent: Agent) -> None:
    agent.start(HANDLER)
    [rank], [(conn, _)] = agent.ranks, agent.accept(1)
    rank.send_signal(signal.SIGINT)
    assert rank.stdout and rank.stdout.readline() == "handled\n"
    conn.setblocking(False)
    with pytest.raises(BlockingIOError):  # it neither hangs up nor joins again
        conn.recv(1)
    conn.close()
    assert "the agent of this rank is gone" in rank.communicate(timeout=30)[1]


WAITING = """
import sys
import numpy as np
import hopyard.collective as hvd
hvd.init()
hvd.barrier()
if hvd.rank() == 0:
    handle = hvd.allreduce_async(np.ones(3), name="x", op=hvd.Sum)
    try:
        print("waits", flush=True)
        hvd.synchronize(handle)
    except KeyboardInterrupt:
        del handle
        print("interrupted", flush=True)
sys.stdin.readline()
if hvd.rank() == 1:
    print(hvd.allreduce(np.ones(3), name="x", op=hvd.Sum).tolist())
hvd.barrier()
"""


def test_interrupted_wait_does_not_cancel_the_request(agent: Agent) -> None:
    for _ in range(2):
        agent.start(WAITING)
    agent.gather()
    ready, _, _ = select.select([rank.stdout for rank in agent.ranks], [], [], 60)
    [first] = [rank for rank in agent.ranks if rank.stdout in ready]
    [second] = [rank for rank in agent.ranks if rank is not first]
    assert first.stdout and first.stdout.readline() == "waits\n"
    first.send_signal(signal.SIGINT)
    assert first.stdout.readline() == "interrupted\n"
    for rank in (second, first):
        assert rank.stdin
        print(file=rank.stdin, flush=True)
    out, err = second.communicate(timeout=60)
    assert (out, second.returncode) == ("[2.0, 2.0, 2.0]\n", 0), err
    assert first.wait(60) == 0
