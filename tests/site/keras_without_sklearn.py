# SPDX-License-Identifier: Apache-2.0
"""Keras does not import scikit-learn for its wrappers, which no test uses: a quarter of the time that TensorFlow takes.

Imported by each Python of the tests, from a .pth file. Others import scikit-learn as always.
"""
from __future__ import annotations

import sys

WRAPPERS = ("keras.src.wrappers.fixes", "keras.src.wrappers.sklearn_wrapper")


class Finder:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "sklearn" and any(is_importing(wrapper) for wrapper in WRAPPERS):
            raise ModuleNotFoundError("Keras runs without scikit-learn in tests", name=name)


def is_importing(name: str) -> bool:
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
