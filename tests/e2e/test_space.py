# SPDX-License-Identifier: Apache-2.0
"""Values of every kind from Python or a shell through the program to a trial and back, and paired lists."""
from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard, wait_for

from hopyard.space import arguments, choice, integer, log, lognormal, uniform

VALUES: list[Any] = [
    1, "1", 1.0, -0.0, 0.1, 1e-300, 1e22, 5e-324, 2**63 - 1, -(2**63), True, "true", False, None, "null", "", " ", "a b",
    "é😀", "quote\" back\\slash 'single' $HOME `x` * ~ % # {v} {{v}}", "new\nline\ttab\x1b\x7f", "@file", "1..4", "log:1..2", "a,b",
    "[", "]", "-x", "--", "../..", ".", [], [[]], {}, [64, 64], ["a", None, {"b": [1.5, True]}], {"": 1, "k k": {"ü": []}},
    "x" * 5000, list(range(3000)),
]


def seen(yard: Yard, run: int = 1) -> list[dict[str, Any]]:
    """What each trial found in HOPYARD_PARAMS: `PRINT` has printed it."""
    return [json.loads((yard.logdir(run) / t["dir"] / "stdout").read_text()) for t in yard.trials(run)]


PRINT = ("--", "sh", "-c", 'printf %s "$HOPYARD_PARAMS"')


def run_space(yard: Yard, *options: tuple[str, object], argv: Sequence[str] = PRINT[1:]) -> subprocess.CompletedProcess[str]:
    """As Python runs it: values of any length are in a message."""
    started = yard.submit(options, argv)
    assert "run" in started, started
    return yard.run("attach", started["run"])


def same(got: Any, want: Any) -> bool:
    """Equal, and of the same types, recursively."""
    return json.dumps(got) == json.dumps(want)


def shown(yard: Yard, run: int = 1) -> list[dict[str, Any]]:
    text = yard.run("show", run, "--json", "--trials", "all", "--by-number").stdout
    return [t["params"] for t in json.loads(text)["trials"]]


def test_every_json_value_round_trips(yard: Yard) -> None:
    want = [{"v": value, "n": 1} for value in VALUES]
    p = run_space(yard, *arguments({"v": VALUES, "n": [1]}, "grid"))
    assert len(re.findall(r"\] trial \d+ done", p.stdout)) == len(VALUES)
    assert same(seen(yard), want)
    assert same(shown(yard), want)
    assert same([t["params"] for t in yard.trials()], want)
    assert len({t["dir"] for t in yard.trials()}) == len(VALUES)  # 1 and "1" too


def test_random_values_round_trip(yard: Yard) -> None:
    rng = random.Random(4)

    def value(depth: int = 0) -> Any:
        kind = rng.randrange(4 if depth > 3 else 6)
        if kind == 0:
            return rng.choice([None, True, False])
        if kind == 1:
            return rng.randrange(-(10 ** rng.randrange(1, 19)), 10**18)
        if kind == 2:
            return rng.uniform(-1, 1) * 10.0 ** rng.randrange(-300, 300)
        if kind == 3:
            return "".join(chr(rng.choice([34, 92, 9, 10, 37, 65, 0xE9, 0x20AC, 0x1F600])) for _ in range(rng.randrange(8)))
        many = range(rng.randrange(4))
        return [value(depth + 1) for _ in many] if kind == 4 else {f"k{i}": value(depth + 1) for i in many}

    values = [value() for _ in range(100)]
    run_space(yard, *arguments({"v": values}, "grid"))
    assert same(seen(yard), [{"v": v} for v in values])
    assert same(shown(yard), [{"v": v} for v in values])


def test_json_values_from_a_shell(yard: Yard) -> None:
    yard.run("run", "--grid", 'layers=[[64,64], [128]]', "--grid", 'act=["relu", null, true]', "--", "printf", "%s|%s", "{layers}", "{act}")
    outputs = [(yard.logdir() / t["dir"] / "stdout").read_text() for t in yard.trials()]
    assert outputs == ["[64,64]|relu", "[64,64]|null", "[64,64]|true", "[128]|relu", "[128]|null", "[128]|true"]
    assert yard.trials()[0]["dir"] == "layers=%5B64%2C64%5D,act=relu"


