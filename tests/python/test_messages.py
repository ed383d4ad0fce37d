# SPDX-License-Identifier: Apache-2.0
"""What the program says, in the names of Python; and numbers and tables as people see them."""

import random
import struct

import pytest

import hopyard
from hopyard._run import display as _display
from hopyard._run.program import advice_in_python, in_python
from hopyard._run.result import Result, Trial, _number


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("--parallel takes a number from 1 on, not '0'", "parallel= takes a number from 1 on, not '0'"),
        (
            "killed: used 4.1 GB of the 4.0 GB it may use; raise --memory",
            "killed: used 4.1 GB of the 4.0 GB it may use; raise memory=",
        ),
        (
            "not leased: pass --gpus 1 (gpus=1) to give each trial its own",
            "not leased: pass gpus=1 to give each trial its own",
        ),
        (
            "each trial needs 1 GPU, but this machine has no GPU; leave --gpus out",
            "each trial needs 1 GPU, but this machine has no GPU; leave gpus= out",
        ),
        ("--random takes a number from 0 on, not '-1'", "samples= takes a number from 0 on, not '-1'"),
        (
            "the disk is full (`hopyard resume 3` continues the run)",
            "the disk is full (experiment.resume(3) continues the run)",
        ),
        ("an option of the user's own --memory-map stays", "an option of the user's own --memory-map stays"),
    ],
)
def test_messages_use_pythons_names(said, sentence):
    assert in_python(said) == sentence


def test_user_text_is_unchanged():
    own = "trial 1: ValueError: use --name 3 and --memory; retried (1 of 2)"
    assert advice_in_python(own) == own
    assert (
        advice_in_python("[1/2] failed  killed: used 4 GB; raise --memory")
        == "[1/2] failed  killed: used 4 GB; raise memory="
    )
    assert advice_in_python("2 GPUs here are not leased: pass --gpus 1 (gpus=1) to give each trial its own") == (
        "2 GPUs here are not leased: pass gpus=1 to give each trial its own"
    )


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
    settings = {"state": "done", "_best": trials[1], "trials": trials, "notes": ["a note"], **changes}
    return Result(7, "mine", message=None, logdir="/", metric="metric", direction="max", **settings)


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
    assert result(state="running", _best=None).best is None and result(state="interrupted", _best=None).best is None
    assert result().best.number == 2
    note = "trial 1: training returned nothing, so the trial has no metric; return a number"
    with pytest.raises(hopyard.Error, match=f"^run 7 has no best trial: {note}$"):
        result(_best=None, notes=["something else", note]).best
    with pytest.raises(hopyard.Error, match="^run 7 has no best trial: no trial is done$"):
        result(_best=None, state="failed", trials=[]).best
