# SPDX-License-Identifier: Apache-2.0
"""Code from the guides of hops, run unchanged as scripts and in a notebook.

The calls are those of the guides; each test names its guide. Where a guide has "# Training code" the training is ours,
and small. `spark` is predefined in notebooks of Hopsworks: here it is None, this machine.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from conftest import Yard, wait_for

HEAD = """
spark = None
def fetch(url):
    'The answer of a server; its address is known before it listens.'
    import time, urllib.request
    end = time.monotonic() + 120
    while True:
        try:
            return urllib.request.urlopen(url).read().decode()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
"""
TAIL = """
import json as _json, sys as _sys
print(_json.dumps({name: value for name, value in globals().items()
                   if not name.startswith("_") and isinstance(value, (str, int, float, list, tuple, dict, type(None)))}))
"""

# Ours, and quick: in place of a guide's "Training code".
KERAS = """
def training(learning_rate, dropout):
    import keras
    import tensorflow as tf
    from hops import hdfs, tensorboard
    path = hdfs.project_path() + "Resources/train.tfrecords"
    feature = {"x": tf.io.FixedLenFeature([4], tf.float32), "y": tf.io.FixedLenFeature([], tf.float32)}
    rows = tf.data.TFRecordDataset(path).map(lambda row: tf.io.parse_single_example(row, feature))
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(dropout), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(learning_rate), loss="mse")
    history = model.fit(rows.map(lambda row: (row["x"], row["y"])).batch(8), epochs=1, verbose=0,
                        callbacks=[keras.callbacks.TensorBoard(log_dir=tensorboard.logdir(), write_graph=False)])
    hdfs.log(f"loss {history.history['loss'][0]}")
    print("trained with", learning_rate, dropout)
    return -history.history["loss"][0]
"""


class Guide:
    """Scripts in a project, run by `python -m hopyard.compat`; returns their variables at the end."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.env = {**yard.env, "HOPYARD_PROGRAM": yard.bin, "TF_CPP_MIN_LOG_LEVEL": "2"}

    def run(self, code: str, rc: int = 0, head: str = HEAD, **env: str) -> subprocess.CompletedProcess[str]:
        script = self.yard.project / "Jupyter" / "guide.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(head + textwrap.dedent(code) + TAIL)
        p = subprocess.run([sys.executable, "-m", "hopyard.compat", script], env={**self.env, **env}, text=True,
                           cwd=self.yard.project, stdin=subprocess.DEVNULL, capture_output=True, timeout=280)
        assert p.returncode == rc, f"{p.stdout[-4000:]}\n{p.stderr[-4000:]}\n{self.yard.driver_log()}"
        return p

    def variables(self, code: str, **kw: Any) -> dict[str, Any]:
        return json.loads(self.run(code, **kw).stdout.splitlines()[-1])

    def records(self) -> None:
        """Resources/train.tfrecords, written by TensorFlow in another process: here it would stay imported."""
        code = """
            import numpy, tensorflow as tf
            with tf.io.TFRecordWriter("Resources/train.tfrecords") as file:
                for x in numpy.random.default_rng(1).random((32, 4), numpy.float32):
                    feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=x)),
                               "y": tf.train.Feature(float_list=tf.train.FloatList(value=[x.sum()]))}
                    file.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        """
        (self.yard.project / "Resources").mkdir()
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=self.yard.project, env=self.env, check=True)


@pytest.fixture
def guide(yard: Yard) -> Guide:
    return Guide(yard)


def trials_in(logdir: str) -> list[str]:
    """Names of the directories in a run's directory."""
    return sorted(entry.name for entry in os.scandir(logdir) if entry.is_dir())


# ---- with the session first: hops-docs, user_guide/tensorflow ------------------------------------------------


