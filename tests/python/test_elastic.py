# SPDX-License-Identifier: Apache-2.0
"""hopyard.hvd.elastic with a group of one: what states keep, and how the loop goes round."""

import os

import keras
import numpy as np
import pytest

import hopyard
import hopyard.hvd as hvd
import tensorflow as tf
from hopyard.hvd import elastic
from hopyard.hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt

try:
    import tf_keras
except ImportError:  # TensorFlow before 2.16 has its own
    tf_keras = tf.keras

X, Y = np.ones((8, 2), np.float32), np.zeros((8, 1), np.float32)


@pytest.fixture(autouse=True)
def group(monkeypatch):
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"):
        monkeypatch.setenv(f"HOROVOD_{name}", "?")  # put back at the end
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(params=["keras", "tf_keras"])
def kit(request):
    return {"keras": keras, "tf_keras": tf_keras}[request.param]


def model_of(kit, optimizer=None):
    model = kit.Sequential([kit.Input((2,)), kit.layers.Dense(1)])
    model.compile(optimizer or kit.optimizers.Adam(0.1), "mse")
    return model


def everything(state):
    return [np.copy(v.numpy()) for v in [*state.model.weights, *state._variables()]]


# ---- states -----------------------------------------------------------------------------------


def test_restore_resets_objects_to_the_last_commit():
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, epoch=0, notes=["a"])
    state.epoch, state.notes = 3, ["b"]
    state.restore()
    assert (state.epoch, state.notes) == (0, ["a"])
    state.epoch = 5
    state.commit()
    state.epoch = 6
    state.restore()
    assert state.epoch == 5
    state.sync()
    assert state.epoch == 5


def test_restore_resets_model_and_optimizer(kit):
    model = model_of(kit)
    state = elastic.KerasState(model, batch=0, epoch=0)
    began = everything(state)
    model.fit(X, Y, verbose=0)
    assert any((a != b).any() for a, b in zip(began, everything(state)))
    state.restore()
    for before, now in zip(began, everything(state), strict=True):
        np.testing.assert_array_equal(before, now)
    model.fit(X, Y, verbose=0)
    state.epoch = 1
    state.commit()
    kept = everything(state)
    model.fit(X, Y, verbose=0)
    state.restore()
    state.sync()
    assert state.epoch == 1
    for before, now in zip(kept, everything(state), strict=True):
        np.testing.assert_array_equal(before, now)


def test_restore_resets_legacy_optimizer():
    model = model_of(tf_keras, tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9))
    state = elastic.KerasState(model)
    began = everything(state)
    model.fit(X, Y, verbose=0)
    state.restore()
    for before, now in zip(began, everything(state), strict=True):
        np.testing.assert_array_equal(before, now)


def test_state_builds_the_optimizers_variables(kit):
    """A rank that is new must have as many as those that have trained."""
    model = model_of(kit)
    count = len(elastic.KerasState(model)._variables())
    model.fit(X, Y, verbose=0)
    assert len(elastic.KerasState(model)._variables()) == count


def test_a_model_must_be_built(kit):
    model = kit.Sequential([kit.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="built first"):
        elastic.KerasState(model)


def test_restore_resets_variables():
    one, two = tf.Variable([1.0, 2.0]), tf.Variable(3)
    state = elastic.TensorFlowState(variables=[one, two], batch=7)
    one.assign([9.0, 9.0])
    two.assign(9)
    state.batch = 9
    state.restore()
    assert one.numpy().tolist() == [1.0, 2.0] and two.numpy() == 3 and state.batch == 7
    state.sync()


def test_restore_resets_graph_variables_by_their_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=1.0, use_resource=True)
        session.run(tf.compat.v1.global_variables_initializer())
        state = elastic.TensorFlowState(session=session, epoch=1)
        session.run(variable.assign(5.0))
        state.restore()
        assert session.run(variable) == 1.0
        session.run(variable.assign(6.0))
        state.save()
        session.run(variable.assign(7.0))
        state.restore()
        assert session.run(variable) == 6.0
        state.sync()
        assert session.run(variable) == 6.0 and state.epoch == 1


# ---- the loop ---------------------------------------------------------------------------------


