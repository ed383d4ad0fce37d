# SPDX-License-Identifier: Apache-2.0
"""Checks a Python function and bundles it for its trials.

A bundle is one line of JSON, a newline, and the cloudpickled function. The run stores it, so that a run can be resumed
after the process that started it has ended. Functions of importable modules are pickled by reference; those of
__main__ by value, so that trials do not import the user's script again.
"""

import difflib
import functools
import inspect
import io
import json
import os
import sys
from collections.abc import Callable, Collection
from types import MethodType
from typing import Any

from .._base.errors import Error
from . import package_aliases as _package_aliases
from . import references as _references

LIMIT = 48 * 1024 * 1024

# ---- checks ------------------------------------------------------------------------


def name_of(fn: Any) -> str:
    """The name of a function, for messages and tables."""
    if isinstance(fn, functools.partial):
        return name_of(fn.func)
    if isinstance(fn, MethodType):
        return f"{type(fn.__self__).__name__}.{fn.__name__}"
    name = getattr(fn, "__name__", None)
    return "lambda" if name == "<lambda>" else name or type(fn).__name__


def _quoted(names: Collection[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def check(fn: Any, names: Collection[str]) -> None:
    """Raises an error before the run starts if these hyperparameters do not match the function's parameters."""
    if not callable(fn):
        raise Error(f"{fn!r:.60} is not a function")
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (ValueError, TypeError):  # some functions written in C have no signature
        return
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if positional:
        raise Error(
            f"{name_of(fn)}() has the positional-only parameter {_quoted(positional)}, but hyperparameters are passed "
            "by name; remove the '/' from its parameters"
        )
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = [name for name in names if name not in {p.name for p in named}]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        parameters_text = ", ".join(p.name for p in named) or "none"
        near = difflib.get_close_matches(unknown[0], [p.name for p in named], 1)
        meant = f" (did you mean '{near[0]}'?)" if near else ""
        raise Error(f"{name_of(fn)}() has no parameter {_quoted(unknown)}{meant} (parameters: {parameters_text})")
    missing = [p.name for p in named if p.default is p.empty and p.name not in names]
    if missing:
        raise Error(
            f"{name_of(fn)}() has the required parameter {_quoted(missing)}, which is not in the space; add it to the "
            "space, or give it a default"
        )


# ---- pickling ------------------------------------------------------------------------


class _TooBig(Exception):
    pass


class _Bounded(io.BytesIO):
    """A file in memory that is limited to the size of a bundle."""

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > LIMIT:
            raise _TooBig
        return super().write(data)


class _ByteCounter(io.RawIOBase):
    """A file that counts bytes and discards them."""

    size = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.size += size
        return size


def _dump(value: Any, file: Any) -> None:
    import cloudpickle

    cloudpickle.Pickler(file).dump(value)


def _size(value: Any) -> int | None:
    """The size of the pickled value; None if it cannot be pickled."""
    counter = _ByteCounter()
    try:
        _dump(value, counter)
    except Exception:  # __reduce__ may raise anything
        return None
    return counter.size


def _kind(value: Any) -> str:
    cls = type(value)
    name = (
        cls.__qualname__
        if cls.__module__ in ("builtins", "__main__")
        else f"{cls.__module__}.{cls.__qualname__}"
    )
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _unpicklable_path(value: Any, seen: set[int]) -> list[tuple[str, Any]]:
    """The path to the innermost variable that cannot be pickled."""
    for name, part in _references.uses(value):
        if id(part) in seen or _size(part) is not None:
            continue
        seen.add(id(part))
        return [(name, part), *(_unpicklable_path(part, seen) if _references.by_value(part) else ())]
    return []


def _why_not(fn: Any, error: Exception) -> str:
    way = _unpicklable_path(fn, {id(fn)})
    if not way:
        return f"{name_of(fn)} cannot be pickled: {error}"
    (name, part), through = way[-1], [name for name, _ in way[:-1] if name != "self"]
    by = f" through {_quoted(through)}" if through else ""
    reason = "" if type(part).__name__ in str(error) else f" ({error})"
    return (
        f"{name_of(fn)} uses '{name}' ({_kind(part)}){by}, which cannot be pickled{reason}; "
        "create it inside the function"
    )


def _too_big(fn: Any) -> str:
    parts = [(size, name, part) for name, part in _references.uses(fn) if (size := _size(part)) is not None]
    text = f"{name_of(fn)} and the variables it uses exceed {LIMIT >> 20} MB when pickled"
    if parts:
        size, name, part = max(parts, key=lambda p: p[0])
        text += f": '{name}' ({_kind(part)}) alone is {size / (1 << 20):.0f} MB"
    return f"{text}; load it inside the function"


def pickled(fn: Callable[..., Any]) -> bytes:
    file = _Bounded()
    try:
        _dump(fn, file)
    except _TooBig:
        raise Error(_too_big(fn)) from None
    except Exception as error:  # __reduce__ may raise anything
        raise Error(_why_not(fn, error)) from error
    return file.getvalue()


# ---- the bundle ------------------------------------------------------------------------


def search_path() -> list[str]:
    """sys.path with absolute paths, for a process that may start in another directory."""
    return list(dict.fromkeys(os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)))


def make(
    fn: Callable[..., Any], metric: str | None, direction: str, optional: bool, ranks: bool = False,
    preload: list[str] | None = None, stated: bool = True, launch: bool = False,
) -> bytes:  # fmt: skip
    """With `ranks` the function is called without hyperparameters, and its return value is stored.

    `stated` and `launch` are those of outcome.Expected.
    """
    head = {
        "name": name_of(fn),
        "path": search_path(),
        "python": sys.version.partition(" ")[0],
        "preload": _references.preload(fn) if preload is None else preload,
        "sources": _references.sources(fn),
        "compat": _package_aliases.is_compat_imported(),
        "metric": metric,
        "direction": direction,
        "optional": optional,
        "ranks": ranks,
        "stated": stated,
        "launch": launch,
    }
    return json.dumps(head).encode() + b"\n" + pickled(fn)
