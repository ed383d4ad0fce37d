# SPDX-License-Identifier: Apache-2.0
"""Plots with Plotly. They return figures."""

import html
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from .plot_data import Axis, History, Importance, Parallel, Scatter

_BLUE, _GREEN, _GRAY = "#3b6fb6", "#2f8f5b", "#a8adb5"


def _text(text: str) -> str:
    """Escapes text, which Plotly interprets as HTML."""
    return html.escape(text, quote=False)


def _finish(figure: Any, title: str, **layout: Any) -> Any:
    figure.update_layout(title=_text(title), template="plotly_white", **layout)
    return figure


def history(data: History) -> Any:
    figure = go.Figure()
    figure.add_scatter(x=data.numbers, y=data.values, mode="markers", marker={"color": _GRAY, "size": 6}, name="trials")
    best = {"color": _GREEN, "width": 2, "shape": "hv"}
    figure.add_scatter(x=data.numbers, y=data.best, mode="lines", line=best, name="best so far")
    return _finish(figure, data.title, xaxis_title="trial", yaxis_title=_text(data.metric))


def importance(data: Importance) -> Any:
    figure = go.Figure()
    bars = (("single", data.names, data.shares, _BLUE), ("pairs", data.pair_names, data.pair_shares, _GRAY))
    for name, names, shares, color in bars:
        bar = {"x": shares, "y": list(map(_text, names)), "orientation": "h", "marker_color": color, "name": name}
        figure.add_bar(**bar, text=[f"{share:.3f}" for share in shares], textposition="outside", cliponaxis=False)
    figure.update_xaxes(title="share of the variance")
    figure.update_yaxes(autorange="reversed", type="category")
    return _finish(figure, data.title, barmode="stack", showlegend=bool(data.pair_names))


def _dimension(axis: Axis) -> dict[str, Any]:
    ticks = {"tickvals": list(axis.ticks), "ticktext": list(map(_text, axis.ticks.values()))}
    return {"label": _text(axis.label), "values": axis.positions, **ticks}


def parallel(data: Parallel) -> Any:
    # The best are dark.
    line = {"color": data.values, "showscale": True, "colorscale": "Viridis", "reversescale": data.is_max_best}
    figure = go.Figure(go.Parcoords(dimensions=list(map(_dimension, data.axes)), line=line))
    return _finish(figure, data.title, margin={"t": 110})


def scatter(data: Scatter) -> Any:
    figure = make_subplots(1, len(data.panels), shared_yaxes=True)
    for i, panel in enumerate(data.panels, 1):
        axis = panel.axis
        dots = {"color": _BLUE, "size": 6, "opacity": 0.7}
        name = _text(axis.name)
        figure.add_scatter(x=axis.values, y=panel.values, mode="markers", marker=dots, name=name, row=1, col=i)
        ticks = {"tickvals": list(axis.ticks), "ticktext": list(map(_text, axis.ticks.values()))}
        scale = {"type": "log", "exponentformat": "power"} if axis.is_log else ticks if axis.is_category else {}
        figure.update_xaxes(title=name, **scale, row=1, col=i)
    figure.update_yaxes(title=_text(data.metric), col=1)
    return _finish(figure, data.title, showlegend=False)
