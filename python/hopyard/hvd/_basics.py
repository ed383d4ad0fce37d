# SPDX-License-Identifier: Apache-2.0
"""Who is there: init, rank, size and their kin. Needs no TensorFlow."""

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
"""What `group_query` can be asked."""


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Joins the ranks of this run, or those that mpirun or srun has started, and waits until all are there. Otherwise
    a group of one.

    `process_sets`: sets of ranks to have from the start; or "dynamic", which is always so here.
    """
    if comm is not None and comm != []:
        raise ValueError(
            "hvd.init(comm=...) needs MPI, which hopyard does without; use hvd.ProcessSet for some ranks"
        )
    sets = [] if process_sets is None or isinstance(process_sets, str) else list(process_sets)
    check(sets)
    joins = not _hopyard.group_joined()
    if joins:
        _hopyard.group_join()
        atexit.register(_at_exit)
    try:
        begin(sets)
        if "tensorflow" in sys.modules:  # else the first op does it
            from .._tensorflow import ops as _tfops

            _tfops.ensure_loaded()
    except BaseException:
        if joins:
            shutdown()  # nothing is left behind, and init may be called again
        raise


def shutdown() -> None:
    """Leaves the group; init may be called again."""
    atexit.unregister(_at_exit)
    if _hopyard.group_joined():
        end()
        _hopyard.group_leave()


def _at_exit() -> None:
    """One that ends by an exception takes no leave: the others would fail by that, and might be the first to end."""
    if getattr(sys, "last_value", None) is None:
        shutdown()


def is_initialized() -> bool:
    return _hopyard.group_joined()


def is_elastic() -> bool:
    """Whether the size may be another one after a rank was lost or came."""
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def _query(what: int) -> int:
    needs_init()
    return _hopyard.group_query(what)


def rank() -> int:
    """This process's number among all, from 0."""
    return _query(RANK)


def size() -> int:
    """How many processes there are."""
    return _query(SIZE)


def local_rank() -> int:
    """This process's number among those of its machine."""
    return _query(LOCAL_RANK)


def local_size() -> int:
    """How many processes there are on this machine."""
    return _query(LOCAL_SIZE)


def cross_rank() -> int:
    """This machine's number among those that have a process of this local rank."""
    return _query(CROSS_RANK)


def cross_size() -> int:
    """How many machines have a process of this local rank."""
    return _query(CROSS_SIZE)


def is_homogeneous() -> bool:
    """Whether every machine has as many processes as the others."""
    return bool(_query(HOMOGENEOUS))


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Writes a Chrome trace of every collective from now on."""
    needs_init()
    _hopyard.group_timeline_start(file_path, mark_cycles)


def stop_timeline() -> None:
    needs_init()
    _hopyard.group_timeline_stop()


# ---- what Horovod may be built with ----------------------------------------------------------
# hopyard has transports of its own. Programs ask these to learn whether MPI must be there; the
# answer that sends them on their way is Horovod's other one, Gloo.


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
