# SPDX-License-Identifier: Apache-2.0
"""Runs a notebook without Jupyter: its code cells, in order, in this process."""

import ast
import json
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType

from .._base.errors import Error
from . import references as _references

Transform = Callable[[str], str]


def read(path: str | os.PathLike[str]) -> list[str]:
    """The sources of its code cells."""
    try:
        with open(path, encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    except OSError as error:
        raise Error(f"cannot read the notebook '{os.fspath(path)}': {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise Error(
            f"'{os.fspath(path)}' is not a notebook of format 4; convert it with `jupyter nbconvert --to notebook`"
        ) from None
    return [source if isinstance(source, str) else "".join(source) for source in code]


def _transform() -> Transform:
    """IPython's translation of magics and shell commands; without IPython a cell must be plain Python."""
    try:
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError:
        return lambda source: source
    return TransformerManager().transform_cell  # type: ignore[no-any-return]


def code(path: str | os.PathLike[str]) -> str:
    """Its code cells as one program."""
    return "\n\n".join(map(_transform(), read(path)))


def preload(cells: Sequence[str]) -> list[str]:
    """The installed modules that the cells import."""
    transform = _transform()
    found: dict[str, None] = {}
    for cell in cells:
        try:
            found.update(dict.fromkeys(_references.preload_code(compile(transform(cell), "<cell>", "exec"))))
        except SyntaxError:  # the rank reports it, with its position
            continue
    return list(found)


# ---- in the rank ------------------------------------------------------------------------------


def _main_module() -> ModuleType:
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        from IPython.display import display
    except ImportError:
        display = print
    module.__dict__.update(__builtins__=__builtins__, display=display)
    return module


def _shell(module: ModuleType) -> None:
    """The shell that magics need: get_ipython() of these cells. It keeps no history."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config({"HistoryManager": {"enabled": False}, "InteractiveShell": {"colors": "nocolor"}})
    shell = InteractiveShell.instance(config=config, user_module=module, user_ns=module.__dict__)
    module.__dict__["get_ipython"] = lambda: shell


def _compiled(source: str, file: str) -> list[CodeType]:
    """The value of a last expression is displayed, as in a notebook."""
    tree = ast.parse(source, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    codes = [compile(tree, file, "exec")]
    if last is not None and not source.rstrip().endswith(";"):
        codes.append(compile(ast.Interactive([last]), file, "single"))
    elif last is not None:
        codes.append(compile(ast.Module([last], []), file, "exec"))
    return codes


def _run(source: str, file: str, module: ModuleType) -> None:
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    if "get_ipython()" in source and "get_ipython" not in module.__dict__:
        _shell(module)
    for code in _compiled(source, file):
        exec(code, module.__dict__)


def execute(name: str, cells: Sequence[str]) -> None:
    """Runs the cells. An error names its cell; the traceback shows its lines."""
    transform, module = _transform(), _main_module()
    for number, cell in enumerate(cells, 1):
        try:
            _run(transform(cell), f"<{name}, cell {number}>", module)
        except Exception as error:
            text = " ".join(str(error).split())
            raise Error(f"cell {number} of {name}: {type(error).__name__}: {text}") from error
