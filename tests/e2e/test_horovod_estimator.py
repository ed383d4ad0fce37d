# SPDX-License-Identifier: Apache-2.0
"""Programs like Horovod's examples of its Keras estimator, unchanged, on a Spark of this machine.

They do not refer to hopyard; each prints its results as a line of JSON.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard

DIGITS = """
import argparse, json, os, sys
import numpy as np
import pyspark.sql.types as T
from pyspark import SparkConf
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import OneHotEncoder
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from tensorflow import keras
from tensorflow.keras.layers import Conv2D, Dense, Dropout, Flatten, MaxPooling2D
from tensorflow.keras.models import Sequential
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import Store
from horovod.spark.keras import KerasEstimator

parser = argparse.ArgumentParser()
parser.add_argument('--num-proc', type=int)
parser.add_argument('--epochs', type=int, default=12)
parser.add_argument('--work-dir', default='/tmp')
parser.add_argument('--data')

if __name__ == '__main__':
    args = parser.parse_args()
    conf = SparkConf().setAppName('digits').setMaster('local[{}]'.format(args.num_proc))
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    store = Store.create(args.work_dir)

    df = spark.read.format('libsvm').option('numFeatures', '64').load(args.data)
    encoder = OneHotEncoder(inputCols=['label'], outputCols=['label_vec'], dropLast=False)
    train_df, test_df = encoder.fit(df).transform(df).randomSplit([0.9, 0.1], seed=1)

    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    model = Sequential()
    model.add(keras.Input((8, 8, 1)))
    model.add(Conv2D(16, kernel_size=(3, 3), activation='relu'))
    model.add(MaxPooling2D(pool_size=(2, 2)))
    model.add(Dropout(0.1))
    model.add(Flatten())
    model.add(Dense(32, activation='relu'))
    model.add(Dense(10, activation='softmax'))

    backend = SparkBackend(num_proc=args.num_proc, stdout=sys.stdout, stderr=sys.stderr, prefix_output_with_timestamp=True)
    estimator = KerasEstimator(backend=backend, store=store, model=model, optimizer=keras.optimizers.Adam(0.002),
                               loss=keras.losses.categorical_crossentropy, metrics=['accuracy'], feature_cols=['features'],
                               label_cols=['label_vec'], batch_size=32, epochs=args.epochs, random_seed=1,
                               inmemory_cache_all=True, verbose=1, callbacks=[keras.callbacks.TensorBoard(profile_batch=5)])
    keras_model = estimator.fit(train_df).setOutputCols(['label_prob'])

    pred_df = keras_model.transform(test_df)
    argmax = udf(lambda v: float(np.argmax(v)), returnType=T.DoubleType())
    pred_df = pred_df.withColumn('label_pred', argmax(pred_df.label_prob))
    evaluator = MulticlassClassificationEvaluator(predictionCol='label_pred', labelCol='label', metricName='accuracy')
    print()
    print(json.dumps({
        'accuracy': evaluator.evaluate(pred_df), 'history': keras_model.getHistory(), 'columns': pred_df.dtypes,
        'rows': train_df.count(), 'predicted': pred_df.count() == test_df.count(), 'run_id': keras_model.getRunId(),
        'rate': float(keras_model.getModel().optimizer.learning_rate),
        'steps': int(keras_model.getModel().optimizer.iterations)}))
    spark.stop()
"""

SALES = """
import argparse, json, math, random
import pyspark.sql.functions as F
from pyspark.sql import SparkSession
import tensorflow as tf
from tensorflow.keras.layers import BatchNormalization, Concatenate, Dense, Embedding, Flatten, Input, Reshape
import horovod.spark.keras as hvd
from horovod.spark.common.store import Store
from horovod.tensorflow.keras.callbacks import BestModelCheckpoint

parser = argparse.ArgumentParser()
parser.add_argument('--work-dir')
args = parser.parse_args()
spark = SparkSession.builder.master('local[2]').getOrCreate()

random.seed(1)
rows = []
for i in range(301):
    shop, promo, distance = random.randrange(5), random.random() < 0.5, random.random()
    rows.append((i, shop, promo, distance, math.exp(1 + shop / 5 + 0.3 * promo - 0.5 * distance), i % 10 == 0))
df = spark.createDataFrame(rows, 'Id long, Store int, Promo boolean, Distance float, Sales double, Validation boolean')
train_df = df.withColumn('Sales', F.log(df.Sales)).withColumn('Weight', F.lit(1.0))
test_df = df.withColumnRenamed('Sales', 'Truth').drop('Validation').coalesce(1)
max_sales = 12.0


def exp_rmspe(y_true, y_pred):
    pct = tf.square((tf.exp(y_true) - tf.exp(y_pred)) / tf.exp(y_true))
    return tf.sqrt(tf.reduce_mean(pct))


def act_sigmoid_scaled(x):
    return tf.nn.sigmoid(x) * tf.math.log(max_sales) * 1.2


custom_objects = {'exp_rmspe': exp_rmspe, 'act_sigmoid_scaled': act_sigmoid_scaled}
all_cols = ['Store', 'Promo', 'Distance']
inputs = {col: Input(shape=(1,), name=col) for col in all_cols}
embeddings = [Embedding(n, 3, input_length=1, name='emb_' + col)(inputs[col]) for col, n in (('Store', 5), ('Promo', 2))]
continuous = BatchNormalization()(Reshape((1, 1), name='reshape_Distance')(inputs['Distance']))
x = Flatten()(Concatenate()(embeddings + [continuous]))
x = Dense(20, activation='relu', kernel_regularizer=tf.keras.regularizers.l2(0.00005))(x)
model = tf.keras.Model([inputs[col] for col in all_cols], Dense(1, activation=act_sigmoid_scaled)(x))

