# SPDX-License-Identifier: Apache-2.0
"""result.plot(): what is drawn, with matplotlib and with Plotly."""

import math
import os
import pickle
import random
import sys

import pytest

import hopyard
from hopyard._run import plots
from hopyard.experiment import Trial
from results import make_result

os.environ["MPLBACKEND"] = "Agg"
BACKENDS = ("matplotlib", "plotly")


def trial(number, metric, state="done", **params):
    return Trial(number, params, metric, {}, state, None, None, "/log", 1.0, 1)


def searched(count=40, direction="max", **facts):
    """A result in which lr matters most, then act; units not at all."""
    chance, trials = random.Random(1), []
    for number in range(1, count + 1):
        lr, act, units = 10 ** chance.uniform(-5, -1), chance.choice(["relu", "tanh"]), chance.choice([[8], [8, 8]])
        value = 10 + math.log10(lr) + (act == "tanh")
        trials.append(trial(number, value, lr=lr, act=act, units=units))
    trials += [trial(count + 1, None, "failed", lr=0.1, act="relu", units=[8]), trial(count + 2, math.nan, lr=1.0)]
    return result_of(trials, log_params=["lr"], direction=direction, **facts)


def result_of(trials, **facts):
    about = {"run": 3, "name": "digits", "state": "done", "message": None, "logdir": "/log", "metric": "accuracy",
             "direction": "max", **facts}  # fmt: skip
    return make_result(trials, None, [], **about)


def finished(result):
    return [t for t in result.trials if t.metric is not None and math.isfinite(t.metric)]


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


# ---- history ---------------------------------------------------------------------------------------------------


def history_of(backend, drawn):
    """Numbers and values of the trials, and the best so far; labels."""
    if backend == "matplotlib":
        dots, [best] = drawn.collections[0].get_offsets().tolist(), drawn.lines
        labels = drawn.get_title(), drawn.get_xlabel(), drawn.get_ylabel()
        return [d[0] for d in dots], [d[1] for d in dots], list(best.get_ydata()), labels
    dots, best = drawn.data
    labels = drawn.layout.title.text, drawn.layout.xaxis.title.text, drawn.layout.yaxis.title.text
    return list(dots.x), list(dots.y), list(best.y), labels


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("direction", ["max", "min"])
def test_history_has_all_values_and_the_best_so_far(backend, direction):
    values = [3.0, 5.0, 4.0, 1.0, 7.0]
    trials = [trial(n, v) for n, v in enumerate(values, 1)] + [trial(6, None, "running"), trial(7, 9.0, "stopped")]
    drawn = result_of(trials, direction=direction).plot(backend=backend)
    numbers, shown, best, labels = history_of(backend, drawn)
    assert numbers == [1, 2, 3, 4, 5] and shown == values
    assert best == ([3, 5, 5, 5, 7] if direction == "max" else [3, 3, 3, 1, 1])
    assert labels == ("run 3 digits: accuracy by trial", "trial", "accuracy")


# ---- importance -------------------------------------------------------------------------------------------------


