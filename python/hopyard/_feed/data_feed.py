# SPDX-License-Identifier: Apache-2.0
"""Rows from feeders into the process that trains: DataFeed is what the training function sees.

A feeder is another process of the same machine, a Spark task, say. Rows lie in memory that both have, as columns, and
are made into Python objects again, or into NumPy arrays at once (`DataFeed.columns`), or TensorFlow takes them itself
(`DataFeed.dataset`).

When a feeder dies and is tried again, rows come again that had come before: each comes at least once.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import _hopyard

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

CHUNK_ROWS = 1024
CHUNK_BYTES = 1 << 20
FIRST_ROWS = 16  # until it is known how large they are

_Column = tuple[str, tuple[int, ...], Any, Any, Any]  # dtype, shape of a row, values, ends of values and of rows


class DataFeed:
    """The rows that come in. `mgr` has the hub as `mgr.hub`; where it has a descriptor to be heard meanwhile, too, that
    is `mgr.fileno()`, and `mgr.hear()` is called when something has come there."""

    def __init__(
        self,
        mgr: Any,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: dict[str, str] | None = None,
    ) -> None:
        self.mgr = mgr
        self.train_mode = train_mode
        self.qname_in = qname_in
        self.qname_out = qname_out  # results go back to who fed the rows, whatever this is
        self.done_feeding = False
        self.datasets: list[int] = []  # their numbers
        self.input_tensors = None if input_mapping is None else [tensor for _, tensor in sorted(input_mapping.items())]

    def next_batch(self, batch_size: int) -> list[Any] | dict[str, list[Any]]:
        """Up to `batch_size` rows: fewer at the end of the feed, and where a partition ends that wants results. With an
        input mapping, a list for each tensor instead."""
        rows = self._rows(batch_size)
        if self.input_tensors is None:
            return rows
        return {tensor: [row[i] for row in rows] for i, tensor in enumerate(self.input_tensors)}

    def columns(self, batch_size: int) -> Any:
        """The same as NumPy arrays: a tuple, list or dict of them, as rows are; one, for rows that are single values;
        with an input mapping a dict of tensors. What differs in length from row to row is an array of arrays. There may
        be fewer rows also where those that follow are of another shape."""
        rows, shape, columns, why = 0, "", [], ""
        while rows == 0 and not self.done_feeding:
            rows, shape, columns, why = self.mgr.hub.next_columns(max(batch_size, 1), **self._options())
            self._heed(why)
        found = _stacked(columns) if shape == "*" else _made(shape, [_array(column, rows) for column in columns])
        if self.input_tensors is None:
            return found
        parts: Sequence[Any] = list(found.values()) if isinstance(found, dict) else found
        return {tensor: parts[i] if rows else _numpy().empty(0) for i, tensor in enumerate(self.input_tensors)}

    def dataset(self, batch_size: int, signature: Any = None, drop_remainder: bool = False) -> tf.data.Dataset:
        """The same as a tf.data.Dataset, whose batches TensorFlow takes by itself, without Python. What is ragged is a
        tf.RaggedTensor. All batches have `batch_size` rows but the last, and the last of a partition that wants results.

        `signature`, a nest of tf.TensorSpec and tf.RaggedTensorSpec, says what comes; numbers are cast to it where that
        is safe. Without it, rows are awaited here, and all that follow have to be like the first."""
        from . import dataset as _dataset

        return _dataset.make(self, batch_size, signature, drop_remainder)

    def should_stop(self) -> bool:
        """Has the feed come to its end?"""
        self.done_feeding = self.done_feeding or any(self.mgr.hub.is_over(n) for n in self.datasets)
        return self.done_feeding

    def batch_results(self, results: Sequence[Any]) -> None:
        """One for each row of the batches that were taken, in their order."""
        self.mgr.hub.results(results)

    def terminate(self) -> None:
        """No more rows are wanted: feeders end, and those that come later, too."""
        say = getattr(self.mgr, "set", None)
        if say is not None:
            say("state", "terminating")
        self.mgr.hub.terminate()
        self.done_feeding = True

    def _options(self) -> dict[str, Any]:
        fileno = getattr(self.mgr, "fileno", None)
        options = {"queue": self.qname_in, "stops": not self.train_mode}
        return options if fileno is None else {**options, "other": fileno()}

    def _heed(self, why: str) -> None:
        if why == "end":
            self.done_feeding = True
        elif why == "other":
            self.mgr.hear()

    def _rows(self, batch_size: int) -> list[Any]:
        rows: list[Any] = []
        while len(rows) < batch_size and not self.done_feeding:
            more, why = self.mgr.hub.next_rows(batch_size - len(rows), **self._options())
            rows = rows + more if rows else more
            self._heed(why)
            if why == "partition" and rows:
                break
        return rows


# ---- who feeds ---------------------------------------------------------------------------------


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


def again(name: str, queue: str, rows: list[Any], first: int) -> None:
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


# ---- who feeds, in a task of Spark's -------------------------------------------------------------


FED, UNWANTED, NOBODY, UNREAD = range(4)
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
        return NOBODY
    name, source = found
    try:
        with source:
            return FED if all(put(source)) and source.wait_until_taken() else UNWANTED
    except _hopyard.Error:
        if source.timed_out:
            return UNREAD  # were it raised, Spark would try it again, and wait as long again
        if not source.gone and source_here([name], 0, queue, timeout):
            raise
        return NOBODY  # it has ended meanwhile; whether well, its run knows


# ---- columns -----------------------------------------------------------------------------------


def _numpy() -> Any:
    import numpy

    return numpy


def put_arrow(source: _hopyard.Source, batch: Any) -> bool:
    """Feeds a batch of Arrow's: False when the hub has had enough. What has no column, nulls, dates and structs, goes row
    by row."""
    taken = source.put_arrow(batch)
    if taken is not None:
        return taken
    rows = list(zip(*(column.to_pylist() for column in batch.columns)))
    return all(source.put(chunk) for chunk in chunks(rows, [source]))


def _array(column: _Column, rows: int) -> np.ndarray:
    """A hub's column. What is no number is an array of objects, and so is what is ragged."""
    np = _numpy()
    dtype, shape, values, value_ends, row_ends = column
    items = rows if row_ends is None else int(np.frombuffer(row_ends, np.int64)[-1])
    if value_ends is None:
        flat = np.frombuffer(values, dtype).reshape(items, *shape)
    else:
        ends = np.frombuffer(value_ends, np.int64).tolist()
        view = memoryview(values)
        cells = [str(view[a:b], "utf-8") if dtype == "str" else bytes(view[a:b]) for a, b in itertools.pairwise(ends)]
        flat = np.array(cells, object).reshape(items, *shape)
    if row_ends is None:
        return flat
    return _objects([flat[a:b] for a, b in itertools.pairwise(np.frombuffer(row_ends, np.int64))])


