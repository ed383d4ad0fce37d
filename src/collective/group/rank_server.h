/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous server for ranks started by mpirun or srun: a thread of rank 0, in place of the driver and the agents
 * of `hopyard train`.
 */
#ifndef HY_COLLECTIVE_RANK_SERVER_H
#define HY_COLLECTIVE_RANK_SERVER_H

#include "base/err.h"
#include "collective/group/endpoint.h"

/*
 * Listens at `path` for `size` ranks until this process exits; with `ret_endpoint` also for ranks on other machines, at
 * the returned endpoint. A second call does nothing. 0 or -Exxx.
 */
int hy_rank_server_start(const char *path, unsigned size, struct hy_endpoint *ret_endpoint, struct hy_err *err);

#endif
