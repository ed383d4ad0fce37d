# SPDX-License-Identifier: Apache-2.0
"""hopyard.hvd outside of a run: a group of one, in which everything works."""

import inspect
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import hopyard
import hopyard.compat  # noqa: F401
import hopyard.hvd as hvd
import tensorflow as tf

import horovod.keras
from horovod.tensorflow import gradient_aggregation
from horovod.tensorflow import util as tensorflow_util
from horovod.tensorflow.data import compute_service, compute_worker
from horovod.tensorflow.data._registry import ComputeClient, ComputeService


@pytest.fixture
def group():
    hvd.init()
    yield
    hvd.shutdown()


def in_fresh_python(code):
    """What a program prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_before_init_is_a_value_error():
    for ask in (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size, hvd.is_homogeneous,
                hvd.stop_timeline, lambda: hvd.start_timeline("x"), lambda: hvd.allreduce(1.0), hvd.join,
                lambda: hvd.broadcast_object(1), lambda: hvd.broadcast_variables([], 0),
                lambda: hvd.add_process_set([0]), hvd.global_process_set.size):  # fmt: skip
        with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)."):
            ask()
    assert not hvd.is_initialized()


def test_init_and_rank_need_no_tensorflow():
    seen = in_fresh_python(
        "import hopyard.hvd as hvd, sys, json; hvd.init(); before = 'tensorflow' in sys.modules\n"
        "print(json.dumps([hvd.rank(), hvd.size(), before, hvd.allreduce(3.0).numpy().item()]))"
    )
    assert seen == [0, 1, False, 3.0]


def test_a_group_may_be_left_and_joined_again():
    for _ in range(2):
        hvd.init()
        hvd.init()  # a second time changes nothing
        assert hvd.is_initialized() and (hvd.rank(), hvd.size()) == (0, 1)
        np.testing.assert_array_equal(hvd.allreduce(np.arange(3.0)), np.arange(3.0))
        hvd.shutdown()
        assert not hvd.is_initialized()


def test_build_queries_answer_gloo():
    assert hvd.gloo_built() and hvd.gloo_enabled() and not hvd.mpi_built() and not hvd.mpi_enabled()
    assert not any((hvd.nccl_built(), hvd.ddl_built(), hvd.ccl_built(), hvd.cuda_built(), hvd.rocm_built()))
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()
    with pytest.raises(ValueError, match="ProcessSet"):
        hvd.init(comm=[0])


def test_every_public_name_exists():
    for name in hvd.__all__:
        assert getattr(hvd, name) is not None
    assert set(hvd.__all__) == set(dir(hvd))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        hvd.nonsense


def test_a_process_set_of_one(group):
    assert hvd.global_process_set.ranks == [0] and hvd.global_process_set.included()
    with pytest.raises(ValueError, match="duplicate"):
        hvd.add_process_set([0])
    with pytest.raises(ValueError, match="list of ranks"):
        hvd.ProcessSet(["0"])
    unknown = hvd.ProcessSet([0])
    assert unknown.size() is None and unknown.rank() is None
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(1.0, process_set=unknown)


def test_a_process_set_is_printed_as_horovods_is():
    assert str(hvd.ProcessSet([1, 0])) == "ProcessSet(process_set_id=None, ranks=[0, 1], mpi_comm=None)"


def test_unregistered_process_set_is_a_value_error_everywhere(group):
    made_up, never, gone = hvd.ProcessSet([0]), hvd.ProcessSet([0]), hvd.ProcessSet([0])
    made_up.process_set_id, gone.process_set_id = 77, 2**40
    value, variable = tf.constant([1.0]), tf.Variable([1.0])

    def by_optimizer(some):
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(), process_set=some)
        optimizer.apply_gradients([(value, variable)])

    def by_tape(some):
        with tf.GradientTape() as tape:
            loss = variable * 2
        hvd.DistributedGradientTape(tape, process_set=some).gradient(loss, [variable])

    for some in (made_up, never, gone):
        for call in (
            lambda: hvd.allreduce(value, process_set=some), lambda: hvd.grouped_allreduce([value], process_set=some),
            lambda: hvd.allgather(value, process_set=some), lambda: hvd.broadcast(value, 0, process_set=some),
            lambda: hvd.alltoall(value, process_set=some), lambda: hvd.reducescatter(value, process_set=some),
            lambda: hvd.allgather_object(1, process_set=some), lambda: hvd.broadcast_object(1, process_set=some),
            lambda: hvd.barrier(process_set=some), lambda: by_optimizer(some), lambda: by_tape(some),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="registered"):
                call()
    for ask in (made_up.size, made_up.rank, lambda: hvd.size_op(77), lambda: hvd.process_set_included_op(77)):
        with pytest.raises(ValueError, match="process set 77 does not exist or has not been registered"):
            ask()
    assert hvd.remove_process_set(made_up) is False and hvd.allreduce(2.0).numpy() == 2.0


def test_failed_init_leaves_no_group():
    for sets in ([hvd.ProcessSet([0])], [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 0])], [[0]]):
        with pytest.raises(ValueError, match="process_sets entry number"):
            hvd.init(process_sets=sets)
        assert not hvd.is_initialized()
    hvd.init()
    hvd.shutdown()


def test_partial_optimizer_has_horovods_parameters(group):
    layer = tf.keras.layers.Dense(1)
    layer.build([None, 2])
    names = inspect.signature(horovod.keras.PartialDistributedOptimizer).parameters
    assert list(names) == [
        "optimizer", "name", "device_dense", "device_sparse", "compression", "sparse_as_dense",
        "gradient_predivide_factor", "op", "backward_passes_per_step", "average_aggregated_gradients", "num_groups",
        "groups", "process_set", "local_layers", "scale_local_gradients",
    ]  # fmt: skip
    made = horovod.keras.PartialDistributedOptimizer(
        tf.keras.optimizers.SGD(0.5), backward_passes_per_step=2, average_aggregated_gradients=True, local_layers=layer
    )
    for gradient in (1.0, 3.0):
        made.apply_gradients([(tf.fill([2, 1], gradient), layer.kernel)])
    assert int(made.iterations) == 2


def test_a_timeline_has_every_collective(group, tmp_path):
    hvd.start_timeline(str(tmp_path / "trace.json"))
    hvd.allreduce(np.ones(3), name="seen_in_the_trace")
    hvd.stop_timeline()
    assert "seen_in_the_trace" in (tmp_path / "trace.json").read_text()


# ---- aggregation of gradients ----------------------------------------------------------------------


@pytest.mark.parametrize("makes", [
    gradient_aggregation.LocalGradientAggregationHelperEager,
    lambda *args, **given: gradient_aggregation.LocalGradientAggregationHelper(
        *args, rank=0, optimizer_type="optimizer_type_keras", **given),
])  # fmt: skip
def test_gradients_are_reduced_in_the_last_pass_of_a_step(group, makes):
    reduced, applied = [], []

    def reduce(gradients, variables):
        reduced.append([gradient.numpy().item() for gradient in gradients])
        return [10 * gradient for gradient in gradients]

    shared, local = tf.Variable(1.0), tf.Variable(2.0)
    helper = makes(2, reduce, False, True)
    helper.register_local_var(local)
    optimizer = tf.keras.optimizers.SGD()
    for step in range(2):
        first = helper.compute_gradients([tf.constant(1.0), tf.constant(4.0)], [shared, local])
        helper.apply_gradients(lambda: applied.append(step), optimizer)
        assert [gradient.numpy() for gradient in first] == [0.0, 0.0] and len(reduced) == step
        assert len(applied) == step and optimizer.iterations.numpy() == step + 1
        last = helper.compute_gradients([tf.constant(3.0), tf.constant(6.0)], [shared, local])
        helper.apply_gradients(lambda: applied.append(step), optimizer)
        assert [gradient.numpy() for gradient in last] == [20.0, 5.0], "the average of both passes, one of it reduced"
    assert reduced == [[4.0], [4.0]] and applied == [0, 1]
    with pytest.raises(ValueError, match="backward_passes_per_step must be > 0"):
        makes(0, reduce, False, True)


def test_variables_have_keys_and_lists_may_have_gaps():
    a, b = tf.Variable(1.0), tf.Variable(2.0)
    keys = tensorflow_util.vars_to_refs([a, [b]])
    assert {keys: "found"}[tensorflow_util.vars_to_refs([a, [b]])] == "found"
    assert tensorflow_util.refs_to_vars(keys)[0] is a and tensorflow_util.refs_to_vars(keys)[1][0] is b
    assert gradient_aggregation.apply_op_to_not_none_tensors(max, [1, None, 3], 2) == [2, None, 3]
    assert gradient_aggregation.get_not_none_from_list([1, None, 3]) == [1, 3]


# ---- the data service ------------------------------------------------------------------------------


@pytest.fixture
def in_thread():
    """Calls a function in a thread, and waits for it in the end."""
    threads = []

    def start(function, *args):
        threads.append(threading.Thread(target=function, args=args, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_horovod_keras_loads_models_of_the_package_keras(group, tmp_path):
    """With the state of their optimizers, which become those of Horovod."""
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.25, momentum=0.5), "mse")
    model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=1, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = horovod.keras.load_model(str(tmp_path / "model.keras"))
    assert isinstance(loaded, keras.Model) and type(loaded.optimizer) is not keras.optimizers.SGD
    assert isinstance(loaded.optimizer, keras.optimizers.SGD) and int(loaded.optimizer.iterations) == 4
    for one, other in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_compute_job_executes_the_transformations_of_a_dataset(group, tmp_path, in_thread):
    path = str(tmp_path / "config")
    job = in_thread(compute_worker.main, 1, "compute", path)
    config = compute_service.TfDataServiceConfig.read(path, wait_for_file_creation=True)
    assert os.stat(path).st_mode & 0o077 == 0, "its reader can use the service"
    dataset = tf.data.Dataset.range(10).map(lambda n: 2 * n).send_to_data_service(config, rank=0)
    assert sorted(n.numpy() for n in dataset) == list(range(0, 20, 2))
    assert config.compute_client().is_running()
    config.compute_client().shutdown()
    job.join(60)
    assert not os.path.exists(path)
    with pytest.raises(hopyard.Error, match="the data service does not answer at"):
        config.compute_client().is_running()


def test_a_training_starts_its_dispatchers(group, in_thread):
    key = b"k" * 32
    registry = ComputeService(1, 1, key)
    config = compute_service.TfDataServiceConfig(1, 1, "training", registry.addresses(), key)
    in_thread(compute_service.compute_worker_fn, config)
    with compute_service.tf_data_service(config, 0) as address:
        service = tf.data.experimental.service.distribute("distributed_epoch", address)
        assert sorted(n.numpy() for n in tf.data.Dataset.range(5).apply(service)) == [0, 1, 2, 3, 4]
        config.compute_client().shutdown()
    with pytest.raises(RuntimeError, match="training side dispatcher not supported, use tf_data_service"):
        tf.data.Dataset.range(5).send_to_data_service(config, 0)
    registry.shutdown()


def test_number_of_ranks_is_a_multiple_of_the_dispatchers(group, tmp_path):
    with pytest.raises(ValueError, match=r"processes \(1\) must be a multiple of number of dispatchers \(2\)"):
        compute_worker.main(2, "compute", str(tmp_path / "config"))
    with pytest.raises(ValueError, match="at least one dispatcher and one worker for each, not 0 and 1"):
        ComputeService(0, 1, b"k")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def registry():
    service = ComputeService(2, 1, b"key")
    yield service
    service.shutdown()


def test_dispatchers_and_workers_find_each_other(registry, in_thread):
    client = ComputeClient(registry.addresses(), b"key")
    found = []
    waiting = in_thread(lambda: found.append(client.wait_for_dispatcher_registration(1, 60)))
    client.register_dispatcher(1, "grpc://a:1")
    client.register_dispatcher(1, "grpc://a:1")  # again, after an answer was lost
    waiting.join(60)
    assert found == ["grpc://a:1"]
    with pytest.raises(hopyard.Error, match="dispatcher 1 is registered already, at grpc://a:1"):
        client.register_dispatcher(1, "grpc://b:1")
    with pytest.raises(hopyard.Error, match="there is no dispatcher 2: they are 0 to 1"):
        client.register_dispatcher(2, "grpc://a:1")
    with pytest.raises(hopyard.Error, match="the workers of dispatcher 1 of the data service did not register within"):
        client.wait_for_dispatcher_worker_registration(1, 0.05)
    client.register_worker_for_dispatcher(1, 1)
    client.wait_for_dispatcher_worker_registration(1, 60)


def test_registry_answers_only_with_its_key(registry):
    with pytest.raises(hopyard.Error, match="is not the data service of this config file"):
        ComputeClient(registry.addresses(), b"another key").shutdown()
    assert ComputeClient(registry.addresses(), b"key").is_running()
