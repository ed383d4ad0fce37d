# SPDX-License-Identifier: Apache-2.0
"""Helpers of TensorFlowOnSpark."""

import os
import socket
from collections.abc import Sequence

from . import gpu_info

__all__ = ["find_in_path", "get_ip_address", "read_executor_id", "single_node_env", "write_executor_id"]


def single_node_env(num_gpus: int = 1, worker_index: int = -1, nodes: Sequence[str] = ()) -> None:
    """Sets the visible GPUs of a process that uses TensorFlow alone, for example in a Spark task."""
    here = [i for i, node in enumerate(nodes) if node == nodes[worker_index]] if 0 <= worker_index < len(nodes) else []
    place = here.index(worker_index) if here else worker_index
    has_gpus = num_gpus > 0 and gpu_info.is_gpu_available()
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu_info.get_gpus(num_gpus, place)) if has_gpus else ""


def get_ip_address() -> str:
    """The address at which other machines reach this one: that of the default route, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 9))  # nothing is sent
            return str(way.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def find_in_path(path: str, file: str) -> str | bool:
    """The first file of that name in the directories of `path`; False if no directory has it."""
    candidates = (os.path.join(folder, file) for folder in path.split(os.pathsep))
    return next((name for name in candidates if os.path.isfile(name)), False)


def write_executor_id(num: int) -> None:
    """Writes to the current directory, which belongs to one executor."""
    with open("executor_id", "w") as file:
        file.write(str(num))


def read_executor_id() -> int | None:
    try:
        with open("executor_id") as file:
            return int(file.read())
    except FileNotFoundError:
        return None
