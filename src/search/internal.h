/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to search: what a kind of search is, seen by search.c.
 *
 * search.c numbers the trials, knows which are open, and turns values into
 * costs (less is better, what failed is infinite). A kind only says where the
 * next trial is and learns from what it came to.
 */
#ifndef HY_SEARCH_INTERNAL_H
#define HY_SEARCH_INTERNAL_H

#include "base/map.h"
#include "search/search.h"

struct hy_search;

struct hy_search_ops {
    /* Checks the settings, fills s->total and s->state. 0, -EINVAL or -ENOMEM. */
    int (*init)(struct hy_search *s, struct hy_err *err);
    void (*done)(struct hy_search *s); /* also after an init that failed */
    /*
     * Fills `values` and the ticket that tell and drop will get; not NULL.
     * Changes nothing: what was asked counts only once search.c has noted it.
     * 1, 0 (wait for a tell) or -ENOMEM.
     */
    int (*ask)(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket);
    /* Takes the ticket. */
    void (*tell)(struct hy_search *s, void *ticket, double cost);
    void (*drop)(void *ticket);
};

struct hy_search {
    const struct hy_search_ops *ops;
    struct hy_space space;
    struct hy_search_settings settings;
    uint64_t total;     /* UINT64_MAX: without end */
    uint64_t asked;     /* trials 1..asked were given out */
    struct hy_map open; /* number -> ticket: asked for, not yet told */
    void *state;        /* the kind's own */
};

extern const struct hy_search_ops hy_grid_ops, hy_paired_ops, hy_random_ops, hy_evolve_ops;

/* Kinds that remember nothing, and the ticket of their trials. */
extern char hy_plain_ticket;
void hy_plain_done(struct hy_search *s);
void hy_plain_tell(struct hy_search *s, void *ticket, double cost);
void hy_plain_drop(void *ticket);

#endif
