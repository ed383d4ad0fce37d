# SPDX-License-Identifier: Apache-2.0
"""hopyard.hvd.callbacks with a group of one: for models of Keras 3 and of tf_keras, whichever Keras tf.keras is."""

import os

import keras
import numpy as np
import pytest

import hopyard
import hopyard.hvd as hvd
import tensorflow as tf
from hopyard.hvd import _rate

try:
    import tf_keras
except ImportError:  # TensorFlow before 2.16 has its own
    tf_keras = tf.keras

X = np.arange(1, 9, dtype=np.float32).reshape(8, 1) / 8
Y = 3 * X


@pytest.fixture(autouse=True)
def group():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(params=["keras", "tf_keras"])
def kit(request):
    return {"keras": keras, "tf_keras": tf_keras}[request.param]


def line(kit, optimizer, **compiled):
    """y = wx, beginning at w = 0."""
    model = kit.Sequential([kit.Input((1,)), kit.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(optimizer, "mse", **compiled)
    return model


def fit(model, *callbacks, epochs=3, **given):
    given = {"batch_size": 4, "shuffle": False, "verbose": 0, **given}
    return model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **given).history


def weight(model):
    return float(model.get_weights()[0][0, 0])


def by_hand(rates, momentum):
    """What Horovod does: `momentum` is momentum * new / old in the batch in which the rate changes."""
    w, v, old = 0.0, 0.0, rates[0]
    for step, rate in enumerate(rates):
        x, y = (X[:4], Y[:4]) if step % 2 == 0 else (X[4:], Y[4:])
        gradient = float(np.mean(2 * (w * x - y) * x))
        v = momentum * rate / old * v - rate * gradient
        w, old = w + v, rate
    return w


# ---- the learning rate ------------------------------------------------------------------------


def optimizers(kit):
    yield kit.optimizers.SGD(0.1, momentum=0.9)
    if hasattr(kit.optimizers, "legacy") and hasattr(kit.optimizers.legacy, "SGD") and kit is tf_keras:
        yield kit.optimizers.legacy.SGD(0.1, momentum=0.9)


def test_a_staircase_changes_the_rate_with_each_epoch_and_corrects_momentum(kit):
    for optimizer in optimizers(kit):
        model = line(kit, optimizer)
        history = fit(model, hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5**epoch))
        assert history["lr"] == pytest.approx([0.1, 0.05, 0.025])
        assert weight(model) == pytest.approx(by_hand([0.1, 0.1, 0.05, 0.05, 0.025, 0.025], 0.9), rel=1e-5)


def test_without_correction_momentum_stays_as_it_is(kit):
    model = line(kit, kit.optimizers.SGD(0.1, momentum=0.9))
    fit(model, hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5, momentum_correction=False))
    corrected = by_hand([0.1, 0.1, 0.05, 0.05, 0.025, 0.025], 0.9)
    assert abs(weight(model) - corrected) > 1e-3


def test_a_number_decays_from_its_first_epoch_to_before_its_last(kit):
    model = line(kit, kit.optimizers.SGD(1.0))
    history = fit(model, hvd.callbacks.LearningRateScheduleCallback(1.0, 0.1, start_epoch=1, end_epoch=3), epochs=4)
    assert history["lr"] == pytest.approx([1.0, 1.0, 0.1, 0.1])


def test_without_a_staircase_the_rate_changes_with_each_batch(kit):
    epochs = []
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda e: epochs.append(e) or 1.0, staircase=False)
    fit(line(kit, kit.optimizers.SGD(0.1)), schedule, epochs=2)
    assert epochs == [0, 0.5, 1, 1.5]


def test_the_steps_of_an_epoch_must_be_known_or_given(kit):
    data = tf.data.Dataset.from_tensor_slices((X, Y)).filter(lambda x, y: True).batch(4)
    schedule = {"initial_lr": 0.1, "multiplier": lambda epoch: 1.0, "staircase": False}
    with pytest.raises(ValueError, match="steps_per_epoch"):
        line(kit, "sgd").fit(data, verbose=0, callbacks=[hvd.callbacks.LearningRateScheduleCallback(**schedule)])
    given = hvd.callbacks.LearningRateScheduleCallback(**schedule, steps_per_epoch=2)
    line(kit, "sgd").fit(data, verbose=0, callbacks=[given])


