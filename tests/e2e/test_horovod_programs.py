# SPDX-License-Identifier: Apache-2.0
"""Programs from Horovod's documentation, unchanged, on two ranks of `hopyard train`.

They do not refer to hopyard; each prints its results as a line of JSON.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard, wait_for

KERAS = """
import json, os
import numpy as np
import sklearn.datasets
import tensorflow as tf
import horovod.tensorflow.keras as hvd

hvd.init()
gpus = tf.config.experimental.list_physical_devices('GPU')
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')

x, y = sklearn.datasets.load_digits(return_X_y=True)
x, y = (x / 16).astype('float32')[hvd.rank()::hvd.size()], y[hvd.rank()::hvd.size()]
dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(1000).batch(32)

model = tf.keras.Sequential([
    tf.keras.layers.InputLayer((64,)),
    tf.keras.layers.Dense(64, activation='relu'),
    tf.keras.layers.Dropout(0.1),
    tf.keras.layers.Dense(10, activation='softmax')])
scaled_lr = 0.1 * hvd.size()
opt = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(scaled_lr, momentum=0.9))
model.compile(loss='sparse_categorical_crossentropy', optimizer=opt, metrics=['accuracy'])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=2, verbose=1),
    hvd.callbacks.LearningRateScheduleCallback(initial_lr=scaled_lr, multiplier=0.1, start_epoch=3),
]
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint('checkpoint.keras'))
history = model.fit(dataset, steps_per_epoch=40, callbacks=callbacks, epochs=5, verbose=2 if hvd.rank() == 0 else 0).history

hvd.allreduce([0], name='Barrier')
loaded = hvd.load_model('checkpoint.keras')
steps = int(loaded.optimizer.iterations.numpy())
loaded.fit(dataset, steps_per_epoch=2, verbose=0)
again = hvd.allgather(loaded.get_weights()[0][:1])
print(json.dumps({
    'rank': hvd.rank(), 'size': hvd.size(), 'history': {k: [float(v) for v in vs] for k, vs in history.items()},
    'weights': float(np.sum(np.abs(model.get_weights()[0]))), 'steps': steps,
    'same': bool(np.allclose(again[0], again[1], atol=1e-6)), 'kind': type(loaded.optimizer).__name__}))
"""

EXAMPLE = """
import json, sys
import sklearn.datasets
import tensorflow as tf
import horovod
import horovod.tensorflow.keras as hvd


def train():
    hvd.init()
    gpus = tf.config.experimental.list_physical_devices('GPU')
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')

    digits = sklearn.datasets.load_digits()
    dataset = tf.data.Dataset.from_tensor_slices(
        (tf.cast(digits.images[..., tf.newaxis] / 16.0, tf.float32), tf.cast(digits.target, tf.int64)))
    dataset = dataset.repeat().shuffle(10000).batch(64)

    digits_model = tf.keras.Sequential([
        tf.keras.layers.Conv2D(8, [3, 3], activation='relu'),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Dropout(0.25),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10, activation='softmax')
    ])
    scaled_lr = 0.001 * hvd.size()
    opt = tf.optimizers.Adam(scaled_lr)
    opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)
    digits_model.compile(loss=tf.losses.SparseCategoricalCrossentropy(), optimizer=opt, metrics=['accuracy'],
                         experimental_run_tf_function=False)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(initial_lr=scaled_lr, multiplier=0.5, start_epoch=2),
    ]
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint('./checkpoint-{epoch}.h5'))
    verbose = 1 if hvd.rank() == 0 else 0
    history = digits_model.fit(dataset, steps_per_epoch=20 // hvd.size(), callbacks=callbacks, epochs=3, verbose=verbose)
    print()
    print(json.dumps({'rank': hvd.rank(), 'lr': [float(rate) for rate in history.history['lr']],
                      'weights': [float(w.sum()) for w in digits_model.get_weights()]}))


if __name__ == '__main__':
    train()
"""

LOOP = """
import json
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
x = np.random.RandomState(hvd.rank()).rand(256, 4).astype('float32')
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).repeat().batch(16)
w = tf.Variable(tf.random.normal([4, 1]))
b = tf.Variable([0.0])
opt = tf.keras.optimizers.Adam(0.05 * hvd.size())
checkpoint = tf.train.Checkpoint(w=w)

@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.squeeze(images @ w + b, 1) - labels) ** 2)
    tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
    grads = tape.gradient(loss, [w, b])
    opt.apply_gradients(zip(grads, [w, b]))
    if first_batch:
        hvd.broadcast_variables([w, b], root_rank=0)
        hvd.broadcast_variables(opt.variables, root_rank=0)
    return loss

