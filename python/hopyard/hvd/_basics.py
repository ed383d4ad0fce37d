# SPDX-License-Identifier: Apache-2.0
"""init, rank, size and related functions. Needs no TensorFlow."""

import atexit
import os
import sys
from collections.abc import Sequence
from typing import Any

from .. import _hopyard
from ._sets import ProcessSet, begin, check, end, needs_init

__all__ = [
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled", "init",
    "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rank", "rocm_built", "shutdown", "size", "start_timeline",
    "stop_timeline",
]  # fmt: skip

RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, CROSS_RANK, CROSS_SIZE, HOMOGENEOUS = range(7)
"""The arguments of `group_query`."""


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Joins the ranks of this run, or those that mpirun or srun has started, and waits until all have joined. Otherwise
    the group has one rank.

    `process_sets`: process sets to register; or "dynamic", which is always the case here.
    """
    if comm is not None and comm != []:
        raise ValueError(
            "hvd.init(comm=...) needs MPI, which hopyard does not use; use hvd.ProcessSet for a subset of ranks"
        )
    sets = [] if process_sets is None or isinstance(process_sets, str) else list(process_sets)
    check(sets)
    joins = not _hopyard.group_joined()
    if joins:
        _hopyard.group_join()
        atexit.register(_at_exit)
    try:
        begin(sets)
        if "tensorflow" in sys.modules:  # otherwise the first op loads it
            from .._tensorflow import ops as _tfops

            _tfops.ensure_loaded()
    except BaseException:
        if joins:
            shutdown()  # so that init can be called again
        raise


def shutdown() -> None:
    """Leaves the group; init can be called again."""
    atexit.unregister(_at_exit)
    if _hopyard.group_joined():
        end()
        _hopyard.group_leave()


def _at_exit() -> None:
    """A rank that ends by an exception does not leave: that would make the others fail, maybe before this one ends."""
    if getattr(sys, "last_value", None) is None:
        shutdown()


def is_initialized() -> bool:
    return _hopyard.group_joined()


def is_elastic() -> bool:
    """Whether the size may change when a rank is lost or added."""
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def _query(what: int) -> int:
    needs_init()
    return _hopyard.group_query(what)


def rank() -> int:
    """The rank of this process, from 0."""
    return _query(RANK)


def size() -> int:
    """The number of ranks."""
    return _query(SIZE)


def local_rank() -> int:
    """The rank of this process on its machine."""
    return _query(LOCAL_RANK)


def local_size() -> int:
    """The number of ranks on this machine."""
    return _query(LOCAL_SIZE)


def cross_rank() -> int:
    """The index of this machine among those with a process of this local rank."""
    return _query(CROSS_RANK)


def cross_size() -> int:
    """The number of machines with a process of this local rank."""
    return _query(CROSS_SIZE)


def is_homogeneous() -> bool:
    """Whether all machines have the same number of processes."""
    return bool(_query(HOMOGENEOUS))


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts writing a Chrome trace of every collective."""
    needs_init()
    _hopyard.group_timeline_start(file_path, mark_cycles)


def stop_timeline() -> None:
    needs_init()
    _hopyard.group_timeline_stop()


# ---- features of a Horovod build ----------------------------------------------------------
# hopyard has its own transports. Programs call these to find out whether MPI is required; they work with the answer
# "Gloo", Horovod's alternative.


def mpi_built() -> bool:
    return False


def mpi_enabled() -> bool:
    return False


def mpi_threads_supported() -> bool:
    raise ValueError("Horovod MPI is not enabled; hopyard needs none.")


def gloo_built() -> bool:
    return True


def gloo_enabled() -> bool:
    return True


def nccl_built() -> int:
    return 0


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def cuda_built() -> bool:
    return False


def rocm_built() -> bool:
    return False
