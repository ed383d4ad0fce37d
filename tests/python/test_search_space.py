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
from hopyard import choice, integer, log, lognormal, normal, uniform
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


@pytest.mark.parametrize(
    "one",
    [
        log(1e-5, 1e-1),
        integer(1, 4),
        uniform(0, 1),
        choice("a", None, 3),
        uniform(0, 1, step=0.1, when="a == 1"),
        integer(16, 64, step=16),
        log(1, 4, when="a == 1"),
        normal(0, 1),
        normal(10, 3, 1, 20, step=1, when="a == 1"),
        lognormal(-7, 1, high=0.1),
        choice("a", "b", when="a == 1"),
    ],
)
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
    assert normal(0, 1) != lognormal(0, 1) and normal(0, 1) != normal(0, 1, 0) and choice(1) != choice(1, when="a == 1")
    assert integer(1, 4) != integer(1, 4, step=1) != integer(1, 4, step=1, when="a == 1")


def test_objects_are_written_as_on_the_command_line():
    assert str(uniform(0, 0.5, step=0.1)) == "0.0..0.5 step 0.1" and str(uniform(0, 4, step=2)) == "0.0..4.0 step 2.0"
    assert str(integer(16, 256, step=16, when="a == 1")) == "16..256 step 16 if a == 1"
    assert str(log(1e-5, 1, when="a == 1")) == "log:1e-05..1 if a == 1"
    assert str(normal(0, 1)) == "normal(0, 1)" and str(lognormal(-7.5, 1)) == "lognormal(-7.5, 1)"
    assert str(normal(0, 1, -2, 2)) == "normal(0, 1) in -2..2" and str(normal(0, 1, low=0)) == "normal(0, 1) in 0.."
    assert str(lognormal(0, 1, high=3, when="a == 1")) == "lognormal(0, 1) in ..3 if a == 1"
    assert str(normal(10, 3, 1, 20, step=1)) == "normal(10, 3) in 1..20 step 1"
    assert repr(normal(10, 3, 1, 20, step=1, when="x")) == "normal(10, 3, low=1, high=20, step=1, when='x')"


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
        (lambda: uniform(0, 1, step=0), "uniform(step=) needs a number above 0, not 0"),
        (lambda: uniform(0, 1, step="a"), "uniform(step=) needs a number above 0, not 'a'"),
        (lambda: integer(0, 4, step=0.5), "needs whole numbers, not 0.5"),
        (lambda: normal("a", 1), "normal(mean, deviation) needs two finite numbers, not 'a'"),
        (lambda: lognormal(0, float("nan")), "lognormal(mean, deviation) needs two finite numbers, not nan"),
        (lambda: normal(0, 1, low="a"), "needs two finite numbers, not 'a'"),
        (lambda: normal(0, 1, step=1), "normal(step=) needs both bounds: low= and high="),
        (lambda: choice(1, when=""), "choice(when=) needs an expression such as"),
        (lambda: log(1, 2, when=3), "log(when=) needs an expression such as"),
        (lambda: log(1, 2, when="a\0"), "log(when=) needs an expression"),
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


def test_steps_are_the_values_of_a_grid():
    assert drawn(Grid({"x": uniform(0, 0.3, step=0.1)}), "x") == [0.0, 0.1, 0.2, 0.3]
    assert drawn(Grid({"n": integer(16, 48, step=16)}), "n") == [16, 32, 48]
    values = drawn(Random({"x": "0..0.5 step 0.1"}, 200, seed=1), "x")
    assert {*values} == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5} and all(type(x) is float for x in values)


def test_distributions_are_drawn():
    values = drawn(Random({"x": normal(2, 3)}, 2000, seed=1), "x")
    assert abs(sum(values) / 2000 - 2) < 0.3 and 0.6 < sum(abs(x - 2) < 3 for x in values) / 2000 < 0.75
    assert all(0 < x <= 0.1 for x in drawn(Random({"x": lognormal(-3, 1, high=0.1)}, 200, seed=1), "x"))
    assert {type(n) for n in drawn(Random({"n": normal(10, 3, 1, 20, step=1)}, 20, seed=1), "n")} == {int}
    with pytest.raises(hopyard.Error, match="'x' is a distribution; a grid takes values"):
        Grid({"x": normal(0, 1)})


