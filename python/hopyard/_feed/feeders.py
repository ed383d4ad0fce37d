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
FIRST_ROWS = 16  # until it is known how large they are


def chunks(rows: Iterable[Any], sources: Sequence[_hopyard.Source]) -> Iterator[list[Any]]:
    """Lists of rows, of about a megabyte: their size shows when the first are sent."""
    iterator, count, so_far, before = iter(rows), FIRST_ROWS, 0, sum(source.sent for source in sources)
    while chunk := list(itertools.islice(iterator, count)):
        yield chunk
        so_far += len(chunk)
        sent = sum(source.sent for source in sources) - before
        count = max(1, min(CHUNK_ROWS, CHUNK_BYTES * so_far // max(sent, 1)))


def feeder(name: str, queue: str = "input", size: int = 0) -> Callable[[Iterable[Any]], bool]:
    """A function that feeds a partition's rows to the hub of that name. It returns when they are taken: True, or False
    when the hub has had enough. `size` is the ring's, where rows are larger than some megabytes."""

    def feed(rows: Iterable[Any]) -> bool:
        return _put_all(_source(name, queue, False, size), rows)

    return feed


def feed_own_hub(name: str, queue: str, rows: list[Any], first: int) -> None:
    """Feeds this process's own hub with rows that had come as a pickle, when somebody wants columns."""
    source, rest = _hopyard.Source(name, queue), rows[first:]  # it is there before anybody says that no more come

    def feed() -> None:
        with contextlib.suppress(_hopyard.Error):  # the hub is gone, and nobody takes them
            _put_all(source, rest)

    threading.Thread(target=feed, name="hopyard-again", daemon=True).start()


def _put_all(source: _hopyard.Source, rows: Iterable[Any]) -> bool:
    with source:
        return all(source.put(chunk) for chunk in chunks(rows, [source])) and source.wait_until_taken()


def infer(name: str, rows: Iterable[Any], queue: str = "input", size: int = 0) -> Iterator[Any]:
    """Feeds a partition's rows, and gives a result for each, in their order. Rows are ahead of results by what the two
    rings and the consumer's batch hold, and no more."""
    yield from inferred(name, _source(name, queue, True, size), rows)


def inferred(name: str, source: _hopyard.Source, rows: Iterable[Any]) -> Iterator[Any]:
    sent = given = 0
    with source:
        for chunk in chunks(rows, [source]):
            is_wanted = source.put(chunk)
            sent += len(chunk)
            for result in source.results(0) or ():
                given += 1
                yield result
            if not is_wanted:
                raise _hopyard.Error(f"'{name}' has had enough rows, and has given {given} results for {sent}")
        source.end_partition()
        while given < sent:
            results = source.results()
            if results is None:
                raise _hopyard.Error(f"'{name}' has had enough rows, and has given {given} results for {sent}")
            given += len(results)
            yield from results


def _source(name: str, queue: str, results: bool, size: int) -> _hopyard.Source:
    return _hopyard.Source(name, queue, results, size) if size else _hopyard.Source(name, queue, results)


# ---- in a Spark task ----------------------------------------------------------------------------


FED, UNWANTED, NO_NODE, TIMED_OUT = range(4)
"""What became of a partition: it was taken; a node has had enough; there is no node here, or not any more; the node has
taken none of it for feed_timeout."""


def source_here(
    names: Sequence[str], turn: int, queue: str, timeout: float, results: bool = False
) -> tuple[str, _hopyard.Source] | None:
    """To one of the hubs that are on this machine, and its name: another one for each partition."""
    for name in (names[(turn + i) % len(names)] for i in range(len(names))):
        try:
            return name, _hopyard.Source(name, queue, results, patience=timeout)
        except ConnectionRefusedError:
            continue
    return None


def infer_here(names: Sequence[str], turn: int, queue: str, rows: Iterable[Any], timeout: float) -> Iterator[Any]:
    """A result for each row of a partition, by a node of this machine."""
    found = source_here(names, turn, queue, timeout, results=True)
    if found is None:
        raise _hopyard.Error(f"no node of the cluster is on {socket.gethostname()}, or it has ended")
    return inferred(*found, rows)


def feed_partition(names: Sequence[str], turn: int, queue: str, rows: Iterable[Any], timeout: float) -> int:
    """Feeds it to a node of this machine; what became of it."""
    return _feed_here(names, turn, queue, timeout, lambda source: map(source.put, chunks(rows, [source])))


def feed_pickles(names: Sequence[str], turn: int, queue: str, pickles: Iterable[bytes], timeout: float) -> int:
    """The same for rows as Spark has pickled them, some in each: where the node takes Python's rows, it gets them so, and
    nobody makes rows of them before."""
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
    """The same for Arrow's; rows are tuples."""
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
            return TIMED_OUT  # were it raised, Spark would try it again, and wait as long again
        if not source.gone and source_here([name], 0, queue, timeout):
            raise
        return NO_NODE  # it has ended meanwhile; whether well, its run knows


def put_arrow(source: _hopyard.Source, batch: Any) -> bool:
    """Feeds a batch of Arrow's: False when the hub has had enough. What has no column, nulls, dates and structs, goes row
    by row."""
    taken = source.put_arrow(batch)
    if taken is not None:
        return taken
    rows = list(zip(*(column.to_pylist() for column in batch.columns)))
    return all(source.put(chunk) for chunk in chunks(rows, [source]))
