# SPDX-License-Identifier: Apache-2.0
"""Functions of Horovod and TensorFlowOnSpark that need neither ranks nor nodes, and the arguments of those that do."""
from __future__ import annotations

import errno
import io
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

import hopyard
import hopyard.compat  # noqa: F401  (horovod and tensorflowonspark are ours)
from hopyard import allreduce, cluster, experiment

import horovod
import horovod.spark
from horovod.common import exceptions as horovod_exceptions
from horovod.common import util as horovod_util
from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader
from horovod.spark.common.backend import Backend, SparkBackend
from tensorflowonspark import TFNode, TFParallel, gpu_info, reservation, util

# ---- horovod.common --------------------------------------------------------------------------------


def test_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HY_OLD", "before")
    monkeypatch.delenv("HY_NEW", raising=False)
    with pytest.raises(KeyError), horovod_util.env(HY_OLD="within", HY_NEW="new", HY_NONE=None):
        assert os.environ["HY_OLD"] == "within" and os.environ["HY_NEW"] == "new" and "HY_NONE" not in os.environ
        raise KeyError
    assert os.environ["HY_OLD"] == "before" and "HY_NEW" not in os.environ


def test_average_and_op_exclude_each_other() -> None:
    choose = horovod_util.get_average_backwards_compatibility_fun(SimpleNamespace(Average="average", Sum="sum"))
    assert choose("max", None) == "max" and choose(None, None) == "average"
    with pytest.warns(DeprecationWarning, match="`average` has been replaced with `op`"):
        assert choose(None, False) == "sum" and choose(None, True) == "average"
    with pytest.raises(ValueError, match="The op parameter supersedes average"):
        choose("sum", True)


def test_only_tensorflow_is_an_extension() -> None:
    horovod_util.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", __file__, "mpi_lib")
    with pytest.raises(ImportError, match="'horovod.torch' is not served by hopyard; see docs/horovod.md") as refused:
        horovod_util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib")
    assert refused.value.name == "horovod.torch"
    path = horovod_util.get_extension_full_path("/p/horovod/__init__.py", "tensorflow", "mpi_lib")
    assert path == f"/p/horovod/tensorflow/mpi_lib{horovod_util.get_ext_suffix()}"
    built = [getattr(horovod_util, f"{name}_built")() for name in ("gloo", "mpi", "nccl", "ddl", "ccl")]
    assert built == [True, False, False, False, False]
    assert horovod_util.check_installed_version("tensorflow", "1.0") is None


def test_gpus_are_those_that_tensorflow_sees() -> None:
    import tensorflow as tf

    assert horovod_util.gpu_available("tensorflow") == bool(tf.config.list_physical_devices("GPU"))


