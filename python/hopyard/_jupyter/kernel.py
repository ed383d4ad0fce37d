# SPDX-License-Identifier: Apache-2.0
"""An extension of IPython for kernels of `hopyard notebook`: `hops`, `horovod` and `tensorflowonspark` can be
imported, and `spark` and `sc` exist.

The SparkSession is created by the first cell that uses it: a kernel starts without a JVM, and does not occupy a
cluster's executors until then.
"""

import ast
import re
import symtable
import sys
from collections.abc import Iterator
from typing import Any

from .._base.errors import Error
from .._code.package_aliases import import_compat
from . import session as _session

NAMES = {"spark", "sc"}
BUILDERS = {"SparkSession"}  # its getOrCreate() returns the kernel's session
MAGICS = {"run_cell_magic", "run_line_magic"}  # their code is a string
IN_TEXT = re.compile(r"\b(spark|sc|SparkSession)\b")


def load_ipython_extension(shell: Any) -> None:
    import_compat()
    _SparkOnDemand(shell)


class _SparkOnDemand:
    """Defines `spark` and `sc` before the first cell that reads them."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        shell.events.register("pre_run_cell", self._before_cell)

    def _before_cell(self, info: Any) -> None:
        used = names_read(self._shell.transform_cell(info.raw_cell or ""))
        if not (used - self._shell.user_ns.keys()) & NAMES and not used & BUILDERS:
            return
        try:
            spark = _session.get()
        except Error as error:  # the cell runs anyway, and fails where it uses the name
            print(f"hopyard: {error}", file=sys.stderr)
            return
        self._shell.push({"spark": spark, "sc": spark.sparkContext}, interactive=False)
        self._shell.events.unregister("pre_run_cell", self._before_cell)


def names_read(code: str) -> set[str]:
    """Which of the names a cell reads as global variables; a cell that is not Python reads none."""
    try:
        tree, symbols = ast.parse(code), symtable.symtable(code, "cell", "exec")
    except (SyntaxError, ValueError):
        return set()
    found = set(_globals_read(symbols))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found |= {node.attr} & BUILDERS
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAGICS:
            found |= {name for text in _strings(node) for name in IN_TEXT.findall(text)}
    return found & (NAMES | BUILDERS)


def _globals_read(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals_read(inner)


def _strings(call: ast.Call) -> list[str]:
    return [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
