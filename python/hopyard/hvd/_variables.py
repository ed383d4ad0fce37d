# SPDX-License-Identifier: Apache-2.0
"""The variables of models and optimizers, for all versions of Keras."""

from collections.abc import Sequence
from typing import Any


def of_optimizer(optimizer: Any) -> list[Any]:
    """The variables: a list, a method, or a callable list, depending on Keras."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Creates the variables of the optimizer's first step, so that all ranks have the same."""
    if hasattr(optimizer, "_create_all_weights"):  # an optimizer of Keras before 2.11
        optimizer._create_all_weights(variables)
    elif not getattr(optimizer, "built", False) and not getattr(optimizer, "_built", False):
        optimizer.build(variables)
