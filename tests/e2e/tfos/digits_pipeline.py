# SPDX-License-Identifier: Apache-2.0
"""A program like TensorFlowOnSpark's example mnist_pipeline, without references to hopyard."""


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf
    from tensorflowonspark import TFNode, compat

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    tf_feed = TFNode.DataFeed(ctx.mgr)

    def rows():
        while not tf_feed.should_stop():
            batch = tf_feed.next_batch(1)
            if len(batch) == 0:
                return
            row = batch[0]
            yield np.array(row.image, np.float32), np.array([row["label"]], np.float32)

    shapes = tf.TensorShape([64]), tf.TensorShape([1])
    ds = tf.data.Dataset.from_generator(rows, (tf.float32, tf.float32), shapes).batch(args.batch_size)
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    ds = ds.with_options(options)

    with strategy.scope():
        model = tf.keras.Sequential([
            tf.keras.layers.Dense(32, activation="relu", input_shape=(64,)),
            tf.keras.layers.Dense(10, activation="softmax"),
        ])
        model.compile(loss="sparse_categorical_crossentropy", optimizer=tf.keras.optimizers.Adam(0.01), metrics=["accuracy"])

    tf.io.gfile.makedirs(args.model_dir)
    weights = args.model_dir + "/weights-{epoch:04d}"
    callbacks = [tf.keras.callbacks.ModelCheckpoint(filepath=weights, verbose=1, save_weights_only=True)]
    # The workers train synchronously: they stop before one of them runs out of rows.
    steps = args.rows / args.batch_size / ctx.num_workers * 0.8
    model.fit(x=ds, epochs=args.epochs, steps_per_epoch=int(steps), callbacks=callbacks, verbose=2)

    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")
    tf_feed.terminate()


if __name__ == "__main__":
    import argparse

    from pyspark.conf import SparkConf
    from pyspark.context import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf
    from pyspark.sql.types import IntegerType
    from tensorflowonspark.pipeline import TFEstimator, TFModel

    sc = SparkContext(conf=SparkConf().setAppName("digits_pipeline"))
    spark = SparkSession(sc)
    executors = sc._conf.get("spark.executor.instances")

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--cluster_size", type=int, default=int(executors) if executors is not None else 1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images_labels")
    parser.add_argument("--rows", type=int, default=1797)
    parser.add_argument("--mode", choices=["train", "inference"], default="train")
    parser.add_argument("--model_dir", default="digits_model")
    parser.add_argument("--export_dir", default="digits_export")
    parser.add_argument("--output", default="predictions")
    parser.add_argument("--tensorboard", action="store_true")
    args = parser.parse_args()

    def parse(line):
        vec = [int(x) for x in line.split(",")]
        return vec[1:], vec[0]

    df = spark.createDataFrame(sc.textFile(args.images_labels).map(parse), ["image", "label"])
    if args.mode == "train":
        estimator = (
            TFEstimator(main_fun, args)
            .setInputMapping({"image": "image", "label": "label"})
            .setModelDir(args.model_dir)
            .setExportDir(args.export_dir)
            .setClusterSize(args.cluster_size)
            .setTensorboard(args.tensorboard)
            .setEpochs(args.epochs)
            .setBatchSize(args.batch_size)
            .setGraceSecs(60)
        )
        estimator.fit(df)
    else:
        model = (
            TFModel(args)
            .setInputMapping({"image": "dense_input"})
            .setOutputMapping({"dense_1": "prediction"})
            .setExportDir(args.export_dir)
            .setBatchSize(args.batch_size)
        )
        argmax = udf(lambda p: max(range(len(p)), key=lambda i: p[i]), IntegerType())
        model.transform(df).withColumn("argmax", argmax("prediction")).write.json(args.output)
