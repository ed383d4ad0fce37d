# SPDX-License-Identifier: Apache-2.0
"""Runs a dataset's transformations in other processes, with tf.data's service, found through a config file."""

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow.data._registry import ComputeClient

_service = tf.data.experimental.service


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """The contents of the compute job's config file: its address and key."""

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[tuple[str, int]]]
    key: bytes
    timeout: int = 60

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> "TfDataServiceConfig":
        known = {field.name: config[field.name] for field in dataclasses.fields(TfDataServiceConfig)}
        places = {name: [(host, port) for host, port in each] for name, each in config["addresses"].items()}
        return TfDataServiceConfig(**{**known, "addresses": places, "key": bytes.fromhex(config["key"])})

    def write(self, filename: str) -> None:
        """Writes the file atomically, readable by this user only: its reader can use the service."""
        folder, name = os.path.split(os.path.abspath(filename))
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=f".{name}.", delete=False) as file:
            json.dump(self.to_dict(), file)
        os.rename(file.name, filename)

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> "TfDataServiceConfig":
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(0.2)
        with open(filename) as file:
            return TfDataServiceConfig.from_dict(json.load(file))


def _start_dispatcher(number: int, compute: ComputeClient) -> Any:
    compute.is_running()  # determines its address
    server = _service.DispatchServer()
    protocol, _, where = server.target.partition("://")
    compute.register_dispatcher(number, f"{protocol}://{compute.own_address}:{where.rpartition(':')[2]}")
    return server


def _stop(server: Any) -> None:
    server._stop()  # the public method waits for its clients
    server.join()


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """The address of the dispatcher for a rank of the training, once all its workers have registered."""
    compute = compute_config.compute_client()
    number = rank if compute_config.dispatchers > 1 else 0
    starts = compute_config.dispatcher_side == "training" and rank == number
    server = _start_dispatcher(number, compute) if starts else None
    try:
        address = compute.wait_for_dispatcher_registration(number, compute_config.timeout)
        compute.wait_for_dispatcher_worker_registration(number, compute_config.timeout)
        yield address
    finally:
        if server is not None:
            _stop(server)


def send_to_data_service(
    dataset: tf.data.Dataset, compute_config: TfDataServiceConfig, rank: int, size: int | None = None,
    processing_mode: str = "distributed_epoch", reuse_dataset: bool = False, round_robin: bool = False,
) -> tf.data.Dataset:  # fmt: skip
    """The dataset with its transformations so far executed by the service."""
    if compute_config.dispatcher_side == "training":
        raise RuntimeError("training side dispatcher not supported, use tf_data_service context manager instead")
    takes_turns = reuse_dataset and round_robin
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            _service.distribute(
                processing_mode=processing_mode, service=address, job_name="job" if reuse_dataset else None,
                consumer_index=rank if takes_turns else None, num_consumers=size if takes_turns else None,
            )  # fmt: skip
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Runs a rank of the compute job: it serves until `compute_client().shutdown()` is called."""
    hvd.init()
    each, index = compute_config.workers_per_dispatcher, hvd.rank()
    number = index // each
    compute = compute_config.compute_client()
    starts = compute_config.dispatcher_side == "compute" and index % each == 0
    dispatcher = _start_dispatcher(number, compute) if starts else None
    protocol, _, where = compute.wait_for_dispatcher_registration(number, compute_config.timeout).partition("://")
    worker = _service.WorkerServer(
        _service.WorkerConfig(
            dispatcher_address=where, worker_address=f"{compute.own_address}:%port%", protocol=protocol,
            heartbeat_interval_ms=1000, dispatcher_timeout_ms=compute_config.timeout * 1000,
        )  # fmt: skip
    )
    compute.register_worker_for_dispatcher(number, index)
    compute.wait_for_shutdown()
    _stop(worker)
    if dispatcher is not None:
        _stop(dispatcher)