def test_spelling_of_a_number_is_kept(yard: Yard) -> None:
    yard.run("run", "--grid", "x=[1e-3, 0.10, 1E5]", *PRINT)
    outputs = [(yard.logdir() / t["dir"] / "stdout").read_text() for t in yard.trials()]
    assert outputs == ['{"x": 1e-3}', '{"x": 0.10}', '{"x": 1E5}']


def test_categories_may_be_json_values(yard: Yard) -> None:
    space = {"act": choice("relu", None, [1, {"a": 2}]), "n": choice(32, 64), "lr": log(1e-5, 1e-1), "k": integer(1, 3)}
    run_space(yard, ("random", 30), ("seed", 1), *arguments(space, "random"))
    run_space(yard, ("evolve", True), ("generations", 3), ("population", 5), ("max", "f"), ("seed", 1), *arguments(space, "evolve"),
              argv=["sh", "-c", 'printf %s "$HOPYARD_PARAMS"; echo 1 > $HOPYARD_RESULT'])
    for run in (1, 2):
        params = seen(yard, run)
        assert same(params, shown(yard, run))
        assert {json.dumps(p["act"]) for p in params} <= {'"relu"', "null", '[1, {"a": 2}]'}
        assert {p["n"] for p in params} <= {32, 64}
        assert all(type(p["lr"]) is float and type(p["k"]) is int for p in params)
    assert {json.dumps(p["act"]) for p in seen(yard, 1)} == {'"relu"', "null", '[1, {"a": 2}]'}


def test_floats_stay_floats_at_their_bounds(yard: Yard) -> None:
    run_space(yard, ("random", 3), *arguments({"x": [2.0, 2.0]}, "random"))
    assert same(seen(yard), [{"x": 2.0}] * 3) and same(shown(yard), [{"x": 2.0}] * 3)


# ---- pairs -----------------------------------------------------------------------------------------


def test_paired_lists_are_combined_by_position(yard: Yard) -> None:
    p = run_space(yard, *arguments({"lr": [0.1, 0.01, 0.001], "layers": integer(1, 3), "act": ["a", None, [1]]}, "paired"))
    want = [{"lr": 0.1, "layers": 1, "act": "a"}, {"lr": 0.01, "layers": 2, "act": None}, {"lr": 0.001, "layers": 3, "act": [1]}]
    assert same(seen(yard), want)
    assert "run 1: 3 trials" in p.stdout
    assert "paired  lr=[0.1,0.01,0.001]" in yard.run("show", 1).stdout


def test_lists_of_different_lengths_cannot_be_paired(yard: Yard) -> None:
    p = yard.run("run", "--paired", "--grid", "lr=1,2,3", "--grid", "act=a,b", "--", "true", rc=2)
    assert p.stderr == "hopyard run: paired lists must be equally long, but 'lr' has 3 values and 'act' has 2\n"
    assert not (yard.folder / "store.db").exists()


def test_paired_run_is_resumed(yard: Yard) -> None:
    gate = yard.project / "gate"
    client = yard.start("run", "--paired", "--grid", "a=[[1], null, 3, 4]", "--grid", "b=5..8", "--parallel", 1, "--",
                        "sh", "-c", f'printf %s "$HOPYARD_PARAMS"; while [ {{b}} -gt 6 ] && [ ! -e {gate} ]; do sleep 0.05; done')
    wait_for(lambda: yard.state() and [t["state"] for t in yard.trials()] == ["done", "done", "running"], "the third trial runs")
    os.kill(yard.process("driver"), signal.SIGKILL)
    client.communicate(timeout=60)
    yard.assert_nothing_left()
    gate.touch()
    yard.run("resume", 1)
    want = [{"a": [1], "b": 5}, {"a": None, "b": 6}, {"a": 3, "b": 7}, {"a": 4, "b": 8}]
    assert same(seen(yard), want)
    assert [t["state"] for t in yard.trials()] == ["done"] * 4
    assert [t["attempts"] for t in yard.trials()][:2] == [1, 1]


# ---- long lists ----------------------------------------------------------------------------------------


