# SPDX-License-Identifier: Apache-2.0
"""A real SparkSession on this machine: its settings, and TensorFlowOnSpark's feeds and pipelines on it."""
from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext, SparkFiles

import hopyard
import hopyard.compat  # noqa: F401  (tensorflowonspark is ours)
import hopyard.spark
from feeding import LIMIT_S, Manager, hub, name, wait_for  # noqa: F401
from hopyard import _hopyard
from hopyard._feed import data_feed as _data_feed
from hopyard._spark import package_archive as _package_archive
from hopyard._spark import session as _session

from tensorflowonspark import TFCluster, pipeline

pytestmark = pytest.mark.slow  # a JVM
FILE = "[spark]\nmaster = 'yarn'\nexecutors = 4\nparallel = 8\nexecutor-memory = 600\nparameter-servers = 1\n"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """With a project whose file names another master and a number of executors."""
    project = tmp_path_factory.mktemp("project")
    (project / "hopyard.toml").write_text(FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.delenv("SPARK_CONF_DIR", raising=False)
        conf = {"spark.ui.enabled": False, "spark.sql.warehouse.dir": tmp_path_factory.mktemp("spark"),
                "spark.sql.shuffle.partitions": 1}  # fmt: skip
        session = hopyard.spark.session("local[1]", executors=2, executor_memory=512, project=project, conf=conf)
        yield session
        gateway = session.sparkContext._gateway
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # by which its JVM ends
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None


# ---- settings --------------------------------------------------------------------------------------


@pytest.fixture
def fill(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The properties of a session, for arguments and other properties, in a project with FILE."""
    (tmp_path / "hopyard.toml").write_text(FILE)

    def run(master: str | None = None, conf: dict[str, str] | None = None, **arguments: Any) -> dict[str, str]:
        made = SparkConf(loadDefaults=False, _jvm=None, _jconf=None).setAll(list((conf or {}).items()))
        every = {setting.name: arguments.get(setting.name) for setting in _session.FORM}
        hopyard.spark._fill(made, master, every, tmp_path)
        return dict(made.getAll())

    return run


def test_settings_of_a_session_come_from_arguments_properties_and_the_project(
    fill: Callable[..., dict[str, str]],
) -> None:
    found = fill(executors=2, executor_gpus=1, conf={"spark.hopyard.executor.memory": "512"})
    assert found["spark.master"] == "yarn", "of the file"
    assert found["spark.hopyard.executors"] == found["spark.executor.instances"] == "2", "the argument comes first"
    assert found["spark.executor.memory"] == "512m", "then the property"
    assert found["spark.executor.resource.gpu.amount"] == "1"
    assert found["spark.hopyard.parallel"] == "8" and found["spark.tensorflow.num.ps"] == "1", "of the file"
    assert fill("spark://a:7077", {"spark.master": "spark://b:7077"})["spark.master"] == "spark://a:7077"
    assert fill(conf={"spark.master": "spark://b:7077"})["spark.master"] == "spark://b:7077"


def test_local_session_has_no_executors_to_configure(fill: Callable[..., dict[str, str]]) -> None:
    found = fill("local[2]", executors=2)
    assert found["spark.hopyard.executors"] == "2" and "spark.executor.instances" not in found


def test_standalone_cluster_gets_a_limit_of_cores(fill: Callable[..., dict[str, str]]) -> None:
    assert fill("spark://a:7077", {"spark.executor.cores": "3"}, executors=2)["spark.cores.max"] == "6"
    given = {"spark.executor.cores": "3", "spark.cores.max": "5"}
    assert fill("spark://a:7077", given, executors=2)["spark.cores.max"] == "5", "the user's own"
    assert "spark.cores.max" not in fill("spark://a:7077", executors=2)


@pytest.mark.parametrize("value", [-1, 1.5, "2", True])
def test_invalid_argument_is_an_error(fill: Callable[..., dict[str, str]], value: Any) -> None:
    with pytest.raises(hopyard.Error, match=f"executors must be a whole number, 0 or more, not {value!r}"):
        fill(executors=value)


def test_session_needs_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(hopyard.Error, match="pyspark is not installed; try: pip install pyspark"):
        hopyard.spark.session()


def test_session_has_its_settings_and_is_the_only_one(spark: Any) -> None:
    conf = spark.sparkContext.getConf()
    assert spark.sparkContext.master == "local[1]" and conf.get("spark.hopyard.executors") == "2"
    assert conf.get("spark.hopyard.executor.memory") == "512" and conf.get("spark.hopyard.parallel") == "8"
    assert conf.get("spark.executor.instances") is None
    with pytest.raises(hopyard.Error, match=r"this process already has a SparkSession; stop it first with spark.stop"):
        hopyard.spark.session("local[1]")
    assert _session.default("spark.absent") is None and _session.listed(spark.sparkContext) == []


def test_hopyard_is_sent_once_per_application(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_package_archive, "archive", lambda: (b"content", "d1"))
    for _ in range(2):
        assert _package_archive.prepare(spark.sparkContext) == ("hopyard-d1.package", "d1", hopyard.__version__)
    [sent] = [url for url in spark.sparkContext.listFiles if url.endswith("/hopyard-d1.package")]
    assert Path(SparkFiles.get("hopyard-d1.package")).read_bytes() == b"content" and sent


def test_other_objects_are_not_sessions() -> None:
    with pytest.raises(hopyard.Error, match="spark must be a SparkSession, or None for this machine, not 7"):
        _session.context_of(7)
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(hopyard.Error, match="a Spark Connect session cannot start hopyard's jobs"):
        _session.context_of(remote)


def test_address_towards_other_machines_is_a_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Probe:
        """Of a machine with one route."""

        def __init__(self, *kind: int) -> None:
            pass

        def __enter__(self) -> Probe:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def connect(self, target: tuple[str, int]) -> None:
            if not has_route:
                raise OSError("Network is unreachable")

        def getsockname(self) -> tuple[str, int]:
            return "192.0.2.7", 9

    monkeypatch.setattr(_session.socket, "socket", Probe)
    has_route = True
    assert _session._outward() == "192.0.2.7"
    has_route = False
    assert _session._outward() is None


# ---- feeds -----------------------------------------------------------------------------------------


class Cluster:
    """As much of a hopyard.cluster.Cluster as is fed: its only node is this process."""

    run, project = 3, "/a/project"

    def __init__(self, *hubs: str) -> None:
        self._hubs, self.missing, self.ended = list(hubs), 0, [0.0, 0.0]
        self.is_up = True

    def hubs(self) -> list[str]:
        return self._hubs

    def feeding(self) -> Any:
        return contextlib.nullcontext()

    def check_missing_node(self) -> None:
        self.missing += 1

    def unread(self, timeout: float) -> Exception:
        return hopyard.FeedTimeout(f"no rows were taken for {timeout} s")

    def wait_for_nodes(self, timeout: float) -> None:
        assert timeout == 600

    def addresses(self) -> list[tuple[str, int, str, int]]:
        return [("chief", 0, "a", 1), ("worker", 0, "b", 2)]

    def shutdown(self, grace: float, timeout: float) -> None:
        self.ended = [grace, timeout]

    def is_running(self) -> bool:
        return self.is_up

    def has_failed(self) -> bool:
        return not self.is_up

    def tensorboard_url(self) -> str:
        return "http://127.0.0.1:6006"


def fed(spark: Any, cluster: Cluster, input_mode: int = TFCluster.InputMode.SPARK) -> TFCluster.TFCluster:
    return TFCluster.TFCluster(cluster, spark.sparkContext, input_mode)  # type: ignore[arg-type]


def taken(hub: _hopyard.Hub, count: int) -> tuple[threading.Thread, list[Any]]:  # noqa: F811
    """Takes so many rows in a thread."""
    rows: list[Any] = []

    def take() -> None:
        while len(rows) < count:
            rows.extend(hub.next_rows(count - len(rows), LIMIT_S)[0])

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread, rows


def test_rows_of_rdds_and_data_frames_are_fed(
    spark: Any, name: str, hub: _hopyard.Hub, tmp_path: Path  # noqa: F811
) -> None:
    cluster = fed(spark, Cluster(name))
    (tmp_path / "text").write_text("one\ntwo\n")
    for data, epochs, expected in (
        (spark.sparkContext.parallelize([1, 2, 3], 1).map(lambda n: 2 * n), 2, [2, 4, 6, 2, 4, 6]),
        (spark.sparkContext.parallelize(["a", "b"], 1), 1, ["a", "b"]),
        (spark.createDataFrame([(1, "x")], "n int, s string").coalesce(1), 1, [(1, "x")]),
        (spark.sparkContext.textFile(f"file://{tmp_path}/text", 1), 1, ["one", "two"]),
    ):
        thread, rows = taken(hub, len(expected))
        cluster.train(data, num_epochs=epochs)
        thread.join(LIMIT_S)
        assert [tuple(row) if isinstance(row, tuple) else row for row in rows] == expected


def test_results_come_back_in_order(spark: Any, name: str, hub: _hopyard.Hub) -> None:  # noqa: F811
    def node() -> None:
        feed = _data_feed.DataFeed(Manager(hub), train_mode=False)
        feed.batch_results([-row for row in feed.next_batch(3)])

    thread = threading.Thread(target=node, daemon=True)
    thread.start()
    results = fed(spark, Cluster(name)).inference(spark.sparkContext.parallelize([1, 2, 3], 1))
    assert results.collect() == [-1, -2, -3]
    thread.join(LIMIT_S)


def test_feed_that_nobody_takes_times_out(spark: Any, name: str, hub: _hopyard.Hub) -> None:  # noqa: F811
    """The first task that has waited ends the job: the others would wait as long."""
    with pytest.raises(hopyard.FeedTimeout, match="no rows were taken for 0.2 s"):
        fed(spark, Cluster(name)).train(spark.sparkContext.parallelize(range(2), 2), 1, feed_timeout=0.2)


def test_error_of_a_row_is_raised(spark: Any, name: str, hub: _hopyard.Hub) -> None:  # noqa: F811
    """It is not taken for that of a feed that has timed out."""
    rows = spark.sparkContext.parallelize([0], 1).map(lambda n: 1 // n)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        fed(spark, Cluster(name)).train(rows, 1)


def test_machine_without_a_node_is_reported(spark: Any, name: str) -> None:  # noqa: F811
    cluster = Cluster(f"{name}/elsewhere")
    fed(spark, cluster).train(spark.sparkContext.parallelize([1], 1), 3)
    assert cluster.missing == 1, "no more epochs follow"


def test_cluster_that_reads_files_is_not_fed(spark: Any) -> None:
    cluster = fed(spark, Cluster("unused"), TFCluster.InputMode.TENSORFLOW)
    for call in (cluster.train, cluster.inference):
        with pytest.raises(hopyard.Error, match="start the cluster with input_mode=InputMode.SPARK"):
            call(None)
    with pytest.raises(hopyard.Error, match="num_epochs is -1; it must not be negative"):
        fed(spark, Cluster("unused")).train(None, -1)


def test_cluster_describes_its_nodes(spark: Any) -> None:
    cluster = fed(spark, Cluster("unused"))
    assert cluster.cluster_id == 3 and cluster.cluster_meta == {"id": 3, "server_addr": ("/a/project", 3)}
    assert [(n["executor_id"], n["job_name"], n["host"], n["port"]) for n in cluster.cluster_info] == [
        (0, "chief", "a", 1), (1, "worker", "b", 2)]  # fmt: skip
    assert cluster.tensorboard_url() == "http://127.0.0.1:6006"


class Stream:
    """A StreamingContext, or a StreamingQuery, that ends when it is stopped."""

    def __init__(self, is_context: bool) -> None:
        self.stopped: list[tuple[bool, ...]] = []
        wait = "awaitTerminationOrTimeout" if is_context else "awaitTermination"
        setattr(self, wait, lambda seconds: bool(self.stopped))

    def stop(self, *how: bool) -> None:
        self.stopped.append(how)


@pytest.mark.parametrize("has_failed", [False, True])
def test_stream_is_stopped_when_its_nodes_have_ended(spark: Any, has_failed: bool) -> None:
    cluster = Cluster("unused")
    tf_cluster = fed(spark, cluster)
    cluster.is_up, tf_cluster._has_had_enough = not has_failed, not has_failed
    context, query = Stream(is_context=True), Stream(is_context=False)
    for stream in (context, query):
        tf_cluster.shutdown(stream, grace_secs=2, timeout=60)
    assert context.stopped == [(False, not has_failed)], "received rows are fed, unless there is no node for them"
    assert query.stopped == [()] and cluster.ended == [2, 60]


@pytest.mark.parametrize("has_failed", [False, True])
def test_batches_of_a_stream_are_fed_until_the_nodes_have_ended(
    spark: Any, name: str, hub: _hopyard.Hub, monkeypatch: pytest.MonkeyPatch, has_failed: bool  # noqa: F811
) -> None:
    """A program that awaits the end of its stream would wait forever for nodes that have failed."""
    cluster, context, ended = Cluster(name), Stream(is_context=True), threading.Event()
    monkeypatch.setattr(TFCluster._display, "wait", lambda run, project: ended.wait(LIMIT_S))
    batches: list[Callable[[Any], None]] = []
    fed(spark, cluster).train(SimpleNamespace(foreachRDD=batches.append, context=lambda: context))
    [feed] = batches
    for row in (1, 2):
        thread, rows = taken(hub, 1)
        assert not feed(spark.sparkContext.parallelize([row], 1)), "Spark would take a true value for an RDD"
        thread.join(LIMIT_S)
        assert rows == [row] and context.stopped == []
    hub.terminate()
    assert not feed(spark.sparkContext.parallelize([3], 1)), "nor of a feed whose nodes want no more rows"
    cluster.is_up = not has_failed
    ended.set()
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "hopyard-stream"])
    assert context.stopped == ([(False, False)] if has_failed else [])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"num_ps": 2}, "2 executors are too few for 2 parameter servers and a worker"),
        ({"num_ps": 2, "master_node": "chief", "eval_node": True}, "too few for 2 .*, a chief, an evaluator and a"),
        ({"master_node": "boss"}, "master_node must be 'chief' or 'master', not 'boss'"),
        ({"driver_ps_nodes": True, "input_mode": 1}, "only with input_mode=InputMode.TENSORFLOW"),
    ],
)
def test_impossible_cluster_is_an_error(spark: Any, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hopyard.Error, match=sentence):
        TFCluster.run(spark.sparkContext, print, None, 2, **given)


def test_cluster_is_started_with_its_roles(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def run(*args: Any, **given: Any) -> Cluster:
        calls.append((args, given))
        return Cluster("unused")

    monkeypatch.setattr(TFCluster._cluster, "run", run)
    found = TFCluster.run(spark, print, "args", 4, num_ps=1, input_mode=TFCluster.InputMode.SPARK, master_node="chief")
    [((function, args, workers, servers), given)] = calls
    assert (function, args, workers, servers, found.input_mode) == (print, "args", 2, 1, TFCluster.InputMode.SPARK)
    assert given["chief"] == "chief" and given["feed"] and given["default_fs"] == "file://"
    assert given["spark"] is spark.sparkContext


def test_tensorboard_of_a_folder_lives_as_long_as_the_cluster(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes write to it later, so it is created; the run then needs no TensorBoard."""
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(TFCluster._cluster, "run", lambda *args, **more: given.append(more) or Cluster("unused"))
    monkeypatch.setattr(TFCluster._tensorboard, "visualize", lambda folder: f"http://127.0.0.1/{Path(folder).name}")
    ended: list[str] = []
    monkeypatch.setattr(TFCluster._tensorboard, "end", ended.append)
    folder = tmp_path / "a/logs"
    cluster = TFCluster.run(spark, print, None, 1, tensorboard=True, log_dir=str(folder))
    assert cluster.tensorboard_url() == "http://127.0.0.1/logs" and folder.is_dir() and ended == []
    cluster.shutdown()
    assert ended == [str(folder)]
    assert TFCluster.run(spark, print, None, 1, tensorboard=True).tensorboard_url() == "http://127.0.0.1:6006"
    assert [more["tensorboard"] for more in given] == [False, True]


# ---- pipelines -------------------------------------------------------------------------------------


def train_fn(args: Any, ctx: Any) -> None:
    pytest.fail("no node is started")


def test_estimator_and_model_are_saved_with_their_functions(spark: Any, tmp_path: Path) -> None:
    estimator = pipeline.TFEstimator(train_fn, {"color": "red"}).setSteps(7).setInputMapping({"a": "x"})
    estimator.write().overwrite().save(str(tmp_path / "estimator"))
    found = pipeline.TFEstimator.load(str(tmp_path / "estimator"))
    assert found.uid == estimator.uid and found.args.color == "red" and found.train_fn.__name__ == "train_fn"
    assert (found.getSteps(), found.getInputMapping(), found.getBatchSize()) == (7, {"a": "x"}, 100)
    pipeline.TFModel({"color": "blue"}).setExportDir("/m").save(str(tmp_path / "model"))
    model = pipeline.TFModel.load(str(tmp_path / "model"))
    assert model.args.color == "blue" and model.getExportDir() == "/m"


def test_fit_feeds_the_mapped_columns_and_exports_the_model(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    rows: list[Any] = []
    cluster = SimpleNamespace(train=lambda rdd, epochs: rows.extend(rdd.collect() * epochs),
                              shutdown=lambda grace_secs: started.append(grace_secs))  # fmt: skip
    monkeypatch.setattr(TFCluster, "run", lambda *args, **given: started.append((args, given)) or cluster)

    def export_fn(args: Any) -> None:
        with open(args.export_dir, "w") as file:
            file.write(f"{args.steps} {args.color}")

    estimator = pipeline.TFEstimator(train_fn, argparse.Namespace(color="red"), export_fn)
    estimator.setInputMapping({"n": "x"}).setEpochs(2).setClusterSize(3).setExportDir(str(tmp_path / "model"))
    model = estimator.setSteps(5).setGraceSecs(1).fit(spark.createDataFrame([(1, "a")], "n int, s string"))
    ((_, function, args, size, servers, *_), given), grace = started
    assert (function, size, servers, args.color, args.steps, grace) == (train_fn, 3, 0, "red", 5, 1)
    assert given["master_node"] == "chief" and [tuple(row) for row in rows] == [(1,), (1,)]
    assert (tmp_path / "model").read_text() == "5 red" and model.getExportDir() == str(tmp_path / "model")
    with pytest.raises(hopyard.Error, match="export_fn writes a model; call setExportDir to set where"):
        estimator.setExportDir("").fit(spark.createDataFrame([(1,)], "n int"))


def test_nodes_that_read_files_get_the_rows_as_records(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    cluster = SimpleNamespace(shutdown=lambda grace_secs: None)
    monkeypatch.setattr(TFCluster, "run", lambda sc, fn, args, *rest, **given: found.append(args) or cluster)
    saved: list[tuple[list[str], str]] = []
    monkeypatch.setattr(pipeline.dfutil, "saveAsTFRecords", lambda df, folder: saved.append((df.columns, folder)))
    estimator = pipeline.TFEstimator(train_fn, {}).setInputMode(TFCluster.InputMode.TENSORFLOW)
    df = spark.createDataFrame([(1, "a")], "n int, s string")
    with pytest.raises(hopyard.Error, match="call setTFRecordDir to set where to write them"):
        estimator.fit(df)
    estimator.setTFRecordDir("/records").setInputMapping({"n": "x"}).fit(df)
    assert found[0].tfrecord_dir == "/records" and saved == [(["n"], "/records")]
    monkeypatch.setitem(pipeline.dfutil.loadedDF, df, "/elsewhere")
    estimator.fit(df)
    assert found[1].tfrecord_dir == "/elsewhere" and len(saved) == 1, "rows of records are not written again"


def test_model_has_a_column_for_each_output(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hopyard._tensorflow import saved_model as _saved_model

    seen: list[Any] = []
    monkeypatch.setattr(_saved_model, "schema", lambda model: seen.append(model) or "`y` float")
    df = spark.createDataFrame([(1, 2)], "b int, a int")
    model = pipeline.TFModel({}).setInputMapping({"b": "t", "a": "u"}).setOutputMapping({"out": "y"})
    with pytest.raises(hopyard.Error, match="no model is given; call setExportDir"):
        model.transform(df)
    assert model.setExportDir("/m").setBatchSize(5).transform(df).dtypes == [("y", "float")]
    assert seen == [_saved_model.Description("/m", "serve", "serving_default", {"a": "u", "b": "t"}, {"out": "y"}, 5)]


def test_arguments_are_a_namespace() -> None:
    names = pipeline.Namespace({"b": 2, "a": 1})
    assert names == argparse.Namespace(a=1, b=2) and sorted(names) == ["a", "b"]
    assert repr(names) == "Namespace(a=1, b=2)" and pipeline.Namespace(names) == names
    words = pipeline.Namespace(["--steps", "3"])
    assert words == ["--steps", "3"] and list(words) == ["--steps", "3"] and repr(words) == "['--steps', '3']"
    with pytest.raises(hopyard.Error, match="arguments must be a dict, a list or a namespace, not 7"):
        pipeline.Namespace(7)
    with pytest.raises(TypeError, match="7 is not a dict"):
        pipeline.TFModel({}).setInputMapping(7)


def test_batches_of_rows_are_lists_of_columns() -> None:
    rows = [(1, bytearray(b"a")), (2, bytearray(b"b")), (3, bytearray(b"c"))]
    assert list(pipeline.yield_batch(rows, 2, 2)) == [[[1, 2], [b"a", b"b"]], [[3], [b"c"]]]
    assert list(pipeline.yield_batch([*rows[:1], None, *rows[1:]], 2, 2)) == [[[1], [b"a"]]], "None ends the feed"


def test_single_node_gets_its_arguments_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["before"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    pipeline.single_node_env(SimpleNamespace(argv=["program", "--x"], num_gpus=2))
    assert sys.argv == ["program", "--x"] and os.environ["CUDA_VISIBLE_DEVICES"] == "4,5"
    pipeline.single_node_env(["other"])
    assert sys.argv == ["other"] and os.environ["CUDA_VISIBLE_DEVICES"] == "4"


# ---- estimators ------------------------------------------------------------------------------------


@pytest.fixture
def estimator(tmp_path: Path) -> Any:
    """Of y = 2 a + b, with a group of one in this process as its backend."""
    import keras

    from horovod.spark.common.backend import Backend
    from horovod.spark.common.store import Store
    from horovod.spark.keras import KerasEstimator

    class Here(Backend):
        def run(self, fn: Any, args: Any = (), kwargs: Any = None, env: Any = None) -> list[Any]:
            return [fn(*args)]

        def num_processes(self) -> int:
            return 1

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    return KerasEstimator(backend=Here(), store=Store.create(str(tmp_path / "store")), model=model, loss="mse",
                          optimizer=keras.optimizers.SGD(0.25), label_cols=["y"], validation="held", batch_size=4,
                          epochs=2, verbose=0, random_seed=1, partitions_per_process=1)  # fmt: skip


@pytest.fixture
def rows(spark: Any) -> Any:
    """Of them, a quarter is held back for the validation."""
    from pyspark.ml.linalg import Vectors

    points = [(Vectors.dense(n % 3, n / 12), n % 3 * 2 + n / 12, n % 4 == 0) for n in range(12)]
    return spark.createDataFrame(points, ["x", "y", "held"]).coalesce(1)


def test_fit_trains_on_all_other_columns_and_leaves_no_rows(rows: Any, estimator: Any, tmp_path: Path) -> None:
    import horovod.tensorflow.keras as hvd

    try:
        trained = estimator.fit(rows)
    finally:
        hvd.shutdown()
    assert trained.getFeatureColumns() == ["x"] and set(trained.getHistory()) == {"loss", "val_loss"}
    assert int(trained.getModel().optimizer.iterations) == 6, "9 of 12 rows in batches of 4, twice"
    assert os.listdir(tmp_path / "store") == ["runs"]


def test_fit_on_parquet_trains_on_prepared_rows(spark: Any, rows: Any, estimator: Any, tmp_path: Path) -> None:
    import horovod.tensorflow.keras as hvd
    from horovod.spark.common.util import prepare_data

    store = estimator.getStore()
    with prepare_data(1, store, rows.withColumn("w", rows.y), ["y"], ["x"], "held", partitions_per_process=1):
        pass
    paths = store.get_train_data_path(), store.get_val_data_path()
    assert [spark.read.parquet(path).count() for path in paths] == [9, 3]
    try:
        trained = estimator.fit_on_parquet({estimator.epochs: 1})
    finally:
        hvd.shutdown()
    assert trained.getFeatureColumns() == ["x"] and set(trained.getHistory()) == {"loss", "val_loss"}
    assert len(trained.getHistory()["loss"]) == 1
    assert sorted(os.listdir(tmp_path / "store")) == ["intermediate_train_data", "intermediate_val_data", "runs"]


def test_rows_must_be_known_to_be_held_back_or_not(rows: Any, estimator: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from horovod.spark.common.util import prepare_data

    unknown = rows.withColumn("held", F.when(rows.y > 1, rows.held))
    with pytest.raises(ValueError, match="the validation column has rows without a value"):
        prepare_data(1, estimator.getStore(), unknown, ["y"], ["x"], "held").__enter__()
    assert not (tmp_path / "store").exists()
    with pytest.raises(ValueError, match="the validation column has rows without a value"):
        estimator.fit(unknown)
    with pytest.raises(ValueError, match=r"the DataFrame has no column 'held' \(columns: x, y\)"):
        estimator.fit(rows.drop("held"))
    with pytest.raises(ValueError, match="validation must be a column, or a fraction from 0 to below 1, not 2.0"):
        prepare_data(1, estimator.getStore(), rows, ["y"], ["x"], 2.0).__enter__()


def test_fit_on_parquet_needs_the_validation_data_that_it_is_asked_for(
    rows: Any, estimator: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from horovod.spark.common.util import prepare_data

    store = estimator.getStore()
    with pytest.warns(UserWarning, match="compress_sparse has no effect: "):
        prepare_data(1, store, rows, ["y"], ["x"], compress_sparse=True, partitions_per_process=1,
                     verbose=1).__enter__()  # fmt: skip
    assert capsys.readouterr().out == f"wrote {store.get_train_data_path()}\n"
    with pytest.raises(ValueError, match=f"there is no validation data in {store.get_val_data_path()}"):
        estimator.fit_on_parquet()


def test_estimator_and_its_model_are_saved_without_their_session(
    spark: Any, estimator: Any, tmp_path: Path
) -> None:
    import numpy

    from horovod.spark.keras import KerasEstimator, KerasModel

    estimator.save(str(tmp_path / "estimator"))
    found = KerasEstimator.load(str(tmp_path / "estimator"))
    assert found.uid == estimator.uid and found.getEpochs() == 2 and found.getLabelCols() == ["y"]
    assert found.getStore() is None and found.getBackend() is None
    assert type(found.getOptimizer()).__name__ == "SGD" and float(found.getOptimizer().learning_rate) == 0.25
    estimator.setOptimizer("adam").write().overwrite().save(str(tmp_path / "estimator"))
    assert KerasEstimator.load(str(tmp_path / "estimator")).getOptimizer() == "adam"
    model = estimator.getModel()
    KerasModel(model=model, feature_columns=["x"], label_columns=["y"], run_id="r").save(str(tmp_path / "model"))
    loaded = KerasModel.load(str(tmp_path / "model"))
    assert loaded.getRunId() == "r" and loaded.getOutputCols() == ["y__output"]
    for one, other in zip(loaded.getModel().get_weights(), model.get_weights()):
        assert numpy.array_equal(one, other)


@pytest.mark.parametrize(
    ("kind", "column"),
    [("double", "double"), ("decimal(10,2)", "decimal(10,2)"), ("int", "int"), ("vector", "vector"),
     ("array<float>", "vector"), (None, "double")],
)  # fmt: skip
def test_output_has_the_type_of_its_label(rows: Any, estimator: Any, kind: str | None, column: str) -> None:
    """Numbers of classes are rounded; a vector has as many values as the model's output."""
    from horovod.spark.keras import KerasModel

    labels = {"y": kind} if kind else {}
    model = KerasModel(model=estimator.getModel(), feature_columns=["x"], label_columns=["y"], _metadata=labels)
    assert dict(model.transform(rows).dtypes)["y__output"] == column
