# SPDX-License-Identifier: Apache-2.0
"""Functions that nodes of a cluster run in test_tfcluster.py, and the TFRecords that they read.

Each way to train reads its shard of the digits as its users do, EPOCHS times, and returns its accuracy and the numbers
of the records it was trained on. Ways that need the same nodes may run one after the other in the same processes:
importing TensorFlow takes longer than training.
"""

import functools
from collections.abc import Callable
from typing import Any

EPOCHS = 2
RATES = (0.5, 0.1)  # learning rates of a custom loop: they decay, so that the last steps do no harm
BATCH = 16
RECORDS = 1797
FILES = 4

Found = tuple[float, list[int]]


def one_after_the_other(args: tuple[list[str], list[str]], ctx: Any) -> dict[str, Found]:
    """Several ways, by name, with their results."""
    names, ways = args
    return {way: globals()[way](names, ctx) for way in ways}


def _once(ctx: Any, name: str, make: Callable[[], Any]) -> Any:
    """A per-process singleton, created by the first way that needs it."""
    if ctx.mgr.get(name) is None:
        ctx.mgr.set(name, make())
    return ctx.mgr.get(name)


# ---- the records --------------------------------------------------------------------------------------------------


def digits() -> tuple[Any, Any]:
    import numpy as np
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.data / 16).astype(np.float32), data.target.astype(np.int64)


def write(folder: Any) -> list[str]:
    """Writes them to files, each record with its number."""
    import numpy as np

    from hopyard import _hopyard

    features, labels = digits()
    names = [f"{folder}/part-{i}.tfrecord" for i in range(FILES)]
    for i, name in enumerate(names):
        numbers = np.arange(i, RECORDS, FILES)
        ends = np.arange(len(numbers) + 1)
        columns = [
            ("x", 2, False, features[numbers].tobytes(), b"", b"", (64 * ends).tobytes()),
            ("y", 3, False, labels[numbers].tobytes(), b"", b"", ends.tobytes()),
            ("number", 3, False, numbers.tobytes(), b"", b"", ends.tobytes()),
        ]
        with open(name, "wb") as file:
            file.write(_hopyard.write_examples(len(numbers), columns))
    return names


def parsed(tf: Any, record: Any) -> tuple[Any, Any, Any]:
    """(x, y, number) of one record, or of a batch."""
    parts = {
        "x": tf.io.FixedLenFeature((64,), tf.float32),
        "y": tf.io.FixedLenFeature((), tf.int64),
        "number": tf.io.FixedLenFeature((), tf.int64),
    }
    read = tf.io.parse_single_example if record.shape.rank == 0 else tf.io.parse_example
    found = read(record, parts)
    return found["x"], found["y"], found["number"]


def rows(tf: Any, names: list[str], batch: int = BATCH) -> Any:
    """Batches of an epoch."""
    records = tf.data.TFRecordDataset(names).shuffle(RECORDS, seed=1)
    return records.batch(batch).map(lambda record: parsed(tf, record))


