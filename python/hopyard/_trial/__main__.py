# SPDX-License-Identifier: Apache-2.0
"""The program that an agent starts for a run of a Python function.

python -m hopyard._trial            a trial, in a fresh interpreter
python -m hopyard._trial --serve    the fork server: imports all modules and forks trials

Both are configured by environment variables. A run's store has this command, so the module's name is fixed.
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
        _hopyard.leave(0)  # at once, without waiting for threads that modules have left running
    _runner.end(_runner.run(bundle))


if __name__ == "__main__":
    main()