def _objects(values: list[Any]) -> np.ndarray:
    array = _numpy().empty(len(values), object)
    array[:] = values
    return array


def _stacked(rows: list[Any]) -> Any:
    """Rows that had no columns."""
    first = rows[0] if rows else None
    if isinstance(first, dict):
        return {key: _of_cells([row[key] for row in rows]) for key in first}
    if isinstance(first, (tuple, list)):
        parts = [_of_cells(list(cells)) for cells in zip(*rows)]
        return parts if isinstance(first, list) else tuple(parts)
    return _of_cells(rows)


def _of_cells(cells: list[Any]) -> np.ndarray:
    np = _numpy()
    try:
        return np.array(cells)
    except ValueError:  # they differ in length
        return _objects(cells)


def _made(shape: str, arrays: list[Any]) -> Any:
    """The arrays as a row has them (src/feed/shape.h tells of the text)."""
    position, leaves = 0, iter(arrays)

    def key() -> str:
        nonlocal position
        colon = text.index(b":", position)
        begin, position = colon + 1, colon + 1 + int(text[position:colon])
        return text[begin:position].decode()

    def inside(end: int) -> list[Any]:
        nonlocal position
        found: list[Any] = []
        while text[position] != end:
            found.append((key(), part()) if end in b"}>" else part())
        position += 1
        return found

    def part() -> Any:
        nonlocal position
        kind = text[position : position + 1]
        position += 2 if kind == b"l" else 1
        if kind in (b"{", b"<"):
            return dict(inside(b"}"[0] if kind == b"{" else b">"[0]))
        if kind == b"(":
            return tuple(inside(b")"[0]))
        return inside(b"]"[0]) if kind == b"[" else next(leaves)

    text = shape.encode()
    return part() if text else ()
