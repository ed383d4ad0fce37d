# SPDX-License-Identifier: Apache-2.0
"""The feeding side: sends rows to the hub of a training process on the same machine."""

import contextlib
import itertools
import pickle
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .. import _hopyard

CHUNK_ROWS = 1024
CHUNK_BYTES = 1 << 20
FIRST_ROWS = 16  # until their size is known


def chunks(rows: Iterable[Any], sources: Sequence[_hopyard.Source]) -> Iterator[list[Any]]:
    """Splits rows into lists of about a megabyte. The size of rows is known once the first are sent."""
    iterator, count, so_far, before = iter(rows), FIRST_ROWS, 0, sum(source.sent for source in sources)
    while chunk := list(itertools.islice(iterator, count)):
        yield chunk
        so_far += len(chunk)
        sent = sum(source.sent for source in sources) - before
        count = max(1, min(CHUNK_ROWS, CHUNK_BYTES * so_far // max(sent, 1)))


def feeder(name: str, queue: str = "input", size: int = 0) -> Callable[[Iterable[Any]], bool]:
    """A function that feeds a partition's rows to the hub of that name. It returns True when they are taken, or False
    if the hub wants no more. `size` is the size of the ring, for rows larger than a few megabytes."""

    def feed(rows: Iterable[Any]) -> bool:
        return _put_all(_source(name, queue, False, size), rows)

    return feed


def feed_own_hub(name: str, queue: str, rows: list[Any], first: int) -> None:
    """Feeds rows that arrived pickled to this process's hub again, because columns are wanted. Called by
    src/python/hub.c."""
    source, rest = _hopyard.Source(name, queue), rows[first:]  # connected before the feed can be declared over

    def feed() -> None:
        with contextlib.suppress(_hopyard.Error):  # the hub is gone
            _put_all(source, rest)

    threading.Thread(target=feed, name="hopyard-feed", daemon=True).start()


def _put_all(source: _hopyard.Source, rows: Iterable[Any]) -> bool:
    with source:
        return all(source.put(chunk) for chunk in chunks(rows, [source])) and source.wait_until_taken()


def infer(name: str, rows: Iterable[Any], queue: str = "input", size: int = 0) -> Iterator[Any]:
    """Feeds a partition's rows, and yields a result for each, in order. At most the two rings and the consumer's batch
    are filled with rows ahead of their results."""
    yield from inferred(name, _source(name, queue, True, size), rows)


def inferred(name: str, source: _hopyard.Source, rows: Iterable[Any]) -> Iterator[Any]:
    sent = received = 0
    with source:
        for chunk in chunks(rows, [source]):
            wants_more = source.put(chunk)
            sent += len(chunk)
            for result in source.results(0) or ():
                received += 1
                yield result
            if not wants_more:
                raise _hopyard.Error(f"'{name}' takes no more rows, and has returned {received} results for {sent}")
        source.end_partition()
        while received < sent:
            results = source.results()
            if results is None:
                raise _hopyard.Error(f"'{name}' takes no more rows, and has returned {received} results for {sent}")
            received += len(results)
            yield from results


def _source(name: str, queue: str, results: bool, size: int) -> _hopyard.Source:
    return _hopyard.Source(name, queue, results, size) if size else _hopyard.Source(name, queue, results)


# ---- in a Spark task ----------------------------------------------------------------------------


FED, UNWANTED, NO_NODE, TIMED_OUT = range(4)
"""The outcome of a partition: it was taken; the node wants no more; this machine has no node, or no longer; the node
took no rows for feed_timeout."""


def source_here(
    names: Sequence[str], turn: int, queue: str, timeout: float, results: bool = False
) -> tuple[str, _hopyard.Source] | None:
    """Connects to one of the hubs on this machine, in turn for each partition: its name, and the source."""
    for name in (names[(turn + i) % len(names)] for i in range(len(names))):
        try:
            return name, _hopyard.Source(name, queue, results, patience=timeout)
        except ConnectionRefusedError:
            continue
    return None


def infer_here(names: Sequence[str], turn: int, queue: str, rows: Iterable[Any], timeout: float) -> Iterator[Any]:
    """A result for each row of a partition, from a node on this machine."""
    found = source_here(names, turn, queue, timeout, results=True)
    if found is None:
        raise _hopyard.Error(f"there is no node of the cluster on {socket.gethostname()}, or it has ended")
    return inferred(*found, rows)


def feed_partition(names: Sequence[str], turn: int, queue: str, rows: Iterable[Any], timeout: float) -> int:
    """Feeds a partition to a node on this machine; returns its outcome."""
    return _feed_here(names, turn, queue, timeout, lambda source: map(source.put, chunks(rows, [source])))


def feed_pickles(names: Sequence[str], turn: int, queue: str, pickles: Iterable[bytes], timeout: float) -> int:
    """The same for batches of rows that Spark has pickled: if the node takes Python rows, it gets the pickles as they
    are."""
    return _feed_here(names, turn, queue, timeout, lambda source: _put_pickles(source, pickles))


def _put_pickles(source: _hopyard.Source, pickles: Iterable[bytes]) -> Iterator[bool]:
    rows: list[Any] = []
    size = 0
    for pickled in pickles:
        if source.takes_pickles and len(pickled) < source.most // 2:
            if rows:
                yield source.put(rows)
            rows, size = [], 0
            yield source.put_pickle(pickled)
            continue
        rows += pickle.loads(pickled, encoding="bytes")
        size += len(pickled)
        if size >= CHUNK_BYTES:
            yield source.put(rows)
            rows, size = [], 0
    if rows:
        yield source.put(rows)


def feed_batches(names: Sequence[str], turn: int, queue: str, batches: Iterable[Any], timeout: float) -> int:
    """The same for Arrow batches; rows are tuples."""
    return _feed_here(names, turn, queue, timeout, lambda source: (put_arrow(source, batch) for batch in batches))


def _feed_here(
    names: Sequence[str], turn: int, queue: str, timeout: float, put: Callable[[_hopyard.Source], Iterable[bool]]
) -> int:
    found = source_here(names, turn, queue, timeout)
    if found is None:
        return NO_NODE
    name, source = found
    try:
        with source:
            return FED if all(put(source)) and source.wait_until_taken() else UNWANTED
    except _hopyard.Error:
        if source.timed_out:
            return TIMED_OUT  # an exception would make Spark retry, and wait as long again
        if not source.gone and source_here([name], 0, queue, timeout):
            raise
        return NO_NODE  # it has ended; its run has the reason


def put_arrow(source: _hopyard.Source, batch: Any) -> bool:
    """Feeds an Arrow batch: False if the hub wants no more. Types without columns (nulls, dates and structs) are fed
    row by row."""
    taken = source.put_arrow(batch)
    if taken is not None:
        return taken
    rows = list(zip(*(column.to_pylist() for column in batch.columns)))
    return all(source.put(chunk) for chunk in chunks(rows, [source]))
