# SPDX-License-Identifier: Apache-2.0
"""hopyard.hvd outside of a run: a group of one, in which everything works."""

import inspect
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import hopyard.compat  # noqa: F401
import hopyard.hvd as hvd
import tensorflow as tf

import horovod.keras


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
