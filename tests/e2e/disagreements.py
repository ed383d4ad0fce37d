# SPDX-License-Identifier: Apache-2.0
"""On three ranks with mismatched requests: each gets an error in time, and the group keeps working. See promises.py."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
from promises import keep, refused

import hopyard
import hopyard.collective as hvd

hvd.init()
RANK = hvd.rank()
Call = Callable[[], Any]


def mismatch(most: Call, one: Call, *words: str) -> None:
    """The rank that differs is rank 0 (the coordinator), then another one."""
    for other in (0, 2):
        refused(hopyard.GroupError, one if RANK == other else most, *words)
        assert hvd.allreduce(np.float32(RANK), op=hvd.Sum) == 3, "the group still works"


def reduction(name: str, shape: tuple[int, ...] = (2, 3), dtype: type = np.float32, op: int = hvd.Sum) -> Call:
    return lambda: hvd.allreduce(np.ones(shape, dtype), name=name, op=op)


def test_mismatched_shapes() -> None:
    for size in (3, 1 << 20):
        mismatch(reduction("shapes", (2, size)), reduction("shapes", (2, size + 1)), "'shapes'", rf"\[2, {size}\]", "rank")

    def each(collective: Callable[..., Any], rows: int, columns: int, *args: int) -> Call:
        return lambda: collective(np.ones((rows, columns)), *args, name="others")

    mismatch(each(hvd.broadcast, 2, 2, 0), each(hvd.broadcast, 3, 2, 0), "'others'")
    for collective in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
        mismatch(each(collective, 3, 2), each(collective, 3, 1), "'others'")


def test_mismatched_types() -> None:
    for dtype in (np.float64, np.int32, np.float16, np.bool_):
        mismatch(reduction("types"), reduction("types", dtype=dtype), "'types'", "float32", np.dtype(dtype).name)


def test_mismatched_collective_op_or_root() -> None:
    mismatch(reduction("kinds"), lambda: hvd.allgather(np.ones((2, 3), np.float32), name="kinds"), "'kinds'", "allgather")
    mismatch(reduction("ops"), reduction("ops", op=hvd.Max), "'ops'", "max")
    mismatch(lambda: hvd.broadcast(np.ones(2), 0, name="roots"), lambda: hvd.broadcast(np.ones(2), 1, name="roots"), "'roots'")


def test_missing_array_in_a_group() -> None:
    def group(count: int) -> Call:
        return lambda: hvd.grouped_allreduce([np.ones(2)] * count, name="group")

    mismatch(group(3), group(2), "'group'")


def test_tensor_that_one_rank_never_submits_while_it_waits_for_another() -> None:
    mismatch(reduction("one"), reduction("two"), "'(one|two)'", "rank")
    mismatch(reduction("summed"), hvd.barrier, "summed|barrier", "rank")
    mismatch(reduction("held"), lambda: hvd.allgather(np.ones(1), name="gathered"), "held|gathered", "rank")


def test_one_missing_tensor_among_many() -> None:
    """One of twenty tensors in flight; the rank without it waits for one that the others do not have."""
    def many(missing: str) -> None:
        handles = [hvd.allreduce_async(np.ones(100), name=f"many.{i}") for i in range(20)]
        handles.append(hvd.allreduce_async(np.ones(100), name=missing))
        for handle in handles:
            hvd.synchronize(handle)

    mismatch(lambda: many("many.20"), lambda: many("many.21"), r"many\.2[01]", "rank")


keep(globals(), RANK)
