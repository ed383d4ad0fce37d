/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind comm.h share: the communicator, and how a set lies on its hosts. */
#ifndef HY_COLLECTIVE_COMM_PRIVATE_H
#define HY_COLLECTIVE_COMM_PRIVATE_H

#include "collective/comm/comm.h"

/* Bytes between us and one other rank that are on their way: not taken yet by the pipe, not asked for yet. */
struct control_channel {
    struct hy_buf out, in;
    bool dropped; /* it has left in order */
};

struct hy_comm {
    unsigned rank, size;
    unsigned *host, *local; /* by rank */
    unsigned *local_sizes;  /* by host */
    unsigned host_count;
    struct hy_waiter waiter;
    struct hy_shm *shm;    /* NULL: we are alone on our host */
    struct hy_mesh *mesh;  /* NULL: there is one host */
    struct control_channel *channels; /* by rank; but for rank 0 itself only that with rank 0 is used */
};

/*
 * Members have an index in the set (their order by rank), and a place among
 * those of their host. Hosts are those with members in the set, in the order of
 * their first members; members of a host need not be neighbours.
 *
 * Members with the same place < lanes on all hosts are a lane: what goes
 * between hosts goes within lanes, all of them at once.
 */
struct hy_set {
    struct hy_comm *comm;
    struct hy_shm_set *shm; /* NULL: no other member is on our host */
    unsigned count, index;
    unsigned host_count, here, place; /* which of the hosts is ours; our place there */
    unsigned lanes;                   /* as many as the smallest host has members */
    unsigned *members;                /* ranks, by index */
    unsigned *host_of, *place_of;     /* by index */
    unsigned *by_host;                /* indices, host by host, in the order of their places */
    unsigned *first_of, *count_of;    /* by host: where in by_host, how many */
    unsigned *lane;                   /* indices of the members of our lane, ascending; if place < lanes */
    unsigned *peers;                  /* room for as many ranks as there are hosts */
};

/* The member at that place of a host, which is one of the set's. */
static inline unsigned hy_set_at(const struct hy_set *s, unsigned host, unsigned place)
{
    return s->by_host[s->first_of[host] + place];
}

/* Whether the members of a host are next to each other in the set, as they are unless some were replaced. */
static inline bool hy_set_is_contiguous(const struct hy_set *s, unsigned host)
{
    return hy_set_at(s, host, s->count_of[host] - 1) - hy_set_at(s, host, 0) == s->count_of[host] - 1;
}

static inline bool hy_set_is_in_lane(const struct hy_set *s)
{
    return s->place < s->lanes;
}

/* Makes rc < 0 the communicator's error, unless there is one already that says more. Returns rc. */
int hy_comm_result(struct hy_comm *c, int rc);

/*
 * Pairs: member i sends bytes[i] bytes to partners[i], whose partner it is; one that is its own partner sends
 * nothing. Every member calls it with the same partners and bytes.
 */
int hy_set_swap(struct hy_set *s, const unsigned *partners, const size_t *bytes, const void *sent,
                void *received);

#endif
