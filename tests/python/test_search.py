# SPDX-License-Identifier: Apache-2.0
"""The Python face of search; the search itself is tests/search/test_search.c's and test_evolve.c's."""

import gc
import math
import random
import re
import weakref

import pytest

import hopyard
from hopyard.search import Evolution, Grid, Random, Trial


def trials(search):
    while not search.done:
        trial = search.ask()
        search.tell(trial, None)
        yield trial


def minimize(search, f, parallel=1, shuffle=0):
    """Runs a search to its end, `parallel` trials at a time, answered by chance; the best value."""
    chance, running, best = random.Random(shuffle), [], math.inf
    while not search.done or running:
        trial = search.ask() if len(running) < parallel else None
        if trial is not None:
            running.append(trial)
            continue
        trial = running.pop(chance.randrange(len(running)))
        value = f(**trial.params)
        best = min(best, value)
        search.tell(trial, value)
    return best


def test_grid_gives_every_combination_with_the_first_name_slowest():
    search = Grid({"lr": [0.1, 0.01], "act": ["relu", "tanh"]})
    assert search.total == 4
    assert list(trials(search)) == [
        Trial(1, {"lr": 0.1, "act": "relu"}),
        Trial(2, {"lr": 0.1, "act": "tanh"}),
        Trial(3, {"lr": 0.01, "act": "relu"}),
        Trial(4, {"lr": 0.01, "act": "tanh"}),
    ]
    assert search.ask() is None


def test_grid_choices_come_back_as_the_same_objects():
    choices = [None, {"a": 1}, object(), (1, 2), True]
    assert [t.params["x"] for t in trials(Grid({"x": choices}))] == choices
    for trial, choice in zip(trials(Grid({"x": choices})), choices):
        assert trial.params["x"] is choice


def test_two_numbers_are_choices_in_a_grid_and_bounds_elsewhere():
    assert [t.params["x"] for t in trials(Grid({"x": [1, 4]}))] == [1, 4]
    assert {t.params["x"] for t in trials(Random({"x": [4, 1]}, samples=100, seed=1))} == {1, 2, 3, 4}
    drawn = [t.params["x"] for t in trials(Random({"x": (4.0, 1)}, samples=100, seed=1))]
    assert all(type(x) is float and 1 <= x <= 4 for x in drawn)
    assert len(set(drawn)) == 100


def test_other_lists_are_categories():
    space = {"a": ["x", "y"], "b": [1, 2, 3], "c": [True, False], "d": [None, 1]}
    drawn = list(trials(Random(space, samples=200, seed=1)))
    for name, choices in space.items():
        assert {repr(t.params[name]) for t in drawn} == {repr(c) for c in choices}


def test_strings_are_parsed_as_on_the_command_line():
    search = Random(
        {"lr": "log:1e-5..1e-1", "layers": "4..1", "act": "relu,tanh", "n": "32,0.5,x"}, 300, seed=2
    )
    drawn = [t.params for t in trials(search)]
    assert all(1e-5 <= p["lr"] <= 1e-1 for p in drawn)
    assert sum(p["lr"] < 1e-3 for p in drawn) in range(120, 180)
    assert {p["layers"] for p in drawn} == {1, 2, 3, 4}
    assert {p["act"] for p in drawn} == {"relu", "tanh"}
    assert {repr(p["n"]) for p in drawn} == {"32", "0.5", "'x'"}
    assert [t.params["n"] for t in trials(Grid({"n": "1..3"}))] == [1, 2, 3]


def test_numpy_numbers_make_dimensions_like_pythons():
    import numpy

    space = {"n": numpy.array([1, 4]), "x": (numpy.float32(0.5), numpy.float32(1))}
    for trial in trials(Random(space, 20, seed=3)):
        assert type(trial.params["n"]) is int and type(trial.params["x"]) is float


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: Random({"x": (0.0, 1.0), "c": ["a", "b"]}, 30, seed=seed),
        lambda seed: Evolution({"x": (0.0, 1.0), "c": ["a", "b"]}, population=6, generations=5, seed=seed),
    ],
)
def test_the_same_seed_gives_the_same_trials(make):
    first, again, other = list(trials(make(7))), list(trials(make(7))), list(trials(make(8)))
    assert len(first) == 30
    assert first == again
    assert first != other


def test_search_without_a_seed_has_a_random_one():
    search = Random({"x": (0.0, 1.0)}, 5)
    assert list(trials(search)) == list(trials(Random({"x": (0.0, 1.0)}, 5, seed=search.seed)))
    assert Random({"x": (0.0, 1.0)}).seed != Random({"x": (0.0, 1.0)}).seed


def test_a_generation_waits_and_the_asynchronous_form_does_not():
    waiting = Evolution({"x": (0.0, 1.0)}, population=4, generations=2)
    first = [waiting.ask() for _ in range(4)]
    assert waiting.ask() is None and not waiting.done
    for trial in first:
        waiting.tell(trial, 1.0)
    assert waiting.ask().number == 5
    eager = Evolution({"x": (0.0, 1.0)}, population=4, generations=2, asynchronous=True)
    assert [eager.ask().number for _ in range(8)] == list(range(1, 9))
    assert eager.done and eager.ask() is None


def test_endless_searches_are_never_done():
    for search in Random({"x": (0, 1)}), Evolution({"x": (0, 1)}):
        assert search.total is None
        for _ in range(50):
            search.tell(search.ask(), None)
        assert not search.done


