/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Differential evolution, synchronous (by generations) or asynchronous.
 *
 * Trial n belongs to slot (n - 1) % population. The first `population` trials
 * are spread over the space; each later one is a child made for its slot by
 * variation.c from the results so far, with a random stream of its own (seed and n).
 *
 * Synchronous: children of a generation are kept until all are told, and are then
 * accepted in the order of their slots. So the trials do not depend on the order of
 * the results, and the next generation starts only after that.
 *
 * Asynchronous: a child is accepted when it is told. An ask before there are enough
 * results gets a random point, which is treated like a child.
 *
 * A child replaces its slot's point if it is not worse. In the default strategy a
 * worse one may still replace the population's worst; best/1 and rand/1 follow the
 * textbook.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "search/internal.h"
#include "search/population.h"
#include "search/scale.h"

#define TRIES 32       /* tries to make a child unlike the others, */
#define CHANGES_FROM 8 /* this many by variation, the rest at random */

struct child {
    uint32_t slot;
    double cost;
    double genes[];
};

struct evolve {
    struct hy_population population;
    struct child **told; /* synchronous: of this generation, by slot */
    uint32_t told_count;
    uint64_t generation; /* synchronous: how many are complete */
};

static uint32_t default_population(size_t dims)
{
    uint64_t size = 4 + ((uint64_t)dims * 5 + 3) / 4;

    return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

uint32_t hy_search_population(const struct hy_search_settings *settings, size_t dims)
{
    if (settings->kind != HY_SEARCH_EVOLVE)
        return 0;
    return settings->population ? settings->population : default_population(dims);
}

static int check_settings(const struct hy_search *s, struct hy_err *err)
{
    const struct hy_search_settings *want = &s->settings;

    if (s->space.count == 0)
        return hy_err_set(err, -EINVAL, "evolution has nothing to vary: give it at least one dimension");
    if (want->population && want->population < HY_POPULATION_MIN)
        return hy_err_set(err, -EINVAL, "a population of %u is too small: differential evolution needs at least %d",
                          want->population, HY_POPULATION_MIN);
    if (!isnan(want->mutation) && !(want->mutation > 0 && want->mutation <= 2))
        return hy_err_set(err, -EINVAL, "mutation is %g, but must be above 0 and at most 2", want->mutation);
    if (!isnan(want->crossover) && !(want->crossover >= 0 && want->crossover <= 1))
        return hy_err_set(err, -EINVAL, "crossover is %g, but is a probability: give it from 0 to 1", want->crossover);
    if ((unsigned)want->strategy > HY_DE_RAND1BIN)
        return hy_err_set(err, -EINVAL, "invalid strategy %d", (int)want->strategy);
    return 0;
}

static int evolve_init(struct hy_search *s, struct hy_err *err)
{
    struct evolve *e;
    struct hy_rng rng;
    int rc = check_settings(s, err);

    if (rc < 0)
        return rc;
    s->settings.population = hy_search_population(&s->settings, s->space.count);
    s->total = s->settings.generations ? (uint64_t)s->settings.population * s->settings.generations : UINT64_MAX;
    if (s->settings.samples && s->settings.samples < s->total)
        s->total = s->settings.samples;
    s->state = e = hy_calloc(1, sizeof *e);
    if (!e || hy_population_init(&e->population, &s->space, s->settings.population) < 0)
        return hy_err_set(err, -ENOMEM, "out of memory for a population of %u", s->settings.population);
    e->told = hy_calloc(s->settings.population, sizeof(struct child *));
    if (!e->told)
        return hy_err_set(err, -ENOMEM, "out of memory for a population of %u", s->settings.population);
    hy_rng_seed(&rng, s->settings.seed, 0); /* trials use the streams from 1 on */
    hy_genes_spread(&e->population, &rng);
    return 0;
}

static void evolve_done(struct hy_search *s)
{
    struct evolve *e = s->state;

    if (!e)
        return;
    for (uint32_t i = 0; e->told && i < e->population.size; i++)
        free(e->told[i]);
    free(e->told);
    hy_population_done(&e->population);
    free(e);
}

/* ---- asking -------------------------------------------------------------- */

/* Whether these values are in the population, or in one of its children. */
static bool is_known(const struct hy_search *s, const double *genes, const struct hy_value *values)
{
    const struct evolve *e = s->state;
    const struct hy_population *p = &e->population;
    const struct child *c;

    for (uint32_t i = 0; i < p->filled; i++)
        if (hy_genes_equal(&s->space, genes, values, hy_population_genes(p, p->ranked[i])))
            return true;
    for (uint32_t i = 0; e->told_count > 0 && i < p->size; i++)
        if (e->told[i] && hy_genes_equal(&s->space, genes, values, e->told[i]->genes))
            return true;
    for (size_t i = 0; (c = hy_map_next(&s->open, &i));)
        if (hy_genes_equal(&s->space, genes, values, c->genes))
            return true;
    return false;
}

static void make_genes(const struct hy_search *s, uint64_t number, uint32_t slot, struct hy_rng *rng, double *ret)
{
    const struct evolve *e = s->state;

    if (number <= e->population.size) /* still empty: its genes are its initial point */
        memcpy(ret, hy_population_genes(&e->population, slot), s->space.count * sizeof *ret);
    else if (e->population.filled < HY_POPULATION_MIN)
        hy_genes_random(&s->space, rng, ret);
    else
        hy_genes_vary(&e->population, &s->settings, slot, rng, ret);
}

/*
 * Small spaces of integers and categories produce the same point repeatedly, and
 * running it again gives no information. Later tries change a gene at random; an
 * exhausted space gives repetitions, but never a point that violates a constraint.
 */
static void make_child(const struct hy_search *s, uint64_t number, struct child *c, struct hy_value *values)
{
    struct hy_rng rng;

    hy_rng_seed(&rng, s->settings.seed, number);
    make_genes(s, number, c->slot, &rng, c->genes);
    hy_space_values(&s->space, c->genes, values);
    for (int i = 0; i < TRIES && (!hy_space_allows(&s->space, values) || is_known(s, c->genes, values)); i++) {
        if (i < CHANGES_FROM && number > s->settings.population)
            make_genes(s, number, c->slot, &rng, c->genes);
        else
            c->genes[hy_rng_below(&rng, s->space.count)] = hy_rng_double(&rng);
        hy_space_values(&s->space, c->genes, values);
    }
    if (!hy_space_allows(&s->space, values))
        hy_search_draw(s, &rng, c->genes, values);
}

static int evolve_ask(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket)
{
    struct evolve *e = s->state;
    struct child *c;

    if (!s->settings.asynchronous && (number - 1) / e->population.size > e->generation)
        return 0;
    c = hy_malloc(sizeof *c + s->space.count * sizeof c->genes[0]);
    if (!c)
        return -ENOMEM;
    c->slot = (uint32_t)((number - 1) % e->population.size);
    make_child(s, number, c, values);
    *ret_ticket = c;
    return 1;
}

/* ---- telling ------------------------------------------------------------- */

/* Takes the child. */
static void settle(struct hy_search *s, struct child *c)
{
    struct hy_population *p = &((struct evolve *)s->state)->population;
    uint32_t slot = c->slot;

    if (!hy_population_empty(p, slot) && c->cost > p->cost[slot] && s->settings.strategy == HY_DE_DEFAULT)
        slot = p->ranked[p->filled - 1];
    if (hy_population_empty(p, slot) || c->cost <= p->cost[slot])
        hy_population_put(p, slot, c->genes, c->cost);
    free(c);
}

static void settle_generation(struct hy_search *s)
{
    struct evolve *e = s->state;

    for (uint32_t i = 0; i < e->population.size; i++)
        settle(s, hy_take(e->told[i]));
    e->told_count = 0;
    e->generation++;
}

static void evolve_tell(struct hy_search *s, void *ticket, double cost)
{
    struct evolve *e = s->state;
    struct child *c = ticket;

    c->cost = cost;
    if (s->settings.asynchronous) {
        settle(s, c);
        return;
    }
    e->told[c->slot] = c;
    if (++e->told_count == e->population.size)
        settle_generation(s);
}

const struct hy_search_ops hy_evolve_ops = {
    .init = evolve_init,
    .done = evolve_done,
    .ask = evolve_ask,
    .tell = evolve_tell,
    .drop = free,
};
