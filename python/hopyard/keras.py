# SPDX-License-Identifier: Apache-2.0
"""A Keras callback that reports the values of every epoch to the run.

    import hopyard.keras

    model.fit(x, y, validation_split=0.2, epochs=10, callbacks=[hopyard.keras.Report()])

It works with Keras 3 and any backend, tf_keras and the tf.keras of older TensorFlows, and imports none of them.
"""

from collections.abc import Mapping
from typing import Any

from ._base.metrics import number
from ._trial.report import send

__all__ = ["Report"]

_AT_ONCE = 64  # the maximum number of values in one report


class Report:
    """Reports all logs of every epoch: loss, val_loss, accuracy, ..., with the epoch as their step.

    They appear in the live table, in TensorBoard, and in the trial's `metrics`. With `metric="val_accuracy"` its last
    value is the metric if the function returns nothing. The training of a trial that is stopped early (the setting
    `stop`) ends. Outside of a trial this does nothing.
    """

    # Keras does not require a base class, only these names.
    params: Mapping[str, Any] | None = None
    model: Any = None
    async_safe = True  # Keras 3: the batch methods do nothing

    def set_params(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def set_model(self, model: Any) -> None:
        self.model = model

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        values = [(name, value) for name, value in (logs or {}).items() if number(value) is not None]
        for at in range(0, len(values), _AT_ONCE):
            if send(epoch, dict(values[at : at + _AT_ONCE])).should_end and self.model is not None:
                self.model.stop_training = True

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """All other callback methods."""

    on_epoch_begin = on_batch_begin = on_batch_end = _nothing
    on_train_begin = on_train_end = on_train_batch_begin = on_train_batch_end = _nothing
    on_test_begin = on_test_end = on_test_batch_begin = on_test_batch_end = _nothing
    on_predict_begin = on_predict_end = on_predict_batch_begin = on_predict_batch_end = _nothing

    def _implements_no_batch_hooks(self) -> bool:
        return False

    # tf_keras
    _implements_train_batch_hooks = _implements_test_batch_hooks = _implements_no_batch_hooks
    _implements_predict_batch_hooks = _implements_no_batch_hooks
