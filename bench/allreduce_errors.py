# SPDX-License-Identifier: Apache-2.0
"""How soon do the other ranks get the error when a rank is killed, or when ranks request different tensors?

    .venv/bin/python bench/allreduce_errors.py [TIMES]

Three ranks on this machine. A kill is timed from the signal, a mismatch from the last rank's request.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TIMES, LIMIT_S = 15, 2.0
HOPYARD = os.environ.get("HOPYARD_BIN", str(Path(sys.executable).with_name("hopyard")))
# Each rank writes the time of its last request, or of its death, and that of its error. One machine has one such clock.
PROGRAM = """
import json, os, signal, sys, time
import numpy as np
import hopyard
import hopyard.collective as hvd

how, folder = sys.argv[1:]
hvd.init()
rank = hvd.rank()

def keep(**times):
    with open(os.path.join(folder, f"{rank}.json"), "w") as file:
        json.dump(times, file)

for _ in range(50):
    hvd.allreduce(np.ones(1000))
asked = time.monotonic()
keep(asked=asked)
if how == "kill" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        hvd.allreduce(np.ones(1000), name="another" if rank == 1 else "one")
except hopyard.GroupError:
    keep(asked=asked, error=time.monotonic())
"""


def once(how: str) -> float:
    """Seconds until the last of the other ranks has its error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        environment = {**os.environ, "HOPYARD_PROJECT": name, "HOPYARD_PROGRAM": HOPYARD}
        subprocess.run([HOPYARD, "train", "-np", "3", "--", sys.executable, "program.py", how, name], env=environment,
                       cwd=name, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
        times = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(3)]
    begun = times[1]["asked"] if how == "kill" else max(each["asked"] for each in times)
    return max(each["error"] for each in times if "error" in each) - begun


def rows(times: int = TIMES) -> list[dict[str, Any]]:
    found = []
    for how, what in (("kill", "a rank was killed"), ("mismatch", "ranks requested different tensors")):
        seconds = [once(how) for _ in range(times)]
        found.append({"name": f"{what}: the others have the error after, median", "measured": statistics.median(seconds),
                      "unit": "s", "target": LIMIT_S, "less": True, "all": seconds})
        found.append({"name": f"{what}: the same, slowest of {times}", "measured": max(seconds), "unit": "s",
                      "target": LIMIT_S, "less": True})
    return found


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print(f"{row['name']:<70} {row['measured']:.2f} {row['unit']}  (limit {row['target']})")
