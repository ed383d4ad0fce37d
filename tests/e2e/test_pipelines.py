# SPDX-License-Identifier: Apache-2.0
"""TensorFlowOnSpark's pipelines and its smaller modules, on a Spark of this machine."""
from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from conftest import Yard
from test_experiment import Lab, lab  # noqa: F401  (a fixture)

HEAD = """
import sys
os.environ["PYSPARK_PYTHON"] = sys.executable
import hopyard.compat
from pyspark.sql import SparkSession
from tensorflowonspark import TFCluster, TFNode, TFParallel, compat, gpu_info, pipeline, reservation, util

def session():
    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    return SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()

def failing(call):
    try:
        call()
    except (hopyard.Error, TypeError) as error:
        return str(error)
"""


def evaluate(lab: Lab, code: str) -> Any:  # noqa: F811
    return lab.evaluate(HEAD + textwrap.dedent(code))


def test_pipeline_trains_infers_is_saved_and_loaded(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    """y = 3 a + 2 b, learned from the rows that Spark feeds, and predicted by the SavedModel."""
    output = evaluate(lab, f"""
        from pyspark.ml import Pipeline, PipelineModel

        def train(args, ctx):
            import keras
            import numpy as np
            from tensorflowonspark import compat

            feed = ctx.get_data_feed(input_mapping=args.input_mapping)
            model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, use_bias=False)])
            squares, products = np.zeros((2, 2)), np.zeros((2, 1))  # least squares: exact, however few rows this node gets
            while not feed.should_stop():
                batch = feed.next_batch(args.batch_size)
                if len(batch["y"]):
                    x, y = np.array(batch["x"]), np.array(batch["y"]).reshape(-1, 1)
                    squares, products = squares + x.T @ x, products + x.T @ y
            model.set_weights([np.linalg.solve(squares, products)])
            compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")

        spark = session()
        rows = [([a / 40, b / 40], 3 * a / 40 + 2 * b / 40) for a in range(40) for b in range(40)]
        frame = spark.createDataFrame(rows, "features array<float>, label float").repartition(2)
        estimator = (pipeline.TFEstimator(train, {{"rate": 0.1}}).setInputMapping({{"features": "x", "label": "y"}})
                     .setClusterSize(2).setMasterNode("chief").setEpochs(4).setBatchSize(50).setExportDir("{tmp_path}/model"))
        model = Pipeline(stages=[estimator]).fit(frame)

        import tensorflow as tf
        signature = tf.saved_model.load("{tmp_path}/model").signatures["serving_default"]
        [takes], [gives] = signature.structured_input_signature[1], signature.structured_outputs
        model.stages[0].setInputMapping({{"features": takes}}).setOutputMapping({{gives: "prediction"}})
        few = rows[::32]
        found = model.transform(spark.createDataFrame(few, frame.schema).coalesce(1)).collect()

        model.write().overwrite().save("{tmp_path}/saved")
        again = PipelineModel.load("{tmp_path}/saved")
        wrong = pipeline.TFModel({{}}).setExportDir("{tmp_path}/model").setInputMapping({{"features": takes}})
        emit(schema=model.transform(frame).schema.simpleString(), worst=max(abs(f.prediction[0] - y) for f, (_, y) in zip(found, few)),
            count=again.transform(frame).count(), args=repr(again.stages[0].args), batch=again.stages[0].getBatchSize(),
            errors=[failing(lambda: wrong.setOutputMapping({{"no": "p"}}).transform(frame)),
                    failing(lambda: pipeline.TFModel({{}}).transform(frame)),
                    failing(lambda: pipeline.TFEstimator(train, 3)), failing(lambda: estimator.setInputMapping(3))])
        spark.stop()
    """)
    assert output["schema"] == "struct<prediction:array<float>>" and output["worst"] < 0.01
    assert output["count"] == 1600 and output["args"] == "Namespace(rate=0.1)" and output["batch"] == 50
    unknown, nowhere, no_args, no_dict = output["errors"]
    assert unknown.startswith("signature 'serving_default' has no output 'no' (outputs: ")
    assert nowhere == "no model is given; call setExportDir with the directory that it was exported to"
    assert no_args == "arguments must be a dict, a list or a namespace, not 3" and "3 is not a dict" in no_dict


def test_pipeline_whose_nodes_read_tfrecords(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    """With an export function, on one executor."""
    output = evaluate(lab, f"""
        def count(args, ctx):
            import tensorflow as tf
            names = tf.io.gfile.glob(args.tfrecord_dir + "/part-*")
            rows = sum(1 for _ in tf.data.TFRecordDataset(names).shard(ctx.num_workers, ctx.executor_id))
            open(f"{tmp_path}/rows-{{ctx.executor_id}}", "w").write(str(rows))

        def export(args):
            open(args.export_dir, "w").write("exported")

        spark = session()
        frame = spark.range(100).selectExpr("id", "cast(id as float) as x")
        estimator = (pipeline.TFEstimator(count, {{}}, export).setInputMode(TFCluster.InputMode.TENSORFLOW).setClusterSize(2)
                     .setExportDir("{tmp_path}/export"))
        error = failing(lambda: estimator.fit(frame))
        estimator.setTFRecordDir("{tmp_path}/records").fit(frame)
        emit(error=error)
        spark.stop()
    """)
    assert "setTFRecordDir" in output["error"]
    assert sum(int((tmp_path / f"rows-{i}").read_text()) for i in range(2)) == 100
    assert (tmp_path / "export").read_text() == "exported"


def test_models_of_all_kinds_are_exported(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    output = evaluate(lab, f"""
        import keras, tf_keras
        import tensorflow as tf

        class Plain(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec((None, 2))])
            def __call__(self, x):
                return 2 * x

        models = {{"keras": keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)]),
                  "tf_keras": tf_keras.Sequential([tf_keras.layers.Input((2,)), tf_keras.layers.Dense(1)]), "module": Plain()}}
        for name, model in models.items():
            compat.export_saved_model(model, f"{tmp_path}/{{name}}", is_chief=True)
            compat.export_saved_model(model, f"{tmp_path}/{{name}}-worker", is_chief=False)
        options = tf.data.Options()
        compat.disable_auto_shard(options)
        emit(loaded=[tf.saved_model.contains_saved_model(f"{tmp_path}/{{name}}") for name in models],
            others=os.listdir("{tmp_path}"), gpu=compat.is_gpu_available(),
            policy=options.experimental_distribute.auto_shard_policy.name,
            error=failing(lambda: compat.export_saved_model(3, "{tmp_path}/no", is_chief=True)))
    """)
    assert output["loaded"] == [True] * 3 and not any("worker" in name for name in output["others"])
    assert output["policy"] == "OFF" and output["gpu"] is False
    assert output["error"] == "a int is not a model; a Keras model or a tf.Module is required"


def test_smaller_modules(yard: Yard, lab: Lab) -> None:  # noqa: F811
    """TFParallel both ways, GPUs, and a feed that another program stops."""
    output = evaluate(lab, """
        def alone(args, ctx):
            print("number", ctx.worker_num, "of", ctx.num_workers, ctx.defaultFS[:5])

        def broken(args, ctx):
            raise ValueError("not here")

        def waiting(args, ctx):
            feed = TFNode.DataFeed(ctx.mgr)
            rows = 0
            while not feed.should_stop():
                rows += len(feed.next_batch(10))
            return rows

        sc = session().sparkContext
        TFParallel.run(sc, alone, {}, 2)
        TFParallel.run(sc, alone, {}, 2, use_barrier=False)
        error = failing(lambda: TFParallel.run(sc, broken, {}, 1))

        nodes = TFCluster.run(sc, waiting, None, 1, input_mode=TFCluster.InputMode.SPARK)
        nodes.train(sc.parallelize(range(100), 2), num_epochs=1)
        reservation.Client(nodes.cluster_meta["server_addr"]).request_stop()
        found = nodes.cluster.results()

        os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-1,GPU-2"
        seen = [gpu_info.get_gpus(1, 1), gpu_info.get_gpus(2, 0, gpu_info.AS_LIST), failing(lambda: gpu_info.get_gpus(3))]
        util.single_node_env(1, worker_index=1, nodes=["a", "b"])
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
        util.single_node_env(0)
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
        namespace = pipeline.Namespace({"num_gpus": 0})
        pipeline.single_node_env(["script", "--lr", "1"])
        pipeline.single_node_env(namespace)
        batches = list(pipeline.yield_batch([(1, bytearray(b"a")), (2, bytearray(b"b")), (3, bytearray(b"c"))], 2, num_tensors=2))
        assert batches == [[[1, 2], [b"a", b"b"]], [[3], [b"c"]]] and sys.argv == ["script", "--lr", "1"], batches
        util.write_executor_id(7)
        emit(error=error, found=found, seen=seen, id=util.read_executor_id(), path=util.find_in_path("/nowhere:/bin", "sh"),
            none=util.find_in_path("/nowhere", "sh"), address=util.get_ip_address())
        sc.stop()
    """)
    logs = [path.read_text() for path in sorted(Path(yard.project).glob("Logs/TensorFlow/*/*/*/stdout"))]
    assert sorted(log for log in logs if log.startswith("number")) == [f"number {i} of 2 file:\n" for i in (0, 0, 1, 1)]
    assert output["error"].rstrip().endswith("ValueError: not here") and output["found"] == {"worker-0": 100}
    assert output["seen"] == ["GPU-2", ["GPU-1", "GPU-2"],
                              "cannot get 3 GPUs: this process sees 2; start the cluster with gpus=3", "GPU-1", ""]
    assert output["id"] == 7 and output["path"] == "/bin/sh" and output["none"] is False and output["address"].count(".") == 3


def test_shares_of_a_gpu_have_their_own_names(lab: Lab) -> None:  # noqa: F811
    output = evaluate(lab, """
        import tensorflowonspark_gpu10p, tensorflowonspark_gpu20p
        from tensorflowonspark_gpu10p import TFCluster as tenth, TFNode as node, dfutil, pipeline as of_tenth
        from tensorflowonspark_gpu20p import TFCluster as fifth
        emit(shares=[tenth.run.keywords, of_tenth.TFCluster.run.keywords, fifth.run.keywords], modes=[tenth.InputMode.SPARK])
    """)
    assert output["shares"] == [{"gpus": 0.1}, {"gpus": 0.1}, {"gpus": 0.2}] and output["modes"] == [1]
