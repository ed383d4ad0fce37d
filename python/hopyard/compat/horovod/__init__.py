# SPDX-License-Identifier: Apache-2.0
"""The API of Horovod 0.28.1, on hopyard. docs/horovod.md lists every name."""

from .runner import run as run

__version__ = "0.28.1"
