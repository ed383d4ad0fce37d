/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between search.c and a kind of search; private to this part.
 *
 * search.c numbers the trials, tracks which are open, and converts values to costs
 * (less is better, a failure is infinite). A kind only proposes the next point and
 * learns from the cost of earlier ones.
 */
#ifndef HY_SEARCH_INTERNAL_H
#define HY_SEARCH_INTERNAL_H

#include "base/map.h"
#include "base/rng.h"
#include "search/search.h"

struct hy_search;

struct hy_search_ops {
    /* Checks the settings, fills s->total and s->state. 0, -EINVAL or -ENOMEM. */
    int (*init)(struct hy_search *s, struct hy_err *err);
    void (*done)(struct hy_search *s); /* also after an init that failed */
    /*
     * Fills `values` and the ticket that tell and drop will get; not NULL.
     * Changes nothing: the ask counts only once search.c has recorded it.
     * 1, 0 (wait for a tell) or -ENOMEM.
     */
    int (*ask)(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket);
    /*
     * The same for a trial that an earlier driver has asked for: takes its values instead of choosing them.
     * 0 or -ENOMEM. NULL: search.c asks again, and compares.
     */
    int (*restore)(struct hy_search *s, uint64_t number, const struct hy_value *values, void **ret_ticket);
    /* Takes the ticket. */
    void (*tell)(struct hy_search *s, void *ticket, double cost);
    void (*drop)(void *ticket);
};

struct hy_search {
    const struct hy_search_ops *ops;
    struct hy_space space;
    struct hy_search_settings settings;
    uint64_t total;     /* UINT64_MAX: unlimited */
    uint64_t asked;     /* trials 1..asked were returned */
    struct hy_map open; /* number -> ticket: asked for, not yet told */
    void *state;        /* private to the kind */
    double *allowed;    /* the units of a point that satisfies the constraints; NULL: there are none */
};

/* For grids and paired lists, which visit every point to check it. */
#define HY_VISITED_MAX 1000000
/* Return -EINVAL with a sentence: there are more; no `points` ("point of the grid") satisfies the constraints. */
int hy_search_too_many(struct hy_err *err);
int hy_search_unsatisfied(const struct hy_space *space, const char *points, struct hy_err *err);

/*
 * A random point that satisfies the constraints: the first of `rng` that does, and of a
 * space without constraints just the first. If they are so hard to satisfy that there is none
 * among many, a point that is known. ret_units may be NULL.
 */
void hy_search_draw(const struct hy_search *s, struct hy_rng *rng, double *ret_units, struct hy_value *ret);

extern const struct hy_search_ops hy_grid_ops, hy_paired_ops, hy_random_ops, hy_evolve_ops, hy_tpe_ops, hy_cma_ops;

/* For kinds without state, and the ticket of their trials. */
extern char hy_stateless_ticket;
void hy_stateless_done(struct hy_search *s);
void hy_stateless_tell(struct hy_search *s, void *ticket, double cost);
void hy_stateless_drop(void *ticket);

#endif