def bars_of(backend, drawn):
    if backend == "matplotlib":
        names = [label.get_text() for label in drawn.get_yticklabels()]
        return dict(zip(names, [bar.get_width() for bar in drawn.patches]))
    return {name: share for bars in drawn.data for name, share in zip(bars.y, bars.x)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_importance_has_a_bar_for_each_hyperparameter_the_longest_first(backend):
    bars = bars_of(backend, searched(300).plot("importance", backend=backend))
    assert list(bars)[:2] == ["lr", "act"] and bars["lr"] > 0.6 > bars["act"] > 0.05 > bars["units"]
    assert list(bars_of(backend, searched(300).plot("importance", ["act"], backend=backend))) == ["act"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_importance_has_important_pairs(backend):
    chance = random.Random(2)
    points = [(chance.random(), chance.random()) for _ in range(300)]
    trials = [trial(n, float((a > 0.5) == (b > 0.5)), a=a, b=b) for n, (a, b) in enumerate(points, 1)]
    bars = bars_of(backend, result_of(trials).plot("importance", backend=backend))
    assert bars.get("a × b", bars.get("b × a")) > 0.8 and len(bars) == 3


def test_importance_says_why_there_is_none():
    with pytest.raises(hopyard.Error, match="run 3 has no importance of hyperparameters: at least 8 finished trials"):
        searched(5).plot("importance")


def test_importance_of_many_trials_is_of_a_sample():
    axes = searched(2500).plot("importance", backend="matplotlib")
    assert axes.get_title() == "run 3 digits: importance for accuracy, from a sample of 2,000 trials"


# ---- parallel coordinates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["max", "min"])
def test_parallel_has_a_line_for_each_trial_and_the_best_last(direction):
    result = searched(direction=direction)
    axes = result.plot("parallel", backend="matplotlib")
    lines = axes.collections[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["lr (log)", "act", "units", "accuracy"]
    ordered = sorted(finished(result), key=lambda t: t.metric, reverse=direction == "min")
    assert list(lines.get_array()) == [t.metric for t in ordered]
    logs = [math.log10(t.params["lr"]) for t in ordered]
    for line, log, t in zip(lines.get_segments(), logs, ordered):
        assert line[0][1] == pytest.approx((log - min(logs)) / (max(logs) - min(logs)))
        assert line[1][1] == (t.params["act"] == "tanh") and line[2][1] == (t.params["units"] == [8])
    assert {"relu", "tanh", "[8]", "[8,8]"} <= {text.get_text() for text in axes.texts}


def test_parallel_with_plotly_has_log_positions_and_names_of_choices():
    result = searched()
    figure = result.plot("parallel", ["lr", "act"], backend="plotly")
    lr, act, metric = figure.data[0].dimensions
    ordered = sorted(finished(result), key=lambda t: t.metric)
    assert list(lr["values"]) == pytest.approx([math.log10(t.params["lr"]) for t in ordered])
    assert lr.label == "lr (log)" and lr.ticktext[0] == f"{min(t.params['lr'] for t in ordered):.4g}"
    assert list(act["values"]) == [float(t.params["act"] == "tanh") for t in ordered]
    assert tuple(act.ticktext) == ("relu", "tanh") and tuple(act.tickvals) == (0, 1)
    assert metric.label == "accuracy" and list(figure.data[0].line.color) == [t.metric for t in ordered]


def test_parallel_shows_missing_values_below_the_others():
    trials = [trial(1, 1.0, x=1.0), trial(2, 2.0, x=2.0, act=None), trial(3, 3.0)]
    x, act, _ = result_of(trials).plot("parallel", backend="plotly").data[0].dimensions
    assert list(x["values"]) == pytest.approx([1, 2, 0.9]) and x.ticktext[0] == "none"
    assert [act.ticktext[int(v)] for v in act["values"]] == ["none", "null", "none"]


def test_parallel_shows_the_best_of_very_many_trials():
    axes = searched(2100).plot("parallel", backend="matplotlib")
    assert len(axes.collections[0].get_segments()) == 2000
    assert axes.get_title().endswith("the best 2,000 of 2,100 trials")


# ---- scatter -------------------------------------------------------------------------------------------------------


def test_scatter_is_of_the_two_most_important_hyperparameters():
    result = searched()
    first, second = result.plot("scatter", backend="matplotlib")
    assert (first.get_xlabel(), first.get_xscale(), first.get_ylabel()) == ("lr", "log", "accuracy")
    assert (second.get_xlabel(), second.get_xscale()) == ("act", "linear")
    dots = first.collections[0].get_offsets().tolist()
    assert dots == [pytest.approx([t.params["lr"], t.metric]) for t in finished(result)]
    assert [label.get_text() for label in second.get_xticklabels()] == ["relu", "tanh"]


def test_scatter_with_plotly_has_the_same_dots_and_axes():
    result = searched()
    figure = result.plot("scatter", ["act", "lr"], backend="plotly")
    act, lr = figure.data
    assert list(lr.x) == pytest.approx([t.params["lr"] for t in finished(result)])
    assert list(lr.y) == list(act.y) == [t.metric for t in finished(result)]
    assert figure.layout.xaxis2.type == "log" and figure.layout.xaxis2.title.text == "lr"
    assert figure.layout.xaxis.ticktext == ("relu", "tanh") and figure.layout.yaxis.title.text == "accuracy"


def test_a_log_axis_needs_positive_values():
    trials = [trial(n, float(n), x=float(n)) for n in range(3)]
    [axes] = result_of(trials, log_params=["x"]).plot("scatter", ["x"], backend="matplotlib")
    assert axes.get_xscale() == "linear"


# ---- backends and names --------------------------------------------------------------------------------------------


def test_matplotlib_is_used_if_both_are_installed_and_plotly_if_it_is_alone(monkeypatch):
    assert type(searched().plot()).__module__.startswith("matplotlib")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert type(searched().plot()).__module__.startswith("plotly")
    with pytest.raises(hopyard.Error, match="needs matplotlib, which is not installed; try: pip install matplotlib"):
        searched().plot(backend="matplotlib")
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(hopyard.Error, match="plot needs matplotlib or plotly, which is not installed"):
        searched().plot()


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"kind": "pie"}, "kind= takes 'history', 'importance', 'parallel' or 'scatter', not 'pie'"),
        ({"backend": "ggplot"}, "backend= takes 'matplotlib' or 'plotly', not 'ggplot'"),
        ({"kind": "scatter", "params": "lr"}, r"params= takes a list of names, such as \['lr'\]"),
        ({"kind": "scatter", "params": ["x"]}, r"has no hyperparameter 'x' \(hyperparameters: lr, act, units\)"),
        ({"params": ["lr"]}, "params= has no meaning for a history"),
    ],
)
def test_invalid_arguments_are_explained(arguments, sentence):
    with pytest.raises(hopyard.Error, match=sentence):
        searched().plot(**arguments)


