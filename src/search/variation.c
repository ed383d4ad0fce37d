/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How differential evolution makes a child. With a and b two others of the
 * population, drawn at random, a gene of the mutant is
 *
 *     best/1              best                + F (a - b)
 *     rand/1              r, a third          + F (a - b)
 *     current-to-elite/1  x + K (elite - x)   + F (better - worse)
 *
 * x is the slot's own point (the child's target), elite the mean of the four
 * best, weighted 8:4:2:1, and in the last strategy, the default, a and b are put
 * in order so that the difference points towards lower cost. K is drawn from
 * [1, 1.75): children overshoot the elite's mean, which keeps a small population
 * from collapsing. Then each gene of the mutant
 * replaces the target's with the probability `crossover` (bin), one always.
 */
#include "search/population.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "search/scale.h"

#define ELITE 4

struct range {
    double from, to;
};

struct defaults {
    struct range mutation, crossover, pull;
};

/* Chosen by measurement: docs/search.md. The textbook strategies use SciPy's defaults. */
static const struct defaults defaults[] = {
    [HY_DE_DEFAULT] = {{0.3, 0.9}, {0.5, 0.5}, {1.0, 1.75}},
    [HY_DE_BEST1BIN] = {{0.5, 1.0}, {0.7, 0.7}, {0, 0}},
    [HY_DE_RAND1BIN] = {{0.5, 1.0}, {0.7, 0.7}, {0, 0}},
};

/* The parents of a child, and their weights. */
struct recipe {
    enum hy_de_strategy strategy;
    uint32_t target, base, a, b; /* slots */
    uint32_t elite[ELITE];       /* slots, the best first */
    double mutation, crossover, pull;
};

static double draw(struct range r, struct hy_rng *rng)
{
    return r.from + (r.to - r.from) * hy_rng_double(rng);
}

/* A filled slot other than the n already taken. */
static uint32_t other(const struct hy_population *p, struct hy_rng *rng, const uint32_t *taken, size_t n)
{
    for (;;) {
        uint32_t slot = p->ranked[hy_rng_below(rng, p->filled)];
        size_t i = 0;

        while (i < n && taken[i] != slot)
            i++;
        if (i == n)
            return slot;
    }
}

static void pick_parents(const struct hy_population *p, uint32_t slot, struct hy_rng *rng, struct recipe *r)
{
    uint32_t taken[4];

    taken[0] = hy_population_empty(p, slot) ? other(p, rng, NULL, 0) : slot;
    for (size_t i = 1; i < HY_COUNT(taken); i++)
        taken[i] = other(p, rng, taken, i);
    r->target = taken[0];
    r->a = taken[1];
    r->b = taken[2];
    r->base = r->strategy == HY_DE_RAND1BIN ? taken[3] : p->ranked[0];
    if (r->strategy == HY_DE_DEFAULT && p->cost[r->b] < p->cost[r->a]) {
        r->a = taken[2];
        r->b = taken[1];
    }
    memcpy(r->elite, p->ranked, sizeof r->elite);
}

static double elite_mean(const struct hy_population *p, const struct recipe *r, size_t dim)
{
    double sum = 0;

    for (size_t i = 0; i < ELITE; i++)
        sum += (double)(8 >> i) * hy_population_genes(p, r->elite[i])[dim];
    return sum / 15;
}

static double mutate_number(const struct hy_population *p, const struct recipe *r, size_t dim)
{
    double x = hy_population_genes(p, r->target)[dim], base, gene;

    if (r->strategy == HY_DE_DEFAULT)
        base = x + r->pull * (elite_mean(p, r, dim) - x);
    else
        base = hy_population_genes(p, r->base)[dim];
    gene = base + r->mutation * (hy_population_genes(p, r->a)[dim] - hy_population_genes(p, r->b)[dim]);
    if (gene < 0)
        return x / 2; /* halfway to the bound, so that points do not pile up at bounds */
    return gene > 1 ? (x + 1) / 2 : gene;
}

/*
 * Categories have no differences to add. Where a and b differ, any choice is tried
 * with the probability F; where they agree, the base's choice is kept.
 */
static double mutate_choice(const struct hy_population *p, const struct recipe *r, size_t dim, struct hy_rng *rng)
{
    size_t n = p->space->dims[dim].choice_count;
    uint32_t base = r->base;

    if (r->strategy == HY_DE_DEFAULT) { /* one of the elite, by the same weights */
        uint64_t ticket = hy_rng_below(rng, 15);

        base = r->elite[ticket < 8 ? 0 : ticket < 12 ? 1 : ticket < 14 ? 2 : 3];
    }
    if (hy_unit_part(hy_population_genes(p, r->a)[dim], n) != hy_unit_part(hy_population_genes(p, r->b)[dim], n) &&
        hy_rng_double(rng) < r->mutation)
        return hy_rng_double(rng);
    return hy_population_genes(p, base)[dim];
}

void hy_genes_vary(const struct hy_population *p, const struct hy_search_settings *settings, uint32_t slot,
                   struct hy_rng *rng, double *ret)
{
    const struct defaults *d = &defaults[settings->strategy];
    struct recipe r = {.strategy = settings->strategy};
    size_t always;

    assert(p->filled >= HY_POPULATION_MIN);
    pick_parents(p, slot, rng, &r);
    r.mutation = isnan(settings->mutation) ? draw(d->mutation, rng) : settings->mutation;
    r.crossover = isnan(settings->crossover) ? draw(d->crossover, rng) : settings->crossover;
    r.pull = draw(d->pull, rng);
    always = (size_t)hy_rng_below(rng, p->space->count);
    for (size_t i = 0; i < p->space->count; i++) {
        if (hy_rng_double(rng) >= r.crossover && i != always)
            ret[i] = hy_population_genes(p, r.target)[i];
        else if (p->space->dims[i].kind == HY_DIM_CATEGORY)
            ret[i] = mutate_choice(p, &r, i, rng);
        else
            ret[i] = mutate_number(p, &r, i);
    }
}
