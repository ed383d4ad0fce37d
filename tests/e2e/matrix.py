# SPDX-License-Identifier: Apache-2.0
"""A rank that runs every collective with every type, and compares the results with NumPy.

Values repeat after PERIOD, so that NumPy reduces one period only, once for all sizes. It is a prime, so that no two
segments of a message are equal. Every rank can compute the input of all ranks. Integers use their whole range;
floating-point numbers are small integers where a result has to be exact in any order of additions.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

import hopyard.collective as hvd

TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", bfloat16, "float32",
         "float64", "bool"]  # fmt: skip
OPS = {"sum": hvd.Sum, "average": hvd.Average, "min": hvd.Min, "max": hvd.Max, "product": hvd.Product}
ROUGH = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-12}
PERIOD = 1021
KIB, MIB = 1 << 10, 1 << 20


class Numbers:
    """A period, repeated."""

    def __init__(self, period: np.ndarray, most: int = 0) -> None:
        self.period, self.dtype = period, period.dtype
        self._step = MIB // period.nbytes * PERIOD  # the number of elements compared at a time: they stay in the cache
        self._some = np.resize(period, max(self._step + 2 * PERIOD, most))

    def take(self, count: int, begin: int = 0) -> np.ndarray:
        begin %= PERIOD
        assert begin + count <= len(self._some)
        return self._some[begin : begin + count]

    def check(self, got: np.ndarray, count: int, what: str, begin: int = 0) -> None:
        """Bit by bit."""
        assert got.dtype == self.dtype and got.shape == (count,), f"{what}: {got.dtype}{got.shape}"
        for i in range(0, count, self._step):
            part = got[i : i + self._step]
            if not np.array_equal(part.view(np.uint8), self.take(len(part), begin).view(np.uint8)):
                np.testing.assert_array_equal(part, self.take(len(part), begin), err_msg=f"{what}, from {i} on")


def check_rounded(got: np.ndarray, want: np.ndarray, count: int, what: str, size: float = 0) -> None:
    """For results that are rounded: close to NumPy's in the first period, and the same bits in all others."""
    assert len(got) == count, f"{what}: {got.shape}"
    first = got[:PERIOD]
    check_near(first, want[: len(first)], what, size)
    if count > PERIOD:
        Numbers(first).check(got, count, f"{what}: as in the first period")


def check_near(got: np.ndarray, want: np.ndarray, what: str, size: float) -> None:
    """`size`: magnitude of the terms, if they may cancel out."""
    far = ~(np.abs(got.astype(np.float64) - want) <= ROUGH[got.dtype.name] * (np.abs(want) + size))  # also true for NaN
    assert not far.any(), f"{what}: {got[far][:5]}, not {want[far][:5]}, at {np.flatnonzero(far)[:5]}"


# ---- NumPy's results ---------------------------------------------------------------------------


def random_values(rank: int, dtype: np.dtype) -> np.random.Generator:
    return np.random.default_rng([rank, *dtype.name.encode()])


def given(rank: int, dtype: np.dtype) -> np.ndarray:
    """A period of the input of rank `rank`."""
    random = random_values(rank, dtype)
    if dtype.kind in "iu":
        return np.frombuffer(random.bytes(PERIOD * dtype.itemsize), dtype)
    return random.integers(2, size=PERIOD) > 0 if dtype == bool else random.choice([-2, -1, 1, 2], PERIOD).astype(dtype)


def expected(op: str, all_: Sequence[np.ndarray]) -> np.ndarray:
    """Integers wrap; their average is truncated towards zero."""
    dtype = all_[0].dtype
    ways: dict[str, np.ufunc] = {"min": np.minimum, "max": np.maximum, "product": np.multiply}
    way = ways.get(op, np.add)
    wide = np.stack([a.astype(np.float64 if dtype.name in ROUGH else dtype) for a in all_])
    total = way.reduce(wide, axis=0, **({} if op in ("min", "max") else {"dtype": wide.dtype}))
    if op == "average":
        total = total / len(all_) if dtype.name in ROUGH else (total - np.fmod(total, len(all_))) // len(all_)
    return total if op == "average" and dtype.name in ROUGH else total.astype(dtype)