def test_parallel_experiments_guide(yard: Yard, guide: Guide) -> None:
    """tflauncher.rst: a grid by util.grid_params, launched, with TensorFlow reading from the project."""
    guide.records()
    output = guide.variables(KERAS + """
args_dict = {'learning_rate': [0.001, 0.0005, 0.0001], 'dropout': [0.45, 0.7]}

from hops import util
args_dict_grid = util.grid_params(args_dict)

print(args_dict_grid)

from hops import tflauncher
logdir = tflauncher.launch(spark, training, args_dict_grid)
""")
    assert output["args_dict_grid"] == {"learning_rate": [0.001, 0.001, 0.0005, 0.0005, 0.0001, 0.0001],
                                        "dropout": [0.45, 0.7, 0.45, 0.7, 0.45, 0.7]}
    assert output["logdir"] == str(yard.logdir(1)) and output["logdir"].startswith(f"{yard.project}/Logs/TensorFlow/local-")
    pairs = [(lr, dropout) for lr in ("0.001", "0.0005", "0.0001") for dropout in ("0.45", "0.7")]
    assert trials_in(output["logdir"]) == sorted(f"learning_rate={lr},dropout={dropout}" for lr, dropout in pairs)
    for lr, dropout in pairs:
        folder = Path(output["logdir"], f"learning_rate={lr},dropout={dropout}")
        assert list((folder / "train").glob("events.out.tfevents.*")), "what the code wrote to tensorboard.logdir()"
        assert ": loss " in (folder / "trial.log").read_text()
        assert (folder / "stdout").read_text() == f"trained with {lr} {dropout}\n"
    assert {t["state"] for t in yard.trials()} == {"done"}


def test_hops_library_guide(yard: Yard, guide: Guide) -> None:
    """hops.rst: one experiment, two, a grid of four; files written, copied and logged from inside."""
    (yard.project / "Resources").mkdir()
    (yard.project / "Resources" / "mydata.json").write_text('{"answer": 42}')
    output = guide.variables("""
        def wrapper():
            from hops import hdfs
            fs_handle = hdfs.get_fs()

            logfile = hdfs.project_path() + "Resources/file.txt"
            fd = fs_handle.open_file(logfile, flags='w')
            fd.write('Hello HopsWorks')
            fd.close()

            hdfs.log('Hello HopsWorks')
            hdfs.copy_from_project("Resources/mydata.json", "")

        from hops import tflauncher
        root_tensorboard_logdir = tflauncher.launch(spark, wrapper)

        def multiple_experiments_wrapper(lr, dropout):
            print(lr, dropout)

        args_dict = {'lr': [0.1, 0.3], 'dropout': [0.4, 0.7]}
        two = tflauncher.launch(spark, multiple_experiments_wrapper, args_dict)

        from hops import util
        args_dict_grid = util.grid_params(args_dict)
        four = tflauncher.launch(spark, multiple_experiments_wrapper, args_dict_grid)

        from hops import hdfs, tensorboard
        hdfs.log('Hello HopsWorks')
        top_level_logdir = tensorboard.logdir()

        from hops import devices
        num_gpus = devices.get_num_gpus()
        num_param_servers = util.num_param_servers(spark)
        num_executors = util.num_executors(spark)

        from hops import hdfs
        project_user = hdfs.project_user()
        project_name = hdfs.project_name()
        project_path = hdfs.project_path()
        other_project_path = hdfs.project_path('deep-learning-101')
    """)
    assert (yard.project / "Resources" / "file.txt").read_text() == "Hello HopsWorks"
    assert (yard.project / "mydata.json").read_text() == '{"answer": 42}'
    [trial] = trials_in(output["root_tensorboard_logdir"])
    folder = Path(output["root_tensorboard_logdir"], trial)
    assert (folder / "trial.log").read_text().endswith(": Hello HopsWorks\n")
    assert os.path.isdir(output["top_level_logdir"]), "outside of a trial it is a temporary directory"
    assert not (folder / "stdout").exists(), "the log is separate from the output"
    assert trials_in(output["two"]) == ["lr=0.1,dropout=0.4", "lr=0.3,dropout=0.7"]
    assert trials_in(output["four"]) == [f"lr={lr},dropout={d}" for lr in ("0.1", "0.3") for d in ("0.4", "0.7")]
    assert [output[name] for name in ("root_tensorboard_logdir", "two", "four")] == [str(yard.logdir(i)) for i in (1, 2, 3)]
    assert (output["num_gpus"], output["num_param_servers"], output["num_executors"]) == (0, 0, 1)
    assert output["project_path"] == f"{yard.project}/" and output["project_name"] == "project"
    assert output["other_project_path"] == f"{yard.project.parent}/deep-learning-101/"
    assert {"Resources", "Logs", "Jupyter", "Models"} <= {entry.name for entry in yard.project.iterdir()}


