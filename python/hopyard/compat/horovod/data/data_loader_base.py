# SPDX-License-Identifier: Apache-2.0
"""Loaders of batches, optionally in a separate thread."""

import queue
import threading
from collections.abc import Iterator
from typing import Any


class BaseDataLoader:
    """Subclasses define the length and the iteration."""

    def __len__(self) -> int:
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        yield from map(self._process_batch, self._iterate())

    def _process_batch(self, batch: Any) -> Any:
        """Called for each batch when it is taken."""
        return batch


class AsyncDataLoaderMixin:
    """A mix-in for a BaseDataLoader: a thread loads up to `async_loader_queue_size` batches ahead; 0: none does.

    The thread begins with the next epoch when one has been taken, until close_async_loader().
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        super().__init__(*args, **kwargs)
        if async_loader_queue_size > 0:
            self.finished_event = threading.Event()
            self.queue: queue.Queue[Any] = queue.Queue(async_loader_queue_size)
            self.thread = threading.Thread(target=self._async_worker, daemon=True)
            self.started = False

    def close_async_loader(self) -> None:
        """Ends the thread; loaded batches are discarded."""
        if self.async_loader_queue_size <= 0 or not self.started:
            return
        self.finished_event.set()
        while self.thread.is_alive():
            try:
                self.queue.get(timeout=0.1)  # the thread may wait for room
            except queue.Empty:
                continue
        self.thread.join()

    def _epoch(self) -> None:
        for batch in self._iterate():  # type: ignore[attr-defined]
            if self.finished_event.is_set():
                return
            self.queue.put(batch)

    def _async_worker(self) -> None:
        try:
            while not self.finished_event.is_set():
                self._epoch()
                self.queue.put(None)
        except Exception as error:  # passed to the consumer
            self.queue.put(error)

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        if not self.started:
            self.started = True
            self.thread.start()
        while (batch := self.queue.get()) is not None:
            if isinstance(batch, Exception):
                raise batch
            yield self._process_batch(batch)  # type: ignore[attr-defined]
