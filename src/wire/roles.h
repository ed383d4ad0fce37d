/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which trial of a cluster is which node. Trials are numbered from 1, role by
 * role, in the order of the run's roles. Chief (or master) and workers compute:
 * they are the ranks of the cluster's group, and when they are done the other
 * nodes are no longer needed.
 *
 * A training without roles only has ranks.
 */
#ifndef HY_WIRE_ROLES_H
#define HY_WIRE_ROLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hopyard.pb-c.h"

#define HY_NODE_NAME_MAX 32

struct hy_node {
    const char *role; /* NULL: not a node of a cluster */
    uint32_t index;   /* in its role */
};

static inline bool hy_spec_is_cluster(const Hy__RunSpec *spec)
{
    return spec->n_roles > 0;
}

struct hy_node hy_node_of(const Hy__RunSpec *spec, uint64_t number);
/* "worker-0", as in the name of its directory; its rank, as "3", in a run without roles. */
const char *hy_node_name(const Hy__RunSpec *spec, uint64_t number, char buffer[HY_NODE_NAME_MAX]);

bool hy_role_has_rank(const char *role);
bool hy_node_has_rank(const Hy__RunSpec *spec, uint64_t number);
/* A parameter server, which does not compute and gets no GPU. */
bool hy_node_is_server(const Hy__RunSpec *spec, uint64_t number);
uint32_t hy_spec_servers(const Hy__RunSpec *spec);
uint32_t hy_spec_ranks(const Hy__RunSpec *spec);
/* Its initial rank; for a node without a rank, the next one. */
uint32_t hy_node_rank(const Hy__RunSpec *spec, uint64_t number);

#endif