class Layer:
    """A choice without a text."""


CONDITIONAL = {
    "opt": ["sgd", "adam", "none"],
    "momentum": uniform(0.5, 0.99, when="opt == 'sgd'"),
    "nesterov": choice(True, False, when="momentum > 0.7"),
    "beta": log(0.1, 1, when="opt in (adam, none)"),
    "block": choice(Layer, 3, None, when="nesterov == true"),
    "late": choice("x", "y", when="block == 3 or block == null"),
    "text": '["a", null] if opt == sgd',
}


@pytest.mark.parametrize("make", [lambda s: Random(s, 300, seed=1), lambda s: Evolution(s, 10, 30, seed=1)])
def test_inactive_hyperparameters_are_not_in_params(make):
    search, seen = make(CONDITIONAL), set()
    while not search.done:
        trial = search.ask()
        params = trial.params
        search.tell(trial, params.get("momentum", 0))
        assert ("momentum" in params) == ("text" in params) == (params["opt"] == "sgd")
        assert ("beta" in params) == (params["opt"] != "sgd")
        assert ("nesterov" in params) == (params.get("momentum", 0) > 0.7)
        assert ("block" in params) == (params.get("nesterov", False))
        assert ("late" in params) == (params.get("block", Layer) in (3, None))
        seen.add((*params,))
    assert len(seen) == 5


def test_a_grid_has_each_combination_of_active_hyperparameters_once():
    search = Grid({"opt": ["sgd", "adam"], "m": choice(0.5, 0.9, when="opt == sgd"), "n": [1, 2]})
    assert search.total == 6
    got = [search.ask().params for _ in range(6)]
    assert got == [{"opt": "sgd", "m": m, "n": n} for m in (0.5, 0.9) for n in (1, 2)] + [
        {"opt": "adam", "n": n} for n in (1, 2)
    ]
    paired = Paired({"opt": ["a", "b", "b"], "m": choice([1], [2], [3], when="opt == a")})
    assert [paired.ask().params for _ in range(paired.total)] == [{"opt": "a", "m": [1]}, {"opt": "b"}]


@pytest.mark.parametrize(
    "space, says",
    [
        ({"a": [1, 2], "b": uniform(0, 1, when="c == 1")}, "the condition of 'b': 'c' is not a dimension"),
        ({"b": uniform(0, 1, when="c == 1"), "c": choice(1, 2)}, "'c' is not a dimension that is declared before"),
        ({"opt": ["x", "y", "z"], "b": choice(1, when="opt == w")}, "'w' is not a choice of 'opt' (choices: x, y, z)"),
        ({"opt": ["x", Layer, True], "b": choice(1, when="opt == w")}, "(choices: x, choice 2, true)"),
        ({"opt": ["x", "y", "z"], "b": integer(1, 2, when="opt")}, "a comparison is missing"),
        ({"b": integer(1, 4, step=9)}, "the step of 'b' is larger than its range"),
        ({"b": normal(0, 1, 50, 51)}, "the bounds of 'b' are too far from its mean"),
    ],
)
def test_invalid_conditions_and_distributions_raise(space, says):
    with pytest.raises(hopyard.Error) as error:
        Random(space)
    assert says in str(error.value)


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


def test_conditions_and_steps_are_options():
    space = {"a": choice("x", "y"), "b": choice(1, None, when="a == 'x'"), "c": uniform(0, 1, step=0.25, when="a == y")}
    texts = ['a=["x","y"]', "b=[1,null] if a == 'x'", "c=0.0..1.0 step 0.25 if a == y"]
    assert arguments(space, "random") == [("space", text) for text in texts]
    assert arguments(space, "grid") == [("grid", text) for text in texts]
    assert arguments({"x": normal(0, 1)}, "evolve") == [("space", "x=normal(0, 1)")]


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
