# SPDX-License-Identifier: Apache-2.0
"""On three ranks: every op of hopyard.hvd, eagerly and in a tf.function. See promises.py."""
from __future__ import annotations

import re
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from promises import keep, refused

import hopyard.hvd as hvd

PAIR = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[PAIR])
RANK, SIZE = hvd.rank(), hvd.size()
TYPES = [tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64, tf.float16, tf.bfloat16,
         tf.float32, tf.float64]


def both(fn: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of a function, eagerly and as a tf.function."""
    return [fn(*args), tf.function(fn)(*args)]


def equal(got: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=1e-6)


def mine(rank: int = RANK) -> tf.Tensor:
    return tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]) * (rank + 1)


def raises(kind: type[Exception], fn: Callable[[], Any], *words: str) -> None:
    try:
        fn()
    except kind as error:
        output = str(error)
        assert all(re.search(word, output) for word in words), f"{words} not in: {output}"
        return
    raise AssertionError(f"no {kind.__name__}")


# ---- ranks and sizes ------------------------------------------------------------------------

def test_rank_and_size() -> None:
    assert SIZE == 3 and hvd.local_size() == 3 and hvd.local_rank() == RANK
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)
    for size, rank, local_size, local_rank in both(
            lambda: (hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op())):
        assert (int(size), int(rank), int(local_size), int(local_rank)) == (3, RANK, 3, RANK)


# ---- allreduce ------------------------------------------------------------------------------

def test_allreduce_reduces_every_type() -> None:
    for dtype in TYPES:
        for got in both(lambda x: hvd.allreduce(x, op=hvd.Sum), tf.cast(tf.range(5) + RANK, dtype)):
            assert got.dtype == dtype
            equal(tf.cast(got, tf.float64), 3 * np.arange(5) + 3)
    for got in both(lambda x: hvd.allreduce(x, op=hvd.Max), tf.constant([RANK == 1, False])):
        assert got.numpy().tolist() == [True, False]


def test_allreduce_supports_every_reduction() -> None:
    want = {hvd.Average: 2, hvd.Sum: 6, hvd.Min: 1, hvd.Max: 3, hvd.Product: 6}
    for op, value in want.items():
        for got in both(lambda: hvd.allreduce(tf.constant([1.0 + RANK]), op=op)):
            equal(got, [value])
    equal(hvd.allreduce(np.array([1.0 + RANK])), [2])  # Average is the default
    equal(hvd.allreduce(1.0 + RANK, average=False), 6)
    raises(ValueError, lambda: hvd.allreduce(1.0, average=True, op=hvd.Sum), "only one")
    raises(ValueError, lambda: hvd.allreduce(1.0, op=17), "invalid reduction 17")


def test_adasum_of_equal_tensors_is_that_tensor() -> None:
    for got in both(lambda: hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Adasum)):
        equal(got, [1, 2])


def test_prescale_and_postscale_factors() -> None:
    for got in both(lambda: hvd.allreduce(mine(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)):
        equal(got, 1.5 * 6 * mine(0))


def test_factors_are_float32_as_in_horovod() -> None:
    values = np.linspace(-7, 9, 1001, dtype=np.float32)
    x = values * np.float32(RANK + 1)
    total = np.sum([values * np.float32(rank + 1) * np.float32(0.1) for rank in range(3)], axis=0, dtype=np.float32)
    for got in both(lambda: hvd.allreduce(tf.constant(x), op=hvd.Sum, prescale_factor=0.1, postscale_factor=0.7)):
        assert got.numpy().tobytes() == (total * np.float32(0.7)).tobytes()
    total = np.sum([values * np.float32(rank + 1) for rank in range(3)], axis=0, dtype=np.float32)
    for got in both(lambda: hvd.allreduce(tf.constant(x), postscale_factor=0.7)):
        assert got.numpy().tobytes() == (total * np.float32(0.7 / 3)).tobytes(), "Average divides the factor"


def test_fp16_compression_restores_the_type() -> None:
    for got in both(lambda: hvd.allreduce(mine(), compression=hvd.Compression.fp16)):
        assert got.dtype == tf.float32
        equal(got, 2 * mine(0))


def test_groups_of_mixed_types_keep_their_order() -> None:
    tensors = [mine(), tf.constant([RANK]), 2 * mine(), tf.cast(mine(), tf.float64)]
    for got in both(lambda: hvd.grouped_allreduce(tensors, op=hvd.Sum)):
        for each, want in zip(got, [6 * mine(0), [3], 12 * mine(0), 6 * mine(0)]):
            equal(each, want)
    assert hvd.grouped_allreduce([]) == []


def test_indexed_slices_are_gathered() -> None:
    def reduced() -> tf.IndexedSlices:
        slices = tf.IndexedSlices(tf.ones([RANK + 1, 2]) * 3.0, tf.range(RANK + 1), tf.constant([4, 2]))
        return hvd.allreduce(slices)

    for got in both(reduced):
        assert got.indices.numpy().tolist() == [0, 0, 1, 0, 1, 2]
        equal(tf.convert_to_tensor(got), [[3, 3], [2, 2], [1, 1], [0, 0]])
    raises(NotImplementedError, lambda: hvd.allreduce(tf.IndexedSlices([[1.0]], [0]), op=hvd.Max), "Sum and Average")


# ---- other collectives ----------------------------------------------------------------------

def test_allgather_of_different_row_counts() -> None:
    for got in both(lambda: hvd.allgather(tf.fill([RANK, 2], RANK))):
        assert got.numpy().tolist() == [[1, 1], [2, 2], [2, 2]]
    for one, two in both(lambda: hvd.grouped_allgather([tf.fill([1], RANK), tf.fill([2], float(RANK))])):
        assert one.numpy().tolist() == [0, 1, 2] and two.numpy().tolist() == [0, 0, 1, 1, 2, 2]


def test_broadcast_returns_the_values_of_the_root() -> None:
    for got in both(lambda: hvd.broadcast(mine(), 1)):
        equal(got, mine(1))
    variables = [tf.Variable(mine()), tf.Variable([RANK])]
    for got in both(lambda: hvd.broadcast_(variables, 2)):
        equal(got[0], mine(2))
        equal(variables[0], mine(2))
        assert variables[1].numpy().tolist() == [2]


def test_alltoall_sends_each_rank_its_rows() -> None:
    for got in both(lambda: hvd.alltoall(tf.range(3) + 10 * RANK)):
        assert got.numpy().tolist() == [RANK, 10 + RANK, 20 + RANK]
    for got, received in both(lambda: hvd.alltoall(tf.range(6) + 10 * RANK, splits=[1, 2, 3])):
        first = RANK * (RANK + 1) // 2
        assert got.numpy().tolist() == [10 * r + first + i for r in range(3) for i in range(RANK + 1)]
        assert received.numpy().tolist() == [RANK + 1] * 3


def test_reducescatter_returns_the_rows_of_each_rank() -> None:
    for got in both(lambda: hvd.reducescatter(mine(), op=hvd.Sum)):
        equal(got, 6 * mine(0)[RANK : RANK + 1])
    for one, two in both(lambda: hvd.grouped_reducescatter([mine(), 2 * mine()])):
        equal(one, 2 * mine(0)[RANK : RANK + 1])
        equal(two, 4 * mine(0)[RANK : RANK + 1])


def test_objects_are_broadcast_and_gathered() -> None:
    assert hvd.broadcast_object({"from": RANK}, root_rank=2) == {"from": 2}
    assert hvd.broadcast_object_fn(root_rank=1)([RANK]) == [1]
    assert hvd.allgather_object("x" * RANK) == ["", "x", "xx"]


def test_joined_rank_contributes_zeros() -> None:
    if RANK != 1:
        equal(hvd.allreduce(tf.constant([3.0]), op=hvd.Sum, name="while_one_has_joined"), [6])
    assert int(hvd.join()) in (0, 1, 2)
    hvd.barrier()


# ---- gradients ------------------------------------------------------------------------------

def gradient(fn: Callable[[tf.Tensor], tf.Tensor]) -> list[Any]:
    def of() -> Any:
        x = mine()
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(fn(x))
        return tape.gradient(y, x)

    return both(of)


def test_gradients_are_those_of_horovod() -> None:
    ones = np.ones([3, 2])
    for got in gradient(lambda x: hvd.allreduce(x, op=hvd.Sum)):
        equal(got, 3 * ones)
    for got in gradient(lambda x: hvd.allreduce(x) * (RANK + 1.0)):
        equal(got, 2 * ones)
    for got in gradient(lambda x: hvd.grouped_allreduce([x, 2 * x])[1]):
        equal(got, 2 * ones)
    for got in gradient(lambda x: hvd.allgather(x) * tf.range(1.0, 10.0)[:, None]):
        equal(got, np.repeat(np.arange(3 * RANK + 1.0, 3 * RANK + 4.0), 2).reshape(3, 2))
    for got in gradient(lambda x: hvd.broadcast(x, 1) * (RANK + 1.0)):
        equal(got, (2 if RANK == 1 else 0) * ones)
    for got in gradient(lambda x: hvd.alltoall(x, splits=[1, 1, 1])[0] * (RANK + 1.0)):
        equal(got, [[1, 1], [2, 2], [3, 3]])
    for got in gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum)):
        equal(got, 3 * ones)


# ---- process sets ---------------------------------------------------------------------------

def test_process_set_works_independently() -> None:
    some = hvd.add_process_set([0, 2])
    assert some.size() == 2 and some.included() == (RANK != 1) and some.ranks == [0, 2]
    for size, inside in both(lambda: (hvd.size_op(some.process_set_id),
                                      hvd.process_set_included_op(some.process_set_id))):
        assert (int(size), int(inside)) == (2, int(RANK != 1))
    raises(ValueError, lambda: hvd.add_process_set([2, 0]), "duplicate")
    if RANK != 1:
        assert some.rank() == RANK // 2
        for got in both(lambda: hvd.allreduce(tf.constant([1.0 + RANK]), op=hvd.Sum, process_set=some)):
            equal(got, [4])
        equal(hvd.broadcast(tf.constant([RANK]), 2, process_set=some), [2])
        assert hvd.allgather_object(RANK, process_set=some) == [0, 2]
        hvd.barrier(process_set=some)
    else:
        raises((ValueError, tf.errors.InvalidArgumentError), lambda: hvd.allreduce(1.0, process_set=some))
    assert hvd.remove_process_set(some) and some.process_set_id is None
    assert not hvd.remove_process_set(some) and not hvd.remove_process_set(hvd.global_process_set)


def test_gradients_of_a_process_set_stay_in_it() -> None:
    assert PAIR.process_set_id and PAIR.ranks == [0, 1]  # hvd.init has registered it
    variable = tf.Variable([1.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * (RANK + 1.0))
    tape = hvd.DistributedGradientTape(tape, process_set=PAIR)
    equal(tape.gradient(loss, [variable])[0], [3 if RANK == 2 else 1.5])


# ---- mismatched ranks -----------------------------------------------------------------------

def test_shape_mismatch_names_tensor_and_ranks() -> None:
    def reduce() -> Any:
        return hvd.allreduce(tf.ones([2 + (RANK == 1)]), name="of_two_shapes")

    refused(tf.errors.FailedPreconditionError, reduce, "of_two_shapes", "rank 1|rank.*1")
    refused(tf.errors.FailedPreconditionError, tf.function(reduce), "of_two_shapes")


def test_type_mismatch_names_tensor_and_ranks() -> None:
    def reduce() -> Any:
        return hvd.allreduce(tf.ones([2], tf.float64 if RANK == 2 else tf.float32), name="of_two_types")

    refused(tf.errors.FailedPreconditionError, reduce, "of_two_types", "float64", "rank")


def test_mismatched_collective_or_root_is_an_error() -> None:
    refused(tf.errors.FailedPreconditionError, lambda: hvd.broadcast(tf.ones([2]), RANK, name="of_three_roots"),
           "of_three_roots")
    refused(tf.errors.FailedPreconditionError, lambda: hvd.allreduce(
        tf.ones([2]), op=hvd.Sum if RANK else hvd.Max, name="of_two_ops"), "of_two_ops")


def test_tensor_missing_on_one_rank_is_an_error() -> None:
    refused(tf.errors.FailedPreconditionError,
           lambda: hvd.allreduce(tf.ones([2]), name="of_rank_one" if RANK == 1 else "of_the_others"),
           "of_rank_one|of_the_others", "rank")


def test_invalid_arguments_on_all_ranks() -> None:
    invalid = tf.errors.InvalidArgumentError
    raises(invalid, lambda: hvd.alltoall(tf.range(3), splits=[1, 1, 2]), "split")
    raises(invalid, lambda: hvd.alltoall(tf.range(4)), "4")
    for scalar in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
        raises(invalid, lambda: scalar(tf.constant(1.0)), "scalar")
    raises(invalid, lambda: hvd.broadcast(tf.ones([2]), 7), "7")
    equal(hvd.allreduce(tf.ones([2])), [1, 1])  # the group still works


def test_mismatched_gradient_shape_names_the_variable() -> None:
    variables = [tf.Variable(tf.ones([2, 2]), name="first"), tf.Variable(tf.ones([2 + (RANK == 2)]), name="second")]
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(v) for v in variables)
    tape = hvd.DistributedGradientTape(tape)
    refused(tf.errors.FailedPreconditionError, lambda: tape.gradient(loss, variables), "'second'",
           r"ranks 0, 1: float32 \[2\]; rank 2: float32 \[3\]")


def test_missing_gradient_names_the_variable() -> None:
    variables = [tf.Variable([1.0], name="one"), tf.Variable([1.0], name="two")]

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variables[0] if RANK == 1 else variables[0] + variables[1])
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    refused(tf.errors.FailedPreconditionError, step, "'two'", r"rank 1: no gradient", r"ranks 0, 2: float32 \[1\]")


def test_gradient_that_disappears_later_names_the_variable() -> None:
    variables = [tf.Variable([1.0], name="stays"), tf.Variable([1.0], name="leaves")]

    def step(use_both: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variables[0] + variables[1] if use_both else variables[0])
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    for _ in range(2):
        equal(step(True)[1], [1])
    words = ("'leaves'", "rank 1", "no gradient") if RANK == 1 else ()
    refused(tf.errors.FailedPreconditionError, lambda: step(RANK != 1), *words)
    equal(step(True)[1], [1])


def test_mismatched_variables_are_named() -> None:
    variables = [tf.Variable([1.0], name="same"), tf.Variable(tf.ones([1 + (RANK == 0)]), name="differs")]
    refused(tf.errors.FailedPreconditionError, lambda: hvd.broadcast_variables(variables, 0), "'differs'", "rank 0")


def reduced_gradients(variables: list[tf.Variable], used: list[tf.Variable]) -> list[Any]:
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.cast(tf.reduce_sum(v), tf.float32) for v in used])
    return hvd.DistributedGradientTape(tape).gradient(loss, variables)


def test_compiled_step_with_a_mismatched_plan_is_refused() -> None:
    """In a shape, a type, a missing gradient, and the number of gradients."""
    def variables(odd: bool, **how: Any) -> list[tf.Variable]:
        other = tf.ones(**{"shape": [2], **(how if odd else {})})
        return [tf.Variable(tf.ones([4]), name="same"), tf.Variable(other, name="odd")]

    for how in ({"shape": [3]}, {"dtype": tf.float64}):
        some = variables(RANK == 1, **how)
        refused(tf.errors.FailedPreconditionError, lambda: tf.function(reduced_gradients)(some, some), "'odd'", "rank 1:")
    some = variables(False)
    refused(tf.errors.FailedPreconditionError, lambda: tf.function(reduced_gradients)(some, some[: 1 + (RANK != 1)]),
            "'odd'", "rank 1: no gradient")
    refused(tf.errors.FailedPreconditionError,
            lambda: tf.function(reduced_gradients)(*[some[: 1 + (RANK != 1)]] * 2), "'odd'", "rank 1: nothing")


def test_compiled_step_whose_plan_changes_on_one_rank_is_refused() -> None:
    """One rank builds a new plan while the others are in a step of the old one."""
    variables = [tf.Variable(tf.ones([4]), name="kept"), tf.Variable(tf.ones([2]), name="left")]
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.0))

    @tf.function
    def step(used: int) -> None:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(v) for v in variables[:used]])
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients([(g, v) for g, v in zip(gradients, variables) if g is not None])

    for _ in range(2):
        step(2)
    refused(tf.errors.FailedPreconditionError, lambda: step(2 - (RANK == 1)), "rank")
    step(2)


def test_tensorflow_1_graph() -> None:
    with tf.Graph().as_default():
        v = tf.compat.v1.get_variable("v", initializer=tf.ones([3]) * (RANK + 1.0))
        step = tf.compat.v1.train.get_or_create_global_step()
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        plain = hvd.DistributedOptimizer(optimizer).minimize(tf.reduce_sum(v * (RANK + 1.0)), global_step=step)
        slow = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2, average_aggregated_gradients=True)
        slow = slow.minimize(tf.reduce_sum(v * (RANK + 1.0)), global_step=step)
        delta = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum).minimize(tf.reduce_sum(v))
        total = hvd.allreduce(v, op=hvd.Sum)
        hooks = [hvd.BroadcastGlobalVariablesHook(1)]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            equal(session.run(v), [2.0] * 3)
            session.run(plain)
            equal(session.run(v), [1.8] * 3)
            session.run(slow)
            equal(session.run(v), [1.8] * 3)
            session.run(slow)
            equal(session.run(v), [1.6] * 3)
            assert session.run(step) == 3
            session.run(delta)  # all ranks apply the same update, so they stay equal
            equal(session.run(v), [1.5] * 3)
            equal(session.run(total), [4.5] * 3)


def threads(count: int) -> Any:
    return tf.compat.v1.ConfigProto(inter_op_parallelism_threads=count, use_per_session_threads=True)


def test_graph_requests_in_any_order_with_few_threads() -> None:
    """Each rank has built its graph in another order, so TensorFlow starts the ops in another order."""
    order = [(RANK * 7 + i) % 20 for i in range(20)]
    for config in (None, threads(1), threads(2), threads(8)):
        with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
            sums = {i: hvd.allreduce(tf.constant([float(i)]), op=hvd.Sum, name=f"unordered.{i}") for i in order}
            rows = {i: hvd.allgather(sums[i], name=f"behind.{i}") for i in order}
            for _ in range(3):
                got = session.run([rows[i] for i in range(20)])
                equal(got, [[3.0 * i] * 3 for i in range(20)])


def test_gradients_in_a_graph_are_reduced_on_all_ranks() -> None:
    """TensorFlow prunes what a rank's result does not depend on, but not the gradients of the root."""
    collectives: list[Callable[[tf.Tensor], tf.Tensor]] = [
        lambda x: hvd.broadcast(x, 1) * (RANK + 1.0), lambda x: hvd.allgather(x) * (RANK + 1.0),
        lambda x: hvd.allreduce(x) * (RANK + 1.0), lambda x: hvd.reducescatter(x, op=hvd.Sum)]
    wants = [(2 if RANK == 1 else 0) * np.ones([3, 2]), 2 * np.ones([3, 2]), 2 * np.ones([3, 2]), 3 * np.ones([3, 2])]
    for collective, want in zip(collectives, wants):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.constant(np.ones([3, 2], np.float32))
            [slope] = tf.gradients(tf.reduce_sum(collective(x)), [x])
            equal(session.run(slope), want)


def test_graph_waiting_for_an_op_that_another_rank_never_starts_fails() -> None:
    """After a while without any start: other ops of the graph might have been started."""
    name = "graph.of_rank_one" if RANK == 1 else "graph.of_the_others"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        raises(tf.errors.FailedPreconditionError, lambda: session.run(hvd.allreduce(tf.ones([2]), name=name)),
               "graph.of_rank_one|graph.of_the_others", "rank")


keep(globals(), RANK)
