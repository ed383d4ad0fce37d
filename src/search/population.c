/* SPDX-License-Identifier: Apache-2.0 */
#include "search/population.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "search/scale.h"

int hy_population_init(struct hy_population *p, const struct hy_space *space, uint32_t size)
{
    size_t count;

    *p = (struct hy_population){.space = space, .size = size};
    if (__builtin_mul_overflow((size_t)size, space->count, &count))
        return -ENOMEM;
    p->genes = hy_calloc(count, sizeof *p->genes);
    p->cost = hy_calloc(size, sizeof *p->cost);
    p->ranked = hy_calloc(size, sizeof *p->ranked);
    if (!p->genes || !p->cost || !p->ranked) {
        hy_population_done(p);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < size; i++)
        p->cost[i] = NAN;
    return 0;
}

void hy_population_done(struct hy_population *p)
{
    free(p->genes);
    free(p->cost);
    free(p->ranked);
    *p = (struct hy_population){0};
}

static void unrank(struct hy_population *p, uint32_t slot)
{
    uint32_t at = 0;

    while (p->ranked[at] != slot)
        at++;
    memmove(p->ranked + at, p->ranked + at + 1, (p->filled - at - 1) * sizeof *p->ranked);
    p->filled--;
}

static bool ahead(const struct hy_population *p, uint32_t a, uint32_t b)
{
    return p->cost[a] < p->cost[b] || (p->cost[a] == p->cost[b] && a < b);
}

static void rank(struct hy_population *p, uint32_t slot)
{
    uint32_t at = p->filled;

    while (at > 0 && ahead(p, slot, p->ranked[at - 1]))
        at--;
    memmove(p->ranked + at + 1, p->ranked + at, (p->filled - at) * sizeof *p->ranked);
    p->ranked[at] = slot;
    p->filled++;
}

void hy_population_put(struct hy_population *p, uint32_t slot, const double *genes, double cost)
{
    if (!hy_population_empty(p, slot))
        unrank(p, slot);
    memcpy(hy_population_genes(p, slot), genes, p->space->count * sizeof *genes);
    p->cost[slot] = cost;
    rank(p, slot);
}

/* While the values are equal, so are the conditions that depend on them: what is inactive in one is so in the other. */
bool hy_genes_equal(const struct hy_space *space, const double *a, const struct hy_value *values, const double *b)
{
    for (size_t i = 0; i < space->count; i++)
        if (a[i] != b[i] && !isnan(values[i].number) && values[i].number != hy_dim_at(&space->dims[i], b[i]).number)
            return false;
    return true;
}

void hy_genes_spread(const struct hy_population *p, struct hy_rng *rng)
{
    for (size_t dim = 0; dim < p->space->count; dim++) {
        for (uint32_t i = 0; i < p->size; i++)
            hy_population_genes(p, i)[dim] = (i + hy_rng_double(rng)) / p->size;
        for (uint32_t i = p->size - 1; i > 0; i--) {
            double *x = &hy_population_genes(p, i)[dim];
            double *y = &hy_population_genes(p, (uint32_t)hy_rng_below(rng, (uint64_t)i + 1))[dim];
            double kept = *x;

            *x = *y;
            *y = kept;
        }
    }
}

void hy_genes_random(const struct hy_space *space, struct hy_rng *rng, double *ret)
{
    for (size_t i = 0; i < space->count; i++)
        ret[i] = hy_rng_double(rng);
}