def bowl(x, y, n, c):
    return (x - 0.3) ** 2 + (math.log10(y) + 3) ** 2 + abs(n - 5) + (c != "b")


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("strategy", [None, "best1bin"])
def test_evolution_finds_what_random_does_not(strategy, asynchronous):
    space = {"x": (-5.0, 5.0), "y": "log:1e-6..1.0", "n": (1, 9), "c": ["a", "b", "c"]}
    search = Evolution(
        space, generations=25, strategy=strategy, asynchronous=asynchronous, direction="min", seed=1
    )
    assert minimize(search, bowl, parallel=4) < 0.05
    assert minimize(Random(space, search.total, direction="min", seed=1), bowl) > 0.1


def test_direction_reverses_the_search():
    ends = {}
    for direction in "min", "max":
        search = Evolution({"x": (0.0, 1.0)}, generations=20, direction=direction, seed=1)
        while not search.done:
            trial = search.ask()
            search.tell(trial, trial.params["x"])
        ends[direction] = trial.params["x"]
    assert ends["min"] < 0.01 and ends["max"] > 0.99


X = {"x": (0.0, 1.0)}


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: Grid({"x": []}), "'x' has no values"),
        (lambda: Grid({"x": 3}), "'x' needs a list of values"),
        (lambda: Grid({"x": "0.1..0.5"}), "a grid takes values"),
        (lambda: Grid([1, 2]), "a space is a dict"),
        (lambda: Grid({1: [2]}), "names of a space must be strings"),
        (lambda: Grid({"a=b": [2]}), "cannot be used"),
        (lambda: Grid({"a=b": "1..2"}), "cannot be used"),
        (lambda: Grid({"a\0b": [2]}), "cannot be used"),
        (lambda: Grid({"a": "1\0,2"}), "cannot be used"),
        (lambda: Grid({"\ud800": [2]}), "cannot be used"),
        (lambda: Grid({"x": "0..9007199254740992", "y": "0..4095"}), "too many trials"),
        (lambda: Grid(X, direction="up"), "unknown direction 'up'"),
        (lambda: Random({}), "nothing to vary"),
        (lambda: Random({"x": (0, math.inf)}), "finite"),
        (lambda: Random({"x": (0, 10**400)}), "finite"),
        (lambda: Random({"x": (0, 2**60)}), "2^53"),
        (lambda: Random({"x": "log:0..1"}), "above 0"),
        (lambda: Random(X, samples=0), "samples is 0"),
        (lambda: Random(X, seed=-1), "seed is -1"),
        (lambda: Evolution(X, population=3), "population of 3"),
        (lambda: Evolution(X, population=2**32), "population is 4294967296"),
        (lambda: Evolution(X, generations=0), "generations is 0"),
        (lambda: Evolution(X, mutation=3), "mutation is 3"),
        (lambda: Evolution(X, crossover=-0.5), "crossover is -0.5"),
        (lambda: Evolution(X, strategy="best"), "unknown strategy 'best'"),
    ],
)
def test_invalid_input_raises_hopyard_errors(make, sentence):
    with pytest.raises(hopyard.Error) as caught:
        make()
    assert sentence in str(caught.value)
    assert type(caught.value).__module__ == "hopyard"


def test_wrong_types_are_type_errors():
    for make in (
        lambda: Random(X, seed="a"),
        lambda: Evolution(X, mutation="a"),
        lambda: Evolution(X, population=1.5),
    ):
        with pytest.raises(TypeError):
            make()


def test_only_open_trials_can_be_told():
    search = Random(X, seed=1)
    with pytest.raises(hopyard.Error, match="trial 1 was never asked for, or its result is already known"):
        search.tell(Trial(1, {}), 0.5)
    trial = search.ask()
    search.tell(trial, 0.5)
    with pytest.raises(hopyard.Error):
        search.tell(trial, 0.5)


def test_exception_of_an_iterable_is_raised():
    def values():
        yield 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Grid({"x": values()})


def test_a_search_in_a_cycle_is_collected():
    class Holder:
        pass

    holder = Holder()
    holder.search = Grid({"x": [holder]})
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("direction", "best"), [("max", 3), ("min", 2)])
def test_best_is_the_first_of_equal_trials(direction, best):
    search = Grid({"x": [5, 1, 9, 9, 7]}, direction=direction)
    assert search.best is None
    trials = [search.ask() for _ in range(5)]
    search.tell(trials[4], math.nan)
    search.tell(trials[0], None)
    assert search.best is None, "failures are not the best, though they are all there is"
    for trial in trials[1:4]:
        search.tell(trial, trial.params["x"])
    assert (search.best.number, search.best.params, search.best.value) == (
        best,
        trials[best - 1].params,
        trials[best - 1].params["x"],
    )


def test_every_parameter_is_documented():
    """What `?` and Shift-Tab show."""
    import inspect

    from hopyard import experiment, search, space

    calls = [getattr(experiment, name) for name in experiment.__all__ if name[0].islower()]
    calls += [search.CMA, search.Evolution, search.Grid, search.Paired, search.Random, search.TPE]
    calls += [space.choice, hopyard.report]
    assert len(calls) == 19
    for call in calls:
        names = inspect.signature(call).parameters
        missing = [name for name in names if f"\n{name}: " not in inspect.getdoc(call)]
        assert not missing, f"{call.__name__}: {missing}"
    for numbers in (space.integer, space.log, space.lognormal, space.normal, space.uniform):
        for name in inspect.signature(numbers).parameters:
            assert re.search(rf"\n(\w+, )?{name}(, \w+)?: ", inspect.getdoc(numbers)), f"{numbers.__name__}: {name}"
    assert inspect.signature(experiment.random_search).parameters["samples"].default == 10
    assert "direction: str = 'max'" in str(inspect.signature(experiment.grid_search))
