# SPDX-License-Identifier: Apache-2.0
"""The settings that all runs share: one declaration, its documentation, and what is submitted for them."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypedDict, TypeVar, cast

from .._base.errors import Error
from .._base.metrics import DEFAULT_METRIC, is_cost
from .._spark import session as _session
from .._spark import supplier as _supplier
from ..stop import Rule
from .program import Fields, Options

Project = str | os.PathLike[str] | None
Amount = int | float | str | None
P = ParamSpec("P")
R = TypeVar("R")


class _Unstated(str):
    """The default direction. Its class distinguishes it from a direction that the user has given."""

    __slots__ = ()


UNSTATED = _Unstated("max")


class Settings(TypedDict, total=False):
    """
    direction: "max" or "min": which values of the metric are better. A returned loss or error is used as the
        metric only if this is given
    metric: the name of the metric, in a returned dict or History or in what the function reports; default: a
        returned number, the only value, or the only validation value besides val_loss
    parallel: the maximum number of trials at a time; default: one per core
    memory: the memory limit of a trial, in bytes or as "4G"; a trial that exceeds it is killed. Default: no limit
    timeout: the time limit of an attempt, in seconds or as "15m"; default: no limit
    retries: how often a failed trial is retried
    stop: a rule that stops bad trials early, by the values that they report: "median", "asha", or with options
        hopyard.stop.ASHA(max=27); help(hopyard.stop) describes all of them. Default: no trial is stopped early
    seed: the same seed gives the same trials; default: a random seed
    gpus: GPUs per trial: a whole number, or a share of one GPU such as 0.2; 0 hides them. Default: no GPU is leased,
        none is hidden
    name: a name for the run
    project: its directory, created if it does not exist; default: $HOPYARD_PROJECT, or the current directory
    tensorboard: whether to start a TensorBoard on the run
    app_id: the directory below Logs/TensorFlow for the run's logs; default: "local-" and the time
    spark: a SparkSession; trials run on its executors. With a master "local..." they run on this machine
    hosts: machines to run on by ssh: ["a:4", "b"], or "a:4,b"; default: this machine
    detach: True: start the run and return at once, with the result so far
    max_transfer: how much of a trial's files is copied at most from a machine that does not see the project
        directory, in bytes or as "4G"; "none": no limit. A trial that leaves more fails. Default: 100 GB
    disk_timeout: how long the run waits while its disk is full or its store is locked before it is interrupted, in
        seconds or as "1h"; default: "10m"
    oversubscribe: True: do not wait for cores of this machine that your other runs use
    notify: a shell command that runs when the run has ended; $HOPYARD_RUN, $HOPYARD_STATE, $HOPYARD_NAME,
        $HOPYARD_METRIC and $HOPYARD_BEST describe it
    """

    direction: str  # "": the run has no metric
    metric: str | None
    parallel: int | None
    memory: Amount
    timeout: Amount
    retries: int
    stop: str | Rule | None
    seed: int | None
    gpus: int | float | None
    name: str | None
    project: Project
    tensorboard: bool
    app_id: str | None
    spark: Any
    hosts: str | Iterable[str] | None
    detach: bool
    max_transfer: Amount
    disk_timeout: Amount
    oversubscribe: bool
    notify: str | None


DEFAULTS: Settings = {
    "direction": UNSTATED,
    "metric": None,
    "parallel": None,
    "memory": None,
    "timeout": None,
    "retries": 0,
    "stop": None,
    "seed": None,
    "gpus": None,
    "name": None,
    "project": None,
    "tensorboard": True,
    "app_id": None,
    "spark": None,
    "hosts": None,
    "detach": False,
    "max_transfer": None,
    "disk_timeout": None,
    "oversubscribe": False,
    "notify": None,
}


# ---- functions that take settings ------------------------------------------------------------------


def with_settings(function: Callable[P, R]) -> Callable[P, R]:
    """Gives a function with `**settings: Unpack[Settings]` the full signature and documentation.

    At run time the settings are ordinary parameters: help() and notebooks show them, and they may be given by position.
    """
    own = inspect.signature(function)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shared = [
        inspect.Parameter(name, kind, default=default, annotation=Settings.__annotations__[name])
        for name, default in DEFAULTS.items()
    ]
    signature = own.replace(parameters=[*(p for p in own.parameters.values() if p.kind is kind), *shared])

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        return cast("Callable[..., R]", function)(**bound.arguments)

    call.__signature__ = signature  # type: ignore[attr-defined]
    shared_doc = inspect.cleandoc(Settings.__doc__ or "")
    returns = "Returns a Result: `best`, `trials`, `notes`, `logdir`, `to_dataframe()`."
    call.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n{shared_doc}\n\n{returns}"
    return call


def complete(given: Settings) -> Settings:
    """The settings with defaults for those that are not given."""
    return {**DEFAULTS, **given}


def for_trials(given: Settings) -> Settings:
    """The settings of an experiment, with a session's or a notebook's number of trials at a time, and limits."""
    settings = _limited(complete(given))
    if settings["parallel"] is None and settings["spark"] is not None:
        settings["parallel"] = _supplier.parallel(settings["spark"], settings["project"])
    elif settings["parallel"] is None:
        settings["parallel"] = _session.from_environment(_session.PARALLEL)
    return settings


def _limited(settings: Settings) -> Settings:
    """With the limits that a notebook's form sets for executors, where none are given."""
    memory, gpus = _session.from_environment(_session.MEMORY), _session.from_environment(_session.GPUS)
    if settings["memory"] is None and memory:
        settings["memory"] = f"{memory}M"
    if settings["gpus"] is None:
        settings["gpus"] = gpus
    return settings


