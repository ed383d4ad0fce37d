# SPDX-License-Identifier: Apache-2.0
"""Process sets: subsets of ranks. Needs no TensorFlow."""

from collections.abc import Iterable, Sequence

from .. import _hopyard
from .._base.errors import Error

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]


def needs_init() -> None:
    if not _hopyard.group_joined():
        raise ValueError("Horovod has not been initialized; use hvd.init().")


class ProcessSet:
    """A subset of ranks. hvd.init or hvd.add_process_set registers it; then it has a `process_set_id`."""

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm = None

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        ranks = list(ranks_or_comm) if isinstance(ranks_or_comm, Iterable) else None
        if ranks is None or any(not isinstance(rank, int) for rank in ranks):
            raise ValueError(
                f"a ProcessSet needs a list of ranks, not {ranks_or_comm!r}; "
                "hopyard has no MPI communicators"
            )
        self.ranks = sorted(ranks)

    @property
    def number(self) -> int:
        """The set's id, for a collective; ValueError if it is not registered."""
        if self.process_set_id is None:
            raise ValueError(f"{self} is not registered; pass it to hvd.init or hvd.add_process_set first")
        if self.process_set_id and self not in _registered:
            members(self.process_set_id)
        return self.process_set_id

    def size(self) -> int | None:
        """The number of its ranks; None if it is not registered."""
        return None if self.process_set_id is None else len(members(self.process_set_id))

    def rank(self) -> int | None:
        """The rank of this process within the set; None if it is not registered."""
        if self.process_set_id is None:
            return None
        ranks = members(self.process_set_id)
        if (rank := _hopyard.group_query(0)) not in ranks:
            raise ValueError("Process is not part of provided process set.")
        return ranks.index(rank)

    def included(self) -> bool | None:
        """Whether this process is a member."""
        needs_init()
        return None if self.ranks is None else _hopyard.group_query(0) in self.ranks

    def _invalidate(self) -> None:
        self.process_set_id = None

    def __str__(self) -> str:
        number, ranks, comm = self.process_set_id, self.ranks, self.mpi_comm
        return f"ProcessSet(process_set_id={number}, ranks={ranks}, mpi_comm={comm})"

    __repr__ = __str__


global_process_set = ProcessSet([])
"""All ranks."""
global_process_set.process_set_id = 0

_registered: list[ProcessSet] = []
_begun = 0


def generation() -> int:
    """The number of groups that this process has left: counters and agreements are valid in one group only."""
    return _begun


def members(number: int) -> list[int]:
    """The ranks of a set, by its id; ValueError if it does not exist."""
    needs_init()
    try:
        return _hopyard.group_set_members(number)
    except (Error, OverflowError, TypeError) as error:
        raise ValueError(f"process set {number!r} does not exist or has not been registered") from error


def is_known(number: int) -> bool:
    try:
        return bool(members(number))
    except ValueError:
        return False


def check(sets: Sequence[ProcessSet]) -> None:
    """Checks a list of sets before there is a group."""
    for index, each in enumerate(sets):
        if not isinstance(each, ProcessSet):
            raise ValueError(f"process_sets entry number {index} is not a ProcessSet: {each!r:.60}")
        if any(each.ranks == other.ranks for other in sets[:index]):
            raise ValueError(f"process_sets entry number {index} is a duplicate: {each}")


def begin(sets: Sequence[ProcessSet]) -> None:
    """Registers the sets of a new group."""
    global_process_set.ranks = _hopyard.group_set_members(0)
    for index, each in enumerate(sets):
        if each.ranks == global_process_set.ranks:
            raise ValueError(f"process_sets entry number {index} is a duplicate: {each}")
    for each in sets:
        if each not in _registered:
            add_process_set(each)


def end() -> None:
    """Unregisters the sets of a group that ends."""
    global _begun
    _begun += 1
    for each in _registered:
        each._invalidate()
    _registered.clear()


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Registers a set; all ranks of the group must call this, members or not."""
    needs_init()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if any(process_set.ranks == other.ranks for other in (global_process_set, *_registered)):
        raise ValueError(f"Attempted to add a duplicate process set: {process_set}")
    process_set.process_set_id = _hopyard.group_set_add(process_set.ranks or [])
    _registered.append(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Unregisters a set; all ranks must call this. False: it was not registered, or is the global set."""
    needs_init()
    if not process_set.process_set_id:
        return False
    number = process_set.process_set_id
    process_set._invalidate()
    if process_set in _registered:
        _registered.remove(process_set)
    elif not is_known(number):
        return False
    _hopyard.group_set_remove(number)
    return True
