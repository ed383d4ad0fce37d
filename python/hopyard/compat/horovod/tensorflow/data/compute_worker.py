# SPDX-License-Identifier: Apache-2.0
"""`horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker FILE`: a data service of four workers."""

import argparse
import os
import secrets

import horovod.tensorflow as hvd
from horovod.tensorflow.data._registry import ComputeService
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn


def _open(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> ComputeService:
    each, key = hvd.size() // dispatchers, secrets.token_bytes(32)
    service = ComputeService(dispatchers, each, key)
    TfDataServiceConfig(dispatchers, each, dispatcher_side, service.addresses(), key, timeout).write(configfile)
    return service


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    hvd.init()
    if dispatchers < 1 or hvd.size() % dispatchers:
        raise ValueError(
            f"Number of processes ({hvd.size()}) must be a multiple of number of dispatchers ({dispatchers})."
        )
    service = _open(dispatchers, dispatcher_side, configfile, timeout) if hvd.rank() == 0 else None
    # Other ranks do not read it from the file, which may be left by an earlier job.
    config = hvd.broadcast_object(TfDataServiceConfig.read(configfile).to_dict() if service else None, root_rank=0)
    try:
        compute_worker_fn(TfDataServiceConfig.from_dict(config))
        hvd.barrier()  # all ranks have been notified
    finally:
        if service is not None:
            os.unlink(configfile)
            service.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m horovod.tensorflow.data.compute_worker")
    parser.add_argument("configfile", help="where to write how the service is reached")
    parser.add_argument(
        "--dispatchers", type=int, default=1, help="how many dispatchers; 1: one for all training ranks"
    )
    parser.add_argument("--dispatcher-side", choices=("compute", "training"), default="compute",
                        help="which job starts the dispatchers")  # fmt: skip
    parser.add_argument("--timeout", type=int, default=60, help="seconds for dispatchers and workers to come")
    given = parser.parse_args()
    main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
