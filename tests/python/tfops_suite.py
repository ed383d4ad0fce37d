# SPDX-License-Identifier: Apache-2.0
"""The ops with a stand-in for the group (fakes/bridge.c), which copies inputs to outputs in a thread of its own.

test_tfops.py runs this file with this TensorFlow and with the oldest one. TensorFlow has a single inter-op thread here,
which is the hardest case: a kernel that blocks it where it should not ends in a hang.
"""
from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorflow as tf
from hopyard import Error
from hopyard._tensorflow import ops as _tfops
from hopyard._tensorflow.ops import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, JOIN, REDUCESCATTER

ROOT = Path(__file__).parents[2]
TYPES = [tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64, tf.float16, tf.bfloat16,
         tf.float32, tf.float64, tf.bool]
HAS_ASYNC = hasattr(ctypes.CDLL("libtensorflow_framework.so.2", os.RTLD_NOLOAD), "TF_NewAsyncKernelBuilder")
tf.config.threading.set_inter_op_parallelism_threads(1)


class Group:
    """The stand-in, and what the library holds of it."""

    def __init__(self, path: Path) -> None:
        self.fake = ctypes.CDLL(str(path))
        self.fake.fake_bridge.restype = ctypes.c_void_p
        self.fake.fake_order.restype = ctypes.c_char_p
        self.library = ctypes.CDLL(_tfops.library())

    def attach(self, is_there: bool = True) -> None:
        assert self.library.hy_tensorflow_attach(ctypes.c_void_p(self.fake.fake_bridge() if is_there else None)) == 0

    def hold(self, is_held: bool) -> None:
        self.fake.fake_hold(is_held)

    def order(self) -> list[str]:
        return self.fake.fake_order().decode().split()

    def pending(self) -> int:
        if self.library.hy_tensorflow_pending():  # an exception's traceback may hold handles in a ring
            gc.collect()
        return self.library.hy_tensorflow_pending()


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Group:
    path = tmp_path_factory.mktemp("fakes") / "bridge.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", "-pthread", f"-I{ROOT}/src", "-o", path,
                    ROOT / "tests/fakes/bridge.c"], check=True)
    _tfops.ensure_loaded()
    return Group(path)


@pytest.fixture(autouse=True)
def group(stand_in: Group) -> Iterator[Group]:
    stand_in.attach()
    stand_in.fake.fake_size(1)
    stand_in.order()
    yield stand_in
    stand_in.hold(False)
    stand_in.attach()
    assert stand_in.pending() == 0, "the test left a request behind"


def eagerly(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def in_v1_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            results = session.run(fn(*[tf.constant(a.numpy()) for a in arguments]))
        return tf.nest.map_structure(tf.convert_to_tensor, results)

    return call


MODES = pytest.mark.parametrize("mode", [eagerly, tf.function, in_v1_graph], ids=["eager", "function", "v1"])


def same(result: tf.Tensor, expected: tf.Tensor) -> bool:
    return result.dtype == expected.dtype and np.array_equal(np.asarray(result), np.asarray(expected))


@MODES
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.name)
def test_every_type_passes_unchanged(mode: Any, dtype: tf.DType) -> None:
    x = tf.cast([[0, 1, 1], [7, 100, 0]], dtype)
    for result in mode(lambda x: [*_tfops.run(ALLREDUCE, [x], name="a"), *_tfops.run(ALLGATHER, [x], name="b")])(x):
        assert same(result, x)


@MODES
@pytest.mark.parametrize("shape", [[], [0], [3, 0, 2], [1], [5, 1, 2, 1, 2, 1, 1], [1100, 1000]], ids=str)
def test_every_shape_passes_including_empty_and_large(mode: Any, shape: list[int]) -> None:
    x = tf.ones(shape)
    kinds = [ALLREDUCE, BROADCAST, *([ALLGATHER, REDUCESCATTER] if shape else [])]
    for result in mode(lambda x: [_tfops.run(kind, [x], name=f"k{kind}")[0] for kind in kinds])(x):
        assert same(result, x)


