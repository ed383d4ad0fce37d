# SPDX-License-Identifier: Apache-2.0
"""The result of a run: its last update, and what `hopyard show --json` reads from the store on demand."""

import html
import json
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from .._base.errors import Error
from .._base.metrics import NO_METRIC
from . import program as _program
from . import tensorboard_process as _tensorboard_process

if TYPE_CHECKING:
    import pandas

ROWS_SHOWN = 100
Place = str | os.PathLike[str] | None
"""The directory of a project; None: $HOPYARD_PROJECT, or the current directory."""


@dataclass(frozen=True)
class Trial:
    """One combination of hyperparameters, and its result."""

    number: int
    params: dict[str, Any]
    metric: float | None
    """The value of the run's metric; None without a metric."""
    metrics: dict[str, float]
    """All returned or reported values: the last one of each name."""
    state: str
    """running, done, failed, stopped, pruned (stopped early) or paused (it waits for its promotion)."""
    error: str | None = field(repr=False)
    """Why it failed: the traceback, or else a message."""
    message: str | None
    """Why it failed, in one line."""
    logdir: str = field(repr=False)
    seconds: float
    attempts: int


class Reader(Protocol):
    """Reads what a Result does not have yet."""

    def trial(self, number: int) -> Trial: ...

    def trials(self) -> list[Trial]: ...

    def notes(self) -> list[str]: ...

    def log_params(self) -> list[str]: ...


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """A run at the time it was read. Its trials and notes are read when they are first used."""

    run: int
    name: str | None
    state: str
    """running, waiting (for another Spark session), done, failed, stopped, or interrupted (its driver has died)."""
    message: str | None
    """Why the run failed, if it did."""
    logdir: str
    metric: str | None
    """The name of the metric."""
    direction: str
    _counts: dict[str, int]
    """The number of trials in each state."""
    _best_number: int | None
    _reader: Reader
    tensorboard: str | None = None
    """The address of the TensorBoard that this process has started for the run."""

    @cached_property
    def trials(self) -> list[Trial]:
        """All trials, by number."""
        return self._reader.trials()

    @cached_property
    def notes(self) -> list[str]:
        """Remarks about the run: lost machines and why, for example."""
        return self._reader.notes()

    @cached_property
    def _log_params(self) -> list[str]:
        """The hyperparameters with a logarithmic scale."""
        return self._reader.log_params()

    @cached_property
    def _best(self) -> Trial | None:
        if self._best_number is None:
            return None
        if "trials" in self.__dict__:
            return next(t for t in self.trials if t.number == self._best_number)
        return self._reader.trial(self._best_number)

    @property
    def best(self) -> Trial | None:
        """The best trial so far; None while the run continues and no trial has a metric yet.

        Raises hopyard.Error if the run has ended and no trial has a metric; the message has the reason.
        """
        if self._best is None and self.state in ("done", "failed", "stopped"):
            raise Error(f"run {self.run} has no best trial: {self._why_no_best()}")
        return self._best

    def _why_no_best(self) -> str:
        remarks = [note for note in self.notes if NO_METRIC in note]
        if remarks:
            return remarks[0]
        if not self.count("done"):
            return f"no trial is done{f'; {self.message}' if self.message else ''}"
        return "no trial has a metric; return a number from the function, or pass one to experiment.end()"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        same = (self.run, self.logdir, self.state) == (other.run, other.logdir, other.state)
        return same and self.trials == other.trials and self.notes == other.notes

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        """With everything, because another process may not be able to read the project."""
        read = {"trials": self.trials, "notes": self.notes, "_best": self._best, "_log_params": self._log_params}
        return {**self.__dict__, **read}

    @property
    def is_running(self) -> bool:
        """Whether its driver is alive and the run has not ended."""
        return self.state in ("running", "waiting")

    goes_on = is_running  # its earlier name

    @property
    def _all_failed(self) -> bool:
        """Whether there are trials, and all of them have failed."""
        return self.count("failed") == sum(self._counts.values()) > 0

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
        """The user's names take precedence over ours."""
        metrics = {**t.metrics, self.metric: t.metric} if self.metric else t.metrics
        named = {**metrics, **t.params}
        row = {"number": t.number, **t.params, **metrics, "state": t.state, "seconds": t.seconds}
        return {**row, "attempts": t.attempts, "message": t.message, "logdir": t.logdir, **named}

    def plot(self, kind: str = "history", params: Sequence[str] | None = None, backend: str | None = None) -> Any:
        """Plot the trials, and return the plot: the axes of matplotlib, or the figure of Plotly.

        kind: "history": the metric by trial, and the best so far; "importance": the share of the metric's variance that
            each hyperparameter explains; "parallel": a line for each trial through all of its hyperparameters;
            "scatter": the metric against single hyperparameters
        params: the hyperparameters to show; default: for "scatter" the two most important ones, otherwise all
        backend: "matplotlib" or "plotly"; default: the one that is installed, or matplotlib
        """
        from . import plots

        return plots.plot(self, kind, params, backend)

    def count(self, state: str) -> int:
        """The number of trials in this state."""
        return self._counts.get(state, 0)

    def _summary(self) -> str:
        """run 3 digits done: 5 done, 1 failed; best accuracy=0.97 in trial 2 (lr=0.1)"""
        counts = ", ".join(f"{count} {state}" for state, count in self._counts.items() if count) or "no trials"
        text = f"run {self.run}{f' {self.name}' if self.name else ''} {self.state}: {counts}"
        if self._best:
            params = ", ".join(f"{name}={_cell(value)}" for name, value in self._best.params.items())
            text += f"; best {self.metric}={_number(self._best.metric)} in trial {self._best.number} ({params})"
        return text

    def __repr__(self) -> str:
        return f"<{self._summary()}>"

    def _table(self) -> list[list[str]]:
        """A header row, and a row for each trial."""
        names = list(dict.fromkeys(name for t in self.trials for name in t.params))
        rows = [["trial", *names, self.metric or "", "state", "seconds", "message"]]
        for t in self.trials[:ROWS_SHOWN]:
            values = [_cell(t.params.get(name, "")) for name in names]
            rows.append([str(t.number), *values, _number(t.metric), t.state, f"{t.seconds:.1f}", t.message or ""])
        return rows

    def _below(self) -> list[str]:
        """The lines below the table."""
        more = len(self.trials) - ROWS_SHOWN
        return [*([f"and {more} more: .trials has them all"] if more > 0 else []), *(f"note: {n}" for n in self.notes)]

    def _is_best(self, number: str) -> bool:
        return self._best is not None and number == str(self._best.number)

    def __str__(self) -> str:
        """The table as text; the best trial is marked."""
        rows = [["*" if self._is_best(row[0]) else "", *row] for row in self._table()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self._summary(), "", *lines, *self._below()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The text that a notebook stores with the HTML."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        table = [_row("th", head), *(_row("td", row, bold=self._is_best(row[0])) for row in rows)]
        below = "".join(f"<p>{html.escape(line)}</p>" for line in self._below())
        return f"<p>{html.escape(self._summary())}</p><table>{''.join(table)}</table>{below}"


def _number(value: float | None) -> str:
    """The shortest text that is the same number: 0.1, 3, 1e-05."""
    return "" if value is None else repr(float(value)).removesuffix(".0")


def _cell(value: Any) -> str:
    return _number(value) if isinstance(value, float) else str(value)


def _row(tag: str, cells: list[str], bold: bool = False) -> str:
    texts = map(html.escape, cells)
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


# ---- from the store, and from the last event -------------------------------------------------------

PAGE = 10_000  # trials that are read at once
_STATES = ("done", "failed", "pruned", "stopped", "paused", "running")


class _Stored:
    """Reads from the store, by the program."""

    def __init__(self, run: int, logdir: str, project: Place) -> None:
        self.run, self.logdir = run, logdir
        self.project = _absolute(project)

    def trial(self, number: int) -> Trial:
        [found] = self._page(number - 1, 1)["trials"]  # numbers are consecutive
        if found["number"] != number:
            raise Error(f"run {self.run} has trial {found['number']} in the place of trial {number}")
        return _trial(found, self.logdir)

    def trials(self) -> list[Trial]:
        found: list[Trial] = []
        while len(page := self._page(len(found), PAGE)["trials"]) == PAGE:
            found += [_trial(t, self.logdir) for t in page]
        return found + [_trial(t, self.logdir) for t in page]

    def notes(self) -> list[str]:
        notes: list[str] = self._page(0, 1)["notes"]
        return notes

    def log_params(self) -> list[str]:
        names: list[str] = self._page(0, 1)["run"]["log"]
        return names

    def _page(self, skip: int, limit: int) -> dict[str, Any]:
        return _show(self.run, skip, limit, self.project)


def _absolute(project: Place) -> str:
    """It does not change with the current directory or the environment."""
    place = os.fspath(project if project is not None else os.environ.get("HOPYARD_PROJECT") or os.getcwd())
    return place if "://" in place else os.path.abspath(place)


def _show(run: int | str, skip: int, limit: int, project: Place) -> dict[str, Any]:
    page = ["--by-number", "--skip", str(skip), "--trials", str(limit)]
    shown: dict[str, Any] = json.loads(_program.call("show", str(run), "--json", *page, project=project))
    return shown


_results: "weakref.WeakValueDictionary[int, Result]" = weakref.WeakValueDictionary()


def read_all(run: int | str, project: Place) -> None:
    """Reads the trials of all results of a run that is about to be resumed: they stay what they were."""
    place = _absolute(project)
    for result in list(_results.values()):
        is_of_run = run in (result.run, str(result.run), result.name)
        if is_of_run and isinstance(result._reader, _Stored) and result._reader.project == place:
            result.trials, result.notes, result._best, result._log_params  # noqa: B018


def _of(
    about: Mapping[str, Any], best: int | None, project: Place, tensorboard: str | None
) -> Result:
    result = Result(
        run=about["run"],
        name=about["name"] or None,
        state=about["state"],
        message=about["message"] or None,
        logdir=about["logdir"],
        metric=about["metric"] or None,
        direction="max" if about["maximize"] else "min",
        _counts={state: about[state] for state in _STATES},
        _best_number=best,
        _reader=_Stored(about["run"], about["logdir"], project),
        tensorboard=_tensorboard_process.if_running(tensorboard),
    )
    _results[id(result)] = result
    return result


def load(
    run: int | str, project: Place = None, tensorboard: str | None = None
) -> Result:
    """The run with this number or name, as it is now."""
    shown = _show(run, 0, 1, project)
    result = _of(shown["run"], shown["run"]["best_trial"], project, tensorboard)
    result.__dict__["notes"] = shown["notes"]
    return result


def from_update(
    update: Mapping[str, Any], project: Place = None, tensorboard: str | None = None
) -> Result:
    """The result of a run that has ended, from the last update of its driver."""
    best = update["best"]
    result = _of(update, best and best["number"], project, tensorboard)
    if update["notes"] is not None:
        result.__dict__["notes"] = update["notes"]
    return result
