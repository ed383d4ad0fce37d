# SPDX-License-Identifier: Apache-2.0
"""hopyard.hvd outside of a run: a group of one, in which everything works."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import hopyard.hvd as hvd


@pytest.fixture
def group():
    hvd.init()
    yield
    hvd.shutdown()


def in_fresh_python(code):
    """What a program prints, as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=dict(os.environ))
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


def test_what_it_is_built_with():
    assert hvd.gloo_built() and hvd.gloo_enabled() and not hvd.mpi_built() and not hvd.mpi_enabled()
    assert not any((hvd.nccl_built(), hvd.ddl_built(), hvd.ccl_built(), hvd.cuda_built(), hvd.rocm_built()))
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()
    with pytest.raises(ValueError, match="ProcessSet"):
        hvd.init(comm=[0])


def test_every_name_is_there():
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


def test_a_timeline_has_every_collective(group, tmp_path):
    hvd.start_timeline(str(tmp_path / "trace.json"))
    hvd.allreduce(np.ones(3), name="seen_in_the_trace")
    hvd.stop_timeline()
    assert "seen_in_the_trace" in (tmp_path / "trace.json").read_text()