def test_experiment_guide(yard: Yard, guide: Guide) -> None:
    """experiment.rst, and the notebook Evolutionary_hyperparameter_search_Cifar10 of hops-examples."""
    output = guide.variables("""
        def training(learning_rate, dropout):
            print(learning_rate, dropout)

        args_dict = {'learning_rate': [0.001, 0.0005, 0.0001], 'dropout': [0.45, 0.7]}

        from hops import experiment
        grid = experiment.grid_search(spark, training, args_dict, direction='max')

        def wrapper(learning_rate, dropout, num_layers):
            assert isinstance(num_layers, int)
            return -(dropout - 0.5) ** 2 - num_layers

        boundary_dict = {'learning_rate': [0.005, 0.00005], 'dropout': [0.01, 0.99], 'num_layers': [1,3]}

        tensorboard_hdfs_logdir = experiment.evolutionary_search(spark, wrapper, boundary_dict, direction='max', popsize=10, generations=3, crossover=0.7, mutation=0.5)

        from hops import tensorboard

        address = tensorboard.visualize(spark, tensorboard_hdfs_logdir)

        logdir, best_params = tensorboard_hdfs_logdir
        environment = fetch(address + "data/environment")
    """)
    assert len(trials_in(output["grid"][0])) == 6 and output["grid"][1] is None, "a grid needs no metric"
    assert len(yard.trials(2)) == 30 and output["logdir"] == str(yard.logdir(2))
    assert output["best_params"]["num_layers"] == 1 and 0.00005 <= output["best_params"]["learning_rate"] <= 0.005
    assert output["logdir"] in output["environment"], "TensorBoard shows that run"


def test_evolution_without_a_metric_is_an_error(guide: Guide) -> None:
    """experiment.rst: "Compared to grid search, a metric needs to be returned by your code"."""
    output = guide.run("""
        def training(learning_rate, dropout):
            pass

        from hops import experiment
        experiment.evolutionary_search(spark, training, {'learning_rate': [0.001, 0.0001], 'dropout': [0.45, 0.7]},
                                       generations=1, population=4, tensorboard=False)
    """, rc=1).stderr
    assert "training returned nothing, and this search needs a number from every trial" in output


def test_history_is_a_metric_and_a_loss_needs_a_direction(guide: Guide) -> None:
    """A search of hops whose function returns `fit(...).history`; best_params stays None without a metric."""
    output = guide.variables("""
        from hops import experiment
        from hops.experiment import Direction
        args_dict = {'x': [1, 2]}
        def training(x):
            return {'loss': [9.0, x], 'val_loss': [9.0, x], 'accuracy': [0.1, 0.2], 'val_accuracy': [0.0, x]}
        def losing(x):
            return {'loss': [9.0, x]}
        epochs = experiment.grid_search(spark, training, args_dict, tensorboard=False)
        unclear = experiment.grid_search(spark, losing, args_dict, tensorboard=False)
        least = experiment.grid_search(losing, args_dict, direction=Direction.MIN, tensorboard=False)
        named = experiment.grid_search(training, args_dict, direction='min', optimization_key='loss', tensorboard=False)
        launched = experiment.launch(losing, {'x': [3]}, metric_key='loss', tensorboard=False)
    """)
    assert output["epochs"][1] == {"x": 2} and output["unclear"][1] is None
    assert output["least"][1] == output["named"][1] == {"x": 1} and output["named"][2]["val_loss"] == 1
    assert output["launched"][1] == {"loss": 3}


