# SPDX-License-Identifier: Apache-2.0
"""The key of a standby agent: what a run must have in common with the previous one to use the same fork server.

After a run, the agent of this machine waits some minutes for the next run of this process, with its modules imported.
It is reused only if a new one would be identical.
"""

import hashlib
import importlib.util
import json
import os
import resource
import sys
from collections.abc import Iterable
from typing import Any

# Variables that modules read when they are imported, and those that the agent reads.
_PREFIXES = (
    "CUDA_", "DYLD_", "GLIBC_", "HOPYARD_", "JAX_", "KERAS_", "KMP_", "LD_", "MALLOC_", "MKL_", "NCCL_", "NVIDIA_",
    "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "TF_", "TORCH_", "XDG_", "XLA_",
)  # fmt: skip
_NAMES = ("HOME", "PATH", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX")
_LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]


def _stamp(path: str | None) -> list[Any]:
    """A value that changes when the file changes."""
    try:
        about = os.stat(path) if path else None
    except OSError:
        about = None
    return [path, about and [about.st_mtime_ns, about.st_size, about.st_ino]]


def _file_of(name: str) -> str | None:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if spec is None and module is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):  # the trial reports it
            return None
    return getattr(spec, "origin", None) or getattr(module, "__file__", None)


def _places(path: Iterable[str]) -> list[str]:
    """Directories of installed packages, which change with every installation."""
    return [entry for entry in path if os.path.basename(entry) in ("site-packages", "dist-packages")]


def _process() -> list[str]:
    """Process attributes that an agent inherits."""
    with open("/proc/self/status") as file:
        return [line for line in file if line.startswith(("Umask:", "Uid:", "Gid:", "Groups:", "Cpus_allowed:", "Cap"))]


def key(bundle: bytes) -> str:
    head = json.loads(bundle[: bundle.index(b"\n")])
    environment = sorted(
        (name, value) for name, value in os.environ.items() if name in _NAMES or name.startswith(_PREFIXES)
    )
    made_from = [
        sys.executable, sys.version, head["path"], head["preload"], head["compat"], head["ranks"],
        [_stamp(_file_of(name)) for name in head["preload"]],
        [_stamp(place) for place in _places(head["path"])],
        environment, _process(), os.getpriority(os.PRIO_PROCESS, 0), os.getcwd(),
        [resource.getrlimit(getattr(resource, name)) for name in _LIMITS],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:32]


def key_of(bundle: bytes) -> str:
    """"": the run has no standby agent. One inside a trial has none: it would end with the trial."""
    return "" if "HOPYARD_AGENT" in os.environ else key(bundle)
