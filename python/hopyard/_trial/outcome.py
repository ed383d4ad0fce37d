# SPDX-License-Identifier: Apache-2.0
"""The return value of a user's function: what is stored, and which value is the trial's metric."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._base.metrics import DEFAULT_METRIC, NO_METRIC, describe, is_cost, number
from .report import reported


class Refusal(Exception):
    """The reason why a trial fails without an exception of the function itself."""


@dataclass(frozen=True)
class Expected:
    """What the run expects from the function."""

    function: str
    metric: str | None = None
    """The name of the metric, if the user gave one."""
    optional: bool = True
    """False: the search needs a metric from every trial."""
    stated: bool = True
    """Whether the user gave a direction. If not, a loss or an error is not used: it would be maximized."""
    launch: bool = False
    """A single trial or a list of trials: they are not compared, so they need not return anything."""

    @property
    def name(self) -> str:
        return self.metric or DEFAULT_METRIC


@dataclass(frozen=True)
class Outcome:
    values: dict[str, Any] | None
    """The values for $HOPYARD_RESULT; None: it is not written."""
    remark: str = ""
    """Which value is the metric, or why the trial has no metric; "" if that is obvious."""
    lacks_metric: bool = False


# ---- values --------------------------------------------------------------------------------


def _kept(value: Any) -> Any:
    """The value as JSON; its description if JSON cannot represent it."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    as_number = number(value)
    if as_number is not None:
        return as_number
    try:
        return json.loads(json.dumps(value, default=_kept))
    except (TypeError, ValueError, RecursionError):
        return describe(value)


def _last(value: Any) -> float | None:
    """The last of a list of epochs; None if the value is not such a list."""
    if not isinstance(value, list | tuple) or not value or any(number(v) is None for v in value):
        return None
    return number(value[-1])


def _mapping(returned: Any) -> Mapping[Any, Any] | None:
    """The values by name, if they have names: a dict, or the History that Keras' fit returns."""
    if isinstance(returned, Mapping):
        return returned
    history = getattr(returned, "history", None)
    return history if isinstance(history, Mapping) else None


def _written(values: Mapping[Any, Any]) -> dict[str, Any]:
    """The dict itself; if it has only lists of epochs, their last values, which become the trial's metrics."""
    ends = {str(name): _last(value) for name, value in values.items()}
    if None not in ends.values():
        return ends
    return {str(name): _kept(value) for name, value in values.items()}


def _numbers(values: Mapping[Any, Any]) -> dict[str, float]:
    """The numbers by name, or else the last values of lists of epochs."""
    for of in (number, _last):
        found = {str(name): value for name, v in values.items() if (value := of(v)) is not None}
        if found:
            return found
    return {}


# ---- sentences -----------------------------------------------------------------------------


def _remark(expected: Expected, what: str, advice: str) -> str:
    then = NO_METRIC if expected.optional else "and this search needs a number from every trial"
    return f"{expected.function} {what}, {then}; {advice}"


def _advice(names: list[str], expected: Expected) -> str:
    """How to name the metric among several values."""
    best = min(names, key=lambda name: (is_cost(name), not name.startswith("val_")))
    direction = ", direction='min'" if is_cost(best) and not expected.stated else ""
    return f"name the metric, as in metric='{best}'{direction}"


def _no_number(returned: Any, expected: Expected) -> str:
    """Why the return value is not a metric."""
    names = [name for name in reported() if name != expected.name]
    if returned is None and names:
        return _remark(expected, f"returned nothing and reported {', '.join(names)}", _advice(names, expected))
    if returned is None:
        return _remark(expected, "returned nothing", "return a number")
    advice = "return one number"
    if isinstance(returned, list | tuple):
        advice += ", or a dict of numbers (model.evaluate(..., return_dict=True) returns one)"
    return _remark(expected, f"returned {describe(returned)}, which is not a number", advice)


# ---- which value is the metric ----------------------------------------------------------------------


def _choose(numbers: dict[str, float]) -> str | None:
    """The only value, or else the only validation value besides its loss; None if there are several."""
    for names in (list(numbers), [n for n in numbers if n.startswith("val_") and n != "val_loss"]):
        if len(names) == 1:
            return names[0]
    return None


def _without_name(values: Mapping[Any, Any], expected: Expected) -> Outcome:
    """The outcome of a dict if the user has not named the metric."""
    written, numbers = _written(values), _numbers(values)
    if DEFAULT_METRIC in numbers:
        return Outcome({**written, DEFAULT_METRIC: numbers[DEFAULT_METRIC]})
    if DEFAULT_METRIC in reported():
        return Outcome(written)
    names = ", ".join(map(str, values)) or "nothing"
    if not numbers:
        remark = _remark(expected, f"returned a dict without numbers ({names})", "return a number")
        return Outcome(written, remark, True)
    chosen = _choose(numbers)
    if chosen is None:
        return Outcome(written, _remark(expected, f"returned {names}", _advice(list(numbers), expected)), True)
    if is_cost(chosen) and not expected.stated:
        unclear = f"returned {chosen} without a direction, and lower may be better"
        return Outcome(written, _remark(expected, unclear, "add direction='min' (or 'max')"), True)
    remark = f"{chosen} is used as the metric; name another value with metric=" if len(numbers) > 1 else ""
    return Outcome({**written, DEFAULT_METRIC: numbers[chosen]}, remark)


def _with_name(values: Mapping[Any, Any], metric: str, expected: Expected) -> Outcome:
    if metric in values:
        value = number(values[metric])
        value = _last(values[metric]) if value is None else value
        if value is None:
            raise Refusal(
                f"{expected.function} returned {describe(values[metric])} for '{metric}', which is not a number"
            )
        return Outcome({**_written(values), metric: value})
    if metric in reported():
        return Outcome(_written(values))
    names = ", ".join(map(str, values)) or "an empty dict"
    raise Refusal(f"{expected.function} returned no '{metric}'; it returned {names}")


def of(returned: Any, expected: Expected) -> Outcome:
    """The outcome of a trial's return value. Raises Refusal if the metric that the user has named is missing."""
    values = _mapping(returned)
    if values is not None:
        return _with_name(values, expected.metric, expected) if expected.metric else _without_name(values, expected)
    value = number(returned)
    if value is not None:
        return Outcome({expected.name: value})
    if expected.name in reported() or (expected.launch and returned is None and not reported()):
        return Outcome(None)
    return Outcome(None, _no_number(returned, expected), True)


def of_rank(returned: Any, metric: str | None, function: str) -> Outcome:
    """The same for a rank of a training, which has a metric only if one is named."""
    values = _mapping(returned)
    if values is not None and metric is None:
        return Outcome(_written(values))
    if values is None and number(returned) is None:
        return Outcome(None)
    return of(returned, Expected(function, metric))
