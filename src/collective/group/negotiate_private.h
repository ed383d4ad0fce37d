/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The council's inside.
 *
 *   negotiate.c   what ranks say, and what follows
 *   mismatch.c    two ranks ask for different things under one name
 *   deadlock.c    what nobody will ever complete, and who takes his time
 */
#ifndef HY_COLLECTIVE_NEGOTIATE_PRIVATE_H
#define HY_COLLECTIVE_NEGOTIATE_PRIVATE_H

#include <stdbool.h>

#include "base/list.h"
#include "base/map.h"
#include "collective/group/negotiate.h"

struct negotiator_rank {
    bool waits, joined, left;
    bool can_progress; /* hopeless.c: it may yet ask for something */
};

struct negotiator_set {
    unsigned count;     /* 0: not in use */
    unsigned *members;  /* ranks, ascending */
};

/* Something that at least one rank has asked for and that is not over. */
struct pending_request {
    struct hy_list link; /* in the order in which they came up */
    uint64_t key;
    uint32_t id;         /* 0: it has no number */
    bool in_full;        /* somebody does not know the number */
    const Hy__Ask *ask;  /* as its first rank said it */
    Hy__Ask *own;        /* ... if that is ours to free */
    unsigned first;      /* that rank */
    bool *asked;         /* by index in the set */
    unsigned asked_count;
    int64_t *table;      /* Run.table; NULL: it needs none */
    size_t table_width;  /* of it for each member */
    int refused;         /* -Exxx; those who ask later hear it too */
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
    struct hy_map known_keys;  /* key -> id: which names have a number */
    struct hy_map seen_keys;   /* names that have been before, or some of them */
    unsigned last_joined;
};

/* Does `rank`'s ask differ from the matter's? Then true, and a sentence that names both ranks. */
bool hy_negotiator_is_mismatch(const struct pending_request *m, unsigned rank, const Hy__Ask *ask, struct hy_err *ret);
/* Are the asks the same in all that an id stands for? */
bool hy_negotiator_is_same(const Hy__Ask *a, const Hy__Ask *b);

/* Whether member `index` has asked, or need not any more. */
bool hy_negotiator_is_ready(const struct hy_negotiator *c, const struct pending_request *m, unsigned index);
void hy_negotiator_remove(struct hy_negotiator *c, struct pending_request *m);
/* Tells all who have asked that it will not happen, and remembers it for the others. -ENOMEM is swallowed in `why`. */
void hy_negotiator_refuse(struct hy_negotiator *c, struct pending_request *m, int code, const char *why);

const char *hy_kind_name(uint32_t kind); /* "allreduce" */
/* Writes "1, 3 and 4" (or "1, 3, ... and 12 more"): the members that are ready or, with ready false, are not. */
void hy_negotiator_list_ranks(const struct hy_negotiator *c, const struct pending_request *m, bool ready, char *text, size_t size);

#endif
