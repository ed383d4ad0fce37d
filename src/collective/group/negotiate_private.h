/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the negotiator.
 *
 *   negotiate.c   messages of ranks, and the orders that follow
 *   mismatch.c    requests of the same name that differ between ranks
 *   deadlock.c    deadlocks and stalls
 */
#ifndef HY_COLLECTIVE_NEGOTIATE_PRIVATE_H
#define HY_COLLECTIVE_NEGOTIATE_PRIVATE_H

#include <stdbool.h>

#include "base/list.h"
#include "base/map.h"
#include "collective/group/negotiate.h"

struct negotiator_rank {
    bool waits, joined, left;
    bool can_progress; /* deadlock.c: it can still send requests */
};

struct negotiator_set {
    unsigned count;     /* 0: not in use */
    unsigned *members;  /* ranks, ascending */
};

/* A request that at least one rank has sent and that has not run or been refused on all ranks. */
struct pending_request {
    struct hy_list link; /* in order of arrival */
    uint64_t key;
    uint32_t id;         /* 0: none */
    bool in_full;        /* a rank has sent the full description, so may not have the id */
    const Hy__Ask *ask;  /* as the first rank sent it */
    Hy__Ask *own;        /* the same if it is owned */
    unsigned first;      /* that rank */
    bool *asked;         /* by index in the set */
    unsigned asked_count;
    int64_t *table;      /* Run.table; NULL: not needed */
    size_t table_width;  /* entries for each member */
    int refused;         /* -Exxx; kept for ranks that send the request later */
    uint32_t missed;     /* Refuse.missed */
    char *why;
    int64_t since, deadlocked_since, warn_at, warned_after;
};

struct hy_negotiator {
    unsigned size;
    const struct hy_negotiator_events *events;
    void *arg;
    struct hy_stall_limits stall_limits;
    struct negotiator_rank *ranks;
    struct negotiator_set sets[HY_SETS_MAX];
    struct hy_list pending;
    size_t pending_count;
    struct hy_map by_key;      /* struct matter */
    Hy__Ask *known[HY_NEGOTIATOR_IDS_MAX + 1]; /* by id, from 1 */
    uint32_t known_count;
    struct hy_map known_keys;  /* key -> id */
    struct hy_map seen_keys;   /* names that were seen before, possibly incomplete */
    unsigned last_joined;
};

/* Whether the request of `rank` differs from the pending one; if so, *ret has a message that names both ranks. */
bool hy_negotiator_is_mismatch(const struct pending_request *m, unsigned rank, const Hy__Ask *ask, struct hy_err *ret);
/* Whether two requests are equal in everything that an id represents. */
bool hy_negotiator_is_same(const Hy__Ask *a, const Hy__Ask *b);

/* Whether member `index` has sent the request, or need not because it has joined. */
bool hy_negotiator_is_ready(const struct hy_negotiator *c, const struct pending_request *m, unsigned index);
void hy_negotiator_remove(struct hy_negotiator *c, struct pending_request *m);
/* Refuses the request to all ranks that have sent it, and keeps the refusal for the others. If the message cannot be
 * copied, ranks get a generic one. */
void hy_negotiator_refuse(struct hy_negotiator *c, struct pending_request *m, int code, const char *why);

const char *hy_kind_name(uint32_t kind); /* "allreduce" */
/* Writes "ranks 1, 3 and 4" (or "ranks 1, 3, ... and 12 more"): the members for which is_ready equals `ready`. */
void hy_negotiator_list_ranks(const struct hy_negotiator *c, const struct pending_request *m, bool ready, char *text,
                              size_t size);

#endif
