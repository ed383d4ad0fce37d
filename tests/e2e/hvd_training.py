# SPDX-License-Identifier: Apache-2.0
"""On two ranks: trainings give the same result as in one process on the same global batch. See promises.py.

    python hvd_training.py FOLDER keras|tf_keras|tf.keras
"""
from __future__ import annotations

import functools
import importlib
import re
import sys
import tempfile
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from promises import keep

import hopyard.hvd as hvd

keras: Any = tf.keras if sys.argv[2] == "tf.keras" else importlib.import_module(sys.argv[2])
IS_KERAS3 = keras.__version__.startswith("3")
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BATCH, STEPS, CLASSES = 16, 6, 3
data = np.random.default_rng(7)
X = data.normal(size=(BATCH * STEPS, 8)).astype(np.float32)
Y = data.integers(0, CLASSES, BATCH * STEPS)
MY = np.arange(len(X)).reshape(STEPS, SIZE, BATCH // SIZE)[:, RANK].reshape(-1)  # this rank's part of each batch
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "faster sgd": lambda: keras.optimizers.SGD(0.2),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "clipped": lambda: keras.optimizers.SGD(0.5, clipnorm=0.05),
    "scheduled": lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.02, 2, 0.5)),
}
if not IS_KERAS3:
    OPTIMIZERS["legacy"] = lambda: keras.optimizers.legacy.Adam(0.01)


def model(*first: Any) -> Any:
    keras.utils.set_random_seed(5)
    made = keras.Sequential([*first, keras.layers.Dense(16, activation="relu"), keras.layers.Dense(CLASSES)])
    made.build((None, 8))
    return made


def loss() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def fit(made: Any, optimizer: Any, x: Any, y: Any, batch: int, **given: Any) -> Any:
    made.compile(optimizer, loss=loss(), **given)
    made.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    return made


@functools.cache
def alone(name: str) -> list[np.ndarray]:
    """The weights after a training by rank 0 alone, on all data. Keras numbers models: the others have one, too."""
    made, optimizer = model(), OPTIMIZERS[name]()
    if RANK == 0:
        fit(made, optimizer, X, Y, BATCH)
    return hvd.broadcast_object(made.get_weights(), root_rank=0)


@functools.cache
def untrained() -> list[np.ndarray]:
    return model().get_weights()


def together(optimizer: Any, **given: Any) -> Any:
    """On this rank's part of the data."""
    return fit(model(), optimizer, X[MY], Y[MY], BATCH // SIZE, **given)


def close(weights: list[np.ndarray], b: Any, rtol: float = 1e-4) -> None:
    """Equal up to float rounding, not because nothing was learned; bitwise equal on all ranks."""
    for mine, theirs, before in zip(weights, b.get_weights(), untrained(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-5)
        assert np.abs(mine - before).max() > 1e-4
    everyones = hvd.allgather_object([w.tobytes() for w in b.get_weights()])
    assert all(each == everyones[0] for each in everyones)


def raises(kind: type[Exception], fn: Callable[[], Any], *words: str) -> None:
    try:
        fn()
    except kind as error:
        assert all(re.search(word, str(error)) for word in words), f"{words} not in: {error}"
        return
    raise AssertionError(f"no {kind.__name__}")


# ---- the same as in one process -------------------------------------------------------------

def test_fit_equals_one_process() -> None:
    for name, optimizer in OPTIMIZERS.items():
        print(name, flush=True)
        made = together(hvd.DistributedOptimizer(optimizer()))
        close(alone(name), made)
        assert int(made.optimizer.iterations) == STEPS


def loop(made: Any, wrap_tape: bool, optimizer: Any, in_graph: bool) -> Any:
    cost = loss()

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            value = cost(y, made(x, training=True))
        tape = hvd.DistributedGradientTape(tape) if wrap_tape else tape
        variables = made.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))

    run = tf.function(step) if in_graph else step
    for n in range(STEPS):
        part = MY[n * BATCH // SIZE : (n + 1) * BATCH // SIZE]
        run(tf.constant(X[part]), tf.constant(Y[part]))
    return made


def test_custom_loop_with_a_distributed_tape_equals_one_process() -> None:
    for name in ("sgd", "momentum", "adam"):
        want = alone(name)
        for in_graph in (False, True):
            close(want, loop(model(), True, OPTIMIZERS[name](), in_graph))


def test_custom_loop_with_a_distributed_optimizer_equals_one_process() -> None:
    for name in ("sgd", "momentum", "adam"):
        want = alone(name)
        for in_graph in (False, True):
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS[name]())
            close(want, loop(model(), not IS_KERAS3, optimizer, in_graph))


