# SPDX-License-Identifier: Apache-2.0
"""A program like TensorFlowOnSpark's example mnist_spark_streaming, without references to hopyard."""


def main_fun(args, ctx):
    import json
    import os
    import time

    from tensorflowonspark import TFNode

    tf_feed = TFNode.DataFeed(ctx.mgr)
    if args.fail:
        while not os.path.exists(f"{args.model_dir}/streams"):
            time.sleep(0.05)
        raise ValueError("the model does not converge")
    labels = []
    while not tf_feed.should_stop():
        labels += [label for image, label in tf_feed.next_batch(args.batch_size)]
        with open(f"{args.model_dir}/new-{ctx.executor_id}", "w") as file:
            json.dump(labels, file)
        os.replace(f"{args.model_dir}/new-{ctx.executor_id}", f"{args.model_dir}/labels-{ctx.executor_id}")


if __name__ == "__main__":
    import argparse

    from pyspark.conf import SparkConf
    from pyspark.context import SparkContext
    from pyspark.streaming import StreamingContext
    from tensorflowonspark import TFCluster

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--cluster_size", type=int, default=1)
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--images_labels")
    parser.add_argument("--interval", type=int, default=60)
    parser.add_argument("--model_dir", default="digits_model")
    args = parser.parse_args()

    sc = SparkContext(conf=SparkConf().setAppName("digits_streaming"))
    ssc = StreamingContext(sc, args.interval)

    def parse(line):
        vec = [int(x) for x in line.split(",")]
        return vec[1:], vec[0]

    stream = ssc.textFileStream(args.images_labels)
    cluster = TFCluster.run(sc, main_fun, args, args.cluster_size, num_ps=0, input_mode=TFCluster.InputMode.SPARK,
                            log_dir=args.model_dir, master_node="chief")
    cluster.train(stream.map(parse), feed_timeout=86400)
    ssc.start()
    with open(f"{args.model_dir}/streams", "w"):
        pass
    cluster.shutdown(ssc)
