/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The population of differential evolution, and how a child is made from it;
 * private to this part.
 *
 * A gene is in [0, 1] and maps to a value of its dimension (scale.h). A slot is
 * empty until the first child is accepted in it.
 */
#ifndef HY_SEARCH_POPULATION_H
#define HY_SEARCH_POPULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "search/search.h"

/* A child needs its parent and three others. */
#define HY_POPULATION_MIN 4

struct hy_population {
    const struct hy_space *space;
    uint32_t size;    /* slots */
    uint32_t filled;  /* slots that are not empty */
    double *genes;    /* size * space->count; of an empty slot: free for the owner's use */
    double *cost;     /* NAN: empty */
    uint32_t *ranked; /* the filled slots, the best first; of equals the lower slot */
};

int hy_population_init(struct hy_population *p, const struct hy_space *space, uint32_t size); /* 0, -ENOMEM */
void hy_population_done(struct hy_population *p);

static inline double *hy_population_genes(const struct hy_population *p, uint32_t slot)
{
    return p->genes + (size_t)slot * p->space->count;
}

static inline bool hy_population_empty(const struct hy_population *p, uint32_t slot)
{
    return p->cost[slot] != p->cost[slot];
}

/* Replaces the slot by a copy of the genes. `cost` is not NAN. */
void hy_population_put(struct hy_population *p, uint32_t slot, const double *genes, double cost);

/* Whether two sets of genes map to the same values, of which `values` are those of `a`. */
bool hy_genes_equal(const struct hy_space *space, const double *a, const struct hy_value *values, const double *b);

/* A Latin hypercube: one point in every n-th of every dimension, combined at random. */
void hy_genes_spread(const struct hy_population *p, struct hy_rng *rng);
void hy_genes_random(const struct hy_space *space, struct hy_rng *rng, double *ret);

/*
 * Makes a child for `slot` from a population with at least HY_POPULATION_MIN
 * filled slots. `mutation` and `crossover` may be NAN: the strategy's default.
 */
void hy_genes_vary(const struct hy_population *p, const struct hy_search_settings *settings, uint32_t slot,
                   struct hy_rng *rng, double *ret);

#endif
