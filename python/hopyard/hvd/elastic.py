# SPDX-License-Identifier: Apache-2.0
"""Elastic training: it continues when ranks are lost, and accepts new ones.

    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    @hvd.elastic.run
    def train(state):
        model.fit(..., callbacks=[hvd.elastic.CommitStateCallback(state), ...])

    train(state)

When a rank is lost, the others restore their last commit, form a new group, copy the state of its rank 0 (which is
never a new rank) and call the function again. When new ranks wait, the same happens at the next commit, without a loss.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy

import tensorflow as tf

from .. import _hopyard, collective, hvd
from .._base.errors import Error
from ._basics import is_elastic
from ._rate import Rate
from ._variables import build, of_optimizer
from .callbacks import _Callback
from .exceptions import HorovodInternalError, HostsUpdatedInterrupt

__all__ = [
    "CommitStateCallback", "KerasState", "ObjectState", "State", "TensorFlowKerasState", "TensorFlowState",
    "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run",
]  # fmt: skip

_OUTDATED = 7  # of group_query

# ---- the loop ---------------------------------------------------------------------------------


def is_loss(error: BaseException) -> bool:
    """Whether an error means that a rank is lost: Horovod's, the group's, or that of TensorFlow's ops."""
    if isinstance(error, _hopyard.GroupError):
        return bool(error.kind == "lost")
    if isinstance(error, tf.errors.UnknownError):
        return "Horovod" in error.message or "Hopyard" in error.message
    return isinstance(error, HorovodInternalError)


def _is_over() -> bool:
    """A training that was not started as elastic fails with its first loss."""
    launched = hvd.is_initialized() and hvd.size() > 1  # by mpirun or srun, where $HOPYARD_GROUP is not set
    return ("HOPYARD_GROUP" in os.environ or launched) and not is_elastic()


def _limit() -> int | None:
    """How often the ranks may change; None: no limit."""
    text = os.environ.get("HOPYARD_RESET_LIMIT")
    return int(text) if text else None


def _tell_environment() -> None:
    """Updates the environment variables of the new group, which other processes and libraries read."""
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        os.environ[f"HOROVOD_{name.upper()}"] = str(getattr(hvd, name)())


def _new_group() -> None:
    hvd.shutdown()
    hvd.init()
    _tell_environment()


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Calls `func(state, ...)` again, with the last commit and a new group, whenever the ranks change."""

    @functools.wraps(func)
    def wrapper(state: "State", *args: Any, **kwargs: Any) -> Any:
        resets, limit, renew, sync = 0, _limit(), False, True
        while True:
            try:
                if renew:
                    reset()
                    state.on_reset()
                    renew = False
                if sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt as interrupt:
                why: Exception = interrupt
                sync = not interrupt.skip_sync
            except Exception as error:
                if not is_loss(error) or _is_over():
                    raise
                why = error
                state.restore()
                sync = True
            if resets == limit:
                raise Error(f"the ranks have changed {resets} times, which is the limit: {why}") from why
            resets, renew = resets + 1, True

    return wrapper


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the function gets the state first, and is called again whenever the ranks change."""
    return run_fn(func, _new_group)


# ---- states -----------------------------------------------------------------------------------


class State:
    """The state that all ranks share: it is saved, restored and sent to new ranks."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._told = False
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], Any]]) -> None:
        """Registers callbacks that run when the ranks have changed, before the function is called again."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self._told = False
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        self._told = True

    def commit(self) -> None:
        """Saves the state, and accepts new ranks if there are some: then it raises HostsUpdatedInterrupt."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, on all ranks at once, if one of them was notified of a change."""
        outdated = self._told or bool(_hopyard.group_query(_OUTDATED))
        if collective.size() > 1:
            known = numpy.array([outdated], numpy.uint8)
            outdated = bool(collective.allreduce(known, op=collective.Max, name="elastic.outdated")[0])
        if outdated:
            raise HostsUpdatedInterrupt

    def save(self) -> None:
        """Saves the current state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restores the last saved state."""
        raise NotImplementedError

    def sync(self) -> None:
        """Copies the state of rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """Discards what belongs to the previous group."""


class ObjectState(State):
    """Python objects, each an attribute of the state."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = kwargs
        self._set_attrs()

    def save(self) -> None:
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        self._set_attrs()

    def sync(self) -> None:
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attrs()

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)