def adasum_of(all_: Sequence[np.ndarray], count: int) -> np.ndarray:
    """A period of the result; an element counts as often as it is repeated."""
    weight = count // PERIOD + (np.arange(PERIOD) < count % PERIOD)

    def kept(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        square = (a * a * weight).sum()
        return (1 - (a * b * weight).sum() / square / 2) * a if square else a

    def pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return kept(a, b) + kept(b, a)

    nodes = [a.astype(np.float64) for a in all_]
    extra = len(nodes) - (1 << len(nodes).bit_length() - 1)
    nodes = [pair(*nodes[2 * i : 2 * i + 2]) for i in range(extra)] + nodes[2 * extra :]
    while len(nodes) > 1:
        nodes = [pair(a, b) for a, b in zip(nodes[::2], nodes[1::2])]
    return nodes[0]


def share(count: int, part: int, parts: int) -> tuple[int, int]:
    """Start and number of rows of a part; the first parts have one row more."""
    each, more = divmod(count, parts)
    return part * each + min(part, more), each + (part < more)


# ---- the collectives under test ------------------------------------------------------------------


class Case:
    """All collectives, of one type."""

    def __init__(self, dtype: np.dtype, rank: int, size: int) -> None:
        self.rank, self.size, self.dtype = rank, size, dtype
        self.is_float = dtype.name in ROUGH
        self.periods = [given(r, dtype) for r in range(size)]
        self.all = [Numbers(period) for period in self.periods]
        self.ops = [op for op in OPS if op != "average" or dtype != bool]
        self.results = {op: expected(op, self.periods) for op in self.ops}
        self.wanted = {op: Numbers(r) for op, r in self.results.items() if not (self.is_float and op == "average")}
        self.real = [random_values(r, dtype).normal(size=PERIOD).astype(dtype) for r in range(size)] if self.is_float else []
        self.ahead = 1  # number of requests in flight
        self.asked: deque[tuple[hvd.Handle, Callable[[Any], None]]] = deque()

    # ---- one request ----

    def ask(self, handle: hvd.Handle, check: Callable[[Any], None]) -> None:
        self.asked.append((handle, check))
        self.settle(self.ahead - 1)

    def settle(self, left: int = 0) -> None:
        while len(self.asked) > left:
            handle, check = self.asked.popleft()
            check(hvd.synchronize(handle))

    def what(self, collective: str, count: int) -> str:
        return f"{collective} of {count} {self.dtype.name}, {self.size} ranks"

    def check(self, op: str, got: np.ndarray, what: str, begin: int, count: int) -> None:
        if op in self.wanted:
            self.wanted[op].check(got, count, what, begin)
        else:
            check_rounded(got, np.roll(self.results[op], -begin), count, what)

    def check_pieces(self, got: np.ndarray, rows: list[int], begins: list[int], what: str) -> None:
        """Rows of rank 0, from its first one, then those of rank 1 …"""
        assert len(got) == sum(rows), f"{what}: {len(got)} rows"
        for r, end in enumerate(np.cumsum(rows)):
            self.all[r].check(got[end - rows[r] : end], rows[r], f"{what}, from rank {r}", begins[r])

    # ---- the collectives ----

    def allreduce(self, op: str, count: int) -> None:
        handle = hvd.allreduce_async(self.all[self.rank].take(count), op=OPS[op])
        self.ask(handle, lambda got: self.check(op, got, self.what(f"allreduce {op}", count), 0, count))

    def reducescatter(self, op: str, count: int) -> None:
        begin, rows = share(count, self.rank, self.size)
        handle = hvd.reducescatter_async(self.all[self.rank].take(count), op=OPS[op])
        self.ask(handle, lambda got: self.check(op, got, self.what(f"reducescatter {op}", count), begin, rows))

    def adasum(self, count: int) -> None:
        want = adasum_of(self.periods, count)
        handle = hvd.allreduce_async(self.all[self.rank].take(count), op=hvd.Adasum)
        self.ask(handle, lambda got: check_rounded(got, want, count, self.what("adasum", count), size=8))

    def broadcast(self, count: int) -> None:
        for root in {0, self.size - 1}:
            handle, want = hvd.broadcast_async(self.all[self.rank].take(count), root), self.all[root]
            self.ask(handle, lambda got, want=want: want.check(got, count, self.what("broadcast", count)))

    def allgather(self, count: int) -> None:
        """Each rank has one row more than the one before."""
        rows = [count + r for r in range(self.size)]
        handle = hvd.allgather_async(self.all[self.rank].take(rows[self.rank]))
        self.ask(handle, lambda got: self.check_pieces(got, rows, [0] * self.size, self.what("allgather", count)))

    def alltoall(self, count: int) -> None:
        """From rank r one share for each rank, rotated: the longer ones do not always go to the same rank."""
        splits = [[share(count, (r + to) % self.size, self.size)[1] for to in range(self.size)] for r in range(self.size)]
        rows = [splits[r][self.rank] for r in range(self.size)]
        begins = [sum(splits[r][: self.rank]) for r in range(self.size)]

        def check(got: tuple[np.ndarray, np.ndarray]) -> None:
            assert got[1].tolist() == rows, self.what("alltoall", count)
            self.check_pieces(got[0], rows, begins, self.what("alltoall", count))

        self.ask(hvd.alltoall_async(self.all[self.rank].take(count), splits=splits[self.rank]), check)

    def grouped(self, counts: list[int]) -> None:
        """All sizes at once."""
        mine = [self.all[self.rank].take(count) for count in counts]
        for count, got in zip(counts, hvd.grouped_allreduce(mine, op=hvd.Sum), strict=True):
            self.check("sum", got, self.what("grouped allreduce", count), 0, count)
        for count, got in zip(counts, hvd.grouped_allgather(mine), strict=True):
            self.check_pieces(got, [count] * self.size, [0] * self.size, self.what("grouped allgather", count))
        for count, got in zip(counts, hvd.grouped_reducescatter(mine, op=hvd.Sum), strict=True):
            begin, rows = share(count, self.rank, self.size)
            self.check("sum", got, self.what("grouped reducescatter", count), begin, rows)

    def identical(self, count: int) -> None:
        """Values whose sum depends on the order: the same bits on every rank, at any time."""
        mine = np.resize(self.real[self.rank], count)
        first, again = (hvd.allreduce(mine, op=hvd.Sum) for _ in range(2))
        total = np.sum([period.astype(np.float64) for period in self.real], axis=0)
        check_near(first, np.resize(total, count), self.what("allreduce of real numbers", count), size=8)
        bits = [hashlib.blake2b(got.view(np.uint8), digest_size=16).digest() for got in (first, again)]
        seen = hvd.allgather(np.frombuffer(b"".join(bits), np.uint8)).tobytes()
        assert seen == bits[0] * 2 * self.size, self.what("allreduce: other bits elsewhere, or again", count)

    # ---- everything -----

    def each(self, count: int, ops: Sequence[str]) -> None:
        for op in ops:
            self.allreduce(op, count)
            self.reducescatter(op, count)
        self.broadcast(count)
        self.allgather(count)
        self.alltoall(count)

    def everything(self, counts: list[int]) -> None:
        for count in counts:
            self.ahead = 64 if count * self.dtype.itemsize < 64 * KIB else 1
            self.each(count, self.ops)
            if self.is_float:
                self.adasum(count)
        self.settle()
        self.grouped(counts)
        for count in counts if self.is_float else []:
            self.identical(count)

    def large(self, count: int) -> None:
        self.all[self.rank] = Numbers(self.periods[self.rank], count + self.rank)
        self.each(count, ["sum"])


def scales(rank: int, size: int) -> None:
    for n in (0, 1, 5, 1000):
        got = hvd.allreduce(np.full((n, 2), rank + n, np.float32), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4)
        np.testing.assert_array_equal(got, np.full((n, 2), 2 * sum(r + n for r in range(size)), np.float32))


def sets(rank: int, size: int) -> None:
    odd = hvd.add_process_set([r for r in range(size) if r % 2])
    if rank % 2:
        assert hvd.allreduce(np.float64(rank), op=hvd.Sum, process_set=odd) == sum(odd.ranks)
        assert odd.rank() == rank // 2
    assert hvd.remove_process_set(odd)


def joins(rank: int, size: int) -> None:
    """Ranks run out of data one after the other."""
    for _ in range(rank):
        hvd.allreduce(np.ones(3), op=hvd.Sum)
    assert hvd.join() == size - 1


def main() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    for dtype in map(np.dtype, TYPES):
        case, small = Case(dtype, rank, size), [0, 1, size - 1, size, size + 1]
        some, many = 4 * KIB // dtype.itemsize, MIB // dtype.itemsize
        case.everything(sorted({*small, some - 1, some, some + 1, many - 1, many + 1}))
        if size == 2:
            case.large(64 * many)
    scales(rank, size)
    if size > 2:
        sets(rank, size)
    for root in (0, size - 1):
        assert hvd.broadcast(np.array(rank), root) == root
    joins(rank, size)
    hvd.barrier()
    print(f"rank {rank} of {size}: all is well")


main()
