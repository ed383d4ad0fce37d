# SPDX-License-Identifier: Apache-2.0
"""DataFeed: the rows that feeders send to a training process, as the training function reads them.

A feeder is another process on the same machine, for example a Spark task. Rows are columns in shared memory. They are
converted to Python objects (`DataFeed.next_batch`), to NumPy arrays (`DataFeed.columns`), or read by TensorFlow
directly (`DataFeed.dataset`).

Delivery is at least once: when a feeder dies and is retried, rows are sent again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import columns as _columns

if TYPE_CHECKING:
    import tensorflow as tf


class DataFeed:
    """A stream of rows. `mgr.hub` is the hub; if the manager has a descriptor to poll meanwhile, that is
    `mgr.fileno()`, and `mgr.handle_message()` is called when it is readable."""

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
        self.qname_out = qname_out  # unused: results go back to the feeder of the rows
        self.done_feeding = False
        self.datasets: list[int] = []  # their ids in the hub
        self.input_tensors = None if input_mapping is None else [tensor for _, tensor in sorted(input_mapping.items())]

    def next_batch(self, batch_size: int) -> list[Any] | dict[str, list[Any]]:
        """Up to `batch_size` rows: fewer at the end of the feed, and at the end of a partition that wants results. With
        an input mapping, a dict with a list for each tensor."""
        rows = self._rows(batch_size)
        if self.input_tensors is None:
            return rows
        return {tensor: [row[i] for row in rows] for i, tensor in enumerate(self.input_tensors)}

    def columns(self, batch_size: int) -> Any:
        """The same as NumPy arrays: a tuple, list or dict of arrays, like the rows; one array if rows are single
        values; with an input mapping a dict of tensors. Values whose length differs by row are an array of arrays.
        There are also fewer rows before a row of another shape."""
        rows, shape, columns, why = 0, "", [], ""
        while rows == 0 and not self.done_feeding:
            rows, shape, columns, why = self.mgr.hub.next_columns(max(batch_size, 1), **self._options())
            self._handle(why)
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
        """The same as a tf.data.Dataset, whose batches TensorFlow reads without Python. Ragged columns are
        tf.RaggedTensors. All batches have `batch_size` rows except the last one, and the last one of a partition that
        wants results.

        `signature`, a nest of tf.TensorSpec and tf.RaggedTensorSpec, describes the rows; numbers are cast if that is
        safe. Without it, this waits for the first rows, and all later rows must have the same types."""
        from . import dataset as _dataset

        return _dataset.make(self, batch_size, signature, drop_remainder)

    def should_stop(self) -> bool:
        """Whether the feed has ended."""
        self.done_feeding = self.done_feeding or any(self.mgr.hub.is_over(n) for n in self.datasets)
        return self.done_feeding

    def batch_results(self, results: Sequence[Any]) -> None:
        """Returns a result for each row that was taken, in order."""
        self.mgr.hub.results(results)

    def terminate(self) -> None:
        """Ends the feed: current and later feeders stop."""
        set_value = getattr(self.mgr, "set", None)
        if set_value is not None:
            set_value("state", "terminating")
        self.mgr.hub.terminate()
        self.done_feeding = True

    def _options(self) -> dict[str, Any]:
        fileno = getattr(self.mgr, "fileno", None)
        options = {"queue": self.qname_in, "stops": not self.train_mode}
        return options if fileno is None else {**options, "other": fileno()}

    def _handle(self, reason: str) -> None:
        if reason == "end":
            self.done_feeding = True
        elif reason == "other":
            self.mgr.handle_message()

    def _rows(self, batch_size: int) -> list[Any]:
        rows: list[Any] = []
        while len(rows) < batch_size and not self.done_feeding:
            more, why = self.mgr.hub.next_rows(batch_size - len(rows), **self._options())
            rows = rows + more if rows else more
            self._handle(why)
            if why == "partition" and rows:
                break
        return rows
