/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous of ranks that mpirun or srun has started on one machine: what
 * driver and agent are to the ranks of `hopyard train`. A thread of rank 0.
 */
#ifndef HY_COLLECTIVE_RANK_SERVER_H
#define HY_COLLECTIVE_RANK_SERVER_H

#include "base/err.h"

/* Listens at `path`, for so many ranks, until this process ends. A second call does nothing. 0 or -Exxx. */
int hy_rank_server_start(const char *path, unsigned size, struct hy_err *err);

#endif
