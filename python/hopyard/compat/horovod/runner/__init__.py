# SPDX-License-Identifier: Apache-2.0
"""horovod.run: runs a function on many ranks, from a process that is not a rank."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hopyard import Error

_UNSERVED = {
    "host_discovery_script": "machines join a training that runs: hopyard train --listen PORT",
    "slots": "write the slots after each host: hosts='a:2,b:2'",
    "ssh_port": "ssh reads its settings from ~/.ssh/config",
    "ssh_identity_file": "ssh reads its settings from ~/.ssh/config",
    "use_mpi": "hopyard has its own transports, and does not use MPI",
    "mpi_args": "hopyard has its own transports, and does not use MPI",
    "executable": "the function runs in the Python of this process",
}
"""Unsupported arguments, and what to do instead."""

_RENAMED = {"np": "num_proc", "min_np": "min_num_proc", "max_np": "max_num_proc"}


def run(
    func: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, num_proc: int = 1,
    min_num_proc: int | None = None, max_num_proc: int | None = None, slots: int | None = None,
    reset_limit: int | None = None, cooldown_range: Any = None, hosts: str | None = None, hostfile: str | None = None,
    host_discovery_script: str | None = None, start_timeout: int | None = None, ssh_port: int | None = None,
    ssh_identity_file: str | None = None, disable_cache: bool | None = None, output_filename: str | None = None,
    verbose: int | None = None, use_gloo: bool | None = None, use_mpi: bool | None = None, mpi_args: Any = None,
    network_interface: str | None = None, network_interfaces: Sequence[str] | None = None,
    executable: str | None = None, np: int | None = None, min_np: int | None = None, max_np: int | None = None,
) -> list[Any]:  # fmt: skip
    """Runs `func(*args, **kwargs)` on all ranks; returns their return values, by rank.

    `cooldown_range`, `start_timeout`, `disable_cache` and `use_gloo` are taken and change nothing.
    """
    given = locals()
    for name, instead in _UNSERVED.items():
        if given[name]:
            raise Error(f"horovod.run does not support {name} here: {instead}")
    for old, new in _RENAMED.items():
        if given[old] is not None:
            warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=2)
    if hosts is not None and hostfile is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    from hopyard import allreduce

    return allreduce.run(
        func, args, kwargs, np=num_proc if np is None else np,
        min_np=min_num_proc if min_np is None else min_np, max_np=max_num_proc if max_np is None else max_np,
        hosts=hosts, hostfile=hostfile, reset_limit=reset_limit, output=output_filename, verbose=bool(verbose),
        interfaces=network_interface or network_interfaces,
    )  # fmt: skip
