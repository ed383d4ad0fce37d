# SPDX-License-Identifier: Apache-2.0
"""Functions that nodes of a cluster run in test_tfcluster.py: each trains on the digits and returns its accuracy."""

from typing import Any

BATCH = 64


def digits() -> tuple[Any, Any]:
    import numpy as np
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.data / 16).astype(np.float32), data.target.astype(np.int64)


def layers(keras: Any) -> Any:
    return keras.Sequential(
        [keras.layers.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    )


def mirrored_loop(args: Any, ctx: Any) -> float:
    """MultiWorkerMirroredStrategy, a loop of one's own, Keras 3 layers."""
    import keras
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    features, labels = digits()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(2000, seed=1).repeat().batch(2 * BATCH)
    rows = iter(strategy.experimental_distribute_dataset(batches.with_options(options)))
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = layers(keras)
        weights = [tf.Variable(w) for w in model.get_weights()]
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def forward(x: Any) -> Any:
        hidden = tf.nn.relu(x @ weights[0] + weights[1])
        return hidden @ weights[2] + weights[3]

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, forward(x)) / (2 * BATCH)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            reduced = tf.distribute.get_replica_context().all_reduce("sum", gradient)
            weight.assign_sub(0.5 * reduced)
        return loss

    @tf.function
    def train(batch: Any) -> Any:
        return strategy.reduce("sum", strategy.run(step, batch), axis=None)

    for _ in range(200):
        train(next(rows))
    found = tf.argmax(forward(features), 1)
    return float(tf.reduce_mean(tf.cast(found == labels, tf.float32)))


def mirrored_fit(args: Any, ctx: Any) -> float:
    """MultiWorkerMirroredStrategy, fit of tf_keras."""
    import tensorflow as tf
    import tf_keras as keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    features, labels = digits()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = layers(keras)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    rows = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(2000, seed=1).batch(2 * BATCH).repeat()
    history = model.fit(rows.with_options(options), epochs=6, steps_per_epoch=14, verbose=0)
    return float(history.history["accuracy"][-1])


def _serve(ctx: Any) -> None:
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()


def coordinated(args: Any, ctx: Any) -> float:
    """ParameterServerStrategy with its coordinator."""
    import tensorflow as tf

    if ctx.job_name in ("ps", "worker"):
        _serve(ctx)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    features, labels = digits()
    with strategy.scope():
        kernel = tf.Variable(tf.zeros((64, 10)))
        bias = tf.Variable(tf.zeros(10))

    def rows() -> Any:
        return tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(2000).repeat().batch(BATCH)

    @tf.function
    def per_worker() -> Any:
        return strategy.distribute_datasets_from_function(lambda _: rows())

    iterator = iter(coordinator.create_per_worker_dataset(per_worker))

    @tf.function
    def step(iterator: Any) -> Any:
        def replica(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x @ kernel + bias)
                )
            for weight, gradient in zip((kernel, bias), tape.gradient(loss, (kernel, bias))):
                weight.assign_sub(0.5 * gradient)
            return loss

        return strategy.run(replica, next(iterator))

    for _ in range(300):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    found = tf.argmax(features @ kernel.numpy() + bias.numpy(), 1)
    return float(tf.reduce_mean(tf.cast(found == labels, tf.float32)))


def coordinated_fit(args: Any, ctx: Any) -> float:
    """ParameterServerStrategy, fit of tf_keras."""
    import tensorflow as tf
    import tf_keras as keras

    if ctx.job_name in ("ps", "worker"):
        _serve(ctx)
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    features, labels = digits()
    with strategy.scope():
        model = layers(keras)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"], steps_per_execution=5)

    def rows(_: Any) -> Any:
        return tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(2000).repeat().batch(BATCH)

    data = keras.utils.experimental.DatasetCreator(rows)
    history = model.fit(data, epochs=4, steps_per_epoch=30, verbose=0)
    return float(history.history["accuracy"][-1])


def _graph(tf: Any, ctx: Any, server: Any) -> Any:
    """Between-graph: variables on the parameter servers, the rest here."""
    return tf.compat.v1.device(
        tf.compat.v1.train.replica_device_setter(
            worker_device=f"/job:{ctx.job_name}/task:{ctx.task_index}", cluster=server.server_def.cluster
        )
    )


def _softmax(tf: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """(loss, accuracy) of a layer, in a graph."""
    v1 = tf.compat.v1
    kernel = v1.get_variable("kernel", (64, 10), initializer=v1.zeros_initializer())
    bias = v1.get_variable("bias", (10,), initializer=v1.zeros_initializer())
    logits = x @ kernel + bias
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return loss, tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))