estimator = hvd.KerasEstimator(
    num_proc=2, store=Store.create(args.work_dir), model=model, loss='mae',
    optimizer=tf.keras.optimizers.Adam(learning_rate=0.01, epsilon=1e-3), metrics=[exp_rmspe], custom_objects=custom_objects, feature_cols=all_cols, label_cols=['Sales'],
    sample_weight_col='Weight', validation='Validation', batch_size=20, epochs=5, verbose=2, partitions_per_process=2,
    checkpoint_callback=BestModelCheckpoint(monitor='val_loss', mode='auto', save_freq='epoch'))
keras_model = estimator.fit(train_df).setOutputCols(['Sales_output'])

keras_model.save(args.work_dir + '/saved')
pred_df = hvd.KerasModel.load(args.work_dir + '/saved').transform(test_df)
rows = pred_df.collect()
same = rows == keras_model.transform(test_df).collect()

errors = []
for bad in (train_df.withColumn('Store', F.when(F.col('Id') != 77, F.col('Store'))),
            train_df.withColumn('Store', F.array_repeat('Store', 1 + (F.col('Id') == 77).cast('int'))),
            train_df.drop('Promo'), train_df.withColumn('Validation', F.lit(False)),
            train_df.withColumn('Store', F.array('Store', 'Store'))):
    try:
        estimator.fit(bad)
    except ValueError as error:
        errors.append(str(error))
print()
print(json.dumps({
    'kind': type(model).__module__.partition('.')[0], 'history': keras_model.getHistory(), 'columns': pred_df.dtypes,
    'steps': int(keras_model.getModel().optimizer.iterations), 'rate': float(keras_model.getModel().optimizer.learning_rate),
    'same': same, 'rows': len(rows), 'errors': errors,
    'worst': max(abs(math.exp(row.Sales_output) / row.Truth - 1) for row in rows)}))
spark.stop()
"""


@pytest.fixture
def run(yard: Yard, tmp_path: Path) -> Any:
    """Runs a program as users do; returns its last line and all its output."""

    def run(program: str, *args: object, **env: str) -> tuple[Any, str]:
        path = yard.project / "program.py"
        path.write_text(program)
        env = {**yard.env, "HOPYARD_PROGRAM": yard.bin, "PYSPARK_PYTHON": sys.executable, **env}
        done = subprocess.run([sys.executable, "-m", "hopyard.compat", path, *map(str, args)], env=env, cwd=yard.project,
                              text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-6000:]}\n{yard.driver_log()}"
        return json.loads(done.stdout.splitlines()[-1]), done.stdout

    return run


def test_estimator_learns_digits(run: Any, tmp_path: Path) -> None:
    """Vectors for features and labels, a backend, TensorBoard, and predictions as a column of vectors."""
    import sklearn.datasets  # here: every pytest that collects tests imports this module

    work, data = tmp_path / "work", str(tmp_path / "digits.libsvm")
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    sklearn.datasets.dump_svmlight_file(x / 16, y, data, zero_based=False)
    output, shown = run(DIGITS, "--num-proc", 2, "--epochs", 4, "--work-dir", work, "--data", data)
    assert output["accuracy"] > 0.8 and output["predicted"] and len(output["history"]["accuracy"]) == 4
    assert output["columns"][-2:] == [["label_prob", "vector"], ["label_pred", "double"]]
    assert f"{output['rows']} rows to train on" in shown and "Epoch 4/4" in shown
    assert output["steps"] == 4 * -(-(-(-output["rows"] // 2)) // 32)  # each rank has half of the rows, in batches of 32
    assert output["rate"] == pytest.approx(0.002)
    run_dir = work / "runs" / output["run_id"]
    assert (run_dir / "checkpoint.keras").stat().st_size and list(run_dir.glob("logs/train/events.*"))
    assert [path.name for path in work.iterdir()] == ["runs"]  # the rows have been removed


def test_estimator_of_tf_keras_keeps_the_best_model(run: Any, tmp_path: Path) -> None:
    """Several inputs, a column for validation, weights, custom objects; a saved model, and refused rows."""
    output, shown = run(SALES, "--work-dir", tmp_path / "work", TF_USE_LEGACY_KERAS="1")
    assert output["kind"] == "tf_keras" and output["same"] and output["rows"] == 301
    assert set(output["history"]) == {"loss", "exp_rmspe", "val_loss", "val_exp_rmspe"}
    assert output["columns"][-1] == ["Sales_output", "double"] and output["worst"] < 0.8
    assert "270 rows to train on, 31 to validate on" in shown
    best = min(range(5), key=output["history"]["val_loss"].__getitem__) + 1
    assert output["steps"] == 7 * best and output["rate"] == pytest.approx(0.01)  # 135 rows for each rank, in batches of 20
    missing, uneven, absent, none, wide = output["errors"]
    assert missing == "column 'Store' has rows without a value; fill them (fillna) or drop them (dropna) first"
    assert uneven.startswith("column 'Store' has rows of ") and uneven.endswith("values; all must have the same number")
    assert absent.startswith("the DataFrame has no column 'Promo' (columns: Id, Store, ")
    assert none == "validation='Validation' has chosen no row of the DataFrame"
    assert wide == "feature column 'Store' has 2 values in a row, and the model's input has 1"
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["runs", "saved"]
