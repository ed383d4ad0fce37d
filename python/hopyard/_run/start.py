# SPDX-License-Identifier: Apache-2.0
"""A run from its start to its result, by way of the program `hopyard`."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import space
from .._base.errors import Error, RunError, Stopped, TrialsFailed
from .._code import bundle as _bundle
from .._spark import session as _session
from .._spark import supplier as _supplier
from . import display as _display
from . import program as _program
from . import standby_key as _standby_key
from . import tensorboard_process as _tensorboard_process
from .result import Result, load
from .settings import Project, Settings, check_direction, complete, is_stated, options, parse_direction

_SEARCHES = {"random": "random_search", "evolve": "differential_evolution"}

# ---- from its start ... ------------------------------------------------------------------------


def python(module: str, *args: str) -> list[str]:
    """The command that runs a module of ours; -P: not one that lies in the folder we are in."""
    if not sys.executable:
        raise Error(
            "sys.executable does not say which Python this is, so that no trial can be started with it"
        )
    return [sys.executable, "-P", "-m", module, *args]


def _number(said: str) -> int:
    """The run's number in what `run` or `resume` have said."""
    return int(json.loads(said.splitlines()[-1])["run"])


def start(
    args: Sequence[str], settings: Settings, program: Sequence[str], bundle: bytes = b"", command: str = "run",
    leaves: bool = False,
) -> tuple[int, str | None]:  # fmt: skip
    """Starts a run by `hopyard COMMAND`, and a TensorBoard on it: its number, and the address.

    Who hits Ctrl-C meanwhile wants no run, and it must not be left behind unknown.
    """
    project = settings["project"]
    standby = _standby_key.options(bundle) if bundle and settings["spark"] is None and settings["hosts"] is None else []
    with _display.interrupts() as noted:
        with space.short([*args, *standby, *options(settings)]) as arguments:
            said = _program.call(
                command, "--detach", "--json", *arguments, "--", *program, project=project, input=bundle
            )
        run = _number(said)
        supply(settings["spark"], run, project, leaves)
        address = _tensorboard_process.show(run, project) if settings["tensorboard"] and not noted else None
        if noted:
            _program.call("stop", str(run), project=project)
    if noted:
        raise KeyboardInterrupt(f"run {run} was stopped while it started")
    return run, address


def run_function(
    fn: Callable[..., Any],
    values: Mapping[str, Any],
    kind: str,
    search: Sequence[str],
    settings: Settings,
    optional: bool = True,
) -> Result:
    """A run of a function over a space. The kind of search is one of space.arguments'."""
    settings = complete(settings)
    dimensions = space.arguments(values, kind)
    names = list(values)
    _bundle.check(fn, names)
    if not values and kind in ("random", "evolve"):
        raise Error(f"{_SEARCHES[kind]} needs a space to search, as in {{'learning_rate': hopyard.log(1e-5, 1e-1)}}")
    check_direction(settings)
    bundle = _bundle.make(
        fn, settings["metric"], parse_direction(settings["direction"]), optional, stated=is_stated(settings["direction"]),
        launch=kind == "paired",
    )  # fmt: skip
    title = f"{_bundle.name_of(fn)}({', '.join(names)})"
    args = [
        "--function",
        "-",
        "--title",
        title,
        *(["--metric-optional"] if optional else []),
        *search,
        *dimensions,
    ]
    run, address = start(args, settings, python("hopyard._trial"), bundle)
    if settings["detach"]:
        return load(run, settings["project"], address)
    return watch(run, settings["project"], address)


def resume(run: int | str, project: Project, tensorboard: bool, spark: Any) -> tuple[int, str | None]:
    """Goes on with a run: its number, and the address of its TensorBoard."""
    engine = [] if spark is None else _supplier.options(spark, project)
    known = load(run, project) if engine else None
    if known and known.goes_on:  # its driver waits for somebody who starts agents
        number = known.run
    else:
        number = _number(_program.call("resume", str(run), "--detach", "--json", *engine, project=project))
    supply(spark, number, project)
    return number, _tensorboard_process.show(number, project) if tensorboard else None


def supply(spark: Any, run: int, project: Project, leaves: bool = False) -> None:
    """Gives a run the executors of a session, where that has some."""
    if spark is not None and not _session.is_here(spark):
        _supplier.supply(spark, run, project, leaves)


# ---- ... to its end ---------------------------------------------------------------------------


def watch(run: int, project: Project, address: str | None) -> Result:
    """Shows a run to its end; its result, or what is to be raised for it."""
    status = _display.show(run, project)
    had_session = _supplier.settle(run, project)
    return conclude(load(run, project, address), status, had_session)


def _failed(result: Result) -> str:
    count, first = len(result.trials), result.trials[0]
    if count == 1:
        return f"the trial of run {result.run} failed: {first.error}"
    return f"all {count} trials of run {result.run} failed; trial {first.number}: {first.error}"


def conclude(result: Result, status: int, had_session: bool = False, is_fed: bool = False) -> Result:
    """The result, unless the run was left, did not come to its end, or has nothing to show.

    The status is that of `hopyard attach`: 0 or 130 for a run that goes on means that the user has left it. One that
    was fed cannot be resumed: nobody has its rows any more.
    """
    run = result.run
    go_on = (
        "start it anew"
        if is_fed
        else f"experiment.resume({run}{', spark=spark' if had_session else ''}) goes on with it"
    )
    if result.goes_on and status in (0, 130):
        raise KeyboardInterrupt(_display.how_to_go_on(run, is_fed))
    if result.goes_on:
        raise RunError(f"hopyard attach ended with status {status}; {_display.how_to_go_on(run, is_fed)}", result)
    if result.state == "stopped":
        raise Stopped(f"run {run} was stopped when {result.count('done')} trials were done; {go_on}", result)
    if result.state == "interrupted":
        raise RunError(f"run {run}: its driver has died; what has ended is safe; {go_on}", result)
    if result.trials and result.count("failed") == len(result.trials) and not result.message:
        raise TrialsFailed(_failed(result), result)
    if result.state == "failed":
        raise RunError(f"run {run} failed: {_program.in_python(result.message or '')}; {go_on}", result)
    return result