def test_lists_are_split_evenly() -> None:
    assert horovod_util.split_list(range(7), 3) == [range(3), range(3, 5), range(5, 7)]
    assert horovod_util.split_list([1], 2) == [[1], []]
    assert [n for n in range(10) if horovod_util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert horovod_util.is_iterable([]) and not horovod_util.is_iterable(1)


def test_versions_are_compared_by_number() -> None:
    assert horovod_util.is_version_greater_equal_than("2.10.0", "2.9.0")
    assert not horovod_util.is_version_greater_equal_than("2.9.0", "2.10.0")
    with pytest.raises(ValueError, match="must be major.minor.patch, not '2.9'"):
        horovod_util.is_version_greater_equal_than("2.10.0", "2.9")
    with pytest.raises(ValueError, match="versions must be strings"):
        horovod_util.is_version_greater_equal_than(2, "2.9.0")  # type: ignore[arg-type]


def test_version_mismatch_can_be_caught() -> None:
    error = horovod_exceptions.HorovodVersionMismatchError("tensorflow", "2.21", "2.20")
    assert isinstance(error, ImportError) and str(error) == "tensorflow is 2.21, and Horovod was built for 2.20"
    assert (error.name, error.version, error.installed_version) == ("tensorflow", "2.21", "2.20")


# ---- horovod.data ----------------------------------------------------------------------------------


class Loader(BaseDataLoader):
    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def _iterate(self) -> Iterator[Any]:
        for batch in self.batches:
            if isinstance(batch, Exception):
                raise batch
            yield batch

    def _process_batch(self, batch: Any) -> Any:
        return -batch


class AsyncLoader(AsyncDataLoaderMixin, Loader):
    pass


@pytest.mark.parametrize("ahead", [0, 1, 64])
def test_every_epoch_has_every_batch(ahead: int) -> None:
    loader = AsyncLoader(ahead, batches=[1, 2, 3])
    assert [list(loader) for _ in range(2)] == [[-1, -2, -3], [-1, -2, -3]] and len(loader) == 3
    loader.close_async_loader()
    assert ahead == 0 or not loader.thread.is_alive()
    assert list(Loader([1, 2])) == [-1, -2]


def test_error_of_the_loading_thread_is_raised() -> None:
    loader = AsyncLoader(4, batches=[1, ValueError("a corrupt batch")])
    batches = iter(loader)
    assert next(batches) == -1
    with pytest.raises(ValueError, match="a corrupt batch"):
        next(batches)
    loader.close_async_loader()


def test_loader_that_was_not_used_closes_at_once() -> None:
    loader = AsyncLoader(4, batches=[1])
    loader.close_async_loader()
    assert not loader.started
    with pytest.raises(NotImplementedError):
        len(BaseDataLoader())
    with pytest.raises(NotImplementedError):
        next(iter(BaseDataLoader()))


def test_batches_are_taken_as_they_were_loaded_by_default() -> None:
    class Plain(BaseDataLoader):
        def _iterate(self) -> Iterator[Any]:
            yield from ("a", "b")

    assert [*iter(Plain())] == ["a", "b"]


def test_closing_waits_for_the_batch_that_is_being_loaded() -> None:
    """The thread may use files or connections that are closed next."""
    loading = threading.Event()

    class Slow(Loader):
        def _iterate(self) -> Iterator[Any]:
            yield 1
            loading.set()
            threading.Event().wait(0.3)
            yield 2

    loader = type("AsyncSlow", (AsyncDataLoaderMixin, Slow), {})(4, batches=[1, 2])
    assert next(iter(loader)) == -1 and loading.wait(60)
    loader.close_async_loader()
    assert not loader.thread.is_alive()


# ---- runs ------------------------------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of allreduce.run, which prints and returns."""
    calls: list[dict[str, Any]] = []

    def run(fn: Any, args: Any, kwargs: Any, **given: Any) -> list[str]:
        calls.append({"fn": fn, "args": args, "kwargs": kwargs, **given})
        print("output of ranks")
        return ["a", "b"]

    monkeypatch.setattr(allreduce, "run", run)
    return calls


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = SimpleNamespace(defaultParallelism=3)
    monkeypatch.setattr(SparkContext, "_active_spark_context", found)
    return found


def test_horovod_run_is_an_allreduce_run(runs: list[dict[str, Any]]) -> None:
    assert horovod.run(len, ([],), num_proc=2, hosts="a:2", output_filename="/out", verbose=1) == ["a", "b"]
    with pytest.warns(DeprecationWarning, match="^np is deprecated, use num_proc instead"):
        horovod.run(len, np=4, min_num_proc=2, network_interfaces=["eth0"])
    first, second = runs
    assert (first["fn"], first["args"], first["np"], first["hosts"]) == (len, ([],), 2, "a:2")
    assert first["output"] == "/out" and first["verbose"] is True
    assert (second["np"], second["min_np"], second["max_np"], second["interfaces"]) == (4, 2, None, ["eth0"])


def test_unsupported_arguments_of_horovod_run_name_the_alternative(runs: list[dict[str, Any]]) -> None:
    with pytest.raises(hopyard.Error, match="horovod.run does not support ssh_port here: ssh reads its settings from"):
        horovod.run(len, ssh_port=22)
    with pytest.raises(ValueError, match="Argument hosts and hostfile only allow one provided."):
        horovod.run(len, hosts="a:1", hostfile="hosts")
    with pytest.raises(hopyard.Error, match="horovod.spark.run does not support use_mpi here: hopyard has its own"):
        horovod.spark.run(len, use_mpi=True)
    assert runs == []


def test_horovod_spark_run_has_as_many_ranks_as_the_session(
    runs: list[dict[str, Any]], context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    output = io.StringIO()
    assert horovod.spark.run(len, ([],), stdout=output, env={"A": "1"}, verbose=2) == ["a", "b"]
    assert runs[0]["np"] == 3 and runs[0]["spark"] is context and runs[0]["env"] == {"A": "1"} and runs[0]["verbose"]
    assert output.getvalue() == "output of ranks\n" and capsys.readouterr().out == ""
    horovod.spark.run(len, num_proc=2, env={**os.environ, "B": "2"}, tensorboard=False)
    assert runs[1]["np"] == 2 and runs[1]["env"] == {"B": "2"}, "an executor has a different PATH"
    assert not runs[1]["verbose"] and runs[1]["tensorboard"] is False


def test_limits_of_elastic_ranks_default_to_their_number(runs: list[dict[str, Any]], context: Any) -> None:
    horovod.spark.run_elastic(len)
    with pytest.warns(DeprecationWarning, match="max_np is deprecated, use max_num_proc instead"):
        horovod.spark.run_elastic(len, num_proc=4, min_num_proc=2, max_np=6, reset_limit=1)
    assert [(run["np"], run["min_np"], run["max_np"]) for run in runs] == [(3, 3, 3), (4, 2, 6)]
    assert runs[1]["reset_limit"] == 1


def test_backend_adds_its_environment(runs: list[dict[str, Any]], context: Any) -> None:
    backend = SparkBackend(env={"A": "1", "B": "1"}, nics="eth0")
    assert backend.num_processes() == 3 and backend.run(len, env={"B": "2"}) == ["a", "b"]
    assert runs[0]["env"] == {"A": "1", "B": "2"} and runs[0]["interfaces"] == "eth0"
    assert runs[0]["tensorboard"] is False, "its events are in the estimator's store"
    for call in (Backend().num_processes, lambda: Backend().run(len)):
        with pytest.raises(NotImplementedError):
            call()


def test_horovod_spark_needs_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(hopyard.Error, match="there is no active SparkSession; create one first"):
        horovod.spark.run(len)


# ---- tensorflowonspark -----------------------------------------------------------------------------


def test_gpus_are_assigned_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    assert gpu_info.is_gpu_available() and gpu_info.get_gpus(2) == "4,5"
    assert [gpu_info.get_gpus(1, worker) for worker in range(4)] == ["4", "5", "6", "4"]
    assert gpu_info.get_gpus(2, 1, gpu_info.AS_LIST) == ["6", "4"]
    with pytest.raises(hopyard.Error, match="cannot get 4 GPUs: this process sees 3; start the cluster with gpus=4"):
        gpu_info.get_gpus(4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert not gpu_info.is_gpu_available()


def test_gpus_of_the_machine_are_those_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_info.get_gpus(0) == "" and not gpu_info.is_gpu_available(), "there is no driver"
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 0\necho 1\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert gpu_info.get_gpus(2) == "0,1"


def test_workers_of_a_machine_share_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = ["a", "b", "a", "b"]
    for worker, gpu in enumerate(["4", "4", "5", "5"]):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
        util.single_node_env(1, worker, nodes)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == gpu
    util.single_node_env(0)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_address_of_this_machine_is_a_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind((util.get_ip_address(), 0))
    monkeypatch.setattr(socket, "gethostbyname", {"this": "192.0.2.7"}.get)
    monkeypatch.setattr(socket, "gethostname", lambda: "this")
    monkeypatch.setattr(socket.socket, "connect", unreachable)
    assert util.get_ip_address() == "192.0.2.7", "without a route, its name's"


def unreachable(self: socket.socket, address: tuple[str, int]) -> None:
    raise OSError(errno.ENETUNREACH, "Network is unreachable")


def test_executor_id_is_kept_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert util.read_executor_id() is None
    util.write_executor_id(7)
    assert util.read_executor_id() == 7


def test_first_file_in_a_path_is_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b/file").touch()
    assert util.find_in_path(f"{tmp_path}/a:{tmp_path}/b", "file") == f"{tmp_path}/b/file"
    assert util.find_in_path(f"{tmp_path}/a", "file") is False


def test_feed_is_stopped_through_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(reservation._program, "call", lambda *words, project: calls.append((words, project)))
    client = reservation.Client(("/a/project", 3))
    client.request_stop()
    client.close()
    assert calls == [(("stop", "--feed", "3"), "/a/project")]
    with pytest.raises(hopyard.Error, match="hopyard's nodes find each other through its driver"):
        client.register({})


def test_removed_functions_of_nodes_name_their_successors() -> None:
    for name, call in (
        ("next_batch", lambda: TFNode.next_batch(None, 1)),
        ("batch_results", lambda: TFNode.batch_results(None, [])),
        ("terminate", lambda: TFNode.terminate(None)),
    ):
        with pytest.raises(hopyard.Error, match=rf"TFNode.{name} is TFNode.DataFeed\(mgr\).{name}"):
            call()
    released = threading.Event()
    TFNode.release_port(SimpleNamespace(release_port=released.set))
    assert released.is_set()


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A context without HDFS."""
    hadoop = SimpleNamespace(get={"fs.defaultFS": "file:///"}.get)
    return SimpleNamespace(master="local[1]", _jsc=SimpleNamespace(hadoopConfiguration=lambda: hadoop),
                           accumulator=lambda value: None)  # fmt: skip


def test_parallel_functions_run_at_once_or_as_executors_are_free(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, seen = threading.Event(), []
    calls: list[Any] = []

    def run(*args: Any, **given: Any) -> Any:
        calls.append((args, given))
        return SimpleNamespace(shutdown=ended.set)

    def grid_search(fn: Any, space: dict[str, list[int]], **given: Any) -> None:
        calls.append(given)
        for number in space["worker_num"]:
            fn(number)

    def note(args: Any, ctx: Any) -> None:
        seen.append((args.name, ctx.worker_num, ctx.num_workers, ctx.defaultFS))

    monkeypatch.setattr(cluster, "run", run)
    monkeypatch.setattr(experiment, "grid_search", grid_search)
    args = SimpleNamespace(name="x", num_gpus=1)
    TFParallel.run(local, note, args, 2)
    ((function, given_args, count), given), = calls
    assert ended.is_set() and (function, given_args, count, given["gpus"]) == (note, args, 2, 1) and seen == []
    TFParallel.run(local, note, args, 2, use_barrier=False, gpus=0)
    assert seen == [("x", 0, 2, "file://"), ("x", 1, 2, "file://")] and calls[1]["gpus"] == 0


def test_packages_named_after_a_share_of_a_gpu_ask_for_it(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflowonspark_gpu10p import TFCluster as with_a_tenth
    from tensorflowonspark_gpu20p import TFCluster as with_a_fifth

    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(cluster, "run", lambda *args, **given: calls.append(given))
    with_a_tenth.run(local, len, None, 1)
    with_a_fifth.run(local, len, None, 1)
    assert [given["gpus"] for given in calls] == [0.1, 0.2]
