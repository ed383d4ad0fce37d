# SPDX-License-Identifier: Apache-2.0
"""The plan: which gradients travel together, and in which order.

A step's gradients go out in buckets, each a request of its own, so that the first are on their way while
the backward pass still computes the others. Those of the last layers are ready first: buckets are filled
from the last variable to the first. The first bucket is small, for an early start; the others are as large
as pays.

Ranks must have the same plan. Its digest is in the names of the requests, so those of different plans never
meet: that is an error in every step, not a wrong sum. Before a plan's first step the ranks compare them,
because only then can the error say which variable it is.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from .. import _hopyard
from . import _basics, _group
from ._sets import ProcessSet, generation
from ._tf import title

FIRST_BYTES = 1 << 20
BUCKET_BYTES = 16 << 20


@dataclass(frozen=True)
class Entry:
    """One variable's gradient, as far as ranks must agree on it."""

    name: str
    kind: str  # "dense", "sparse" or "none"
    dtype: str = ""
    shape: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, gradient: Any, name: str) -> "Entry":
        if gradient is None:
            return cls(name, "none")
        if isinstance(gradient, tf.IndexedSlices):  # ranks may have different rows
            return cls(name, "sparse", gradient.dtype.name, tuple(gradient.values.shape[1:]))
        return cls(name, "dense", gradient.dtype.name, tuple(gradient.shape))

    @property
    def text(self) -> str:
        if self.kind == "none":
            return "no gradient"
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{'rows of ' if self.kind == 'sparse' else ''}{self.dtype} [{sizes}]"

    @property
    def bytes(self) -> int:
        count = 1
        for size in self.shape:
            count *= size or 0
        return count * tf.as_dtype(self.dtype).size

    @property
    def key(self) -> str:
        """What is compared. Keras numbers layers as they are made: 'dense_3' may be 'dense_1' elsewhere."""
        return f"{re.sub(r'_[0-9]+(?=/|$)', '', self.name)} {self.text}"


@dataclass(frozen=True)
class Plan:
    entries: tuple[Entry, ...]
    digest: str
    buckets: tuple[tuple[int, ...], ...]  # of dense gradients; each of one type
    sparse: tuple[int, ...]


def make(gradients: Sequence[Any], variables: Sequence[Any], groups: int | list[list[int]] | None) -> Plan:
    """A plan for these gradients. `groups`: as the user wants them together, instead of by size."""
    entries = tuple(Entry.of(g, title(v, i)) for i, (g, v) in enumerate(zip(gradients, variables)))
    dense = [i for i, entry in enumerate(entries) if entry.kind == "dense"]
    buckets = _by_size(entries, dense) if groups is None else _by_group(entries, dense, groups)
    said = "\n".join([*(entry.key for entry in entries), str(buckets)])
    digest = hashlib.blake2b(said.encode(), digest_size=8).hexdigest()
    return Plan(
        entries, digest, buckets, tuple(i for i, entry in enumerate(entries) if entry.kind == "sparse")
    )


def _limits() -> tuple[int, int]:
    """How large the first bucket may be, and the others."""
    given = os.environ.get("HOROVOD_FUSION_THRESHOLD")
    if given is None:
        return FIRST_BYTES, BUCKET_BYTES
    if not given.isdecimal():
        raise ValueError(f"HOROVOD_FUSION_THRESHOLD is a number of bytes, not '{given}'")
    return min(FIRST_BYTES, int(given)), int(given)


def _by_size(entries: tuple[Entry, ...], dense: list[int]) -> tuple[tuple[int, ...], ...]:
    limit, later = _limits()
    full: list[tuple[int, ...]] = []
    filling: dict[str, tuple[list[int], int]] = {}  # by type: what is in it, and its bytes
    for i in reversed(dense):
        inside, bytes_ = filling.get(entries[i].dtype, ([], 0))
        if inside and bytes_ + entries[i].bytes > limit:
            full.append(tuple(inside))
            inside, bytes_, limit = [], 0, later
        filling[entries[i].dtype] = ([*inside, i], bytes_ + entries[i].bytes)
    return (*full, *(tuple(inside) for inside, _ in filling.values()))


