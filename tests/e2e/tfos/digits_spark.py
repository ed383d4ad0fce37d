# SPDX-License-Identifier: Apache-2.0
"""A program like TensorFlowOnSpark's example mnist_spark, without references to hopyard."""


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf
    from tensorflowonspark import TFNode, compat

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf_feed = TFNode.DataFeed(ctx.mgr)

    def rows():
        while not tf_feed.should_stop():
            batch = tf_feed.next_batch(1)
            if len(batch) == 0:
                return
            yield np.array(batch[0][0], np.float32) / 16, np.array([batch[0][1]], np.float32)

    shapes = tf.TensorShape([64]), tf.TensorShape([1])
    ds = tf.data.Dataset.from_generator(rows, (tf.float32, tf.float32), shapes).batch(args.batch_size)
    options = tf.data.Options()
    compat.disable_auto_shard(options)

    with strategy.scope():
        model = tf.keras.Sequential([
            tf.keras.layers.InputLayer((64,)),
            tf.keras.layers.Dense(10, activation="softmax"),
        ])
        model.compile(loss="sparse_categorical_crossentropy", optimizer=tf.keras.optimizers.Adam(0.01))

    steps = args.rows / args.batch_size / ctx.num_workers * 0.8
    model.fit(x=ds.with_options(options), epochs=args.epochs, steps_per_epoch=int(steps), verbose=2)
    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")
    tf_feed.terminate()


if __name__ == "__main__":
    import argparse

    from pyspark.conf import SparkConf
    from pyspark.context import SparkContext
    from tensorflowonspark import TFCluster

    sc = SparkContext(conf=SparkConf().setAppName("digits_spark"))
    executors = sc._conf.get("spark.executor.instances")

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--cluster_size", type=int, default=int(executors) if executors is not None else 1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images_labels")
    parser.add_argument("--rows", type=int, default=1797)
    parser.add_argument("--export_dir", default="digits_export")
    parser.add_argument("--tensorboard", action="store_true")
    args = parser.parse_args()

    def parse(line):
        vec = [int(x) for x in line.split(",")]
        return vec[1:], vec[0]

    images_labels = sc.textFile(args.images_labels).map(parse)
    cluster = TFCluster.run(sc, main_fun, args, args.cluster_size, num_ps=0, tensorboard=args.tensorboard,
                            input_mode=TFCluster.InputMode.SPARK, master_node="chief")
    cluster.train(images_labels, args.epochs)
    cluster.shutdown()
