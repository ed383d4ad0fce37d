# SPDX-License-Identifier: Apache-2.0
"""Spaces as Python has them, and as the program gets them; that it reads them so is tests/e2e/test_space.py's."""

import copy
import json
import os
import pickle
import subprocess
import sys

import numpy
import pytest

import hopyard
from hopyard import choice, integer, log, uniform
from hopyard.search import Evolution, Grid, Paired, Random
from hopyard.space import arguments


def drawn(search, name):
    values = []
    while not search.done:
        trial = search.ask()
        search.tell(trial, 1.0)
        values.append(trial.params[name])
    return values


# ---- the objects --------------------------------------------------------------------------------


@pytest.mark.parametrize("one", [log(1e-5, 1e-1), integer(1, 4), uniform(0, 1), choice("a", None, 3)])
def test_space_objects_are_immutable(one):
    with pytest.raises(AttributeError, match="is immutable"):
        one.low = 3
    assert one == copy.deepcopy(one) == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(copy.copy(one))
    assert eval(repr(one)) == one


def test_kinds_are_distinguished():
    assert integer(1, 4) != log(1, 4) != uniform(1, 4) != integer(1, 4)
    assert choice(1, 2) != choice(2, 1)
    assert str(log(16, 1024)) == "log:16..1024" and str(log(1e-5, 0.1)) == "log:1e-05..0.1"
    assert str(integer(4, -1)) == "4..-1" and str(uniform(0, 1)) == "0.0..1.0"


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: log("a", 1), "log(low, high) needs two finite numbers, not 'a'"),
        (lambda: uniform(None, 1), "uniform(low, high) needs two finite numbers, not None"),
        (lambda: integer(True, 1), "needs two finite numbers, not True"),
        (lambda: integer(1.0, 2), "integer(low, high) needs whole numbers, not 1.0"),
        (lambda: log(1, float("inf")), "needs two finite numbers, not inf"),
        (lambda: uniform(float("nan"), 1), "needs two finite numbers, not nan"),
        (lambda: uniform(1, 10**400), "needs two finite numbers, not 1000"),
        (lambda: choice(), "at least one value"),
    ],
)
def test_invalid_objects_raise_when_created(make, says):
    with pytest.raises(hopyard.Error) as error:
        make()
    assert says in str(error.value)


# ---- in searches of this process --------------------------------------------------------------------


def test_searches_accept_space_objects():
    assert drawn(Grid({"n": integer(3, 1)}), "n") == [1, 2, 3]
    assert drawn(Grid({"n": choice(3, 1)}), "n") == [3, 1]
    assert set(drawn(Random({"n": choice(3, 1)}, 50, seed=1), "n")) == {3, 1}  # [3, 1] would be bounds
    assert set(drawn(Random({"n": integer(3, 1)}, 50, seed=1), "n")) == {1, 2, 3}
    assert all(type(x) is float and 0 <= x <= 1 for x in drawn(Random({"x": uniform(0, 1)}, 50, seed=1), "x"))
    values = drawn(Random({"x": log(1e-5, 1e-1)}, 400, seed=1), "x")
    assert 150 < sum(x < 1e-3 for x in values) < 250
    marks = [object(), {"a": 1}]
    assert all(x in marks for x in drawn(Evolution({"x": choice(*marks)}, population=4, generations=3), "x"))


def test_ranges_are_not_lists_in_a_grid():
    for value in (log(1e-5, 1e-1), uniform(0, 1)):
        with pytest.raises(hopyard.Error, match="'x' is a range; a grid takes values"):
            Grid({"x": value})
    with pytest.raises(hopyard.Error, match="the bounds of 'x' must be above 0 for a log scale"):
        Random({"x": log(0, 1)})


def test_json_in_a_string_is_parsed():
    values = ["relu", None, True, 1, 1.0, "1", [64, [1]], {"a": {}}, "é😀"]
    for text in (json.dumps(values), json.dumps(values, ensure_ascii=False, indent=1)):
        got = drawn(Grid({"x": text}), "x")
        assert repr(got) == repr(values)
    error = r"'x' is not a valid JSON list: at byte 5, before 'b\]', a value is missing"
    with pytest.raises(hopyard.Error, match=error):
        Grid({"x": "[1, b]"})


def test_paired_lists_are_zipped():
    search = Paired({"a": [1, 2], "b": choice("x", "y"), "c": integer(5, 6)})
    assert search.total == 2
    assert [search.ask().params for _ in range(2)] == [{"a": 1, "b": "x", "c": 5}, {"a": 2, "b": "y", "c": 6}]
    with pytest.raises(hopyard.Error, match="'a' has 2 values and 'b' has 3"):
        Paired({"a": [1, 2], "b": [1, 2, 3]})
    assert Paired({}).total == 1


# ---- for the program -----------------------------------------------------------------------------------


def test_grids_are_lists_of_json():
    space = {
        "lr": [0.1, 0.01],
        "layers": ((64, 64), [128]),
        "act": choice("relu", None),
        "n": integer(1, 3),
        "t": "1..3",
    }
    lists = ['lr=[0.1,0.01]', 'layers=[[64,64],[128]]', 'act=["relu",null]', "n=1..3", "t=1..3"]
    assert arguments(space, "grid") == [("grid", text) for text in lists]
    assert arguments(space, "paired") == [("paired", ""), *(("grid", text) for text in lists)]
    assert arguments({}, "grid") == arguments({}, "paired") == arguments({}, "random") == []