def test_a_model_that_is_built_by_its_first_batch_is_scheduled_as_well(kit):
    for optimizer in optimizers(kit):
        model = kit.Sequential([kit.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        distributed = hvd.DistributedOptimizer(optimizer)  # the first one makes compile() accept the argument
        model.compile(distributed, "mse", experimental_run_tf_function=False)
        history = fit(model, hvd.callbacks.LearningRateScheduleCallback(0.05, lambda epoch: 0.5**epoch))
        assert history["lr"] == pytest.approx([0.05, 0.025, 0.0125])
        assert weight(model) == pytest.approx(by_hand([0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125], 0.9), rel=1e-5)


def test_a_schedule_needs_a_rate_to_begin_with():
    with pytest.raises(ValueError, match="initial_lr"):
        hvd.callbacks.LearningRateScheduleCallback(None, 1.0)


def test_one_rank_needs_no_warmup(kit, capsys):
    warm_up = hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2, verbose=1)
    assert fit(line(kit, kit.optimizers.SGD(0.1)), warm_up)["lr"] == pytest.approx([0.1] * 3)
    assert capsys.readouterr().out == "\nEpoch 2: finished gradual learning rate warmup to 0.1.\n"


# ---- variables and metrics --------------------------------------------------------------------


def test_variables_are_broadcast_after_the_first_batch(kit):
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    seen = []
    watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(callback.broadcast_done))
    model = line(keras, keras.optimizers.Adam(0.1)) if kit is keras else line(kit, kit.optimizers.Adam(0.1))
    fit(model, callback, *([watch] if kit is keras else []), epochs=1)
    assert callback.broadcast_done and (not seen or seen == [True, True])


def test_local_variables_are_variables(kit):
    model = line(kit, "sgd")
    hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=model.trainable_variables)
    hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=model.trainable_variables[0])
    with pytest.raises(ValueError, match="is not a variable"):
        hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=["kernel"])


def test_averaged_metrics_stay_numbers_for_later_callbacks(kit):
    seen = []

    class Later(kit.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(dict(logs))

    history = fit(line(kit, "sgd", metrics=["mae"]), hvd.callbacks.MetricAverageCallback(), Later(), epochs=2)
    assert [logs["loss"] for logs in seen] == history["loss"] and all(type(v) is float for v in history["mae"])


# ---- examples per second ------------------------------------------------------------------------


class Told(list):
    def __call__(self, step, **values):
        self.append((step, *values))


@pytest.fixture
def told(monkeypatch):
    told = Told()
    monkeypatch.setattr(_rate, "report", told)
    monkeypatch.setenv("HOPYARD_GROUP", "1")
    return told


def rate_of(model, **given):
    """The examples that were counted in each epoch."""
    counted = []
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    tell = callback._rate.tell
    callback._rate.tell = lambda epoch: (counted.append(callback._rate.examples), tell(epoch))
    fit(model, callback, **given)
    return counted


def test_examples_are_counted_in_each_epoch_without_the_validation(kit, told):
    assert rate_of(line(kit, "sgd"), batch_size=3, validation_data=(X[:2], Y[:2])) == [8, 8, 8]
    assert told == [(epoch, "examples_per_second") for epoch in range(3)]


def test_batches_are_not_counted_as_examples(kit, told):
    """A model with a step of its own counts what it likes."""

    class Own(kit.Model):
        def __init__(self):
            super().__init__()
            self.tracker, self.dense = kit.metrics.Mean(name="loss"), kit.layers.Dense(1)

        @property
        def metrics(self):
            return [self.tracker]

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            self.tracker.update_state(1.0)
            return {"loss": self.tracker.result()}

    model = Own()
    model.compile("sgd")
    model(X[:1])
    rate_of(model)
    assert told == []


def test_outside_of_a_training_nothing_is_reported(kit, told):
    del os.environ["HOPYARD_GROUP"]
    rate_of(line(kit, "sgd"))
    assert told == []


# ---- checkpoints ------------------------------------------------------------------------------


def test_best_model_is_saved_to_a_path_set_later(tmp_path):
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    assert best.filepath is None and best.save_best_only
    with pytest.raises(hopyard.Error, match="set its `filepath`"):
        fit(line(tf.keras, "sgd"), best)
    best.filepath = str(tmp_path / "best.keras")
    model = line(tf.keras, "sgd")
    fit(model, best)
    assert weight(tf.keras.models.load_model(best.filepath)) == pytest.approx(weight(model))