@MODES
def test_several_tensors_are_one_request(mode: Any, group: Group) -> None:
    x, y = tf.range(3.0), tf.ones([2, 2])
    results = mode(lambda x, y: _tfops.run(ALLREDUCE, [x, y, 2 * x], name="together"))(x, y)
    assert group.order() == ["together"]
    assert [r.numpy().tolist() for r in results] == [[0, 1, 2], [[1, 1], [1, 1]], [0, 2, 4]]


@MODES
def test_alltoall_gives_the_splits_too_and_join_the_last_rank(mode: Any) -> None:
    x = tf.range(4.0)
    rows, splits = mode(lambda x: _tfops.run(ALLTOALL, [x], name="a", splits=[1, 3]))(x)
    assert same(rows, x) and same(splits, tf.constant([1, 3]))
    assert mode(lambda: _tfops.run(JOIN, [], name="j"))()[0].numpy() == 7


def test_a_barrier_runs_though_it_has_no_result(group: Group) -> None:
    _tfops.run(BARRIER, [], name="eager")
    tf.function(lambda: _tfops.run(BARRIER, [], name="function"))()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(_tfops.run(BARRIER, [], name="v1"))
    assert group.order() == ["eager", "function", "v1"]


@MODES
def test_factors_are_doubles(mode: Any) -> None:
    x = tf.ones([1], tf.float64)
    assert mode(lambda x: _tfops.run(ALLREDUCE, [x], name="a", prescale=1 / 3))(x)[0][0].numpy() == 1 / 3
    assert mode(lambda x: _tfops.run(ALLREDUCE, [x], name="a", postscale=0.1))(x)[0][0].numpy() == 0.1


def test_numpy_arrays_lists_and_variables_are_accepted() -> None:
    for x in (np.ones(3, np.float32), [1.0, 1.0, 1.0], tf.Variable(tf.ones(3))):
        assert same(_tfops.run(ALLREDUCE, [x], name="a")[0], tf.ones(3))
        handle = _tfops.start(ALLREDUCE, [x], name="a")
        assert same(_tfops.wait([handle], [tf.float32], [None])[0], tf.ones(3))


def test_static_shapes_are_inferred() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec(None)])
    def trace(x: tf.Tensor, any_rank: tf.Tensor) -> None:
        assert _tfops.run(ALLREDUCE, [x], name="a")[0].shape.as_list() == [None, 3]
        assert _tfops.run(ALLGATHER, [x[:2]], name="b")[0].shape.as_list() == [None, 3]
        assert _tfops.start(ALLREDUCE, [x], name="c").shape.as_list() == []
        assert _tfops.query(0).shape.as_list() == []
        for kind in (ALLREDUCE, ALLGATHER):
            assert _tfops.run(kind, [any_rank], name="d")[0].shape.rank is None

    trace.get_concrete_function()


@MODES
def test_queries_are_answered_when_they_run(mode: Any, group: Group) -> None:
    ask = mode(lambda: [_tfops.query(0), _tfops.query(1)])
    assert [int(v) for v in ask()] == [10, 1]
    group.fake.fake_size(5)
    assert [int(v) for v in ask()] == [10, 5]


ERRORS = {"EBADMSG": tf.errors.FailedPreconditionError, "EDEADLK": tf.errors.FailedPreconditionError,
          "EINVAL": tf.errors.InvalidArgumentError, "EEXIST": tf.errors.InvalidArgumentError,
          "ECONNABORTED": tf.errors.UnknownError, "ENOMEM": tf.errors.ResourceExhaustedError,
          "EIO": tf.errors.InternalError}


