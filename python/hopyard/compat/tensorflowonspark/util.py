# SPDX-License-Identifier: Apache-2.0
"""Small helpers, as TensorFlowOnSpark has them."""

import os
import socket
from collections.abc import Sequence

from . import gpu_info

__all__ = ["find_in_path", "get_ip_address", "read_executor_id", "single_node_env", "write_executor_id"]


def single_node_env(num_gpus: int = 1, worker_index: int = -1, nodes: Sequence[str] = ()) -> None:
    """For a process that uses TensorFlow by itself, in a Spark task, say: the GPUs it may see."""
    here = [i for i, node in enumerate(nodes) if node == nodes[worker_index]] if 0 <= worker_index < len(nodes) else []
    place = here.index(worker_index) if here else worker_index
    has_gpus = num_gpus > 0 and gpu_info.is_gpu_available()
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu_info.get_gpus(num_gpus, place)) if has_gpus else ""


def get_ip_address() -> str:
    """At which other machines reach this one: that of the way out, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 9))  # nothing is sent
            return str(way.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def find_in_path(path: str, file: str) -> str | bool:
    """The first of that name in the folders of `path`; False where there is none."""
    candidates = (os.path.join(folder, file) for folder in path.split(os.pathsep))
    return next((name for name in candidates if os.path.isfile(name)), False)


def write_executor_id(num: int) -> None:
    """Into the current folder, an executor's own."""
    with open("executor_id", "w") as file:
        file.write(str(num))


def read_executor_id() -> int | None:
    try:
        with open("executor_id") as file:
            return int(file.read())
    except FileNotFoundError:
        return None