@pytest.mark.parametrize("kind", plots._KINDS)
def test_a_result_without_values_has_nothing_to_plot(kind):
    with pytest.raises(hopyard.Error, match="run 3 has nothing to plot: no trial that is done has a metric"):
        result_of([trial(1, None, "failed", x=1)]).plot(kind)
    if kind == "scatter":
        with pytest.raises(hopyard.Error, match="its trials have no hyperparameters"):
            result_of([trial(1, 1.0)]).plot(kind)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", plots._KINDS)
def test_names_are_not_taken_for_markup(backend, kind):
    trials = [trial(n, float(n), **{"$x<b>": n, "y$": f"${n % 2}<i>"}) for n in range(1, 20)]
    drawn = result_of(trials, name="$<u>", metric="m$<s>").plot(kind, backend=backend)
    if backend == "plotly":
        assert not any(tag in drawn.to_json() for tag in ("<u>", "<b>", "<i>", "<s>"))
        return
    figure = getattr(drawn, "figure", None) or drawn[0].figure
    figure.canvas.draw()  # an error of mathematics would be raised here
    texts = [t.get_text() for t in figure.findobj(lambda a: hasattr(a, "get_text"))]
    assert any(r"\$" in text for text in texts) and not any("$" in text.replace(r"\$", "") for text in texts)


def test_a_result_from_another_process_is_plotted_with_its_log_axes():
    copy = pickle.loads(pickle.dumps(searched()))
    object.__setattr__(copy, "_reader", None)
    assert copy.plot("scatter", ["lr"], backend="matplotlib")[0].get_xscale() == "log"


# ---- the extension ---------------------------------------------------------------------------------------------------


def test_the_extension_refuses_what_is_not_a_row():
    from hopyard import _hopyard

    for rows in ([1], [({}, "x")], [([], 1.0)], [({"x": object()}, 1.0)], [({1: 2.0}, 1.0)], 7):
        with pytest.raises((TypeError, hopyard.Error)):
            _hopyard.importance(rows)
    with pytest.raises(hopyard.Error, match="more than 1000 hyperparameters"):
        _hopyard.importance([({f"p{i}": 1.0 for i in range(1001)}, 1.0)])
    why = "at least 8 finished trials with a finite value are needed; there are 0"
    assert _hopyard.importance([]) == ([], [], 0, why)