def for_training(given: Settings, what: str, module: str) -> Settings:
    """The settings of a training or a cluster, which shows a metric only if one is named."""
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        raise TypeError(f"{what} got an unexpected keyword argument {', '.join(map(repr, unknown))}; see {module}")
    if given.get("stop") is not None:
        raise Error(f"stop= is for the trials of an experiment; {what} ends as a whole")
    direction = "max" if given.get("metric") else ""
    return _limited({**DEFAULTS, "direction": direction, **given})


# ---- directions ------------------------------------------------------------------------------------


def parse_direction(text: str | None) -> str:
    direction = text.lower() if isinstance(text, str) else ""
    if direction not in ("max", "min"):
        raise Error(f"invalid direction {text!r}: it must be 'max' or 'min'")
    return direction


def is_stated(direction: str) -> bool:
    return not isinstance(direction, _Unstated)


def check_direction(settings: Settings) -> None:
    """A loss or an error that the user has named must not be maximized by default."""
    metric = settings["metric"]
    if metric and is_cost(metric) and not is_stated(settings["direction"]):
        raise Error(
            f"'{metric}' looks like a loss or an error, and the default is direction='max'; "
            "add direction='min' (or 'max')"
        )


# ---- options of the program ------------------------------------------------------------------------


def option(name: str, value: object) -> Options:
    """An option; nothing for None and False, a flag for True."""
    if value is None or value is False:
        return []
    return [(name, "" if value is True else str(value))]


def options(settings: Settings) -> Options:
    """Complete settings as options of `hopyard run`."""
    direction, hosts = settings["direction"], settings["hosts"]
    return [
        *([] if not direction else option(parse_direction(direction), settings["metric"] or DEFAULT_METRIC)),
        *option("parallel", settings["parallel"]),
        *option("memory", _size(settings["memory"])),
        *option("max-transfer", _size(settings["max_transfer"])),
        *option("timeout", _duration(settings["timeout"])),
        *option("disk-timeout", _duration(settings["disk_timeout"])),
        *option("oversubscribe", settings["oversubscribe"]),
        *option("retries", settings["retries"]),
        *_stop(settings["stop"]),
        *option("seed", settings["seed"]),
        *option("gpus", settings["gpus"]),
        *option("name", settings["name"]),
        *option("notify", settings["notify"]),
        *option("hosts", hosts if hosts is None or isinstance(hosts, str) else ",".join(hosts)),
    ]


def fields(settings: Settings) -> Fields:
    """What is submitted besides options: the application, and how executors reach this machine."""
    spark = settings["spark"]
    app_id = settings["app_id"] or (application_of(spark) if spark is not None else "")
    address = "" if spark is None else _supplier.address(spark, settings["project"])
    return {"app_id": app_id, "address": address}


def application_of(spark: Any) -> str:
    """The id of a SparkSession's application."""
    return str(_session.context_of(spark).applicationId)


def _stop(rule: str | Rule | None) -> Options:
    if rule is None or isinstance(rule, str):
        return option("stop", rule)
    if not isinstance(rule, Rule):
        raise Error(f"stop= takes the name of a rule or an object such as hopyard.stop.ASHA(max=27), not {rule!r}")
    given = {**rule._options(), "stop-grace": _duration(rule.grace)}
    return [one for name, value in given.items() for one in option(name, value)]


def _duration(time: Amount) -> str | None:
    """Seconds, or a text such as "15m"."""
    return time if isinstance(time, str | None) else f"{time}s"


def _size(amount: Amount) -> int | str | None:
    return amount if isinstance(amount, str | None) else int(amount)
