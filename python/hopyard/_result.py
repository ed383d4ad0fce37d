# SPDX-License-Identifier: Apache-2.0
"""What came out of a run, read from its store by `hopyard show --json`."""

import html
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _program
from ._errors import Error

if TYPE_CHECKING:
    import pandas

ROWS_SHOWN = 100


@dataclass(frozen=True)
class Trial:
    """One choice of hyperparameters, and what came of it."""

    number: int
    params: dict[str, Any]
    metric: float | None
    """The value that counts; None when there is none."""
    metrics: dict[str, float]
    """All that it returned or reported: the last value of each name."""
    state: str
    """running, done, failed or stopped."""
    error: str | None = field(repr=False)
    """Why it failed: the traceback, or else a sentence."""
    message: str | None
    """Why it failed, in a sentence."""
    logdir: str = field(repr=False)
    seconds: float
    attempts: int


@dataclass(frozen=True, repr=False)
class Result:
    """A run and its trials, as they were when it was read."""

    run: int
    name: str | None
    state: str
    """running, done, failed, stopped, or interrupted where the run's driver has died."""
    message: str | None
    """Why the run failed, if it did."""
    logdir: str
    metric: str | None
    """The name of the metric that counts."""
    direction: str
    best: Trial | None
    trials: list[Trial]
    notes: list[str]
    """What was worth knowing: machines that were lost, and why."""
    tensorboard: str | None = None
    """The address of the TensorBoard that this process has started for it."""

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each trial: its number, hyperparameters, metrics, state and the rest."""
        try:
            import pandas
        except ImportError:
            raise Error(
                "to_dataframe needs pandas, which is not installed; try: pip install pandas"
            ) from None
        return pandas.DataFrame([self._as_row(t) for t in self.trials])

    def _as_row(self, t: Trial) -> dict[str, Any]:
        """The user's names come first where ours are the same."""
        metrics = {**t.metrics, self.metric: t.metric} if self.metric else t.metrics
        named = {**metrics, **t.params}
        row = {"number": t.number, **t.params, **metrics, "state": t.state, "seconds": t.seconds}
        return {**row, "attempts": t.attempts, "message": t.message, "logdir": t.logdir, **named}

    def count(self, state: str) -> int:
        return sum(t.state == state for t in self.trials)

    def _summary(self) -> str:
        """run 3 digits done: 5 done, 1 failed; best accuracy=0.97 in trial 2 (lr=0.1)"""
        states = dict.fromkeys(t.state for t in self.trials)
        counts = ", ".join(f"{self.count(state)} {state}" for state in states) or "no trials"
        text = f"run {self.run}{f' {self.name}' if self.name else ''} {self.state}: {counts}"
        if self.best:
            params = ", ".join(f"{name}={value}" for name, value in self.best.params.items())
            text += f"; best {self.metric}={_number(self.best.metric)} in trial {self.best.number} ({params})"
        return text

    def __repr__(self) -> str:
        return f"<{self._summary()}>"

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for t in self.trials for name in t.params))
        head = ["trial", *names, self.metric or "", "state", "seconds", "message"]
        rows = [_row("th", head)]
        for t in self.trials[:ROWS_SHOWN]:
            values = [t.params.get(name, "") for name in names]
            cells = [t.number, *values, _number(t.metric), t.state, f"{t.seconds:.1f}", t.message or ""]
            rows.append(_row("td", cells, bold=self.best is not None and t.number == self.best.number))
        more = len(self.trials) - ROWS_SHOWN
        below = f"<p>and {more} more: .trials has them all</p>" if more > 0 else ""
        return f"<p>{html.escape(self._summary())}</p><table>{''.join(rows)}</table>{below}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _row(tag: str, cells: list[Any], bold: bool = False) -> str:
    texts = (html.escape(str(cell)) for cell in cells)
    style = ' style="font-weight: bold"' if bold else ""
    return f"<tr{style}>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"


def _trial(t: dict[str, Any], logdir: str) -> Trial:
    message = t.get("message")
    failed = t["state"] == "failed"
    return Trial(
        number=t["number"],
        params=t["params"],
        metric=t.get("value"),
        metrics=t.get("metrics", {}),
        state=t["state"],
        error=(t.get("detail") or message or "failed") if failed else None,
        message=message,
        logdir=os.path.join(logdir, t.get("dir", "")),
        seconds=t["elapsed_ms"] / 1000,
        attempts=t["attempt"],
    )


def load(
    run: int | str, project: str | os.PathLike[str] | None = None, tensorboard: str | None = None
) -> Result:
    """The run of this number or name, as it is now."""
    shown = json.loads(
        _program.call("show", str(run), "--json", "--trials", "all", "--by-number", project=project)
    )
    about = shown["run"]
    trials = [_trial(t, about["logdir"]) for t in shown["trials"]]
    return Result(
        run=about["run"],
        name=about["name"],
        state=about["state"],
        message=about["message"],
        logdir=about["logdir"],
        metric=about["metric"],
        direction="max" if about["maximize"] else "min",
        best=next((t for t in trials if t.number == about["best_trial"]), None),
        trials=trials,
        notes=shown["notes"],
        tensorboard=tensorboard,
    )