@MODES
@pytest.mark.parametrize("code", ERRORS)
def test_errors_are_those_that_users_of_horovod_catch(mode: Any, code: str, group: Group) -> None:
    x = tf.ones(2)
    for name in (f"refuse:{code}", f"fail:{code}"):
        with pytest.raises(ERRORS[code], match=f"the group (refused|failed at) '{name}'"):
            mode(lambda x: _tfops.run(ALLREDUCE, [x], name=name))(x)
        assert group.pending() == 0


def test_rank_loss_error_has_the_name_that_elastic_expects() -> None:
    with pytest.raises(tf.errors.UnknownError, match="HorovodAllreduce 'fail:ECONNABORTED': the group failed"):
        _tfops.run(ALLREDUCE, [tf.ones(2)], name="fail:ECONNABORTED")


@MODES
def test_without_a_group_horovods_message_is_raised(mode: Any, group: Group) -> None:
    group.attach(False)
    for fn in (lambda x: _tfops.run(ALLREDUCE, [x], name="a"), lambda x: _tfops.query(0)):
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"Horovod has not been initialized; use hvd"):
            mode(fn)(tf.ones(2))


def test_a_wait_ends_all_its_requests_when_one_has_failed(group: Group) -> None:
    handles = [_tfops.start(ALLREDUCE, [tf.ones(2)], name=n) for n in ("a", "fail:EBADMSG", "b", "fail:EINVAL")]
    with pytest.raises(tf.errors.FailedPreconditionError, match="fail:EBADMSG"):
        _tfops.wait(handles, [tf.float32] * 4, [None] * 4)
    assert group.pending() == 0


