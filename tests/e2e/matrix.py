# SPDX-License-Identifier: Apache-2.0
"""A rank that does everything with everything, and compares with NumPy. Every rank knows what all of them give."""

import sys

import numpy as np
from ml_dtypes import bfloat16

import hopyard.collective as hvd

TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", bfloat16, "float32",
         "float64", "bool"]  # fmt: skip
OPS = {"sum": hvd.Sum, "average": hvd.Average, "min": hvd.Min, "max": hvd.Max, "product": hvd.Product}
ROUGH = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}


def given(rank: int, count: int, dtype: np.dtype) -> np.ndarray:
    """What rank `rank` has."""
    numbers = (np.arange(count, dtype=np.int64) * 7 + rank * 3) % 5
    return (numbers > 2) if dtype == bool else (numbers - (0 if dtype.kind == "u" else 2)).astype(dtype)


def expected(op: str, all_: list[np.ndarray]) -> np.ndarray:
    dtype = all_[0].dtype
    wide = [a.astype(np.float64 if dtype.name in ROUGH else dtype) for a in all_]
    with np.errstate(over="ignore"):
        if op in ("sum", "average"):
            total = wide[0].copy()
            for each in wide[1:]:
                total = total | each if dtype == bool else total + each
            if op == "average":
                total = total / len(all_) if dtype.name in ROUGH else np.trunc(total / len(all_))
            return total.astype(dtype)
        combine = {"min": np.minimum, "max": np.maximum, "product": np.logical_and if dtype == bool else np.multiply}
        total = wide[0].copy()
        for each in wide[1:]:
            total = combine[op](total, each)
        return total.astype(dtype)


def same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, f"{what}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    rough = ROUGH.get(want.dtype.name, 0)
    if rough:
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rough, atol=rough, err_msg=what)
    else:
        np.testing.assert_array_equal(got, want, err_msg=what)


def identical(got: np.ndarray, what: str) -> None:
    """Bit by bit on every rank."""
    all_ = hvd.allgather(np.frombuffer(got.tobytes(), np.uint8)[None, :])
    assert all((row == all_[0]).all() for row in all_), f"{what}: ranks have different bits"


def reductions(count: int, dtype: np.dtype, rank: int, size: int) -> None:
    all_ = [given(r, count, dtype) for r in range(size)]
    for op, number in OPS.items():
        if dtype == bool and op == "average":
            continue
        what = f"allreduce {op} of {count} {dtype.name}, {size} ranks"
        got = hvd.allreduce(all_[rank], op=number)
        same(got, expected(op, all_), what)
        same(hvd.allreduce(all_[rank], op=number), got, what + ", again")
        if dtype.kind in "fV" and count < 10000:
            identical(got, what)


def movements(count: int, dtype: np.dtype, rank: int, size: int) -> None:
    what = f"of {count} {dtype.name}, {size} ranks"
    all_ = [given(r, count, dtype) for r in range(size)]
    for root in {0, size - 1}:
        same(hvd.broadcast(all_[rank], root), all_[root], f"broadcast {what}")
    uneven = [given(r, count + r, dtype) for r in range(size)]
    same(hvd.allgather(uneven[rank]), np.concatenate(uneven), f"allgather {what}")
    splits = [[(count + i + j) % (count + 1) for j in range(size)] for i in range(size)]
    mine = [given(i, sum(splits[i]), dtype) for i in range(size)]
    starts = [np.cumsum([0, *row]) for row in splits]
    rows, received = hvd.alltoall(mine[rank], splits=splits[rank])
    same(rows, np.concatenate([mine[i][starts[i][rank] : starts[i][rank + 1]] for i in range(size)]), f"alltoall {what}")
    assert received.tolist() == [splits[i][rank] for i in range(size)], f"alltoall {what}"
    shares = np.array_split(expected("sum", all_), size)
    same(hvd.reducescatter(all_[rank], op=hvd.Sum), shares[rank], f"reducescatter {what}")


def grouped(rank: int, size: int) -> None:
    arrays = [np.full((n, 2), rank + n, np.float32) for n in (0, 1, 5, 1000)]
    for n, got in zip((0, 1, 5, 1000), hvd.grouped_allreduce(arrays, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4)):
        same(got, np.full((n, 2), 2 * sum(r + n for r in range(size)), np.float32), "grouped allreduce")
    for array, got in zip(arrays, hvd.grouped_allgather(arrays)):
        assert got.shape == (len(array) * size, 2)
    shares = hvd.grouped_reducescatter(arrays, op=hvd.Sum)
    assert [len(share) for share in shares] == [len(np.array_split(array, size)[rank]) for array in arrays]


def adasum(size: int) -> None:
    """Vectors at right angles add up; equal ones stay as they are."""
    if size & (size - 1):
        return
    own = np.zeros(size, np.float32)
    own[hvd.rank()] = 3
    same(hvd.allreduce(own, op=hvd.Adasum), np.full(size, 3, np.float32), "adasum of right angles")
    same(hvd.allreduce(np.full(8, 2.5, np.float64), op=hvd.Adasum), np.full(8, 2.5), "adasum of equals")


def sets(rank: int, size: int) -> None:
    odd = hvd.add_process_set([r for r in range(size) if r % 2])
    if rank % 2:
        same(hvd.allreduce(np.float64(rank), op=hvd.Sum, process_set=odd), np.array(float(sum(odd.ranks))), "a set's sum")
        assert odd.rank() == rank // 2
    assert hvd.remove_process_set(odd)


def main(full: bool) -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    small, large = [0, 1, size - 1, size, size + 1], [4095, 4096, 4097, (1 << 20) - 1, (1 << 20) + 1]
    for name in TYPES:
        dtype = np.dtype(name)
        for nbytes in [*[n * dtype.itemsize for n in small], *large]:
            count = nbytes // dtype.itemsize
            if nbytes < 10000 or full or dtype.name in ("float32", "int16", "bfloat16"):
                reductions(count, dtype, rank, size)
                movements(count, dtype, rank, size)
    grouped(rank, size)
    adasum(size)
    if size > 2:
        sets(rank, size)
    for root in (0, size - 1):
        assert hvd.broadcast(np.array(rank), root) == root
    if size == 2:
        big = given(rank, 16 << 20, np.dtype("float32"))
        same(hvd.allreduce(big, op=hvd.Sum), given(0, 16 << 20, big.dtype) + given(1, 16 << 20, big.dtype), "64 MiB")
    for _ in range(rank):  # ranks run out of data one after the other
        hvd.allreduce(np.ones(3), op=hvd.Sum)
    assert hvd.join() == size - 1
    hvd.barrier()
    print(f"rank {rank} of {size}: all is well")


main("--full" in sys.argv)
