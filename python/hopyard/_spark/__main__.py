# SPDX-License-Identifier: Apache-2.0
"""A session of the run's own: `hopyard run --engine` starts this.

    python -m hopyard._spark RUN PROJECT MASTER ADDRESS EXECUTORS MEMORY GPUS
"""

import json
import subprocess
import sys

from .. import spark
from .._run import program as _program
from . import session as _session
from . import supplier as _supplier


def main(run: str, project: str, master: str, address: str, *said: str) -> int:
    """Makes a session there, and supplies the run from it to its end. How many executors, their memory and GPUs: 0 if
    nobody has said it."""
    executors, memory, gpus = (int(word) or None for word in said)
    conf = {"spark.app.name": f"hopyard run {run}", "spark.ui.showConsoleProgress": "false"}
    try:
        if not _session.default("spark.driver.host"):
            conf["spark.driver.host"] = address
        session = spark.session(master, executors, None, memory, gpus, None, project, conf)
        supplier = _supplier._Supplier(session.sparkContext, int(run), project)
    except Exception as error:  # the run cannot begin, whatever Spark or Java have against it
        _refuse(run, project, f"cannot have a Spark session at '{master}': {_supplier._sentence(error)}")
        return 1
    while not supplier.join(_supplier.SETTLE_S):
        continue
    session.stop()
    return 0


def _refuse(run: str, project: str, why: str) -> None:
    """By the driver's own ear; it ends the run."""
    command = _program.command("supply", run, project=project)
    words = [{"offer": 0, "what": "Spark"}, {"over": 0, "why": why}]
    subprocess.run(command, input="".join(json.dumps(word) + "\n" for word in words), text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