def test_handle_is_valid_for_one_wait_only() -> None:
    handle = _tfops.start(ALLREDUCE, [tf.ones(2)], name="a")
    _tfops.wait([handle], [tf.float32], [None])
    for wrong in (handle, tf.constant(-1, tf.int64), tf.constant([], tf.int64), tf.constant([1, 2], tf.int64)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not the handle of a request in flight"):
            _tfops.wait([wrong], [tf.float32], [None])


@pytest.mark.parametrize("dtypes", [[], [tf.int32], [tf.float32, tf.float32]], ids=str)
def test_wrong_list_of_types_is_an_error(dtypes: list[tf.DType], group: Group) -> None:
    handle = _tfops.start(ALLREDUCE, [tf.ones(2)], name="a")
    with pytest.raises(tf.errors.InvalidArgumentError, match="Tout"):
        _tfops.wait([handle], dtypes, [None] * len(dtypes))
    assert group.pending() == 0


@pytest.mark.parametrize(("kind", "tensors", "how"), [
    (99, 1, {}), (-1, 1, {}), (ALLREDUCE, 0, {}), (BARRIER, 1, {}), (ALLTOALL, 2, {}), (ALLREDUCE, 1, {"op": 6}),
    (ALLREDUCE, 1, {"set": -1}), (BROADCAST, 1, {"root": 2**40}), (ALLREDUCE, 1, {"splits": [1]})])  # fmt: skip
def test_invalid_requests_are_errors(kind: int, tensors: int, how: dict[str, Any]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        _tfops.start(kind, [tf.ones(1)] * tensors, name="a", **how)


def test_dropped_handles_are_released(group: Group) -> None:
    for _ in range(20):
        _tfops.start(ALLREDUCE, [tf.ones(1000)], name="a")
        assert group.library.hy_tensorflow_pending() <= 1
    _tfops.run(ALLREDUCE, [tf.ones(1)], name="a")


def test_a_step_that_fails_between_start_and_wait_leaves_nothing_behind(group: Group) -> None:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        handle = _tfops.start(ALLREDUCE, [x], name="a")
        with tf.control_dependencies([tf.debugging.assert_less(x, 5.0)]):
            return _tfops.wait([handle], [tf.float32], [None])[0]

    for _ in range(5):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Condition x < y"):
            step(tf.constant(7.0))
        assert group.pending() <= 1
    assert step(tf.constant(3.0)) == 3.0
    assert group.pending() == 0


def test_a_dropped_request_that_is_not_over_keeps_its_name_and_memory(group: Group) -> None:
    group.fake.fake_size(2)
    _tfops.start(ALLREDUCE, [tf.ones(1000)], name="never")
    with pytest.raises(tf.errors.InvalidArgumentError, match="the group refused 'never'"):
        _tfops.start(ALLREDUCE, [tf.ones(1000)], name="never")
    assert group.pending() == 1
    group.fake.fake_end()
    handle = _tfops.start(ALLREDUCE, [tf.ones(1)], name="never")
    assert group.pending() == 1, "the dropped one has been freed"
    group.fake.fake_end()
    with pytest.raises(tf.errors.UnknownError):
        _tfops.wait([handle], [tf.float32], [None])


def test_a_group_that_is_being_left_keeps_the_memory_it_works_on(group: Group) -> None:
    handle = _tfops.start(ALLREDUCE, [tf.ones(1000)], name="a")
    group.fake.fake_leave(True)
    with pytest.raises(tf.errors.FailedPreconditionError):
        _tfops.wait([handle], [tf.float32], [None])
    assert group.pending() == 1
    group.fake.fake_leave(False)
    _tfops.run(ALLREDUCE, [tf.ones(1)], name="a")
    assert group.pending() == 0


def test_starts_run_in_program_order_and_do_not_wait_for_each_other(group: Group) -> None:
    names = ["c", "a", "b", "d"]

    @tf.function
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        handles = [_tfops.start(ALLREDUCE, [x * i], name=n) for i, n in enumerate(names)]
        return _tfops.wait(handles, [tf.float32] * 4, [None] * 4)

    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.extend(step(tf.constant(2.0))))
    group.hold(True)  # nothing is over, and yet all are started
    thread.start()
    order: list[str] = []
    while len(order) < len(names):
        order += group.order()
        assert thread.is_alive()
    assert order == names
    group.hold(False)
    thread.join()
    assert [float(r) for r in results] == [0, 2, 4, 6]


@pytest.mark.skipif(not HAS_ASYNC, reason="this TensorFlow's C API has no asynchronous kernels; see the next test")
@pytest.mark.parametrize("with_control_flow_v2", [True, False])
def test_a_v1_graph_starts_everything_on_one_thread_before_anything_is_over(
        group: Group, with_control_flow_v2: bool) -> None:
    """Independent requests, and one behind each of them."""
    names = [f"n{i}" for i in range(20)]
    was_enabled = tf.compat.v1.control_flow_v2_enabled()
    (tf.compat.v1.enable_control_flow_v2 if with_control_flow_v2 else tf.compat.v1.disable_control_flow_v2)()
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        firsts = [_tfops.run(ALLREDUCE, [tf.constant(float(i))], name=n)[0] for i, n in enumerate(names)]
        fetched = [_tfops.run(ALLREDUCE, [2 * x], name=f"{n}.second")[0] for x, n in zip(firsts, names)]
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.extend(session.run(fetched)))
        group.hold(True)
        thread.start()
        order: list[str] = []
        while len(order) < len(names):
            order += group.order()
            assert thread.is_alive()
        assert sorted(order) == sorted(names)
        group.hold(False)
        thread.join()
    (tf.compat.v1.enable_control_flow_v2 if was_enabled else tf.compat.v1.disable_control_flow_v2)()
    assert results == [2.0 * i for i in range(20)]


def test_a_v1_graph_that_runs_in_the_callers_thread_works_one_after_the_other(group: Group) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fetched = [_tfops.run(ALLREDUCE, [tf.constant(float(i))], name=f"n{i}")[0] for i in range(20)]
        options = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
        assert session.run(fetched, options=options) == [float(i) for i in range(20)]