def test_100000_values_from_a_file(yard: Yard) -> None:
    values = [i / 7 for i in range(100_000)]
    file = yard.project / "values.json"
    file.write_text(json.dumps(values, indent=1) + "\n")
    yard.run("run", "--random", 3, "--seed", 5, "--space", f"x=@{file}", *PRINT)
    file.unlink()
    assert all(p["x"] in values for p in seen(yard))
    run = yard.submit(arguments({"x": values, "y": list(range(100_000))}, "paired"), ["sleep", "1000"])["run"]
    wait_for(lambda: yard.trials(run), "the first trial starts")
    yard.run("stop", run)
    head = json.loads(yard.run("show", run, "--json").stdout)["run"]
    assert head["total"] == 100_000
    assert len(yard.run("show", run).stdout) < 20_000  # the stored list is truncated
    first = yard.trials(run)[0]["params"]
    assert first == {"x": 0.0, "y": 0}


@pytest.mark.parametrize(
    "option, message",
    [
        ("x=@nowhere", "hopyard run: x: cannot read values from 'nowhere': No such file or directory"),
        ("x=[1, b]", "hopyard run: --grid: 'x' is not a valid JSON list: at byte 5, before 'b]', a value is missing"),
    ],
)
def test_bad_values_are_refused_before_anything_starts(yard: Yard, option: str, message: str) -> None:
    p = yard.run("run", "--grid", option, "--", "true", rc=2)
    assert p.stderr.startswith(message)
    assert not (yard.folder / "store.db").exists()


def test_relative_file_is_found_in_the_working_directory(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "values").write_text("a,b\n")
    yard.run("run", "--grid", "x=@values", *PRINT, cwd=tmp_path)
    assert same(seen(yard), [{"x": "a"}, {"x": "b"}])


def test_inactive_hyperparameters_are_left_out_everywhere(yard: Yard) -> None:
    space = {"opt": choice("sgd", "adam"), "momentum": uniform(0, 0.9, step=0.3, when="opt == 'sgd'"),
             "lr": lognormal(-7, 1, 1e-5, 1e-1), "nesterov": choice(True, None, when="momentum > 0.5")}
    run_space(yard, *arguments(space, "random"), ("random", 20), ("seed", 7),
              argv=["sh", "-c", 'printf %s "$HOPYARD_PARAMS"; printf "[%s]" "{momentum}" >&2'])
    trials = seen(yard)
    assert len(trials) == 20 and {*map(len, trials)} == {2, 3, 4}
    for params, row in zip(trials, yard.trials()):
        assert ("momentum" in params) == (params["opt"] == "sgd") and 1e-5 <= params["lr"] <= 1e-1
        assert ("nesterov" in params) == (params.get("momentum", 0) > 0.5)
        assert params.get("momentum", 0.3) in (0, 0.3, 0.6, 0.9)
        assert ("momentum=" in row["dir"]) == ("momentum" in params) and row["params"] == params
        value = f"{params['momentum']:g}" if "momentum" in params else ""
        assert (yard.logdir(1) / row["dir"] / "stderr").read_text() == f"[{value}]"


def test_a_grid_with_conditions_runs_each_combination_once_and_is_resumed(yard: Yard) -> None:
    grid = ("--grid", "opt=sgd,adam", "--grid", "m=0.5,0.9 if opt == sgd", "--grid", "n=1..3 step 2 if m > 0.6")
    yard.run("run", *grid, "--", "sh", "-c", '[ -e ok ] || { touch ok; exit 1; }; printf %s "$HOPYARD_PARAMS"', rc=1)
    yard.run("resume", 1)
    want = [{"opt": "sgd", "m": 0.5}, {"opt": "sgd", "m": 0.9, "n": 1}, {"opt": "sgd", "m": 0.9, "n": 3}, {"opt": "adam"}]
    assert [t["params"] for t in yard.trials()] == want


def test_a_condition_that_is_wrong_is_an_error(yard: Yard) -> None:
    p = yard.run("run", "--random", "2", "--space", "opt=sgd,adam", "--space", "m=0.5..0.9 if opt == sdg", *PRINT, rc=2)
    assert "--space: the condition of 'm': 'sdg' is not a choice of 'opt' (choices: sgd, adam)" in p.stderr
