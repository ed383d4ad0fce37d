# SPDX-License-Identifier: Apache-2.0
"""What hopyard.hvd makes of a training step: its requests, and what each of them waits for."""

import pytest

import hopyard
import hopyard.hvd as hvd
import tensorflow as tf


@pytest.fixture
def group(monkeypatch):
    """A group of one that may grow: so its graphs have all that those of several ranks have."""
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    hvd.init()
    yield
    hvd.shutdown()


LAYERS = 6


def traced():
    """The graph of a step over some layers; the first is the one whose gradient comes last."""
    weights = [tf.Variable(tf.eye(8), name=f"layer{i}") for i in range(LAYERS)]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            for weight in weights:
                x = tf.tanh(x @ weight)
            loss = tf.reduce_sum(x)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
        for weight, gradient in zip(weights, gradients):
            weight.assign_sub(gradient)
        return loss

    step(tf.ones([2, 8]))
    return step.get_concrete_function(tf.ones([2, 8])).graph


def starts(graph):
    return [op for op in graph.get_operations() if op.type == "HopyardStart"]


def ancestors(op):
    seen, open_ = set(), [op]
    while open_:
        each = open_.pop()
        for before in [t.op for t in each.inputs] + list(each.control_inputs):
            if before.name not in seen:
                seen.add(before.name)
                open_.append(before)
    return seen


def test_a_bucket_waits_for_its_own_gradients_only(group, monkeypatch):
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "512")  # two gradients of 256 bytes
    first, second, third = starts(traced())
    own = {op: {t.op.name for t in op.inputs} for op in (first, second, third)}
    assert all(len(names) == 2 for names in own.values())
    assert not own[second] & ancestors(first) and not own[third] & ancestors(first)
    assert not own[third] & ancestors(second)


def test_one_op_waits_for_all_buckets(group, monkeypatch):
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "0")
    graph = traced()
    [wait] = [op for op in graph.get_operations() if op.type == "HopyardWait"]
    assert {t.op for t in wait.inputs} == set(starts(graph)) and len(wait.inputs) == LAYERS


def test_names_are_the_same_in_every_trace(group):
    def names():
        return [op.get_attr("tensor_name") for op in starts(traced())]

    assert names() == names()


def test_xla_is_an_error(group):
    with pytest.raises(hopyard.Error, match="cannot be compiled by XLA: pass jit_compile=False"):
        tf.function(lambda x: hvd.allreduce(x), jit_compile=True)(tf.ones([2]))


def test_keras_does_not_choose_xla_automatically(group, monkeypatch):
    """Where there is a GPU, jit_compile="auto" comes out as True."""
    import keras

    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    model = keras.Sequential([keras.layers.Dense(1)])
    wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD())
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda *_: [gpu])
    model.compile(keras.optimizers.SGD(), "mse")
    assert model.jit_compile
    model.compile(wrapped, "mse")
    assert not model.jit_compile
    model.compile(keras.optimizers.LossScaleOptimizer(wrapped), "mse")
    assert not model.jit_compile
