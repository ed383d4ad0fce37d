/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the communicator: the channels, and how the members of a set are distributed over hosts. */
#ifndef HY_COLLECTIVE_COMM_PRIVATE_H
#define HY_COLLECTIVE_COMM_PRIVATE_H

#include "collective/comm/comm.h"

/* The control channel with one other rank: data that the pipe has not accepted, or the caller has not received. */
struct control_channel {
    struct hy_buf out, in;
    bool dropped; /* the rank has left in order */
};

struct hy_comm {
    unsigned rank, size;
    unsigned *host, *local; /* by rank */
    unsigned *local_sizes;  /* by host */
    unsigned host_count;
    struct hy_waiter waiter;
    struct hy_shm *shm;    /* NULL: the only rank of this host */
    struct hy_mesh *mesh;  /* NULL: a single host */
    struct control_channel *channels; /* by rank; ranks other than 0 use only the one with rank 0 */
};

/*
 * A member has an index in the set (in order of rank) and a place among the members of its host. Hosts are numbered in
 * the order of their first members; members of a host need not be contiguous.
 *
 * Members with the same place < lanes on all hosts form a lane. Communication between hosts stays within lanes, and all
 * lanes work at the same time.
 */
struct hy_set {
    struct hy_comm *comm;
    struct hy_shm_set *shm; /* NULL: no other member on this host */
    unsigned count, index;
    unsigned host_count, here, place; /* number of this host; place of this rank there */
    unsigned lanes;                   /* the number of members of the smallest host */
    unsigned *members;                /* ranks, by index */
    unsigned *host_of, *place_of;     /* by index */
    unsigned *by_host;                /* indices, by host, in order of place */
    unsigned *first_of, *count_of;    /* by host: start in by_host, count */
    unsigned *lane; /* indices of the members of the lane of this rank, ascending; if place < lanes */
    unsigned *peers; /* scratch: one rank per host */
};

/* The member at that place of a host. */
static inline unsigned hy_set_at(const struct hy_set *s, unsigned host, unsigned place)
{
    return s->by_host[s->first_of[host] + place];
}

/* Whether the indices of a host's members are contiguous, as they are unless ranks were replaced. */
static inline bool hy_set_is_contiguous(const struct hy_set *s, unsigned host)
{
    return hy_set_at(s, host, s->count_of[host] - 1) - hy_set_at(s, host, 0) == s->count_of[host] - 1;
}

static inline bool hy_set_is_in_lane(const struct hy_set *s)
{
    return s->place < s->lanes;
}

/* Makes rc < 0 the communicator's error, unless it has one already. Returns rc. */
int hy_comm_result(struct hy_comm *c, int rc);

/*
 * Pairwise exchange: member i sends bytes[i] bytes to partners[i], whose partner is i; a member that is its own partner
 * sends nothing. Every member calls it with the same partners and bytes.
 */
int hy_set_swap(struct hy_set *s, const unsigned *partners, const size_t *bytes, const void *sent, void *received);

#endif
