# SPDX-License-Identifier: Apache-2.0
"""Starts, resumes and watches runs through the program `hopyard`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from .. import _hopyard, space
from .._base.errors import Error, RunError, Stopped, TrialsFailed
from .._code import bundle as _bundle
from .._spark import session as _session
from .._spark import supplier as _supplier
from . import display as _display
from . import driver as _driver
from . import program as _program
from . import standby_key as _standby_key
from . import tensorboard_process as _tensorboard_process
from .program import Fields, Options
from .result import Result, from_update, load, read_all
from .settings import (
    Project,
    Settings,
    check_direction,
    fields,
    for_trials,
    is_stated,
    options,
    parse_direction,
)

_SEARCHES = {"random": "random_search", "evolve": "differential_evolution", "search": "search"}

# ---- start ------------------------------------------------------------------------


def python(module: str, *args: str) -> list[str]:
    """The command that runs one of our modules; -P keeps the current directory out of sys.path."""
    if not sys.executable:
        raise Error(
            "cannot start trials: sys.executable is not set"
        )
    return [sys.executable, "-P", "-m", module, *args]


@dataclass(frozen=True)
class Started:
    run: int
    driver: _hopyard.Driver
    tensorboard: str | None
    """The address of its TensorBoard."""


def start(
    args: Options, settings: Settings, argv: Sequence[str], bundle: bytes = b"", command: str = "run",
    leaves: bool = False, **more: Unpack[Fields],
) -> Started:  # fmt: skip
    """Starts a run as `hopyard COMMAND` does, and a TensorBoard on it.

    After a Ctrl-C meanwhile the run is stopped: the user does not know its number yet.
    """
    project = settings["project"]
    submitted: Fields = {**fields(settings), "function": bundle, **more}
    if bundle and settings["spark"] is None and settings["hosts"] is None:
        submitted["warm_key"] = _standby_key.key_of(bundle)
    with _display.interrupts() as interrupted:
        driver = _program.submit(command, [*args, *options(settings)], project, argv=argv, **submitted)
        run = number_of(driver)
        supply(settings["spark"], run, project, leaves)
        address = _tensorboard_process.show(run, project) if settings["tensorboard"] and not interrupted else None
        if interrupted:
            _driver.stop(driver)
    if interrupted:
        raise KeyboardInterrupt(f"run {run} was stopped while it started")
    return Started(run, driver, address)


def number_of(driver: _hopyard.Driver) -> int:
    """The number of a submitted run."""
    if driver.run is None:
        raise Error("the driver was not submitted")
    return driver.run


def run_function(
    fn: Callable[..., Any],
    values: Mapping[str, Any],
    kind: str,
    search: Options,
    settings: Settings,
    optional: bool = True,
) -> Result:
    """Runs a function over a space. `kind` is the search, as for space.arguments."""
    settings = for_trials(settings)
    dimensions = space.arguments(values, kind)
    names = list(values)
    _bundle.check(fn, names)
    if not values and kind in _SEARCHES:
        raise Error(f"{_SEARCHES[kind]} needs a space to search, as in {{'learning_rate': hopyard.log(1e-5, 1e-1)}}")
    check_direction(settings)
    bundle = _bundle.make(
        fn, settings["metric"], parse_direction(settings["direction"]), optional,
        stated=is_stated(settings["direction"]), launch=kind == "paired",
    )  # fmt: skip
    title = f"{_bundle.name_of(fn)}({', '.join(names)})"
    started = start(
        [*search, *dimensions], settings, python("hopyard._trial"), bundle, title=title, metric_optional=optional
    )
    if settings["detach"]:
        return load(started.run, settings["project"], started.tensorboard)
    return watch(started.run, settings["project"], started.tensorboard, started.driver)


def resume(run: int | str, project: Project, tensorboard: bool, spark: Any) -> tuple[int, str | None]:
    """Continues a run: its number, and the address of its TensorBoard."""
    read_all(run, project)
    executors = "" if spark is None else _supplier.address(spark, project)
    known = load(run, project) if executors else None
    if known and known.is_running:  # its driver waits for a supplier of agents
        number = known.run
    else:
        number = number_of(_program.submit("resume", [], project, run=str(run), address=executors))
    supply(spark, number, project)
    return number, _tensorboard_process.show(number, project) if tensorboard else None


def supply(spark: Any, run: int, project: Project, leaves: bool = False) -> None:
    """Supplies a run with agents on the executors of a session, if it has executors."""
    if spark is not None and not _session.is_local(spark):
        _supplier.supply(spark, run, project, leaves)


# ---- watch ---------------------------------------------------------------------------


def watch(run: int, project: Project, address: str | None, driver: _hopyard.Driver | None = None) -> Result:
    """Shows a run until it ends; returns its result, or raises an error."""
    if driver:
        driver.watch(only_last=True)  # nothing is received while the display runs
    status = _display.show(run, project)
    had_session = _supplier.settle(run, project)
    return conclude(result_of(run, project, address, driver), status, had_session)


def result_of(run: int, project: Project, address: str | None, driver: _hopyard.Driver | None) -> Result:
    """The result of a run that was watched: from the driver's last update, if it came."""
    update = _driver.last_update(driver) if driver else None
    return from_update(update, project, address) if update else load(run, project, address)


def _failed(result: Result) -> str:
    count, first = len(result.trials), result.trials[0]
    if count == 1:
        return f"the trial of run {result.run} failed: {first.error}"
    return f"all {count} trials of run {result.run} failed; trial {first.number}: {first.error}"


def conclude(result: Result, status: int, had_session: bool = False, is_fed: bool = False) -> Result:
    """The result; raises an error if the user has detached, the run has not finished, or all trials have failed.

    `status` is that of `hopyard attach`: 0 or 130 while the run continues means that the user has detached. A run that
    was fed cannot be resumed, because its rows are gone.
    """
    run = result.run
    resume_call = f"experiment.resume({run}{', spark=spark' if had_session else ''})"
    advice = "start it again" if is_fed else f"continue it with {resume_call}"
    if result.is_running and status in (0, 130):
        raise KeyboardInterrupt(_display.how_to_continue(run, is_fed))
    if result.is_running:
        raise RunError(f"hopyard attach ended with status {status}; {_display.how_to_continue(run, is_fed)}", result)
    if result.state == "stopped":
        raise Stopped(f"run {run} was stopped when {result.count('done')} trials were done; {advice}", result)
    if result.state == "interrupted":
        raise RunError(f"the driver of run {run} has died; finished trials are stored; {advice}", result)
    if result._all_failed and not result.message:
        raise TrialsFailed(_failed(result), result)
    if result.state == "failed":
        raise RunError(f"run {run} failed: {result.message}; {advice}", result)
    return result