def sharded_by_file(tf: Any, data: Any) -> Any:
    """By the strategy itself: each worker has its own files."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    return data.with_options(options)


def counted(counts: Any) -> list[int]:
    """Each number as often as it was counted."""
    return [number for number, count in enumerate(counts.tolist()) for _ in range(count)]


# ---- MultiWorkerMirroredStrategy ----------------------------------------------------------------------------------


def layers(keras: Any, kind: Any = None) -> Any:
    return (kind or keras.Sequential)(
        [keras.layers.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    )


def noting(keras: Any, tf: Any, seen: list[int]) -> Any:
    """A model that records what it is trained on."""

    class Noting(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            x, y, number = data
            tf.numpy_function(lambda numbers: seen.extend(numbers.tolist()), [number], [])
            return super().train_step((x, y))

    return layers(keras, Noting)


def mirrored_loop(names: list[str], ctx: Any) -> Found:
    """A custom loop, Keras 3 layers."""
    import keras
    import tensorflow as tf

    strategy = _once(ctx, "strategy", tf.distribute.MultiWorkerMirroredStrategy)
    data = strategy.experimental_distribute_dataset(sharded_by_file(tf, rows(tf, names, 2 * BATCH)))
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = layers(keras)
        weights = [tf.Variable(w) for w in model.get_weights()]
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def forward(x: Any) -> Any:
        hidden = tf.nn.relu(x @ weights[0] + weights[1])
        return hidden @ weights[2] + weights[3]

    def step(rate: Any, x: Any, y: Any, number: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, forward(x)) / (2 * BATCH)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            reduced = tf.distribute.get_replica_context().all_reduce("sum", gradient)
            weight.assign_sub(rate * reduced)
        return number

    @tf.function
    def train(rate: Any, batch: Any) -> Any:
        return strategy.run(step, (rate, *batch))

    seen: list[int] = []
    for rate in RATES:
        for batch in data:
            for numbers in strategy.experimental_local_results(train(tf.constant(rate), batch)):
                seen += numbers.numpy().tolist()
    features, labels = digits()
    found = tf.argmax(forward(features), 1)
    return float(tf.reduce_mean(tf.cast(found == labels, tf.float32))), seen


def mirrored_fit(names: list[str], ctx: Any) -> Found:
    """fit() of tf_keras."""
    import tensorflow as tf
    import tf_keras as keras

    strategy = _once(ctx, "strategy", tf.distribute.MultiWorkerMirroredStrategy)
    keras.utils.set_random_seed(1)
    seen: list[int] = []
    with strategy.scope():
        model = noting(keras, tf, seen)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
    history = model.fit(sharded_by_file(tf, rows(tf, names, 2 * BATCH)), epochs=EPOCHS, verbose=0)
    return float(history.history["accuracy"][-1]), seen


# ---- ParameterServerStrategy --------------------------------------------------------------------------------------


def _coordinated() -> Any:
    """Parameter servers and workers serve until the end; the chief gets its strategy."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        spec, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
        tf.distribute.Server(spec, job_name=job, task_index=index, protocol="grpc").join()
    return tf.distribute.ParameterServerStrategy(resolver)


def _shard(tf: Any, names: list[str], ctx: Any) -> Any:
    """In a function that a worker runs: the files of that worker."""
    index = tf.distribute.coordinator.experimental_get_current_worker_index()
    workers = len(ctx.cluster_spec["worker"])
    files = tf.data.Dataset.from_tensor_slices(names).shard(workers, index)
    return rows(tf, files)


def coordinated(names: list[str], ctx: Any) -> Found:
    """With its coordinator. Workers take steps in any order, so one that has finished its shard does nothing in a step."""
    import tensorflow as tf

    strategy = _once(ctx, "strategy", _coordinated)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        kernel = tf.Variable(tf.zeros((64, 10)))
        bias = tf.Variable(tf.zeros(10))
        rate = tf.Variable(0.0)

    @tf.function
    def per_worker() -> Any:
        return strategy.distribute_datasets_from_function(lambda _: _shard(tf, names, ctx))

    def replica(x: Any, y: Any, number: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x @ kernel + bias))
        for weight, gradient in zip((kernel, bias), tape.gradient(loss, (kernel, bias))):
            weight.assign_sub(rate * gradient)
        return number

    @tf.function
    def step(iterator: Any) -> Any:
        batch = iterator.get_next_as_optional()
        if batch.has_value():
            return strategy.run(replica, batch.get_value())
        return tf.zeros(0, tf.int64)

    data = coordinator.create_per_worker_dataset(per_worker)
    seen: list[int] = []
    for epoch in range(EPOCHS):
        rate.assign(RATES[epoch])
        iterator = iter(data)
        while len(seen) < (epoch + 1) * RECORDS:
            steps = [coordinator.schedule(step, args=(iterator,)) for _ in range(20)]
            coordinator.join()
            seen += [number for numbers in coordinator.fetch(steps) for number in numbers.tolist()]
    features, labels = digits()
    found = tf.argmax(features @ kernel.numpy() + bias.numpy(), 1)
    return float(tf.reduce_mean(tf.cast(found == labels, tf.float32))), seen


