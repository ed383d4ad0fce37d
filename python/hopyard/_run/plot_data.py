# SPDX-License-Identifier: Apache-2.0
"""The data of the plots of a result, for all backends."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from .. import _hopyard
from .._base.errors import Error
from .result import Result, Trial

LINES_MAX = 2000  # of parallel coordinates: more hide each other
_PAIRS_MAX = 3
_PAIR_SHARE_MIN = 0.01
_MISSING = "none"


@dataclass(frozen=True)
class History:
    title: str
    metric: str
    numbers: list[int]
    values: list[float]
    best: list[float]


@dataclass(frozen=True)
class Importance:
    """The most important hyperparameters first, then the most important pairs."""

    title: str
    names: list[str]
    shares: list[float]
    pair_names: list[str]
    pair_shares: list[float]


@dataclass(frozen=True)
class Axis:
    """A hyperparameter, or the metric: a position for each trial, and names of some positions.

    Positions are numbers; the logarithm to base 10 if `is_log`; and the index of the choice in a category.
    """

    name: str
    positions: list[float]
    ticks: dict[float, str]
    is_log: bool
    is_category: bool

    @property
    def label(self) -> str:
        return f"{self.name} (log)" if self.is_log else self.name

    @property
    def values(self) -> list[float]:
        """The positions on an axis that is itself logarithmic."""
        return [10**p for p in self.positions] if self.is_log else self.positions


@dataclass(frozen=True)
class Parallel:
    title: str
    axes: list[Axis]  # the last one is the metric
    values: list[float]  # of the metric: the color
    is_max_best: bool


@dataclass(frozen=True)
class Panel:
    axis: Axis
    values: list[float]


@dataclass(frozen=True)
class Scatter:
    title: str
    metric: str
    panels: list[Panel]


def _title(result: Result, text: str) -> str:
    return f"run {result.run}{f' {result.name}' if result.name else ''}: {text}"


def _finished(result: Result) -> list[Trial]:
    trials = [t for t in result.trials if t.state == "done" and t.metric is not None and math.isfinite(t.metric)]
    if not trials:
        raise Error(f"run {result.run} has nothing to plot: no trial that is done has a metric")
    return trials


def _metric(trial: Trial) -> float:
    assert trial.metric is not None
    return trial.metric


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _names(result: Result, trials: Sequence[Trial], params: Sequence[str] | None) -> list[str]:
    """The chosen hyperparameters, or all."""
    known = list(dict.fromkeys(name for t in trials for name in t.params))
    for name in params or ():
        if name not in known:
            raise Error(f"run {result.run} has no hyperparameter '{name}' (hyperparameters: {', '.join(known)})")
    return list(params) if params is not None else known


def history(result: Result) -> History:
    trials = _finished(result)
    values = [_metric(t) for t in trials]
    better = max if result.direction == "max" else min
    title = _title(result, f"{result.metric} by trial")
    return History(title, str(result.metric), [t.number for t in trials], values, list(accumulate(values, better)))


Shares = tuple[list[tuple[str, float]], list[tuple[str, str, float]], int, str | None]


def _shares(trials: Sequence[Trial]) -> Shares:
    rows = ({n: float(v) if _is_number(v) else _text(v) for n, v in t.params.items()} for t in trials)
    return _hopyard.importance(zip(rows, map(_metric, trials)))


def importance(result: Result, params: Sequence[str] | None) -> Importance:
    trials = _finished(result)
    chosen = set(_names(result, trials, params))
    shares, pairs, used, why = _shares(trials)
    if why:
        raise Error(f"run {result.run} has no importance of hyperparameters: {why}")
    singles = [(name, share) for name, share in shares if name in chosen]
    both = [(f"{a} × {b}", share) for a, b, share in pairs if {a, b} <= chosen and share >= _PAIR_SHARE_MIN]
    sample = f", from a sample of {used:,} trials" if used < len(trials) else ""
    return Importance(
        _title(result, f"importance for {result.metric}{sample}"),
        [name for name, _ in singles], [share for _, share in singles],
        [name for name, _ in both[:_PAIRS_MAX]], [share for _, share in both[:_PAIRS_MAX]],
    )  # fmt: skip


def _number_axis(name: str, values: list[float | None], is_log: bool) -> Axis:
    """Values that are missing are below the others."""
    known = [v for v in values if v is not None]
    scale = math.log10 if is_log else float
    low, high = scale(min(known)), scale(max(known))
    missing = low - (0.1 * (high - low) or 1.0)
    positions = [missing if v is None else scale(v) for v in values]
    middle = (low + high) / 2
    ticks = {p: f"{10**p if is_log else p:.4g}" for p in (low, middle, high)}
    return Axis(name, positions, {missing: _MISSING, **ticks} if None in values else ticks, is_log, False)


def _axis(name: str, trials: Sequence[Trial], log_params: Sequence[str]) -> Axis:
    values = [t.params.get(name) for t in trials]
    is_missing = [name not in t.params for t in trials]
    if all(is_none or _is_number(v) for v, is_none in zip(values, is_missing)):
        is_log = name in log_params and all(v is None or v > 0 for v in values)
        return _number_axis(name, [None if v is None else float(v) for v in values], is_log)
    texts = [_MISSING if is_none else _text(v) for v, is_none in zip(values, is_missing)]
    choices = {text: float(i) for i, text in enumerate(sorted(set(texts)))}
    return Axis(name, [choices[t] for t in texts], {i: t for t, i in choices.items()}, False, True)


def parallel(result: Result, params: Sequence[str] | None) -> Parallel:
    trials = _finished(result)
    is_max_best = result.direction == "max"
    trials.sort(key=_metric, reverse=not is_max_best)  # the best are drawn last
    names = _names(result, trials, params)
    shown = trials[-LINES_MAX:]
    axes = [_axis(name, shown, result._log_params) for name in names if any(name in t.params for t in shown)]
    values = [_metric(t) for t in shown]
    axes.append(_number_axis(str(result.metric), list(values), False))
    best = f", the best {LINES_MAX:,} of {len(trials):,} trials" if len(trials) > LINES_MAX else ""
    return Parallel(_title(result, f"{result.metric} by hyperparameters{best}"), axes, values, is_max_best)


def _most_important(trials: Sequence[Trial], names: list[str], count: int) -> list[str]:
    """Without shares, the first ones."""
    shares = _shares(trials)[0]
    return [name for name, _ in shares][:count] or names[:count]


def scatter(result: Result, params: Sequence[str] | None) -> Scatter:
    trials = _finished(result)
    names = _names(result, trials, params)
    if params is None:
        names = _most_important(trials, names, 2)
    if not names:
        raise Error(f"run {result.run} has nothing to plot: its trials have no hyperparameters")
    panels = []
    for name in names:
        having = [t for t in trials if name in t.params]
        panels.append(Panel(_axis(name, having, result._log_params), [_metric(t) for t in having]))
    return Scatter(_title(result, f"{result.metric} by hyperparameter"), str(result.metric), panels)