@pytest.mark.parametrize("kind", ["random", "evolve"])
def test_two_numbers_are_bounds_outside_of_grids(kind):
    space = {"a": [4, 1], "b": (0.0, 1), "c": [1, 2, 3], "d": [True, False], "e": choice(32, 64), "f": log(1e-5, 1),
             "g": ["x", 1], "h": [1e-7, 1e22], "i": [5]}  # fmt: skip
    texts = ["a=4..1", "b=0.0..1.0", "c=[1,2,3]", "d=[true,false]", "e=[32,64]", "f=log:1e-05..1", 'g=["x",1]',
             "h=1e-07..1e+22", "i=[5]"]  # fmt: skip
    assert arguments(space, kind) == [("space", text) for text in texts]


def test_any_iterable_is_a_list():
    assert arguments({"x": range(3)}, "grid") == [("grid", "x=[0,1,2]")]
    assert arguments({"x": (i / 2 for i in range(2))}, "random") == [("space", "x=0.0..0.5")]
    assert arguments({"x": {"k": 1}.keys()}, "grid") == [("grid", 'x=["k"]')]


def test_numpy_values_become_python_values():
    space = {
        "lr": numpy.array([0.5, 0.25]), "n": numpy.arange(2, 4), "m": [numpy.int64(3), numpy.float32(0.5)],
        "layers": [numpy.ones((2, 2), dtype=int), {"a": numpy.zeros(1)}], "b": [numpy.bool_(True), numpy.str_("x")],
    }  # fmt: skip
    texts = ["lr=[0.5,0.25]", "n=[2,3]", "m=[3,0.5]", 'layers=[[[1,1],[1,1]],{"a":[0.0]}]', 'b=[true,"x"]']
    assert arguments(space, "grid") == [("grid", text) for text in texts]
    bounds = {"lr": space["lr"], "n": space["n"], "m": space["m"], "u": log(numpy.float64(1), numpy.int32(8))}
    assert arguments(bounds, "evolve") == [
        ("space", t) for t in ("lr=0.5..0.25", "n=2..3", "m=3.0..0.5", "u=log:1.0..8")
    ]


def relu(x):
    return x


LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "space, says",
    [
        (
            {"act": [relu]},
            "the value <function relu> of 'act' is not a JSON value; pass a string and look it up in your function",
        ),
        ({"act": [["a", {"k": relu}]]}, "the value <function relu> of 'act' is not a JSON value"),
        ({"x": [1.0, float("nan")]}, "the value nan of 'x' is not a JSON value: JSON has finite numbers only"),
        ({"x": [[float("-inf")]]}, "the value -inf of 'x' is not a JSON value"),
        ({"x": [2**63]}, "the value 9223372036854775808 of 'x' is beyond 64 bits; pass it as a string"),
        ({"x": [0, 2**63]}, "the value 9223372036854775808 of 'x' is beyond 64 bits"),
        ({"x": [10**5000]}, "the value <int> of 'x' is beyond 64 bits"),
        ({"x": [b"bytes"]}, "the value b'bytes' of 'x' is not a JSON value"),
        ({"x": [{1, 2}]}, "the value {1, 2} of 'x' is not a JSON value"),
        ({"x": [{1: 2}]}, "the key 1 of 'x' is not a key of a JSON object"),
        ({"x": ["a\0b"]}, "of 'x' is not a valid string: it contains NUL or a lone surrogate"),
        ({"x": ["\ud800"]}, "lone surrogate"),
        ({"x": [LOOP]}, "of 'x' is nested too deeply, or contains itself"),
        ({"x": 0.1}, "'x' needs a list of values, or a string such as '1..4'; got 0.1"),
        ({"x": None}, "got None"),
        ({"x": {"a": 1}}, "'x' needs a list of values"),
        ({"x": b"12"}, "'x' needs a list of values"),
        ({"x": "a\0b"}, "for 'x': it must not contain"),
        ({1: [2]}, "the names of a space must be strings; got 1"),
        ({"a=b": [2]}, "invalid name 'a=b'"),
        ({"a\0": [2]}, "invalid name 'a\\x00'"),
        ([1, 2], "a space is a dict of names and values; got [1, 2]"),
    ],
)
@pytest.mark.parametrize("kind", ["grid", "paired", "random"])
def test_values_that_are_not_json_are_errors_with_name_and_value(space, kind, says):
    with pytest.raises(hopyard.Error) as error:
        arguments(space, kind)
    assert says in str(error.value)
    assert len(str(error.value)) < 300


def test_importing_hopyard_imports_nothing_heavy():
    code = "import sys, hopyard; print(*sorted(set(sys.modules)))"
    env = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}  # `make coverage` imports more
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    names = done.stdout.split()
    heavy = {
        "json",
        "dataclasses",
        "inspect",
        "tempfile",
        "subprocess",
        "hopyard.search",
        "hopyard.experiment",
        "numpy",
    }
    assert "hopyard.space" in names
    assert not heavy & set(names)


def test_float32_values_are_written_short():
    values = numpy.array([0.1, 1e-5, 3], numpy.float32)
    options = arguments({"x": values, "y": [numpy.float32(0.7)]}, "grid")
    assert options == [("grid", "x=[0.1,1e-05,3.0]"), ("grid", "y=[0.7]")]
    assert arguments({"x": values[:2]}, "random") == [("space", "x=0.1..1e-05")]
    assert all(numpy.float32(text) == value for text, value in zip((0.1, 1e-05, 3.0), values))
