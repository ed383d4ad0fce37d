# SPDX-License-Identifier: Apache-2.0
"""hopyard: runs a program or Python function with many parameter values, in parallel, without losing results."""

import importlib
from typing import Any

from ._base.errors import (
    Error,
    FeedTimeout,
    FileError,
    FileExists,
    FileForbidden,
    FileNotFound,
    GroupError,
    IsFolder,
    NotFolder,
    RunError,
    Stopped,
    TrialsFailed,
)  # fmt: skip
from ._hopyard import version as __version__
from ._trial.report import Decision, report
from .space import choice, integer, log, lognormal, normal, uniform

__all__ = [
    "Decision", "Error", "FeedTimeout", "FileError", "FileExists", "FileForbidden", "FileNotFound", "GroupError",
    "IsFolder", "NotFolder", "RunError", "Stopped", "TrialsFailed", "__version__", "allreduce", "choice", "collective",
    "experiment", "hvd", "integer", "log", "lognormal", "normal", "report", "search", "spark", "stop", "uniform",
]  # fmt: skip

# Imported on first use, so that `import hopyard` stays cheap.
_LATER = ("allreduce", "collective", "experiment", "hvd", "keras", "search", "spark", "stop", "tensorboard")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'hopyard' has no attribute '{name}'")