# ---- without the session: hops-docs, hopsml -------------------------------------------------------------------


def test_hopsml_guide(yard: Yard, guide: Guide) -> None:
    """hopsml/experiment.rst: one program, a grid, evolution over a dict of outputs; none has a session."""
    guide.records()
    output = guide.variables(KERAS + """
def code_to_run():
    dropout = 0.5
    learning_rate = 0.001
    return training(learning_rate, dropout)

from hops import experiment
once = experiment.launch(code_to_run)

args_dict = {'learning_rate': [0.001, 0.0005], 'dropout': [0.45]}

from hops import experiment
from hops.experiment import Direction
grid = experiment.grid_search(training, args_dict, direction=Direction.MAX)

search_dict = {'learning_rate': [0.001, 0.0001], 'dropout': [0.45, 0.7]}

def evaluated(learning_rate, dropout):
    acc, loss = 1 - dropout, learning_rate
    return {'accuracy': acc, 'loss': loss, 'plot': 'image_file.png'}

evolved = experiment.differential_evolution(evaluated, search_dict, direction=Direction.MAX, optimization_key='accuracy',
                                            population=4, generations=2)
""")
    assert len(trials_in(output["once"])) == 1
    logdir, best, outputs = output["grid"]
    assert logdir == str(yard.logdir(2)) and best["dropout"] == 0.45 and outputs["metric"] < 0
    logdir, best, outputs = output["evolved"]
    assert outputs == {"accuracy": 1 - best["dropout"], "loss": best["learning_rate"], "plot": "image_file.png"}
    assert len(yard.trials(3)) == 8


def test_trainings_on_all_executors(yard: Yard, guide: Guide) -> None:
    """hopsml/experiment.rst, distributed training: a function without arguments finds its role in TF_CONFIG."""
    output = guide.variables("""
        from pyspark.sql import SparkSession
        from hops import TFCluster, experiment, tensorboard

        spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
                 .config("spark.executor.instances", "4").config("spark.tensorflow.num.ps", "1").getOrCreate())

        def training():
            import json, os
            config = json.loads(os.environ["TF_CONFIG"])
            print(tensorboard.logdir())
            if config["task"]["type"] == "ps":
                while True:
                    time.sleep(0.1)
            return {"accuracy": 0.5, "nodes": sum(len(nodes) for nodes in config["cluster"].values())}

        import time
        reduced, metrics = experiment.collective_all_reduce(spark, training, name="reduced", evaluator=True, metric_key="accuracy",
                                                            tensorboard=False)
        served = experiment.parameter_server(spark, training, tensorboard=False)
        mirrored = experiment.mirrored(training, num_nodes=2, tensorboard=False)
        nodes = TFCluster.run(spark, lambda args, ctx: ctx.job_name, None, 2, 1)
        nodes.shutdown()
        roles = nodes.cluster.results()
        spark.stop()
        del spark, nodes
    """)
    nodes = {run: sorted(t["params"]["node"] for t in yard.trials(run)) for run in (1, 2, 3)}
    assert nodes[1] == ["chief-0", "evaluator-0", "worker-0", "worker-1"] and nodes[2] == ["chief-0", "ps-0", "worker-0", "worker-1"]
    assert nodes[3] == ["chief-0", "worker-0"] and output["roles"] == {"ps-0": "ps", "worker-0": "worker"}
    assert output["metrics"] == {"accuracy": 0.5, "nodes": 3}, "an evaluator is not part of the training cluster"
    assert [output["reduced"], output["served"], output["mirrored"]] == [str(yard.logdir(run)) for run in (1, 2, 3)]
    assert Path(output["reduced"], "node=chief-0/stdout").read_text() == f"{output['reduced']}/node=chief-0\n"


