# SPDX-License-Identifier: Apache-2.0
"""The plan: which gradients travel together. Pure; what ranks make of it is tests/e2e/test_hvd.py's."""

import pytest

import tensorflow as tf
from hopyard.hvd import _buckets


class Named:
    def __init__(self, name):
        self.name = name


def plan(*gradients, groups=None, names=None):
    names = names or [f"v{i}" for i in range(len(gradients))]
    return _buckets.make(gradients, [Named(name) for name in names], groups)


def zeros(kilobytes, dtype=tf.float32):
    return tf.zeros([kilobytes * 1024 // dtype.size], dtype)


def test_buckets_start_with_the_last_and_the_first_one_is_small():
    made = plan(zeros(9000), zeros(9000), zeros(600), zeros(600), zeros(600))
    assert made.buckets == ((4,), (3, 2, 1), (0,))


def test_large_gradient_has_its_own_bucket():
    assert plan(zeros(1), zeros(40000), zeros(1)).buckets == ((2,), (1,), (0,))


def test_a_bucket_has_one_type():
    made = plan(zeros(1), zeros(1, tf.float64), zeros(1), zeros(1, tf.float64))
    assert made.buckets == ((3, 1), (2, 0))


def test_the_threshold_is_horovods(monkeypatch):
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "2048")
    assert plan(*[zeros(1)] * 5).buckets == ((4, 3), (2, 1), (0,))
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "0")
    assert plan(*[zeros(1)] * 3).buckets == ((2,), (1,), (0,))
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "much")
    with pytest.raises(ValueError, match="HOROVOD_FUSION_THRESHOLD is a number of bytes, not 'much'"):
        plan(zeros(1))


def test_user_groups_are_kept():
    four = [zeros(1)] * 4
    assert plan(*four, groups=2).buckets == ((2, 3), (0, 1))
    assert plan(*four, groups=[[0, 3]]).buckets == ((0, 3), (2,), (1,))
    assert plan(zeros(1), None, zeros(1, tf.float64), groups=1).buckets == ((0,), (2,))


def test_missing_and_sparse_gradients_have_no_bucket():
    made = plan(None, tf.IndexedSlices(tf.zeros([2, 3]), tf.constant([0, 1])), zeros(1))
    assert made.buckets == ((2,),) and made.sparse == (1,)
    assert [entry.text for entry in made.entries] == ["no gradient", "rows of float32 [3]", "float32 [256]"]


def test_digest_distinguishes_plans_but_ignores_keras_counters():
    same = plan(zeros(1), zeros(2), names=["model/dense/kernel", "model/dense/bias"])
    assert same.digest == plan(zeros(1), zeros(2), names=["model_4/dense_17/kernel", "model_4/dense_17/bias"]).digest
    others = [
        plan(zeros(1), zeros(3), names=["model/dense/kernel", "model/dense/bias"]),
        plan(zeros(1), zeros(2, tf.float64), names=["model/dense/kernel", "model/dense/bias"]),
        plan(zeros(1), None, names=["model/dense/kernel", "model/dense/bias"]),
        plan(zeros(1), zeros(2), names=["model/dense/bias", "model/dense/kernel"]),
        plan(zeros(1), zeros(2), groups=2, names=["model/dense/kernel", "model/dense/bias"]),
    ]
    assert len({made.digest for made in (same, *others)}) == 6


@pytest.mark.parametrize("lists, said", [
    ([[("a", "a 1", "1")], [("a", "a 2", "2")]], "gradient 0, 'a', is on rank 0: 1; rank 1: 2"),
    ([[("a", "a 1", "1"), ("b", "b", "b")], [("a", "a 1", "1")]], "gradient 1, 'b', is on rank 0: b; rank 1: nothing"),
    ([[("a", "a 1", "1")], [("c", "c 1", "1")]], "gradient 0, 'a', is on rank 0: 'a' 1; rank 1: 'c' 1"),
])  # fmt: skip
def test_the_first_difference_is_named(lists, said):
    assert _buckets._difference(lists, [0, 1], "gradient").endswith(said)