def test_a_gradient_is_reduced_once() -> None:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Average)
    made = model()
    variables = made.trainable_variables
    with tf.GradientTape() as tape:
        value = sum(tf.reduce_sum(tf.convert_to_tensor(v)) * (RANK + 1.0) for v in variables)
    gradients = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(value, variables)
    before = made.get_weights()
    optimizer.apply_gradients(zip(gradients, variables))
    for old, new in zip(before, made.get_weights()):
        np.testing.assert_allclose(new, old - 0.3, rtol=1e-5, atol=1e-6)


# ---- options --------------------------------------------------------------------------------

def test_all_reduction_options_give_the_same_result() -> None:
    want = alone("sgd")
    variables = model().trainable_variables
    ways: list[dict[str, Any]] = [
        {"groups": 2}, {"num_groups": 3}, {"gradient_predivide_factor": 2.0}, {"sparse_as_dense": True},
        {"groups": [[variables[0], variables[3]]]}, {"name": "mine"}, {"device_dense": "/cpu:0"},
    ]
    for way in ways:
        print(way, flush=True)
        close(want, together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **way)))
    close(want, together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=hvd.Compression.fp16)), 3e-2)
    close(alone("faster sgd"), together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Sum)))
    raises(ValueError, lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Max), "Average and Sum")
    raises(ValueError, lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=0), "groups")
    raises(ValueError, lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD())), "already")


def test_fit_is_the_same_eagerly_and_with_several_steps_per_execution() -> None:
    want = alone("adam")
    for way in ({"run_eagerly": True}, {"steps_per_execution": 3}):
        close(want, together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), **way))


