# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a process. Nodes get theirs when they start (`gpus=`); programs may also call these functions."""

import os
import subprocess
from collections.abc import Sequence

from hopyard import Error

__all__ = ["AS_LIST", "AS_STRING", "MAX_RETRIES", "get_gpus", "is_gpu_available"]

AS_STRING = "string"
AS_LIST = "list"
MAX_RETRIES = 3  # unused: GPUs are leased, so nothing is retried


def _indices() -> list[str]:
    """The GPUs that this process sees."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if seen is not None:
        return [word for word in seen.split(",") if word and word != "-1"]
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, check=True
        ).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    return said.split()


def is_gpu_available() -> bool:
    return bool(_indices())


def get_gpus(num_gpu: int = 1, worker_index: int = -1, format: str = AS_STRING) -> str | Sequence[str]:  # noqa: A002
    """So many GPUs, starting at a different one for each worker of a machine."""
    found = _indices()
    if len(found) < num_gpu:
        raise Error(
            f"cannot get {num_gpu} GPUs: this process sees {len(found)}; start the cluster with gpus={num_gpu}"
        )
    first = (worker_index * num_gpu) % len(found) if worker_index >= 0 and found else 0
    chosen = [found[(first + i) % len(found)] for i in range(num_gpu)]
    return chosen if format == AS_LIST else ",".join(chosen)