def _by_group(
    entries: tuple[Entry, ...], dense: list[int], groups: int | list[list[int]]
) -> tuple[tuple[int, ...], ...]:
    """The user's groups, those that start last first; a request has one type, so a group may make several."""
    if isinstance(groups, int):
        each, more = divmod(len(dense), groups)
        cuts = [n * each + min(n, more) for n in range(groups + 1)]
        wanted = [dense[a:b] for a, b in zip(cuts, cuts[1:])]
    else:
        named = {i for group in groups for i in group}
        wanted = [[i for i in group if i in set(dense)] for group in groups]
        wanted += [[i] for i in dense if i not in named]
    split = []
    for group in sorted(filter(None, wanted), key=max, reverse=True):
        types = dict.fromkeys(entries[i].dtype for i in group)
        split += [tuple(i for i in group if entries[i].dtype == dtype) for dtype in types]
    return tuple(split)


# ---- do all have the same? -------------------------------------------------------------------


class Agreement:
    """The plans that the ranks have compared.

    An optimizer has its own; tapes are made anew in every step, and share one.
    """

    def __init__(self) -> None:
        self._agreed: set[tuple[int, int, str]] = set()
        self._latest: Plan | None = None

    def check(self, plan: Plan, whose: str, process_set: ProcessSet) -> None:
        """Before its first use: if not all ranks have this plan, FailedPreconditionError says what differs.

        Not in an elastic training, where those that stayed have traced long ago when one that is new traces:
        there the names of the requests must do.
        """
        key = (generation(), process_set.number, plan.digest)
        before, self._latest = self._latest, plan
        if key in self._agreed or _basics.is_elastic():
            return
        rows = [(entry.name, entry.key, entry.text) for entry in plan.entries]
        try:
            same_everywhere(f"plan.{whose}", plan.digest, rows, process_set, "gradient")
        except _hopyard.GroupError as error:
            raise precondition(f"{error}{_changed(before, plan)}", error) from None
        self._agreed.add(key)


Row = tuple[str, str, str]
"""What something is called, what is compared of it, and what to say about it."""


def same_everywhere(name: str, digest: str, rows: list[Row], process_set: ProcessSet, what: str) -> None:
    """Raises FailedPreconditionError, with the first row that is another one on some rank."""
    number = process_set.number
    if len(set(_group.gather(digest.encode(), name, number))) == 1:
        return
    lists = _group.gather_objects(rows, f"{name}.rows", number)
    raise tf.errors.FailedPreconditionError(None, None, _difference(lists, process_set.ranks or [], what))


def _difference(lists: list[list[Row]], ranks: list[int], what: str) -> str:
    for i in range(max(map(len, lists))):
        here = [each[i] if i < len(each) else None for each in lists]
        if len({entry and entry[1] for entry in here}) == 1:
            continue
        names = list(dict.fromkeys(entry[0] for entry in here if entry))
        held: dict[str, list[int]] = {}
        for rank, entry in zip(ranks, here):
            text = "nothing" if entry is None else entry[2] if len(names) == 1 else f"'{entry[0]}' {entry[2]}"
            held.setdefault(text, []).append(rank)
        said = "; ".join(f"{_ranks(some)}: {text}" for text, some in held.items())
        return f"the ranks do not have the same {what}s: {what} {i}, '{names[0]}', is on {said}"
    return f"the ranks bundle their {what}s in different ways; is HOROVOD_FUSION_THRESHOLD the same on all?"


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _changed(before: Plan | None, plan: Plan) -> str:
    """What is other than in this rank's last plan: why it is here while the rest go on as before."""
    if before is None:
        return ""
    for old, new in zip(before.entries, plan.entries):
        if old.key != new.key:
            return f"; on rank {_basics.rank()} gradient '{new.name}' was {old.text} and is now {new.text}"
    return ""


def precondition(sentence: str, error: Exception) -> Exception:
    """The error as TensorFlow's ops would have raised it."""
    kinds = {"mismatch": tf.errors.FailedPreconditionError, "deadlock": tf.errors.FailedPreconditionError,
             "invalid": tf.errors.InvalidArgumentError}  # fmt: skip
    kind = kinds.get(getattr(error, "kind", ""))
    return error if kind is None else kind(None, None, sentence)
