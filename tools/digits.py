# SPDX-License-Identifier: Apache-2.0
"""Writes scikit-learn's copy of the 8×8 handwritten digits as a CSV file.

One row per digit: `train` or `test`, the label, and 64 pixels from 0 to 16.
Every fifth row is for testing, so that the split is the same everywhere.
"""

import os
import sys

from sklearn.datasets import load_digits


def main(path: str) -> None:
    digits = load_digits()
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".tmp", "w") as out:
        out.write("set,label," + ",".join(f"p{i}" for i in range(64)) + "\n")
        for i, (pixels, label) in enumerate(zip(digits.data, digits.target)):
            part = "test" if i % 5 == 4 else "train"
            out.write(f"{part},{label}," + ",".join(str(int(p)) for p in pixels) + "\n")
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    main(sys.argv[1])