def test_deadlock_by_lack_of_threads_is_reported(group: Group) -> None:
    """Where a wait blocks: in a TensorFlow that has no asynchronous kernels."""
    release = threading.Timer(0.5, group.hold, [False])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fetched = _tfops.run(ALLREDUCE, [tf.constant(1.0)], name="fail:EDEADLK")
        group.hold(True)
        release.start()
        with pytest.raises(tf.errors.FailedPreconditionError, match="the group failed at") as failed:
            session.run(fetched)
        assert ("TF_NUM_INTEROP_THREADS" in str(failed.value)) == (not HAS_ASYNC)
    del failed


def test_sequential_requests_need_one_thread(group: Group) -> None:
    @tf.function
    def chain(x: tf.Tensor) -> tf.Tensor:
        for i in range(30):
            x = _tfops.run(ALLREDUCE, [x + 1], name=f"n{i}")[0]
        return x

    @tf.function
    def beside(x: tf.Tensor) -> tf.Tensor:
        return tf.add_n([_tfops.run(ALLREDUCE, [x], name=f"n{i}")[0] for i in range(30)])

    assert chain(tf.constant(0.0)) == 30.0
    assert beside(tf.constant(1.0)) == 30.0
    assert group.order() == [f"n{i}" for i in range(30)] * 2


def test_nothing_is_folded_merged_or_left_out(group: Group) -> None:
    @tf.function
    def step() -> tf.Tensor:
        one, two = (_tfops.run(ALLREDUCE, [tf.constant(2.0)], name="same")[0] for _ in range(2))
        _tfops.run(ALLREDUCE, [tf.constant(1.0)], name="unused")
        return one + two

    for _ in range(3):
        assert step() == 4.0
        assert group.order() == ["same", "same", "unused"]


def test_branches_and_loops_run_what_they_reach(group: Group) -> None:
    @tf.function
    def step(n: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0.0)
        for _ in tf.range(n):
            total += _tfops.run(ALLREDUCE, [tf.constant(1.0)], name="loop")[0]
        if total > 2.0:
            total = _tfops.run(ALLREDUCE, [total], name="many")[0]
        return total

    assert step(tf.constant(2)) == 2.0
    assert step(tf.constant(3)) == 3.0
    assert group.order() == ["loop"] * 5 + ["many"]


def make_model(**compile_options: Any) -> tf.keras.Model:
    class Model(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.layer = tf.keras.layers.Dense(1, kernel_initializer="zeros")

        def call(self, x: tf.Tensor) -> tf.Tensor:
            return self.layer(x)

        def train_step(self, data: Any) -> dict[str, tf.Tensor]:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x) - y))
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            handles = [_tfops.start(ALLREDUCE, [g], name=f"g{i}") for i, g in enumerate(gradients)]
            gradients = _tfops.wait(handles, [g.dtype for g in gradients], [g.shape for g in gradients])
            self.optimizer.apply_gradients(zip(gradients, variables))
            return {"loss": loss}

    model = Model()
    model.compile(tf.keras.optimizers.SGD(0.1), **compile_options)
    return model


def fit(model: tf.keras.Model) -> None:
    x = np.linspace(-1, 1, 64, dtype="float32")[:, None]
    model.fit(x, 3 * x, batch_size=16, epochs=3, verbose=0)


def test_keras_fit_works_with_its_defaults(group: Group) -> None:
    model = make_model()
    fit(model)
    assert 1 < float(model.layer.kernel[0, 0]) < 3, "it has learnt, by gradients that went through the group"
    assert group.order() == ["g0", "g1"] * 12


SENTENCE = r"cannot be compiled by XLA: pass jit_compile=False"


def test_xla_error_says_what_to_do() -> None:
    with pytest.raises(Error, match=SENTENCE):
        tf.function(lambda x: _tfops.run(ALLREDUCE, [x], name="a"), jit_compile=True)(tf.ones(2))
    inner = tf.function(lambda x: _tfops.run(ALLREDUCE, [x], name="a")[0])
    with pytest.raises(Error, match=SENTENCE):
        tf.function(lambda x: inner(x), jit_compile=True)(tf.ones(2))
    with pytest.raises(Error, match=SENTENCE):
        fit(make_model(jit_compile=True))
