# SPDX-License-Identifier: Apache-2.0
"""Imports TensorFlow and Keras in two thirds of the CPU time. Each Python of the tests loads it from a .pth file.

Keras does not import packages for its adapters, which no test uses: others import them as always. The garbage
collector runs rarely: while modules are imported it finds nothing.
"""
from __future__ import annotations

import gc
import sys

# Package: the modules that run without it.
OPTIONAL = {
    "sklearn": ("keras.src.wrappers.fixes", "keras.src.wrappers.sklearn_wrapper"),
    "pandas": ("keras.src.trainers.data_adapters.array_slicing", "tf_keras.src.engine.data_adapter"),
    "IPython": ("keras.src.saving.file_editor",),
}


class Finder:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if any(is_importing(module) for module in OPTIONAL.get(name, ())):
            raise ModuleNotFoundError(f"Keras runs without {name} in tests", name=name)


def is_importing(name: str) -> bool:
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
gc.set_threshold(50_000, 20, 20)
