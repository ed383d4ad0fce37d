/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which trial of a cluster is which node. Trials are numbered from 1 on, role by
 * role, in the order of the run's roles. Chief (or master) and workers are the
 * ones that compute: they are the ranks of the cluster's group, and when they
 * are done the others have nothing to do any more.
 *
 * A training without roles has ranks only.
 */
#ifndef HY_WIRE_ROLES_H
#define HY_WIRE_ROLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hopyard.pb-c.h"

#define HY_NODE_NAME_MAX 32

struct hy_node {
    const char *role; /* NULL: it is none of a cluster */
    uint32_t index;   /* in its role */
};

static inline bool hy_spec_is_cluster(const Hy__RunSpec *spec)
{
    return spec->n_roles > 0;
}

struct hy_node hy_node_of(const Hy__RunSpec *spec, uint64_t number);
/* "worker-0", as in its folder's name; "3", the number of its rank, where there are no roles. */
const char *hy_node_name(const Hy__RunSpec *spec, uint64_t number, char room[HY_NODE_NAME_MAX]);

bool hy_role_has_rank(const char *role);
bool hy_node_has_rank(const Hy__RunSpec *spec, uint64_t number);
/* A parameter server: it computes nothing, and gets no GPU. */
bool hy_node_is_server(const Hy__RunSpec *spec, uint64_t number);
uint32_t hy_spec_servers(const Hy__RunSpec *spec);
uint32_t hy_spec_ranks(const Hy__RunSpec *spec);
/* The rank that it has from the start; of one that has none, what it would be. */
uint32_t hy_node_rank(const Hy__RunSpec *spec, uint64_t number);

#endif