for batch, (images, labels) in enumerate(dataset.take(100 // hvd.size())):
    loss = training_step(images, labels, batch == 0)
if hvd.rank() == 0:
    checkpoint.save('loop/ckpt')
evens = hvd.add_process_set([0])
print(json.dumps({
    'rank': hvd.rank(), 'loss': float(hvd.allreduce(loss)), 'weights': w.numpy().ravel().tolist(),
    'objects': hvd.allgather_object({'rank': hvd.rank()}), 'broadcast': hvd.broadcast_object('from %d' % hvd.rank(), root_rank=1),
    'included': evens.included(), 'joined': int(hvd.join())}))
"""

DATA_SERVICE = """
import json
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

hvd.init()
rank, size = hvd.rank(), hvd.size()
compute_config = TfDataServiceConfig.read('compute.json', wait_for_file_creation=True)

def dataset():
    return tf.data.Dataset.range(64).map(lambda x: 2 * x).batch(8)

def numbers(dataset):
    return [int(x) for batch in dataset.as_numpy_iterator() for x in batch]

if compute_config.dispatcher_side == 'compute':
    all_of_it = numbers(dataset().send_to_data_service(compute_config, rank, size).prefetch(tf.data.experimental.AUTOTUNE))
    shared = numbers(dataset().send_to_data_service(compute_config, rank, size, reuse_dataset=True))
else:
    with tf_data_service(compute_config, rank) as dispatcher_address:
        def served(job):
            return dataset().apply(tf.data.experimental.service.distribute(
                processing_mode='distributed_epoch', service=dispatcher_address, job_name=job))
        all_of_it, shared = numbers(served(None)), numbers(served('job'))
        hvd.allreduce(0, name='Barrier')
hvd.allreduce(0, name='Barrier')
if rank == 0:
    compute_config.compute_client(verbose=2).shutdown()
print(json.dumps({'rank': rank, 'all': sorted(all_of_it), 'shared': shared}))
"""

ELASTIC = """
import json, os, signal
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
x = np.random.RandomState(hvd.rank()).rand(64, 4).astype('float32')
model = tf.keras.Sequential([tf.keras.layers.InputLayer((4,)), tf.keras.layers.Dense(1)])
opt = tf.keras.optimizers.Adam(0.01 * hvd.size())

@tf.function
def train_one_batch(data):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(data, training=True) - tf.reduce_sum(data, 1, keepdims=True)) ** 2)
    tape = hvd.DistributedGradientTape(tape)
    opt.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

sizes = []

def on_state_reset():
    opt.learning_rate.assign(0.01 * hvd.size())
    sizes.append(hvd.size())

@hvd.elastic.run
def train(state):
    # until the dead rank is back, and a few more
    while len(state.sizes) < 3 or state.batch % 20:
        if state.batch == 7 and hvd.rank() == 1 and not os.path.exists('died'):
            open('died', 'w').close()
            os.kill(os.getpid(), signal.SIGKILL)
        train_one_batch(tf.constant(x[:32]))
        state.batch += 1
        if not state.sizes or state.sizes[-1] != hvd.size():
            state.sizes = state.sizes + [hvd.size()]
        if state.batch % 5 == 0:
            state.commit()

state = hvd.elastic.TensorFlowKerasState(model, opt, batch=0, sizes=[])
state.register_reset_callbacks([on_state_reset])
train(state)
print(json.dumps({'rank': hvd.rank(), 'sizes': state.sizes, 'batch': state.batch, 'resets': sizes,
                  'weights': np.concatenate([w.ravel() for w in model.get_weights()]).tolist(),
                  'environment': os.environ['HOROVOD_SIZE'], 'rate': float(opt.learning_rate.numpy())}))
"""


def output_of(yard: Yard, run: int = 1) -> list[dict[str, Any]]:
    """The last lines of two ranks, by rank."""
    lines = [Path(yard.logdir(run), f"rank={rank}", "stdout").read_text().splitlines()[-1] for rank in range(2)]
    return sorted((json.loads(line) for line in lines), key=lambda words: int(words["rank"]))


def train(yard: Yard, program: str, *options: object, **env: str) -> list[dict[str, Any]]:
    """The results of each rank, by rank."""
    (yard.project / "train.py").write_text(program)
    yard.run("train", "-np", 2, *options, sys.executable, "train.py", env=env, timeout=400)
    return output_of(yard)


@pytest.mark.parametrize("legacy", ["0", "1"])
def test_keras_with_callbacks_and_a_reloaded_model(yard: Yard, legacy: str) -> None:
    zero, one = train(yard, KERAS, TF_USE_LEGACY_KERAS=legacy)
    assert (zero["size"], one["rank"]) == (2, 1)
    history = zero["history"]
    assert history["loss"] == one["history"]["loss"] and history["accuracy"] == one["history"]["accuracy"]
    assert history["accuracy"][-1] > 0.9 and zero["weights"] == pytest.approx(one["weights"], rel=1e-5)
    assert history["lr"] == pytest.approx([0.15, 0.2, 0.2, 0.2, 0.02]), "warmup from half, then decay"
    assert zero["steps"] == one["steps"] == 200 and zero["same"] and one["same"] and zero["kind"] == "SGD"
    printed = [Path(yard.logdir(), f"rank={rank}", "stdout").read_text() for rank in range(2)]
    assert "finished gradual learning rate warmup to 0.2" in printed[0] and "warmup" not in printed[1]
    rates = yard.rows("SELECT trial, step, value FROM metrics WHERE name = 'examples_per_second' AND step >= 0")
    assert {(row["trial"], row["step"]) for row in rates} == {(t, s) for t in (1, 2) for s in range(5)} | {(1, 0), (2, 0)}
    assert all(row["value"] > 0 for row in rates)


@pytest.mark.parametrize("legacy", ["0", "1"])
def test_example_without_an_input_shape_under_horovodrun(yard: Yard, legacy: str) -> None:
    """Like Horovod's own tensorflow2_keras_mnist.py: the first batch builds the model."""
    (yard.project / "train.py").write_text(EXAMPLE)
    (yard.project / "horovodrun").symlink_to(yard.bin)
    yard.bin, hopyard = str(yard.project / "horovodrun"), yard.bin
    yard.run("-np", 2, sys.executable, "train.py", env={"TF_USE_LEGACY_KERAS": legacy}, timeout=400)
    yard.bin = hopyard
    zero, one = output_of(yard)
    assert zero["lr"] == one["lr"] == pytest.approx([0.0015, 0.002, 0.002]), "warmup from half"
    assert zero["weights"] == pytest.approx(one["weights"], rel=1e-5)
    assert len(list(yard.project.glob("checkpoint-*.h5"))) == 3