def coordinated_fit(names: list[str], ctx: Any) -> Found:
    """fit() of tf_keras: it takes steps, and stops when all workers have finished their shards."""
    import tensorflow as tf
    import tf_keras as keras

    strategy = _once(ctx, "strategy", _coordinated)

    class Counting(keras.Sequential):
        """On the workers, which cannot see a list of this process."""

        def train_step(self, data: Any) -> Any:
            x, y, number = data
            counts.assign_add(tf.math.bincount(number, minlength=RECORDS, maxlength=RECORDS, dtype=tf.int64))
            return super().train_step((x, y))

    class EndsWithTheData(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = int(counts.numpy().sum()) >= EPOCHS * RECORDS

    with strategy.scope():
        counts = tf.Variable(tf.zeros(RECORDS, tf.int64), trainable=False)
        model = layers(keras, Counting)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        rate = keras.optimizers.schedules.PolynomialDecay(0.01, EPOCHS * RECORDS // BATCH, 0.0005)
        model.compile(optimizer=keras.optimizers.Adam(rate), loss=loss, metrics=["accuracy"], steps_per_execution=5)

    def data(_: Any) -> Any:
        nothing = (tf.zeros((0, 64)), tf.zeros(0, tf.int64), tf.zeros(0, tf.int64))
        return _shard(tf, names, ctx).repeat(EPOCHS).concatenate(tf.data.Dataset.from_tensors(nothing).repeat())

    creator = keras.utils.experimental.DatasetCreator(data)
    model.fit(creator, epochs=100, steps_per_epoch=60, verbose=0, callbacks=[EndsWithTheData()])
    features, labels = digits()
    found = tf.argmax(model(features), 1)
    return float(tf.reduce_mean(tf.cast(found == labels, tf.float32))), counted(counts.numpy())


# ---- tf.compat.v1 -------------------------------------------------------------------------------------------------


def _in_a_graph(way: Callable[..., Found]) -> Callable[..., Found]:
    """In its own graph, with its own variables on the parameter servers."""

    @functools.wraps(way)
    def train(names: list[str], ctx: Any) -> Found:
        import tensorflow as tf

        server = _once(ctx, "server", lambda: _server(ctx))
        with tf.Graph().as_default(), tf.compat.v1.variable_scope(way.__name__):
            return way(names, ctx, tf, server)

    return train


def _server(ctx: Any) -> Any:
    """Parameter servers do nothing else."""
    _, server = ctx.start_cluster_server(num_gpus=0)
    if ctx.job_name == "ps":
        server.join()
    return server


def _graph(tf: Any, ctx: Any, server: Any) -> Any:
    """Between-graph: variables on the parameter servers, the rest here."""
    return tf.compat.v1.device(
        tf.compat.v1.train.replica_device_setter(worker_device=_device(ctx), cluster=server.server_def.cluster)
    )


def _device(ctx: Any) -> str:
    return f"/job:{ctx.job_name}/task:{ctx.task_index}"


def _softmax(tf: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """(loss, accuracy) of a layer, in a graph."""
    v1 = tf.compat.v1
    with v1.variable_scope("softmax", reuse=v1.AUTO_REUSE):
        kernel = v1.get_variable("kernel", (64, 10), initializer=v1.zeros_initializer())
        bias = v1.get_variable("bias", (10,), initializer=v1.zeros_initializer())
    logits = x @ kernel + bias
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return loss, tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))


class _Barrier:
    """A barrier of workers. The first worker runs what the others need, for example the queue runner of a
    SyncReplicasOptimizer, and must not leave before they are done."""

    def __init__(self, tf: Any, ctx: Any, name: str) -> None:
        self.is_first, name = ctx.task_index == 0, f"{tf.compat.v1.get_variable_scope().name}-{name}"
        with tf.device("/job:ps/task:0"):
            here = tf.queue.FIFOQueue(ctx.num_workers, tf.int32, shapes=[()], shared_name=f"{name}-here")
            go_on = tf.queue.FIFOQueue(ctx.num_workers, tf.int32, shapes=[()], shared_name=f"{name}-go-on")
            self.come, self.leave = here.enqueue(0), go_on.dequeue()
            self.await_all = here.dequeue_many(ctx.num_workers)
            self.let_all_go = go_on.enqueue_many(tf.zeros(ctx.num_workers, tf.int32))

    def wait(self, session: Any) -> None:
        session.run(self.come)
        if self.is_first:
            session.run(self.await_all)
            session.run(self.let_all_go)
        session.run(self.leave)


def _batches(tf: Any, names: list[str]) -> Any:
    """(x, y, numbers) of one epoch as NumPy arrays, for feed_dict."""
    import numpy as np

    examples = []
    for name in names:
        for record in tf.compat.v1.io.tf_record_iterator(name):
            values = tf.train.Example.FromString(record).features.feature
            y, number = (values[key].int64_list.value[0] for key in ("y", "number"))
            examples.append((values["x"].float_list.value, y, number))
    np.random.shuffle(examples)
    for at in range(0, len(examples), BATCH):
        yield [np.array(column) for column in zip(*examples[at : at + BATCH])]


@_in_a_graph
def between_graph(names: list[str], ctx: Any, tf: Any, server: Any) -> Found:
    """With feed_dict, asynchronous."""
    return _between_graph(names, ctx, tf, server, False)


@_in_a_graph
def between_graph_sync(names: list[str], ctx: Any, tf: Any, server: Any) -> Found:
    return _between_graph(names, ctx, tf, server, True)


def _between_graph(names: list[str], ctx: Any, tf: Any, server: Any, is_sync: bool) -> Found:
    v1 = tf.compat.v1
    is_chief = ctx.task_index == 0
    with _graph(tf, ctx, server):
        x = v1.placeholder(tf.float32, (None, 64))
        y = v1.placeholder(tf.int64, (None,))
        loss, accuracy = _softmax(tf, x, y)
        step = v1.train.get_or_create_global_step()
        optimizer = v1.train.AdamOptimizer(0.02)
        if is_sync:
            optimizer = v1.train.SyncReplicasOptimizer(optimizer, ctx.num_workers, ctx.num_workers)
        train = optimizer.minimize(loss, global_step=step)
        more = {}
        if is_sync:
            local = optimizer.chief_init_op if is_chief else optimizer.local_step_init_op
            more = {"local_init_op": local, "ready_for_local_init_op": optimizer.ready_for_local_init_op}
            runner, tokens = optimizer.get_chief_queue_runner(), optimizer.get_init_tokens_op(0)
        start = v1.global_variables_initializer()
    trained, done = _Barrier(tf, ctx, "trained"), _Barrier(tf, ctx, "done")
    keeper = v1.train.Supervisor(is_chief=is_chief, init_op=start, global_step=step, recovery_wait_secs=0.1, **more)
    seen: list[int] = []
    with keeper.prepare_or_wait_for_session(server.target) as session:
        if is_sync and is_chief:
            keeper.start_queue_runners(session, [runner])
            session.run(tokens)
        for _ in range(EPOCHS):
            for features, labels, numbers in _batches(tf, names[ctx.task_index :: ctx.num_workers]):
                session.run(train, {x: features, y: labels})
                seen += numbers.tolist()
        trained.wait(session)
        features, labels = digits()
        found = session.run(accuracy, {x: features, y: labels})
        done.wait(session)
    return float(found), seen


@_in_a_graph
def by_readers(names: list[str], ctx: Any, tf: Any, server: Any) -> Found:
    """With readers and queue runners."""
    v1 = tf.compat.v1
    with v1.device(_device(ctx)):  # the epoch counter belongs to this worker, too
        shard = names[ctx.task_index :: ctx.num_workers]
        _, record = v1.TFRecordReader().read(v1.train.string_input_producer(shard, num_epochs=EPOCHS, shuffle=False))
        row = parsed(tf, record)
        x, y, number = v1.train.shuffle_batch(row, BATCH, 1000, 200, allow_smaller_final_batch=True)
    with _graph(tf, ctx, server):
        loss, _ = _softmax(tf, x, y)
        _, accuracy = _softmax(tf, *map(tf.constant, digits()))
        step = v1.train.get_or_create_global_step()
        train = v1.train.AdamOptimizer(0.02).minimize(loss, global_step=step)
        start = v1.global_variables_initializer()
    trained, done = _Barrier(tf, ctx, "trained"), _Barrier(tf, ctx, "done")
    keeper = v1.train.Supervisor(
        is_chief=ctx.task_index == 0, init_op=start, local_init_op=v1.local_variables_initializer(), global_step=step,
        recovery_wait_secs=0.1,
    )  # fmt: skip
    with keeper.managed_session(server.target) as session:
        seen = _until_the_end(tf, lambda: session.run([number, train])[0])
        trained.wait(session)
        found = session.run(accuracy)
        done.wait(session)
    return float(found), seen


def _until_the_end(tf: Any, step: Any) -> list[int]:
    """Until the data ends: the numbers that the steps returned."""
    seen: list[int] = []
    while True:
        try:
            seen += step().tolist()
        except tf.errors.OutOfRangeError:
            return seen


@_in_a_graph
def model_parallel(names: list[str], ctx: Any, tf: Any, server: Any) -> Found:
    """A model whose first half is on one worker, which reads all data, and whose second half is on another."""
    v1 = tf.compat.v1
    done = _Barrier(tf, ctx, "done")
    if ctx.task_index:
        with v1.Session(server.target) as session:
            done.wait(session)
        return 0.0, []  # it has read nothing, and has no model
    features, labels = digits()
    with v1.device("/job:worker/task:0"):
        x, y, number = v1.data.make_one_shot_iterator(rows(tf, names).repeat(EPOCHS)).get_next()
        first = v1.get_variable("first", (64, 32), initializer=v1.glorot_uniform_initializer(seed=1))
        hidden, all_hidden = (tf.nn.relu(values @ first) for values in (x, tf.constant(features)))
    with v1.device("/job:worker/task:1"):
        second = v1.get_variable("second", (32, 10), initializer=v1.glorot_uniform_initializer(seed=2))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=hidden @ second))
        is_right = tf.equal(tf.argmax(all_hidden @ second, 1), labels)
        accuracy = tf.reduce_mean(tf.cast(is_right, tf.float32))
    train = v1.train.AdamOptimizer(0.02).minimize(loss)
    with v1.Session(server.target) as session:
        session.run(v1.global_variables_initializer())
        seen = _until_the_end(tf, lambda: session.run([number, train])[0])
        found = session.run(accuracy)
        done.wait(session)
    return float(found), seen


# ---- hvd ----------------------------------------------------------------------------------------------------------


def by_hvd(names: list[str], ctx: Any) -> Found:
    """fit() of Keras 3: chief and workers are the ranks."""
    import keras
    import tensorflow as tf

    import hopyard.hvd as hvd
    from hopyard.hvd import keras as hvd_keras

    hvd.init()
    assert hvd.size() == ctx.num_workers, (hvd.size(), ctx.num_workers)
    keras.utils.set_random_seed(1)
    seen: list[int] = []
    model = noting(keras, tf, seen)
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], jit_compile=False)
    callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    data = rows(tf, names[hvd.rank() :: hvd.size()])
    history = model.fit(data, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    return float(history.history["accuracy"][-1]), seen