def test_quick_start_keeps_the_notebook_with_the_run(yard: Yard, guide: Guide) -> None:
    """README of hops-util-py up to 1.0."""
    (yard.project / "Jupyter").mkdir()
    (yard.project / "Jupyter" / "mnist.ipynb").write_text("{}")
    output = guide.variables("""
        def minimal_mnist():
            from hops import hdfs
            hdfs.dump("changed", "Jupyter/mnist.ipynb")

        from hops import experiment
        from hops import hdfs
        notebook = hdfs.project_path() + "Jupyter/mnist.ipynb"
        logdir = experiment.launch(minimal_mnist,
                                   name='mnist estimator',
                                   description='A minimal mnist example with two hidden layers',
                                   versioned_resources=[notebook])
    """)
    assert Path(output["logdir"], "versioned_resources", "mnist.ipynb").read_text() == "{}", "as at the start of the run"
    assert yard.rows("SELECT name FROM runs") == [{"name": "mnist estimator"}]


def test_custom_experiment_of_the_process_itself(yard: Yard, guide: Guide) -> None:
    """The API documentation's experiment.begin: "Code to calculate pi"."""
    output = guide.variables("""
        import math
        from hops import experiment, hdfs, tensorboard
        folder = experiment.begin(name='calculate pi')
        same = tensorboard.logdir()
        hdfs.log("calculating")
        pi = math.pi
        experiment.end(pi)
    """)
    assert output["folder"] == output["same"] and Path(output["folder"], "trial.log").read_text().endswith(": calculating\n")
    assert yard.state() == "done" and yard.trials()[0]["value"] == pytest.approx(3.14159, abs=1e-4)


def test_random_search_draws_the_requested_number(yard: Yard, guide: Guide) -> None:
    """The API documentation's experiment.random_search."""
    output = guide.variables("""
        from hops import experiment
        boundary_dict = {'learning_rate': [0.1, 0.3], 'layers': [2, 9], 'dropout': [0.1,0.9]}
        def train_nn(learning_rate, layers, dropout):
            return layers
        logdir, best = experiment.random_search(train_nn, boundary_dict, samples=14, direction='max')
    """)
    layers = [t["params"]["layers"] for t in yard.trials()]
    assert len(layers) == 14 and set(layers) <= set(range(2, 10)) and output["best"]["layers"] == max(layers)


def test_models_guide(yard: Yard, guide: Guide) -> None:
    """hopsml/model.rst: trials export models, the best is found again."""
    output = guide.variables("""
        def training(acc):
            import os
            from hops import model, tensorboard

            local_model_path = tensorboard.logdir() + "/model_dir"
            os.mkdir(local_model_path)
            open(local_model_path + "/saved_model.pb", "w").write(str(acc))

            model.export(local_model_path, "mnist", metrics={'accuracy': acc})

        from hops import experiment
        experiment.launch(training, {'acc': [0.1, 0.9098, 0.5]})

        from hops import model
        from hops.model import Metric
        MODEL_NAME="mnist"
        EVALUATION_METRIC="accuracy"

        best_model = model.get_best_model(MODEL_NAME, EVALUATION_METRIC, Metric.MAX)
    """)
    best = output["best_model"]
    assert best["metrics"] == {"accuracy": "0.9098"} and best["name"] == "mnist"
    assert (yard.project / "Models" / "mnist" / str(best["version"]) / "saved_model.pb").read_text() == "0.9098"


def test_cleanup_generations_keeps_the_last_and_the_best(yard: Yard, guide: Guide) -> None:
    output = guide.variables("""
        from hops import experiment
        def training(x):
            return x
        logdir, best = experiment.evolutionary_search(None, training, {'x': [0.0, 1.0]}, generations=3, population=4,
                                                      cleanup_generations=True, seed=1, tensorboard=False)
    """)
    best = max(yard.trials(), key=lambda t: t["value"])["number"]
    assert len(trials_in(output["logdir"])) == len({best, 9, 10, 11, 12})