def counting(state, *errors):
    """A function under elastic.run that raises the errors one after the other, and the values it began with."""
    left, began = list(errors), []

    @elastic.run
    def train(state, add):
        began.append(state.epoch)
        state.epoch += add
        if len(began) == 1:
            state.commit()
        state.epoch += add
        if left:
            raise left.pop(0)
        return state.epoch

    return train, began


@pytest.fixture
def state():
    return elastic.ObjectState(hvd.broadcast_object, hvd.rank, epoch=0)


def lost_in_an_op():
    return tf.errors.UnknownError(None, None, "HorovodAllreduce 'loss': rank 1 on b was ended by signal 9")


@pytest.mark.parametrize("error", [HorovodInternalError("rank 1 is lost"), lost_in_an_op()])
def test_loss_of_a_rank_restarts_from_the_last_commit(state, error):
    train, began = counting(state, error)
    assert train(state, 1) == 3 and began == [0, 1]
    assert os.environ["HOROVOD_SIZE"] == "1" and hvd.is_initialized()


def test_new_ranks_do_not_reset_the_state(state):
    train, began = counting(state, HostsUpdatedInterrupt(skip_sync=True))
    assert train(state, 1) == 4 and began == [0, 2]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"),
        tf.errors.UnknownError(None, None, "no such file"),
        tf.errors.FailedPreconditionError(None, None, "Horovod: ranks disagree"),
    ],
)
def test_other_errors_are_raised(state, error):
    with pytest.raises(type(error)) as raised:
        counting(state, error)[0](state, 1)
    assert raised.value is error


def test_reset_callbacks_are_called_after_a_change(state):
    told = []
    state.register_reset_callbacks([lambda: told.append("first"), lambda: told.append(hvd.size())])
    counting(state, HorovodInternalError("lost"))[0](state, 1)
    assert told == ["first", 1]


def test_commit_accepts_new_ranks(state):
    state.on_hosts_updated(0, 0)
    state.epoch = 4
    with pytest.raises(HostsUpdatedInterrupt) as raised:
        state.commit()
    assert not raised.value.skip_sync
    state.epoch = 5
    state.restore()
    assert state.epoch == 4, "it was saved before"
    state.on_reset()
    state.commit()


def test_reset_limit_ends_the_training(state, monkeypatch):
    monkeypatch.setenv("HOPYARD_RESET_LIMIT", "1")
    assert counting(state, HorovodInternalError("one"))[0](state, 1)
    again = counting(state, HorovodInternalError("one"), HorovodInternalError("two"))[0]
    with pytest.raises(hopyard.Error, match="have changed 1 times, which is the limit: two"):
        again(state, 1)


def test_horovod_exceptions_derive_from_both_base_classes():
    for error in (HorovodInternalError, HostsUpdatedInterrupt):
        assert issubclass(error, hopyard.Error) and issubclass(error, RuntimeError)


# ---- callbacks --------------------------------------------------------------------------------


def test_callbacks_update_the_state_during_fit(kit):
    model = model_of(kit)
    state = elastic.KerasState(model, batch=0, epoch=0)
    seen = []
    commit = state.commit
    state.commit = lambda: (seen.append((state.epoch, state.batch)), commit())
    callbacks = [elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state),
                 elastic.CommitStateCallback(state, batches_per_commit=2)]  # fmt: skip
    model.fit(X, Y, batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
    assert seen == [(0, 1), (0, 3), (1, 0), (1, 1), (1, 3), (2, 0)]
    model.fit(X, Y, batch_size=2, epochs=1, verbose=0, callbacks=callbacks)
    assert state.epoch == 3, "epochs are counted over all calls"


def test_fit_continues_after_an_interrupt(kit):
    """What was traced before is traced again: it may have known another number of ranks."""
    model = model_of(kit, hvd.DistributedOptimizer(kit.optimizers.SGD(0.01)))
    state = elastic.KerasState(model, batch=0, epoch=0)
    calls = []

    @elastic.run
    def train(state):
        calls.append(state.epoch)
        if len(calls) == 2:
            state.on_hosts_updated(0, 0)
        callbacks = [elastic.UpdateEpochStateCallback(state), elastic.CommitStateCallback(state)]
        model.fit(X, Y, epochs=3 - state.epoch, verbose=0, callbacks=callbacks)
        if len(calls) == 1:
            state.epoch = 1
            state.commit()
            raise HorovodInternalError("lost")

    train(state)
    assert calls == [0, 1, 1] and state.epoch == 3
