# SPDX-License-Identifier: Apache-2.0
"""A rank that adds up arrays of many sizes until it is stopped, or another rank is lost.

    python steps.py FOLDER [STEPS]      writes FOLDER/ready-RANK after the first steps
"""

import random
import sys
import time
from pathlib import Path

import numpy as np

import hopyard
import hopyard.collective as hvd

SIZES = [1, 100, 5000, 70000, 1 << 20]


def main(folder: Path, steps: int) -> None:
    hvd.init()
    same = random.Random(1)  # the same choice on all ranks
    for step in range(steps):
        size = same.choice(SIZES)
        total = hvd.allreduce(np.full(size, hvd.rank() + 1, np.float32), op=hvd.Sum)
        assert total[-1] == hvd.size() * (hvd.size() + 1) / 2
        if step == 5:
            (folder / f"ready-{hvd.rank()}").touch()
    print("all steps done")


try:
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 30)
except hopyard.GroupError as error:
    print(f"{error.kind} {time.time()} {error}", flush=True)
    sys.exit(3)
