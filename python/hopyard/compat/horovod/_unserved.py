# SPDX-License-Identifier: Apache-2.0
"""Frameworks that Horovod supports and hopyard does not."""

from typing import NoReturn


def unserved(module: str, what: str) -> NoReturn:
    raise ImportError(
        f"'{module}' is not served: hopyard's Horovod is for TensorFlow and Keras, not for {what}; see docs/horovod.md",
        name=module,
    )
