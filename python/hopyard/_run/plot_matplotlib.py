# SPDX-License-Identifier: Apache-2.0
"""Plots with matplotlib. They return axes, as those of pandas do: a notebook then shows the figure once."""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.collections import LineCollection

from .plot_data import Axis, History, Importance, Parallel, Scatter

_BLUE, _GREEN, _GRAY = "#3b6fb6", "#2f8f5b", "#a8adb5"


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def _text(text: str) -> str:
    """Escapes dollar signs, which Matplotlib interprets as math text."""
    return text.replace("$", r"\$")


def history(data: History) -> Any:
    _, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.scatter(data.numbers, data.values, s=14, color=_GRAY, label="trials")
    axes.step(data.numbers, data.best, where="post", color=_GREEN, linewidth=2, label="best so far")
    axes.set(title=_text(data.title), xlabel="trial", ylabel=_text(data.metric))
    axes.legend(frameon=False)
    _plain(axes)
    return axes


def importance(data: Importance) -> Any:
    names, shares = data.names + data.pair_names, data.shares + data.pair_shares
    colors = [_BLUE] * len(data.names) + [_GRAY] * len(data.pair_names)
    _, axes = plt.subplots(figsize=(7, 1.2 + 0.35 * len(names)), layout="constrained")
    bars = axes.barh(range(len(names)), shares, color=colors)
    axes.bar_label(bars, [f"{share:.3f}" for share in shares], padding=3)
    axes.set_yticks(range(len(names)), list(map(_text, names)))
    axes.invert_yaxis()
    axes.set(title=_text(data.title), xlabel="share of the variance", xlim=(0, max(shares, default=1) * 1.12 or 1))
    _plain(axes)
    axes.grid(visible=False, axis="y")
    return axes


def _bounds(axis: Axis) -> tuple[float, float]:
    """The lowest position, and the distance to the highest one."""
    places = [*axis.positions, *axis.ticks]
    return min(places), max(places) - min(places) or 1.0


def parallel(data: Parallel) -> Any:
    count = len(data.axes)
    figure, axes = plt.subplots(figsize=(max(6, 1.6 * count), 4.5), layout="constrained")
    columns = [[(p - _bounds(a)[0]) / _bounds(a)[1] for p in a.positions] for a in data.axes]
    colors = "viridis_r" if data.is_max_best else "viridis"  # the best are dark
    lines = LineCollection([list(enumerate(line)) for line in zip(*columns)], cmap=colors, linewidths=1, alpha=0.6)
    lines.set_array(data.values)
    axes.add_collection(lines)
    box = {"facecolor": plt.rcParams["axes.facecolor"], "alpha": 0.7, "linewidth": 0, "pad": 0.8}
    for i, axis in enumerate(data.axes):
        low, span = _bounds(axis)
        axes.axvline(i, color=plt.rcParams["axes.edgecolor"], linewidth=0.8)
        for place, text in axis.ticks.items():
            at = {"xy": (i, (place - low) / span), "xytext": (4, 0), "textcoords": "offset points"}
            axes.annotate(_text(text), **at, fontsize=8, va="center", bbox=box)
    axes.set(title=_text(data.title), xlim=(-0.1, count - 0.6), ylim=(-0.05, 1.05), yticks=[])
    axes.set_xticks(range(count), [_text(a.label) for a in data.axes])
    axes.spines[:].set_visible(False)
    figure.colorbar(lines, ax=axes, label=_text(data.axes[-1].name))
    return axes


def scatter(data: Scatter) -> Any:
    """An array of axes, one for each hyperparameter."""
    count = len(data.panels)
    figure, grid = plt.subplots(1, count, figsize=(4.2 * count, 4), sharey=True, squeeze=False, layout="constrained")
    for axes, panel in zip(grid[0], data.panels):
        axes.scatter(panel.axis.values, panel.values, s=14, color=_BLUE, alpha=0.7)
        axes.set_xlabel(_text(panel.axis.name))
        if panel.axis.is_log:
            axes.set_xscale("log")
        if panel.axis.is_category:
            axes.set_xticks(list(panel.axis.ticks), list(map(_text, panel.axis.ticks.values())))
            axes.margins(x=0.5 / len(panel.axis.ticks))
        _plain(axes)
    grid[0][0].set_ylabel(_text(data.metric))
    figure.suptitle(_text(data.title))
    return grid[0]