class _VariableState(ObjectState):
    """Variables and Python objects, saved in host memory."""

    def __init__(self, session: Any = None, **kwargs: Any) -> None:
        self.session = session
        self._values: list[Any] = []
        bcast = hvd.broadcast_object if session is None else hvd.broadcast_object_fn(session=session)
        super().__init__(bcast, hvd.rank, **kwargs)
        self._save_variables()

    def _variables(self) -> list[Any]:
        raise NotImplementedError

    def _broadcast(self) -> None:
        hvd.broadcast_variables(self._variables(), root_rank=0)

    def _save_variables(self) -> None:
        variables = self._variables()
        self._values = [v.numpy() for v in variables] if self.session is None else self.session.run(variables)

    def _restore_variables(self) -> None:
        for variable, value in zip(self._variables(), self._values):
            if self.session is None:
                variable.assign(value)
            else:
                variable.load(value, self.session)

    def save(self) -> None:
        self._save_variables()
        super().save()

    def restore(self) -> None:
        self._restore_variables()
        super().restore()

    def sync(self) -> None:
        self._broadcast()
        self._save_variables()
        super().sync()


class TensorFlowState(_VariableState):
    """A list of variables (default: all global ones) and Python objects. In a graph it needs the session."""

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        self.variables = list(variables or tf.compat.v1.global_variables())
        if not tf.executing_eagerly():
            session = session or tf.compat.v1.get_default_session()
            self._op = hvd.broadcast_variables(self.variables, root_rank=0)
        super().__init__(session=session, **kwargs)

    def _variables(self) -> list[Any]:
        return self.variables

    def _broadcast(self) -> None:
        if self.session is None:
            super()._broadcast()
        else:
            self.session.run(self._op)


class TensorFlowKerasState(_VariableState):
    """A built model, its optimizer, and Python objects."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not getattr(model, "built", True):
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        self.backend = backend
        build(self.optimizer, model.trainable_variables)
        super().__init__(**kwargs)

    def _variables(self) -> list[Any]:
        return [*self.model.weights, *of_optimizer(self.optimizer)]

    def reset(self) -> None:
        """Functions traced for the previous group may contain its size."""
        for name in ("train_function", "test_function", "predict_function", "train_tf_function"):
            if hasattr(self.model, name):
                setattr(self.model, name, None)


class KerasState(TensorFlowKerasState):
    """The name in horovod.tensorflow.keras and horovod.keras."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer=optimizer, **kwargs)


# ---- callbacks --------------------------------------------------------------------------------


class CommitStateCallback(_Callback):
    """Commits every `batches_per_commit` batches, and at the end of an epoch."""

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_remaining = self.batches_per_commit  # all ranks count from here, new ones too

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.commit()


class UpdateBatchStateCallback(_Callback):
    """Stores the number of the last batch in `state.batch`: 0 at the end of an epoch."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        steps = self.params.get("steps")
        if steps:
            self.steps_per_epoch = self.steps_per_epoch or steps
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback(_Callback):
    """Counts epochs in `state.epoch`, over all calls of `fit`. Reports `examples_per_second` for each."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch
        self._rate = Rate()

    def on_train_begin(self, logs: Any = None) -> None:
        self.initial_epoch = self.state.epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._rate.begin()

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        self._rate.batch()

    def on_test_begin(self, logs: Any = None) -> None:
        self._rate.count(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self.initial_epoch + epoch + 1
        self._rate.count(self.model)
        self._rate.tell(self.state.epoch - 1)
