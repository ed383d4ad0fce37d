# SPDX-License-Identifier: Apache-2.0
"""What an agent starts for a run of a Python function.

python -m hopyard._trial            a trial, in a fresh interpreter
python -m hopyard._trial --serve    a process with all modules imported, which forks trials

Both find what they need in the environment. This is their __main__, in which they look for nothing else.
"""

import sys

from . import _call, _hopyard


def main() -> None:
    bundle: _call.Bundle | None
    if sys.argv[1:] == ["--serve"]:
        from . import _warm

        bundle = _warm.serve()
    else:
        bundle = _call.read_bundle()
        _call.set_path(bundle)
    if bundle is None:
        _hopyard.leave(0)  # at once: threads that modules have left running are nobody's here
    _call.end(_call.run(bundle))


if __name__ == "__main__":
    main()
