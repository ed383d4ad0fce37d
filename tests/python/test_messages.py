# SPDX-License-Identifier: Apache-2.0
"""Errors of the program with Python's names; numbers and tables as people see them."""

import random
import struct

import pytest

import hopyard
from hopyard._run import display as _display
from hopyard._run import program as _program
from hopyard._run.result import Trial, _number
from results import make_result


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([("parallel", "0")], "parallel= takes an integer from 1 to 1048576, not '0'"),
        ([("memory", "lots")], "memory= takes a size such as 512M or 4G, not 'lots'"),
        ([("max-transfer", "0")], "max_transfer= takes a size such as 512M or 4G, or 'none', not '0'"),
        ([("random", "-1"), ("space", "x=1..2")], "samples= takes an integer from 0 to 9223372036854775807, not '-1'"),
        ([("space", "x=1..2"), ("random", "")], "samples= needs a value: N"),
        ([("oversubscribe", "yes")], "oversubscribe= takes no value; remove 'yes'"),
        ([("memroy", "1G")], "unknown option --memroy; did you mean --memory?"),
        ([("grid", "x")], "'x' has no values; write NAME=VALUE,VALUE or NAME=LOW..HIGH"),
    ],
)
def test_errors_name_the_argument(options, sentence, tmp_path):
    with pytest.raises(hopyard.Error) as error:
        _program.submit("run", options, tmp_path, argv=["true"], function=b"{}\n")
    assert str(error.value) == sentence


def test_what_starts_no_run_is_refused(tmp_path):
    with pytest.raises(hopyard.Error, match="'show' does not start a run"):
        _program.submit("show", [], tmp_path, argv=["true"])
    with pytest.raises(hopyard.Error, match="a cluster has the roles ps, .* 1 of 'boss' is invalid"):
        _program.submit("train", [], tmp_path, argv=["true"], roles=[("boss", 1)])
    with pytest.raises(hopyard.Error, match="app_id= must be a valid directory name, not 'a/b'"):
        _program.submit("run", [], tmp_path, argv=["true"], app_id="a/b")
    with pytest.raises(ValueError, match="null"):
        _program.submit("run", [], tmp_path, argv=["tr\0ue"])


def test_function_over_the_limit_is_refused(tmp_path):
    """The program answers and exits before the message has been sent."""
    with pytest.raises(hopyard.Error, match="are larger than 60 MB; load large data in the function"):
        _program.submit("run", [], tmp_path, argv=["true"], function=bytes(80 << 20))
    with pytest.raises(hopyard.Error, match="the function is larger than 48 MB"):
        _program.submit("run", [], tmp_path, argv=["true"], function=bytes(50 << 20))


def test_program_that_is_not_hopyard_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HOPYARD_PROGRAM", "/bin/true")
    with pytest.raises(hopyard.Error, match="/bin/true ended without an answer"):
        _program.submit("run", [], tmp_path, argv=["true"], function=bytes(1_000_000))
    with pytest.raises(hopyard.Error, match="/bin/true ended without an answer"):
        _program.submit("run", [], tmp_path, argv=["true"])  # it exits with the whole message unread
    monkeypatch.setenv("HOPYARD_PROGRAM", str(tmp_path / "hopyard"))
    with pytest.raises(hopyard.Error, match="cannot start .*/hopyard: No such file"):
        _program.submit("run", [], tmp_path, argv=["true"])


def test_numbers_are_shown_exactly_and_short():
    assert [_number(x) for x in (0.1, 3.0, 1e-05, -2.5, 1e22, None)] == ["0.1", "3", "1e-05", "-2.5", "1e+22", ""]
    chance = random.Random(1)
    for _ in range(1000):
        (x,) = struct.unpack("<d", chance.randbytes(8))
        assert x != x or float(_number(x)) == x


def result(**changes):
    trials = [
        Trial(1, {"x": 0.5, "act": "relu"}, 0.25, {"metric": 0.25}, "done", None, None, "/a", 1.25, 1),
        Trial(2, {"x": 1e-05, "act": "tanh"}, 0.9166666666666666, {}, "done", None, None, "/b", 2.0, 1),
        Trial(3, {"x": 3.0, "act": "<b>"}, None, {}, "failed", "no", "ValueError: no", "/c", 0.5, 1),
    ]
    settings = {"state": "done", "best": 2, "trials": trials, "notes": ["a note"], **changes}
    return make_result(run=7, name="mine", message=None, logdir="/", metric="metric", direction="max", **settings)


def test_a_result_is_a_table_in_text_and_html():
    assert str(result()).splitlines() == [
        "run 7 mine done: 2 done, 1 failed; best metric=0.9166666666666666 in trial 2 (x=1e-05, act=tanh)",
        "",
        "   trial  x      act   metric              state   seconds  message",
        "   1      0.5    relu  0.25                done    1.2",
        "*  2      1e-05  tanh  0.9166666666666666  done    2.0",
        "   3      3      <b>                       failed  0.5      ValueError: no",
        "note: a note",
    ]
    html = result()._repr_html_()
    assert "<td>0.9166666666666666</td>" in html and "&lt;b&gt;" in html and "<p>note: a note</p>" in html
    assert repr(result()).startswith("<run 7 mine done: 2 done, 1 failed;")


def test_html_fragment_is_converted_to_text():
    table = "<table><tr><th>trial</th><th>x</th></tr><tr><td>1</td><td>a<br>b</td></tr></table>"
    fragment = f"<div>run 1<div>2 done &amp; 1</div>{table}</div>"
    assert _display._as_text(fragment) == "run 1\n2 done & 1\ntrial  x\n1  a\nb"


def test_best_is_none_while_running_and_an_error_afterwards():
    assert result(state="running", best=None).best is None and result(state="interrupted", best=None).best is None
    assert result().best.number == 2
    note = "trial 1: training returned nothing, so the trial has no metric; return a number"
    with pytest.raises(hopyard.Error, match=f"^run 7 has no best trial: {note}$"):
        result(best=None, notes=["something else", note]).best
    with pytest.raises(hopyard.Error, match="^run 7 has no best trial: no trial is done$"):
        result(best=None, state="failed", trials=[]).best
