# SPDX-License-Identifier: Apache-2.0
"""Creates a SparkSession for one run and supplies it with agents. `hopyard run --engine` starts this program.

    python -m hopyard._spark RUN PROJECT MASTER ADDRESS EXECUTORS MEMORY GPUS
"""

import sys

from .. import spark
from .._run import driver as _driver
from . import session as _session
from . import supplier as _supplier


def main(run: str, project: str, master: str, address: str, *sizes: str) -> int:
    """Creates a session at the master, and supplies the run until its end. `sizes` are the number of executors, their
    memory and their GPUs; 0: not specified."""
    executors, memory, gpus = (int(size) or None for size in sizes)
    conf = {"spark.app.name": f"hopyard run {run}", "spark.ui.showConsoleProgress": "false"}
    try:
        if not _session.default("spark.driver.host"):
            conf["spark.driver.host"] = address
        session = spark.session(master, executors, None, memory, gpus, None, project, conf)
        supplier = _supplier.Supplier(session.sparkContext, int(run), project)
    except Exception as error:  # whatever Spark or Java raise, the run cannot begin
        _refuse(run, project, f"cannot create a Spark session at '{master}': {_supplier.error_text(error)}")
        return 1
    while not supplier.join(_supplier.SETTLE_S):
        continue
    session.stop()
    return 0


def _refuse(run: str, project: str, reason: str) -> None:
    """Reports the reason to the driver, which ends the run."""
    driver = _driver.connect(int(run), project)
    if driver:
        driver.supply("Spark", 0)
        driver.agent_ended(0, reason)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
