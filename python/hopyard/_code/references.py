# SPDX-License-Identifier: Apache-2.0
"""What a function refers to: the variables that are pickled with it, and the modules it will import.

Code objects are read; nothing is imported or run.
"""

import dis
import functools
import importlib.util
import linecache
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any


def instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """Including those of nested functions and classes."""
    yield from dis.get_instructions(code)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from instructions(const)


# ---- variables -------------------------------------------------------------------


def _of_function(fn: FunctionType) -> Iterator[tuple[str, Any]]:
    names = dict.fromkeys(i.argval for i in instructions(fn.__code__) if i.opname == "LOAD_GLOBAL")
    yield from ((name, fn.__globals__[name]) for name in names if name in fn.__globals__)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    defaults = fn.__defaults__ or ()
    yield from zip(fn.__code__.co_varnames[fn.__code__.co_argcount - len(defaults) :], defaults)
    yield from (fn.__kwdefaults__ or {}).items()
    yield from vars(fn).items()


def uses(value: Any) -> Iterator[tuple[str, Any]]:
    """The variables that are pickled with a value that is pickled by value: their names and contents."""
    if isinstance(value, FunctionType):
        yield from _of_function(value)
    elif isinstance(value, MethodType):
        yield "self", value.__self__
        yield value.__name__, value.__func__
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__name__, value.__func__
    elif isinstance(value, property):
        yield from ((f.__name__, f) for f in (value.fget, value.fset) if f)
    elif isinstance(value, functools.partial):
        yield getattr(value.func, "__name__", "func"), value.func
        yield from ((f"argument {i}", arg) for i, arg in enumerate(value.args, 1))
        yield from value.keywords.items()
    else:
        if not isinstance(value, type):
            yield type(value).__name__, type(value)
        yield from dict(getattr(value, "__dict__", {})).items()


def owner_of(value: Any) -> Any:
    """The function or class whose __module__ is the origin of a value."""
    return value if isinstance(value, (FunctionType, BuiltinFunctionType, type)) else type(value)


def _in_module(owner: Any) -> Any:
    """The object that its module has under its name."""
    found: Any = sys.modules.get(owner.__module__ or "")
    for part in owner.__qualname__.split("."):
        found = getattr(found, part, None)
    return found


def by_value(value: Any) -> bool:
    """Whether cloudpickle pickles it by value, because the trial cannot import it from a module."""
    if isinstance(value, (MethodType, staticmethod, classmethod, property, functools.partial)):
        return True
    owner = owner_of(value)
    if isinstance(value, (ModuleType, BuiltinFunctionType)):
        return False
    if owner.__module__ == "__main__":
        return True
    if isinstance(owner, type) and _is_foreign(owner.__module__):  # such classes support pickling
        return False
    return _in_module(owner) is not owner


# ---- modules ----------------------------------------------------------------------


def _find(name: str, path: list[str] | None) -> ModuleSpec | None:
    try:
        return PathFinder.find_spec(name, path)
    except KeyError:  # a namespace package: importlib expects its parent in sys.modules
        spec, part = ModuleSpec(name, None), name.rpartition(".")[2]
        folders = (os.path.join(place, part) for place in path or ())
        spec.submodule_search_locations = [folder for folder in folders if os.path.isdir(folder)]
        return spec


def _spec(name: str) -> ModuleSpec | None:
    """The spec of a module, without importing it or its parents."""
    if name in sys.modules:
        return vars(sys.modules[name]).get("__spec__")
    spec: ModuleSpec | None = None
    path: list[str] | None = None
    done = ""
    for part in name.split("."):
        done = f"{done}.{part}" if done else part
        spec = _find(done, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec


def _is_installed(spec: ModuleSpec) -> bool:
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any({"site-packages", "dist-packages"} & set(place.split(os.sep)) for place in places)


def _is_stdlib(name: str | None) -> bool:
    return (name or "builtins").partition(".")[0] in sys.stdlib_module_names


def _is_foreign(name: str | None) -> bool:
    """Whether a module is part of Python or installed, and not one of the user's files."""
    if _is_stdlib(name):
        return True
    spec = _spec(name or "")
    return spec is not None and _is_installed(spec)


def _code_of(spec: ModuleSpec) -> CodeType | None:
    """The code object of a module, which is not run; None without one."""
    try:
        code: CodeType | None = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    except (AttributeError, ImportError, SyntaxError):  # if it matters, the trial reports it
        return None
    return code


def imports(code: CodeType, package: str | None) -> Iterator[str]:
    """The names in its import statements that are or may be modules; `keras` for tf.keras."""
    before: list[Any] = [0, None]  # the operands of the two instructions before: level and members
    for i in instructions(code):
        if i.opname == "EXTENDED_ARG":
            continue
        if i.opname == "IMPORT_NAME" and (package or not before[0]):
            name = importlib.util.resolve_name("." * before[0] + i.argval, package)
            yield name
            yield from (f"{name}.{member}" for member in before[1] or ())
        elif i.argval == "keras" and i.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            yield "keras"
        before = [before[1], i.argval]


class _Walk:
    """Walks values and modules: collects the installed modules they need, and source that is not in a file."""

    def __init__(self, *values: Any) -> None:
        self.found: dict[str, None] = {}
        self.sources: dict[str, str] = {}
        self.values: list[Any] = []  # visited, in order, and kept alive so that no id is reused
        self.ids: set[int] = set()
        self.modules: set[str] = set()
        for value in values:
            self.add(value)
        for value in self.values:  # grows as it goes
            self.visit(value)

    def module(self, name: str) -> None:
        if name in self.modules or name == "__main__" or _is_stdlib(name):
            return
        self.modules.add(name)
        spec = _spec(name)
        if spec is None:
            if name.startswith("horovod."):  # package_aliases serves it in ranks
                self.found[name] = None
            return
        if not _is_installed(spec):
            self.code(_code_of(spec), spec.parent)
            return
        top = name.partition(".")[0]
        # They import their submodules themselves, in the order that they need.
        self.found[top if top in ("tensorflow", "keras") else name] = None

    def code(self, code: CodeType | None, package: str | None) -> None:
        for name in imports(code, package) if code else ():
            self.module(name)

    def source(self, file: str) -> None:
        """Notebooks keep the source of their cells in linecache for tracebacks."""
        if file not in self.sources and not os.path.exists(file) and linecache.getlines(file):
            self.sources[file] = "".join(linecache.getlines(file))

    def add(self, value: Any) -> None:
        if id(value) not in self.ids:
            self.ids.add(id(value))
            self.values.append(value)

    def visit(self, value: Any) -> None:
        if isinstance(value, ModuleType):
            self.module(value.__name__)
            return
        self.module(owner_of(value).__module__ or "builtins")
        if not by_value(value):
            return
        if isinstance(value, FunctionType):
            self.code(value.__code__, value.__globals__.get("__package__"))
            self.source(value.__code__.co_filename)
        for _, part in uses(value):
            self.add(part)


def preload(fn: Any) -> list[str]:
    """The installed modules that a function, and the user's modules that it uses, import.

    Never the user's own modules: importing them may have side effects.
    """
    return list(_Walk(fn).found)


def preload_code(code: CodeType) -> list[str]:
    """The installed modules that code outside of functions imports: a notebook's cell."""
    walk = _Walk()
    walk.code(code, None)
    return list(walk.found)


def sources(fn: Any) -> dict[str, str]:
    """Source of a function that is not in a file: a notebook's cells, by their synthetic file names."""
    return _Walk(fn).sources
