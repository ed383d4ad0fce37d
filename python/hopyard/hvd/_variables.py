# SPDX-License-Identifier: Apache-2.0
"""The variables of models and optimizers, whichever Keras they are of."""

from collections.abc import Sequence
from typing import Any


def of_optimizer(optimizer: Any) -> list[Any]:
    """A list, a method, or a list that can be called, as the Keras may be."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes what the optimizer would make in its first step, so that all ranks have the same."""
    if hasattr(optimizer, "_create_all_weights"):  # an optimizer of Keras before 2.11
        optimizer._create_all_weights(variables)
    elif not getattr(optimizer, "built", False) and not getattr(optimizer, "_built", False):
        optimizer.build(variables)