def test_backward_passes_are_summed_before_the_reduction() -> None:
    for optimizer in ("sgd", "momentum"):  # Adam counts backward passes, as with Horovod
        want = fit(model(), OPTIMIZERS[optimizer](), X, Y, 2 * BATCH).get_weights()
        order = np.arange(len(X)).reshape(STEPS // 2, SIZE, BATCH)[:, RANK].reshape(-1)
        wrapped = hvd.DistributedOptimizer(OPTIMIZERS[optimizer](), backward_passes_per_step=2,
                                           average_aggregated_gradients=True)
        made = fit(model(), wrapped, X[order], Y[order], BATCH // 2)
        close(want, made)
        assert int(made.optimizer.iterations) == STEPS


def test_local_layers_keep_their_gradients() -> None:
    made = model()
    wrapped = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=made.layers[0])
    fit(made, wrapped, X[MY], Y[MY], BATCH // SIZE)
    local, common = (hvd.allgather_object([w.tobytes() for w in layer.get_weights()]) for layer in made.layers)
    assert local[0] != local[1]
    x = tf.Variable([1.0])
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(x * (RANK + 1.0))
    tape = hvd.PartialDistributedGradientTape(tape)
    tape.register_local_source(x)
    assert tape.gradient(value, [x])[0].numpy().tolist() == [(RANK + 1) / 2]


def test_sparse_gradients_of_an_embedding_equal_one_process() -> None:
    words = data.integers(0, 20, (BATCH * STEPS, 4)) if RANK == 0 else None
    words = hvd.broadcast_object(words)

    def made() -> Any:
        keras.utils.set_random_seed(1)
        return keras.Sequential([keras.layers.Embedding(20, 4), keras.layers.GlobalAveragePooling1D(),
                                 keras.layers.Dense(CLASSES)])

    for way in ({}, {"sparse_as_dense": True}):
        want = fit(made(), keras.optimizers.SGD(0.5), words, Y, BATCH)
        got = fit(made(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), **way), words[MY], Y[MY], BATCH // SIZE)
        for mine, theirs in zip(want.get_weights(), got.get_weights()):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_mixed_precision_scales_the_loss_equally_on_all_ranks() -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        bad = X[MY].copy()
        if RANK == 0:
            bad[: BATCH // SIZE] = np.inf  # the first batch, on one rank only
        made = fit(model(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), bad, Y[MY], BATCH // SIZE)
        optimizer = made.optimizer
        scale = float(optimizer.dynamic_scale.numpy() if IS_KERAS3 else optimizer.loss_scale.numpy())
        assert scale == 2.0**14 and hvd.allgather_object(scale) == [scale] * SIZE
        weights = hvd.allgather_object([w.tobytes() for w in made.get_weights()])
        assert weights[0] == weights[1] and all(np.isfinite(w).all() for w in made.get_weights())
    finally:
        keras.mixed_precision.set_global_policy("float32")


def test_sync_batch_normalization_uses_all_batches() -> None:
    def normalized(layer: Any, x: Any) -> tuple[Any, Any]:
        layer.build(x.shape)
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            value = tf.reduce_sum(y**3)
        return y.numpy(), tape.gradient(value, x).numpy()

    layer = hvd.sync_batch_norm.layer_class(keras)()
    y, slope = normalized(layer, X[MY])
    want = keras.layers.BatchNormalization(**({} if IS_KERAS3 else {"fused": False}))
    all_y, all_slopes = normalized(want, X)
    np.testing.assert_allclose(y, all_y[MY], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(slope, all_slopes[MY], rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(layer.get_weights()[2], want.get_weights()[2], rtol=1e-3, atol=1e-5)
    raises(ValueError, lambda: hvd.sync_batch_norm.layer_class(keras)(fused=True), "fused")


def test_variables_are_broadcast() -> None:
    made = model()
    made.set_weights([w + RANK for w in made.get_weights()])
    hvd.broadcast_variables(made.variables, root_rank=1)
    for mine, start in zip(made.get_weights(), model().get_weights()):
        np.testing.assert_allclose(mine, start + 1)
    optimizer = together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))).optimizer
    hvd.broadcast_variables(optimizer.variables, root_rank=0)
    hvd.broadcast_variables(optimizer.variables(), root_rank=0)  # as programs for older Keras do
    raises(RuntimeError, lambda: hvd.broadcast_global_variables(0), "eager")


def test_saved_model_loads_without_hvd() -> None:
    made = together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    with tempfile.TemporaryDirectory() as folder:
        made.save(f"{folder}/model.keras")
        loaded = keras.models.load_model(f"{folder}/model.keras")
    assert type(loaded.optimizer) is keras.optimizers.Adam
    assert int(loaded.optimizer.iterations) == STEPS


# ---- errors ---------------------------------------------------------------------------------

def test_xla_is_refused_with_a_message() -> None:
    raises(Exception, lambda: together(hvd.DistributedOptimizer(keras.optimizers.SGD()), jit_compile=True),
           "cannot be compiled by XLA", "jit_compile=False")


def test_mismatched_models_are_reported() -> None:
    keras.utils.set_random_seed(5)
    made = keras.Sequential([keras.layers.Dense(16 + RANK, name="wide"), keras.layers.Dense(CLASSES)])
    made.build((None, 8))
    raises(tf.errors.FailedPreconditionError,
           lambda: fit(made, hvd.DistributedOptimizer(keras.optimizers.SGD()), X[MY], Y[MY], 8),
           "wide/kernel", r"rank 0: float32 \[8, 16\]; rank 1: float32 \[8, 17\]")


def test_layer_frozen_on_one_rank_is_reported() -> None:
    made = model()
    made.layers[1].trainable = RANK == 0
    raises(tf.errors.FailedPreconditionError,
           lambda: fit(made, hvd.DistributedOptimizer(keras.optimizers.SGD()), X[MY], Y[MY], 8), "rank 1: nothing")


keep(globals(), RANK)
