# SPDX-License-Identifier: Apache-2.0
"""Rows from feeders into the process that trains: DataFeed is what the training function sees.

A feeder is another process of the same machine, a Spark task, say. Rows lie in memory that both have, as columns, and
are made into Python objects again, or into NumPy arrays at once (`DataFeed.columns`), or TensorFlow takes them itself
(`DataFeed.dataset`).

When a feeder dies and is tried again, rows come again that had come before: each comes at least once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import columns as _columns

if TYPE_CHECKING:
    import tensorflow as tf


class DataFeed:
    """The rows that come in. `mgr` has the hub as `mgr.hub`; where it has a descriptor to be heard meanwhile, too, that
    is `mgr.fileno()`, and `mgr.hear()` is called when something has come there."""

    def __init__(
        self,
        mgr: Any,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
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
        found = (
            _columns.stack_rows(columns)
            if shape == "*"
            else _columns.nest_arrays(shape, [_columns.array_of(column, rows) for column in columns])
        )
        if self.input_tensors is None:
            return found
        parts: Sequence[Any] = list(found.values()) if isinstance(found, dict) else found
        return {
            tensor: parts[i] if rows else _columns.numpy_module().empty(0)
            for i, tensor in enumerate(self.input_tensors)
        }

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
