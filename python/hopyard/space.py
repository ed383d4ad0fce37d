# SPDX-License-Identifier: Apache-2.0
"""Search spaces: the values of hyperparameters, for `hopyard.search` and `hopyard.experiment`.

    {"learning_rate": hopyard.log(1e-5, 1e-1),
     "layers": hopyard.integer(1, 4),
     "dropout": [0.0, 0.5],
     "activation": hopyard.choice("relu", "tanh", None),
     "units": "log:16..1024",
     "optimizer": ["sgd", "adam"],
     "momentum": hopyard.uniform(0.5, 0.99, when="optimizer == 'sgd'")}

In a grid every list is a list of choices, and an integer() is all its values. In other searches two numbers are bounds,
in either order (two ints make an integer), and any other list is a choice. A string is parsed as on the command line.
For `experiment` choices are JSON values, since trials are other processes: None, booleans, numbers, strings, lists and
dicts; tuples become lists, NumPy's scalars and arrays become numbers and lists.

Where the expression `when=` is not true, a trial does not have the hyperparameter: it is not in the dict of parameters,
and a function is called without it. The expression may use hyperparameters that precede it in the dict.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ._hopyard import Error

__all__ = ["choice", "integer", "log", "lognormal", "normal", "uniform"]

_DEEPEST = 198  # the program's limit is 200 levels, including the list and a trial's parameters
_LARGEST = 1.7976931348623157e308  # the largest double


class _Dimension:
    """Immutable; it consists of positional arguments and of options, which are None by default."""

    __slots__ = ("when",)
    __match_args__: tuple[str, ...] = ()
    when: str | None

    def _set(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def _positional(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def _options(self) -> dict[str, Any]:
        slots = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        options = {name: getattr(self, name) for name in slots if name not in self.__match_args__}
        return {name: value for name, value in options.items() if value is not None}

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}() is immutable; create another")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Dimension)
            and type(self) is type(other)
            and self._positional() == other._positional()
            and self._options() == other._options()
        )

    def __hash__(self) -> int:
        return hash((type(self), self._positional(), *self._options().items()))

    def __repr__(self) -> str:
        options = [f"{name}={value!r}" for name, value in self._options().items()]
        return f"{type(self).__name__}({', '.join([*map(repr, self._positional()), *options])})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _make, (type(self), self._positional(), self._options())

    def _condition(self, when: Any) -> str | None:
        if when is not None and not (isinstance(when, str) and when.strip() and _is_text(when)):
            raise Error(
                f"""{type(self).__name__}(when=) needs an expression such as "optimizer == 'sgd'", not {_shown(when)}"""
            )
        return when

    def _with_condition(self, values: str) -> str:
        """The values as on the command line, with the condition."""
        return values if self.when is None else f"{values} if {self.when}"


def _make(kind: Callable[..., Any], positional: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return kind(*positional, **options)


class _Numbers(_Dimension):
    __slots__ = ()

    @classmethod
    def _number(cls, value: Any) -> int | float:
        number: int | float = _unwrapped(value)
        if not _is_number(number) or not abs(number) <= _LARGEST:
            names = ", ".join(cls.__match_args__)
            raise Error(f"{cls.__name__}({names}) needs two finite numbers, not {_shown(value)}")
        return number

    @classmethod
    def _positive(cls, name: str, value: Any) -> int | float | None:
        if value is None:
            return None
        number: int | float = _unwrapped(value)
        if not _is_number(number) or not 0 < number <= _LARGEST:
            raise Error(f"{cls.__name__}({name}=) needs a number above 0, not {_shown(value)}")
        return number

    def __str__(self) -> str:
        """As on the command line."""
        return self._with_condition(self._text())

    def _text(self) -> str:
        raise NotImplementedError


class _Range(_Numbers):
    __slots__ = ("high", "low")
    __match_args__ = ("low", "high")
    low: int | float
    high: int | float

    def __init__(self, low: int | float, high: int | float, *, when: str | None = None) -> None:
        self._set(low=self._number(low), high=self._number(high), when=self._condition(when))

    def _text(self) -> str:
        return f"{self.low!r}..{self.high!r}"


class _SteppedRange(_Range):
    __slots__ = ("step",)
    step: int | float | None

    def __init__(
        self, low: int | float, high: int | float, *, step: int | float | None = None, when: str | None = None
    ) -> None:
        super().__init__(low, high, when=when)
        self._set(step=None if step is None else self._number(self._positive("step", step)))

    def _text(self) -> str:
        return super()._text() + _step(self.step)


class uniform(_SteppedRange):
    """A real number, uniformly distributed between the bounds.

    low, high: the bounds, both included, in either order
    step: only low, low + step, low + 2 * step, …; in a grid, all of them
    when: the expression where a trial has it, such as "optimizer == 'sgd'"; None: always
    """

    __slots__ = ()

    @classmethod
    def _number(cls, value: Any) -> float:
        return float(super()._number(value))


class log(_Range):
    """A number on a logarithmic scale: every factor of ten is equally likely.

    low, high: the bounds, both included and above 0; the number is an integer if both are ints
    when: the expression where a trial has it, such as "optimizer == 'sgd'"; None: always
    """

    __slots__ = ()

    def _text(self) -> str:
        return f"log:{super()._text()}"


class integer(_SteppedRange):
    """An integer; in a grid, all integers between the bounds.

    low, high: the bounds, both included, in either order
    step: only low, low + step, low + 2 * step, …
    when: the expression where a trial has it, such as "optimizer == 'sgd'"; None: always
    """

    __slots__ = ()

    @classmethod
    def _number(cls, value: Any) -> int:
        number = super()._number(value)
        if not isinstance(number, int):
            raise Error(f"integer(low, high) needs whole numbers, not {_shown(value)}")
        return number


class normal(_Numbers):
    """A real number with a normal distribution; an integer if low, high and step are ints.

    mean, deviation: its mean and standard deviation
    low, high: bounds, both included, outside of which the distribution is cut off; None: no bound
    step: only low, low + step, low + 2 * step, …; it needs both bounds
    when: the expression where a trial has it, such as "optimizer == 'sgd'"; None: always
    """

    __slots__ = ("mean", "deviation", "low", "high", "step")
    __match_args__ = ("mean", "deviation")
    mean: int | float
    deviation: int | float
    low: int | float | None
    high: int | float | None
    step: int | float | None

    def __init__(
        self,
        mean: int | float,
        deviation: int | float,
        low: int | float | None = None,
        high: int | float | None = None,
        *,
        step: int | float | None = None,
        when: str | None = None,
    ) -> None:
        self._set(mean=self._number(mean), deviation=self._number(deviation), when=self._condition(when))
        self._set(low=None if low is None else self._number(low), high=None if high is None else self._number(high))
        self._set(step=self._positive("step", step))
        if step is not None and (low is None or high is None):
            raise Error(f"{type(self).__name__}(step=) needs both bounds: low= and high=")

    def _text(self) -> str:
        bounds = ["" if bound is None else repr(bound) for bound in (self.low, self.high)]
        within = f" in {'..'.join(bounds)}" if any(bounds) else ""
        return f"{type(self).__name__}({self.mean!r}, {self.deviation!r}){within}{_step(self.step)}"


class lognormal(normal):
    """A real number above 0 whose natural logarithm has a normal distribution.

    mean, deviation: the mean and standard deviation of the logarithm
    low, high: bounds of the number, both included, outside of which the distribution is cut off; None: no bound
    when: the expression where a trial has it, such as "optimizer == 'sgd'"; None: always
    """

    __slots__ = ()

    def __init__(
        self,
        mean: int | float,
        deviation: int | float,
        low: int | float | None = None,
        high: int | float | None = None,
        *,
        when: str | None = None,
    ) -> None:
        super().__init__(mean, deviation, low, high, when=when)


def _step(step: int | float | None) -> str:
    return "" if step is None else f" step {step!r}"


class choice(_Dimension):
    """One of several values: choice(32, 64) is a choice where the list [32, 64] would be bounds.

    choices: at least one value; for `experiment` they are JSON values (None, booleans, numbers, texts, lists, dicts)
    when: the expression where a trial has it, such as "optimizer == 'sgd'"; None: always
    """

    __slots__ = ("choices",)
    __match_args__ = ("choices",)
    choices: tuple[Any, ...]

    def __init__(self, *choices: Any, when: str | None = None) -> None:
        if not choices:
            raise Error("choice() needs at least one value")
        self._set(choices=choices, when=self._condition(when))

    def _positional(self) -> tuple[Any, ...]:
        return self.choices


def native(space: Any) -> Any:
    """The space for the extension: ranges are strings; it reads the attributes `choices` and `when` of a `choice`."""
    if not isinstance(space, Mapping):
        return space  # it raises the error for that
    return {name: str(value) if isinstance(value, _Numbers) else value for name, value in space.items()}


# ---- options of the program -----------------------------------------------------------------------------


def arguments(space: Mapping[str, Any], kind: str) -> list[tuple[str, str]]:
    """The space as options of `hopyard run`; kind is "grid" or "paired", which take lists, or any other.

    One option per dimension, of any length.
    """
    if not isinstance(space, Mapping):
        raise Error(f"a space is a dict of names and values; got {_shown(space)}")
    lists = kind in ("grid", "paired")
    option = "grid" if lists else "space"
    options = [(option, f"{_name(name)}={_values(name, value, lists)}") for name, value in space.items()]
    return [("paired", ""), *options] if kind == "paired" and options else options


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise Error(f"the names of a space must be strings; got {_shown(name)}")
    if "=" in name or not _is_text(name):
        raise Error(f"invalid name {name!r}: it must not contain '=', NUL or a lone surrogate")
    return name


def _values(name: str, value: Any, lists: bool) -> str:
    """The text after NAME=."""
    if isinstance(value, str):
        if not _is_text(value):
            raise Error(f"invalid value {value!r} for '{name}': it must not contain NUL or a lone surrogate")
        return value
    if isinstance(value, _Numbers):
        return str(value)
    if isinstance(value, choice):
        return value._with_condition(_json(name, value.choices))
    values = _list(name, value)
    if not lists and len(values) == 2 and all(map(_is_number, values)):
        values = [_plain(name, v, 0) for v in values]
        kind = integer if all(isinstance(v, int) for v in values) else uniform
        return str(kind(*values))
    return _json(name, values)


def _list(name: str, value: Any) -> list[Any]:
    value = _unwrapped(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping):
        return [_unwrapped(v) for v in value]
    raise Error(f"'{name}' needs a list of values, or a string such as '1..4'; got {_shown(value)}")


# ---- values as JSON --------------------------------------------------------------------------------


def _json(name: str, values: Sequence[Any]) -> str:
    import json

    plain = [_plain(name, value, 0) for value in values]
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(name: str, value: Any, depth: int) -> Any:
    """The value as JSON types; raises an Error if it cannot be converted."""
    value = _unwrapped(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _checked(name, value, -(2**63) <= value < 2**63, "beyond 64 bits; pass it as a string")
    if isinstance(value, float):
        return _checked(name, value, abs(value) <= _LARGEST, "not a JSON value: JSON has finite numbers only")
    if isinstance(value, str):
        return _checked(name, value, _is_text(value), "not a valid string: it contains NUL or a lone surrogate")
    if isinstance(value, list | tuple | Mapping):
        _checked(name, value, depth < _DEEPEST, "nested too deeply, or contains itself")
    if isinstance(value, list | tuple):
        return [_plain(name, v, depth + 1) for v in value]
    if isinstance(value, Mapping):
        return {_key(name, k): _plain(name, v, depth + 1) for k, v in value.items()}
    return _checked(name, value, False, "not a JSON value; pass a string and look it up in your function")


def _key(name: str, key: Any) -> str:
    fine = isinstance(key, str) and _is_text(key)
    return str(_checked(name, key, fine, "not a key of a JSON object, which must be a string", "the key"))


def _checked(name: str, value: Any, fine: bool, sentence: str, what: str = "the value") -> Any:
    if not fine:
        raise Error(f"{what} {_shown(value)} of '{name}' is {sentence}")
    return value


def _unwrapped(value: Any) -> Any:
    """NumPy's scalars and arrays as Python values. 32-bit numbers by their shortest representation: 0.1, not
    0.10000000149011612, which is the same 32-bit number."""
    if not hasattr(value, "tolist"):
        return value
    if getattr(value, "dtype", None) not in ("float32", "float16"):
        return value.tolist()
    return float(str(value)) if value.ndim == 0 else [_unwrapped(part) for part in value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _shown(value: Any) -> str:
    """A short representation for messages, without memory addresses."""
    import re

    try:
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    except Exception:  # __repr__ may raise anything, and an int of 4,300 digits or more does
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."
