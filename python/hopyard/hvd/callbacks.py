# SPDX-License-Identifier: Apache-2.0
"""Callbacks for `fit`, of Keras 3 and of the Keras before it (tf_keras, tf.keras up to 2.15).

They derive from tf.keras's Callback, whichever Keras that is, and serve models of the other one as well.
"""

from collections.abc import Callable, Collection
from typing import Any

import numpy

import tensorflow as tf

from .. import collective, hvd
from .._base.errors import Error
from ._rate import Rate
from ._tf import native
from ._variables import of_optimizer

__all__ = [
    "BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
    "LearningRateWarmupCallback", "MetricAverageCallback",
]  # fmt: skip


class _Callback(tf.keras.callbacks.Callback):
    """Methods that tf_keras expects of callbacks, and Keras 3 does not."""

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False


# ---- variables and metrics --------------------------------------------------------------------


class BroadcastGlobalVariablesCallback(_Callback):
    """Broadcasts the variables of one rank after the first batch, when the optimizer has created its variables.

    It also reports `examples_per_second` for each epoch, where this process is a rank of `hopyard train`.
    """

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Any | Collection[Any] | None = None
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local: dict[int, Any] = {}
        self._rate = Rate()
        if local_variables is None:
            return
        is_one = hasattr(local_variables, "assign")
        for variable in [local_variables] if is_one else local_variables:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable from the broadcast."""
        if not hasattr(var, "assign"):
            raise ValueError(f"{var!r:.60} is not a variable")
        self._local[id(native(var))] = var

    def _broadcast(self) -> None:
        if not tf.executing_eagerly():
            session = tf.compat.v1.keras.backend.get_session()
            session.run(hvd.broadcast_global_variables(self.root_rank))
            return
        variables = [v for v in self.model.weights if id(native(v)) not in self._local]
        hvd.broadcast_variables([*variables, *of_optimizer(self.model.optimizer)], root_rank=self.root_rank)

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        self._rate.batch()
        if not self.broadcast_done:
            with tf.device(self.device):
                self._broadcast()
            self.broadcast_done = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._rate.begin()

    def on_test_begin(self, logs: Any = None) -> None:
        self._rate.count(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._rate.count(self.model)
        self._rate.tell(epoch)


class MetricAverageCallback(_Callback):
    """Averages an epoch's metrics over all ranks, for the callbacks after it."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not logs:
            return
        names = sorted(logs)
        values = [numpy.asarray(logs[name], numpy.float64) for name in names]
        # The metrics are in the request's name: if ranks have different metrics, the error names them.
        averages = collective.grouped_allreduce(
            values, op=collective.Average, name=f"MetricAverageCallback({', '.join(names)})"
        )
        logs.update({name: mean if mean.ndim else float(mean) for name, mean in zip(names, averages)})


# ---- the learning rate ------------------------------------------------------------------------


def _number(value: Any) -> float:
    return float(value if tf.executing_eagerly() else tf.compat.v1.keras.backend.get_value(value))


def _inner(optimizer: Any) -> Any:
    """The optimizer inside of a LossScaleOptimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _velocities(optimizer: Any, model: Any) -> list[Any]:
    """The momentum of SGD and RMSprop contains the learning rate, which must be changed there too.

    Before the first step there are no momentum variables. A model of tf_keras may have no variables then, and raises.
    """
    optimizer = _inner(optimizer)
    if not {cls.__name__ for cls in type(optimizer).__mro__} & {"SGD", "RMSprop"}:
        return []
    if hasattr(optimizer, "get_slot_names"):  # an optimizer of Keras before 2.11
        if "momentum" not in optimizer.get_slot_names():
            return []
        return [optimizer.get_slot(variable, "momentum") for variable in model.trainable_variables]
    return list(getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or ())


class LearningRateScheduleCallback(_Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)` from `start_epoch` until before `end_epoch`.

    A number as multiplier is a decay: `multiplier ** epochs` since `start_epoch`. With `staircase` the rate changes at
    the beginning of an epoch, otherwise of a batch, and the epoch is a fraction. Momentum is corrected when the rate
    changes ("Accurate, Large Minibatch SGD"): the momentum accumulated at the old rate is scaled to the new one.
    """

    def __init__(
        self, initial_lr: float, multiplier: float | Callable[[float], float], start_epoch: int = 0,
        end_epoch: int | None = None, staircase: bool = True, momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0

    def _steps(self) -> int:
        steps = self.params.get("steps")
        if steps:
            return int(steps)
        name = type(self).__name__
        raise ValueError(
            f"the number of steps in an epoch is unknown; pass steps_per_epoch to {name}()"
        )

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old = _number(optimizer.learning_rate)
        new = self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        if not self.momentum_correction or not old or new == old:
            return
        for velocity in _velocities(optimizer, self.model):
            velocity.assign(velocity * (new / old))

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._steps()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._adjust(epoch + batch / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._adjust(epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["lr"] = _number(self.model.optimizer.learning_rate)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr`, batch by batch, in `warmup_epochs`."""

    def __init__(
        self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True,
        steps_per_epoch: int | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        def multiplier(epoch: float) -> float:
            size = hvd.size()
            done = epoch + 1 / (self.steps_per_epoch or 1)  # a whole number at the end of an epoch
            return (done * (size - 1) / warmup_epochs + 1) / size

        super().__init__(
            initial_lr, multiplier, end_epoch=warmup_epochs, staircase=False,
            momentum_correction=momentum_correction, steps_per_epoch=steps_per_epoch,
        )  # fmt: skip
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch + 1 == self.end_epoch and self.verbose and hvd.rank() == 0:
            rate = _number(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


# ---- checkpoints ------------------------------------------------------------------------------


class BestModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """A ModelCheckpoint that keeps only the best model. Its path is set later: `callback.filepath = "best.keras"`."""

    def __init__(
        self, monitor: str = "val_loss", verbose: int = 0, save_weights_only: bool = False, mode: str = "auto",
        save_freq: str | int = "epoch", filepath: Any = None,
    ) -> None:  # fmt: skip
        placeholder = "best.weights.h5" if save_weights_only else "best.keras"  # Keras 3 checks the suffix
        super().__init__(
            filepath or placeholder, monitor=monitor, verbose=verbose, save_best_only=True,
            save_weights_only=save_weights_only, mode=mode, save_freq=save_freq,
        )  # fmt: skip
        if filepath is None:
            self.filepath = None

    def on_train_begin(self, logs: Any = None) -> None:
        if self.filepath is None:
            raise Error("BestModelCheckpoint has no path for the model; set its `filepath`")
        super().on_train_begin(logs)