def between_graph(args: Any, ctx: Any) -> float:
    """tf.compat.v1, by feed_dict, asynchronous; or synchronous, where args is "sync"."""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    _, server = ctx.start_cluster_server(num_gpus=0)
    if ctx.job_name == "ps":
        server.join()
    features, labels = digits()
    is_chief = ctx.task_index == 0
    with _graph(tf, ctx, server):
        x = v1.placeholder(tf.float32, (None, 64))
        y = v1.placeholder(tf.int64, (None,))
        loss, accuracy = _softmax(tf, x, y)
        step = v1.train.get_or_create_global_step()
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        if args == "sync":
            optimizer = v1.train.SyncReplicasOptimizer(optimizer, ctx.num_workers, ctx.num_workers)
        train = optimizer.minimize(loss, global_step=step)
        more = {}
        if args == "sync":
            local = optimizer.chief_init_op if is_chief else optimizer.local_step_init_op
            more = {"local_init_op": local, "ready_for_local_init_op": optimizer.ready_for_local_init_op}
            runner, tokens = optimizer.get_chief_queue_runner(), optimizer.get_init_tokens_op(0)
        start = v1.global_variables_initializer()
    keeper = v1.train.Supervisor(is_chief=is_chief, init_op=start, global_step=step, recovery_wait_secs=1, **more)
    with keeper.prepare_or_wait_for_session(server.target) as session:
        if args == "sync" and is_chief:
            keeper.start_queue_runners(session, [runner])
            session.run(tokens)
        for i in range(150):
            at = (i * ctx.num_workers + ctx.task_index) * BATCH % 1700
            session.run(train, {x: features[at : at + BATCH], y: labels[at : at + BATCH]})
        return float(session.run(accuracy, {x: features, y: labels}))


def by_readers(args: Any, ctx: Any) -> float:
    """tf.compat.v1, by readers and queue runners of its shard of the files; args: their names."""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    _, server = ctx.start_cluster_server(num_gpus=0)
    if ctx.job_name == "ps":
        server.join()
    with _graph(tf, ctx, server):
        names = v1.train.string_input_producer(args[ctx.task_index :: ctx.num_workers], shuffle=False)
        _, record = v1.TFRecordReader().read(names)
        parts = {"x": v1.FixedLenFeature((64,), tf.float32), "y": v1.FixedLenFeature((), tf.int64)}
        example = v1.parse_single_example(record, parts)
        x, y = v1.train.shuffle_batch([example["x"], example["y"]], BATCH, 1000, 200)
        loss, accuracy = _softmax(tf, x, y)
        step = v1.train.get_or_create_global_step()
        train = v1.train.GradientDescentOptimizer(0.5).minimize(loss, global_step=step)
        start = v1.global_variables_initializer()
    keeper = v1.train.Supervisor(
        is_chief=ctx.task_index == 0, init_op=start, local_init_op=v1.local_variables_initializer(), global_step=step,
        recovery_wait_secs=1,
    )  # fmt: skip
    with keeper.managed_session(server.target) as session:
        found = [session.run([train, accuracy])[1] for _ in range(150)]
    return float(sum(found[-10:]) / 10)


def by_hvd(args: Any, ctx: Any) -> float:
    """A Keras 3 fit by hvd: chief and workers are the ranks."""
    import keras

    import hopyard.hvd as hvd
    from hopyard.hvd import keras as hvd_keras

    if ctx.job_name == "ps":
        ctx.start_cluster_server()[1].join()
    hvd.init()
    assert hvd.size() == ctx.num_workers, (hvd.size(), ctx.num_workers)
    features, labels = digits()
    keras.utils.set_random_seed(1)
    model = layers(keras)
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    part = slice(hvd.rank(), None, hvd.size())
    callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    history = model.fit(features[part], labels[part], epochs=6, verbose=0, callbacks=callbacks, shuffle=False)
    return float(history.history["accuracy"][-1])


def model_parallel(args: Any, ctx: Any) -> float:
    """A model whose first half lives on one worker and whose second on another."""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    _, server = ctx.start_cluster_server(num_gpus=0)
    if ctx.task_index:
        server.join()
    features, labels = digits()
    with v1.device("/job:worker/task:0"):
        first = v1.get_variable("first", (64, 32), initializer=v1.glorot_uniform_initializer(seed=1))
        hidden = tf.nn.relu(tf.constant(features) @ first)
    with v1.device("/job:worker/task:1"):
        second = v1.get_variable("second", (32, 10), initializer=v1.glorot_uniform_initializer(seed=2))
        logits = hidden @ second
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    train = v1.train.AdamOptimizer(0.02).minimize(loss)
    with v1.Session(server.target) as session:
        session.run(v1.global_variables_initializer())
        for _ in range(100):
            session.run(train)
        return float(session.run(accuracy))
