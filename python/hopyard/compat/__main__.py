# SPDX-License-Identifier: Apache-2.0
"""`python -m hopyard.compat script.py ARGS…`: runs a script with hopyard's `hops` and `horovod`."""

import io
import os
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType


def _main_module(path: str) -> ModuleType:
    """An empty `__main__`. It stays until the process ends, since exit handlers and pickles use it."""
    module = ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = SourceFileLoader("__main__", path)
    module.__dict__.update(__builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = module
    return module


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def run(script: str) -> None:
    path = os.path.abspath(script)
    module = _main_module(path)
    try:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except Exception as error:
        error.__traceback__ = _without_us(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m hopyard.compat SCRIPT [ARGUMENTS…]")
    if not os.path.isfile(sys.argv[1]):
        sys.exit(f"python -m hopyard.compat: there is no file '{sys.argv[1]}'")
    del sys.argv[0]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
    run(sys.argv[0])


if __name__ == "__main__":
    main()
