/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous of ranks that mpirun or srun has started: what driver and agent
 * are to the ranks of `hopyard train`. A thread of rank 0.
 */
#ifndef HY_COLLECTIVE_RANK_SERVER_H
#define HY_COLLECTIVE_RANK_SERVER_H

#include "base/err.h"
#include "collective/group/endpoint.h"

/*
 * Listens at `path`, for so many ranks, until this process ends; with `ret_endpoint` for ranks on other machines, too,
 * at what it is set to. A second call does nothing. 0 or -Exxx.
 */
int hy_rank_server_start(const char *path, unsigned size, struct hy_endpoint *ret_endpoint, struct hy_err *err);

#endif
