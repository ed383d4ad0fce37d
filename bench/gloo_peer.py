# SPDX-License-Identifier: Apache-2.0
"""Gloo's allreduce (PyTorch's CPU build), by the loop of allreduce_loop.h.

    /usr/bin/python3 bench/gloo_peer.py RANKS BATCHES SIZES      "BYTES SECONDS", a line for each batch
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

BYTES_PER_BATCH = 192 << 20
TURNS_MIN, TURNS_MAX = 4, 1000  # fewer than in C: a turn takes longer


def time_size(rank: int, ranks: int, batches: int, size: int) -> None:
    tensor = torch.zeros(size // 4, dtype=torch.float32)
    turns = min(max(BYTES_PER_BATCH // size * 2 // ranks, TURNS_MIN), TURNS_MAX)
    for _ in range(turns // 8 + 2):
        dist.all_reduce(tensor)
    for _ in range(batches):
        dist.barrier()
        begin = time.monotonic()
        for _ in range(turns):
            dist.all_reduce(tensor)
        dist.barrier()
        if rank == 0:
            print(f"{size} {(time.monotonic() - begin) / turns:.9f}", flush=True)


def be_rank(rank: int, ranks: int, batches: int, sizes: list[int], meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    for size in sizes:
        time_size(rank, ranks, batches, size)
    dist.destroy_process_group()


def main() -> int:
    ranks, batches, sizes = int(sys.argv[1]), int(sys.argv[2]), [int(n) for n in sys.argv[3].split(",")]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                be_rank(rank, ranks, batches, sizes, os.path.join(folder, "meeting"))
                sys.stdout.flush()
                os._exit(0)
            children.append(pid)
        for pid in children:
            failed |= os.waitpid(pid, 0)[1] != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
