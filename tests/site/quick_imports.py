# SPDX-License-Identifier: Apache-2.0
"""A process with TensorFlow takes half of the CPU time to start and to exit. Each Python of the tests loads this from a
.pth file.

Keras does not import packages for its adapters and galleries of pictures, TensorFlow's old Keras not SciPy, which no
test uses there, and jsonschema none that checks internationalized addresses: others import them as always. The garbage
collector runs rarely: while modules are imported it finds nothing.
At exit it does not run at all (a third of the time): an interpreter that exits destroys its modules anyway.
"""
from __future__ import annotations

import atexit
import gc
import sys

# Package: the modules that run without it.
OPTIONAL = {
    "sklearn": ("keras.src.wrappers.fixes", "keras.src.wrappers.sklearn_wrapper"),
    "pandas": ("keras.src.trainers.data_adapters.array_slicing", "tf_keras.src.engine.data_adapter"),
    "IPython": ("keras.src.saving.file_editor",),
    "matplotlib": ("keras.src.saving.file_editor", "keras.src.visualization.plot_bounding_box_gallery",
                   "keras.src.visualization.plot_image_gallery"),
    "scipy": ("tensorflow.python.keras.engine.training_arrays_v1", "tensorflow.python.keras.engine.training_v1"),
    "rfc3987_syntax": ("jsonschema._format",),
}


class Finder:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if any(is_importing(module) for module in OPTIONAL.get(name, ())):
            raise ModuleNotFoundError(f"{name} is not imported for this module in tests", name=name)


def is_importing(name: str) -> bool:
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
gc.set_threshold(200_000, 20, 20)
atexit.register(gc.freeze)  # the first to be registered runs last