def test_custom_loop_with_a_tape(yard: Yard) -> None:
    zero, one = train(yard, LOOP)
    assert zero["loss"] == one["loss"] < 1 and zero["weights"] == one["weights"]
    assert zero["objects"] == one["objects"] == [{"rank": 0}, {"rank": 1}] and zero["broadcast"] == one["broadcast"] == "from 1"
    assert (zero["included"], one["included"]) == (True, False) and zero["joined"] == one["joined"]
    assert (yard.project / "loop" / "checkpoint").exists()


@pytest.mark.parametrize("side", ["compute", "training"])
def test_dataset_prepared_by_another_run(yard: Yard, side: str) -> None:
    worker = yard.start("train", "-np", 2, sys.executable, "-m", "horovod.tensorflow.data.compute_worker",
                        "--dispatcher-side", side, "compute.json")
    wait_for(lambda: (yard.project / "compute.json").exists() or worker.poll() is not None, "the service runs", 120)
    if worker.poll() is None:
        assert (yard.project / "compute.json").stat().st_mode & 0o777 == 0o600, "it contains the key"
        (yard.project / "train.py").write_text(DATA_SERVICE)
        yard.run("train", "-np", 2, sys.executable, "train.py", timeout=400)
    out, err = worker.communicate(timeout=120)
    assert worker.returncode == 0, out + err
    zero, one = output_of(yard, 2)
    assert zero["all"] == one["all"] == list(range(0, 128, 2))
    assert sorted(zero["shared"] + one["shared"]) == list(range(0, 128, 2)), "each row went to one rank"
    assert not (yard.project / "compute.json").exists()


def test_elastic_program_continues_and_the_lost_rank_rejoins(yard: Yard) -> None:
    zero, one = train(yard, ELASTIC, "--min-np", 1)
    assert zero["sizes"] == one["sizes"] == [2, 1, 2] and zero["batch"] == one["batch"]
    assert zero["weights"] == one["weights"] and zero["environment"] == one["environment"] == "2"
    assert zero["resets"] == [1, 2] and one["resets"] == [], "the new rank has seen no change"
    assert zero["rate"] == one["rate"] == pytest.approx(0.02)


def test_elastic_program_fails_in_a_training_that_is_not_elastic(yard: Yard) -> None:
    (yard.project / "train.py").write_text(ELASTIC)
    failed = yard.run("train", "-np", 2, sys.executable, "train.py", rc=None, timeout=400)
    assert failed.returncode != 0 and "signal 9" in failed.stdout + failed.stderr
    assert "UnknownError" in Path(yard.logdir(), "rank=0", "stderr").read_text()


def test_installed_horovod_is_ignored_in_a_rank_with_one_line(yard: Yard) -> None:
    other = yard.project / "site" / "horovod"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("__version__ = 'theirs'\n")
    show = [sys.executable, "-c", "import horovod; print(horovod.__version__)"]
    env = {**yard.env, "PYTHONPATH": os.pathsep.join([str(other.parent), yard.env.get("PYTHONPATH", "")])}
    assert subprocess.run(show, env=env, capture_output=True, text=True).stdout == "theirs\n", "elsewhere the other package is used"
    yard.run("train", "-np", 1, *show, env={"PYTHONPATH": env["PYTHONPATH"]})
    folder = Path(yard.logdir(), "rank=0")
    assert (folder / "stdout").read_text() == "0.28.1\n"
    assert (folder / "stderr").read_text() == (
        f"hopyard: in the ranks of a training, 'horovod' is hopyard's; the package in {other} is ignored\n")