# ---- which hops package is used ----------------------------------------------------------------------------------


def test_trials_use_our_hops_despite_an_installed_one(tmp_path: Path, yard: Yard, guide: Guide) -> None:
    site = tmp_path / "site-packages"
    (site / "hops").mkdir(parents=True)
    (site / "hops" / "__init__.py").write_text("raise RuntimeError('theirs')")
    code = """
        from hops import tensorboard
        def training(x):
            import hops.hdfs
            assert tensorboard.logdir().startswith(hops.hdfs.project_path())
            return x
        from hops import experiment
        logdir, best = experiment.grid_search(training, {'x': [1, 2]}, tensorboard=False)
    """
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    assert guide.variables(code, PYTHONPATH=path)["best"] == {"x": 2}
    assert all(t["state"] == "done" for t in yard.trials())


def test_script_may_import_hopyard_compat(yard: Yard, guide: Guide) -> None:
    script = yard.project / "own.py"
    script.write_text(textwrap.dedent("""
        import hopyard.compat
        from hops import experiment
        print(experiment.launch(None, lambda: 1, tensorboard=False))
    """))
    p = subprocess.run([sys.executable, script], env=guide.env, cwd=yard.project, text=True, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=240)
    assert p.returncode == 0, p.stderr
    assert p.stdout.splitlines()[-1] == str(yard.logdir())


def test_run_with_a_local_session_has_its_application_id(yard: Yard, guide: Guide) -> None:
    """A real Spark session on this machine."""
    output = guide.variables("""
        from pyspark.sql import SparkSession
        from hops import experiment, util
        spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
                 .config("spark.executor.instances", "1").config("spark.tensorflow.num.ps", "3").getOrCreate())
        def training(x):
            return x
        first = experiment.launch(spark, training, {'x': [1, 2]}, tensorboard=False)
        second = experiment.launch(spark, training, {'x': [1]}, tensorboard=False)
        app = spark.sparkContext.applicationId
        counts = [util.num_executors(spark), util.num_param_servers(spark)]
        spark.stop()
        del spark
    """)
    assert output["app"].startswith("local-") and output["counts"] == [1, 3]
    assert output["first"] == f"{yard.project}/Logs/TensorFlow/{output['app']}/1"
    assert output["second"] == f"{yard.project}/Logs/TensorFlow/{output['app']}/2"


# ---- a notebook ---------------------------------------------------------------------------------------------------


def test_guide_runs_in_a_notebook(yard: Yard, guide: Guide) -> None:
    """experiment.rst again, a cell for each of its blocks, in a real kernel."""
    cells = [
        "import hopyard.compat\nspark = None",
        "args_dict = {'learning_rate': [0.001, 0.0005, 0.0001], 'dropout': [0.45, 0.7]}\n\n"
        "def training(learning_rate, dropout):\n    return learning_rate * dropout",
        "from hops import experiment\nlogdir, best = experiment.grid_search(spark, training, args_dict, direction='max')",
        "print(best, logdir)",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(book, timeout=240, kernel_name="python3")
    client.execute(cwd=str(yard.project), env=guide.env)
    [output] = [cell_output.text for cell_output in book.cells[-1].outputs]
    assert output == f"{{'learning_rate': 0.001, 'dropout': 0.7}} {yard.logdir()}\n"
    yard.wait_idle()


def test_started_tensorboard_exits_with_its_process(yard: Yard, guide: Guide) -> None:
    output = guide.variables("""
        import os
        from hops import tensorboard
        os.makedirs("Logs/old")
        address = tensorboard.visualize("Logs/old")
        again = tensorboard.visualize(spark, "Logs/old")
        environment = fetch(address + "data/environment")
    """)
    assert f"{yard.project}/Logs/old" in output["environment"] and output["again"] == output["address"]
    wait_for(lambda: not yard.processes("tensorboard"), "TensorBoard exits with the process that started it")
    with pytest.raises(OSError):
        urllib.request.urlopen(output["address"], timeout=5)
