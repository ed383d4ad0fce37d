# SPDX-License-Identifier: Apache-2.0
"""What an agent starts for a run of a Python function.

python -m hopyard._trial            a trial, in a fresh interpreter
python -m hopyard._trial --serve    a process with all modules imported, which forks trials

Both find what they need in the environment. This is their __main__, in which they look for nothing else.
"""

import sys

from .. import _hopyard
from . import runner as _runner


def main() -> None:
    bundle: _runner.Bundle | None
    if sys.argv[1:] == ["--serve"]:
        from . import fork_server as _fork_server

        bundle = _fork_server.serve()
    else:
        bundle = _runner.read_bundle()
        _runner.set_path(bundle)
    if bundle is None:
        _hopyard.leave(0)  # at once: threads that modules have left running are nobody's here
    _runner.end(_runner.run(bundle))


if __name__ == "__main__":
    main()
