# SPDX-License-Identifier: Apache-2.0
"""What a user's function returned: what is kept of it, and which value is the trial's metric."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._base.metrics import DEFAULT_METRIC, NO_METRIC, describe, is_cost, number
from .report import reported


class Refusal(Exception):
    """Why a trial fails that is not an exception of the function's own: a sentence."""


@dataclass(frozen=True)
class Wanted:
    """What the run expects of the function."""

    function: str
    metric: str | None = None
    """The name that the user gave."""
    optional: bool = True
    """False: the search needs a metric from every trial."""
    stated: bool = True
    """Whether the user gave a direction. If not, a loss or an error does not count: it would be maximized."""
    launch: bool = False
    """A single trial or a list of them: nobody compares them, so that they need not return anything."""

    @property
    def name(self) -> str:
        return self.metric or DEFAULT_METRIC


@dataclass(frozen=True)
class Outcome:
    values: dict[str, Any] | None
    """What is to be written to $HOPYARD_RESULT; None: nothing."""
    remark: str = ""
    """Which value counts, or why none does; "": nothing to say."""
    lacks_metric: bool = False


# ---- values --------------------------------------------------------------------------------


def _kept(value: Any) -> Any:
    """As JSON can have it; what it cannot have as a text."""
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
    """The last of a list of epochs; None when it is none."""
    if not isinstance(value, list | tuple) or not value or any(number(v) is None for v in value):
        return None
    return number(value[-1])


def _mapping(returned: Any) -> Mapping[Any, Any] | None:
    """The values by name, where it has names: a dict, or the History that Keras' fit returns."""
    if isinstance(returned, Mapping):
        return returned
    history = getattr(returned, "history", None)
    return history if isinstance(history, Mapping) else None


def _written(values: Mapping[Any, Any]) -> dict[str, Any]:
    """A dict as it is; of one that has only epochs their last values, which are the trial's metrics then."""
    ends = {str(name): _last(value) for name, value in values.items()}
    if None not in ends.values():
        return ends
    return {str(name): _kept(value) for name, value in values.items()}


def _numbers(values: Mapping[Any, Any]) -> dict[str, float]:
    """The numbers by name, or else the last values of epochs."""
    for of in (number, _last):
        found = {str(name): value for name, v in values.items() if (value := of(v)) is not None}
        if found:
            return found
    return {}


# ---- sentences -----------------------------------------------------------------------------


def _remark(wanted: Wanted, what: str, advice: str) -> str:
    then = NO_METRIC if wanted.optional else "and this search needs a number from every trial"
    return f"{wanted.function} {what}, {then}; {advice}"


def _advice(names: list[str], wanted: Wanted) -> str:
    """How to say which of several values counts."""
    best = min(names, key=lambda name: (is_cost(name), not name.startswith("val_")))
    direction = ", direction='min'" if is_cost(best) and not wanted.stated else ""
    return f"name the one that counts, as in metric='{best}'{direction}"


def _no_number(returned: Any, wanted: Wanted) -> str:
    """Why what was returned is not a metric."""
    told = [name for name in reported() if name != wanted.name]
    if returned is None and told:
        return _remark(wanted, f"returned nothing and reported {', '.join(told)}", _advice(told, wanted))
    if returned is None:
        return _remark(wanted, "returned nothing", "return a number")
    advice = "return one number"
    if isinstance(returned, list | tuple):
        advice += ", or a dict of numbers (model.evaluate(..., return_dict=True) returns one)"
    return _remark(wanted, f"returned {describe(returned)}, which is not a number", advice)


# ---- which value counts ----------------------------------------------------------------------


def _choose(numbers: dict[str, float]) -> str | None:
    """The only value, or else the only one of validation besides its loss; None: nothing says which."""
    for names in (list(numbers), [n for n in numbers if n.startswith("val_") and n != "val_loss"]):
        if len(names) == 1:
            return names[0]
    return None


def _without_name(values: Mapping[Any, Any], wanted: Wanted) -> Outcome:
    """Of a dict, where the user has not said which value counts."""
    written, numbers = _written(values), _numbers(values)
    if DEFAULT_METRIC in numbers:
        return Outcome({**written, DEFAULT_METRIC: numbers[DEFAULT_METRIC]})
    if DEFAULT_METRIC in reported():
        return Outcome(written)
    names = ", ".join(map(str, values)) or "nothing"
    if not numbers:
        return Outcome(written, _remark(wanted, f"returned a dict without numbers ({names})", "return a number"), True)
    chosen = _choose(numbers)
    if chosen is None:
        return Outcome(written, _remark(wanted, f"returned {names}", _advice(list(numbers), wanted)), True)
    if is_cost(chosen) and not wanted.stated:
        unclear = f"returned {chosen}, and nothing says whether less or more of it is better"
        return Outcome(written, _remark(wanted, unclear, "add direction='min' (or 'max')"), True)
    remark = f"{chosen} counts as the metric; name another value with metric=" if len(numbers) > 1 else ""
    return Outcome({**written, DEFAULT_METRIC: numbers[chosen]}, remark)


def _with_name(values: Mapping[Any, Any], metric: str, wanted: Wanted) -> Outcome:
    if metric in values:
        value = number(values[metric])
        value = _last(values[metric]) if value is None else value
        if value is None:
            raise Refusal(
                f"{wanted.function} returned {describe(values[metric])} for '{metric}', which is not a number"
            )
        return Outcome({**_written(values), metric: value})
    if metric in reported():
        return Outcome(_written(values))
    names = ", ".join(map(str, values)) or "an empty dict"
    raise Refusal(f"{wanted.function} returned no '{metric}'; it returned {names}")


def of(returned: Any, wanted: Wanted) -> Outcome:
    """What a trial's function returned. Raises Refusal where a value that the user has named is not there."""
    values = _mapping(returned)
    if values is not None:
        return _with_name(values, wanted.metric, wanted) if wanted.metric else _without_name(values, wanted)
    value = number(returned)
    if value is not None:
        return Outcome({wanted.name: value})
    if wanted.name in reported() or (wanted.launch and returned is None and not reported()):
        return Outcome(None)
    return Outcome(None, _no_number(returned, wanted), True)


def of_rank(returned: Any, metric: str | None, function: str) -> Outcome:
    """The same for a rank of a training, which has a metric only where one is named."""
    values = _mapping(returned)
    if values is not None and metric is None:
        return Outcome(_written(values))
    if values is None and number(returned) is None:
        return Outcome(None)
    return of(returned, Wanted(function, metric))
