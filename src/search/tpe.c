/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tree-structured Parzen estimator (Bergstra et al., 2011), multivariate, with a local
 * search.
 *
 * The trials are divided into the good tenth and the rest, and a Parzen estimator is fitted to
 * each (parzen.h). Of several candidates, the one with the greatest ratio of the good density
 * to that of the rest is tried. Candidates come from one of two sources:
 *
 * - one trial in five: draws from the good density, as in the textbook;
 * - the others: children of a small population by differential evolution
 *   (population.h). Their steps follow the shape of the function and become
 *   smaller near an optimum, which draws from kernels of a fixed shape do not.
 *
 * The first trials are a Latin hypercube, which is the first population.
 *
 * Open trials count as observations that are not good, so that parallel trials keep a
 * distance. Only finished trials enter the population.
 *
 * Conditional dimensions: dimensions that were always present together are a group,
 * with estimators of their own, which are fitted to the trials in which they were
 * present. The ratio of a point is the product over its groups.
 *
 * All state follows from the values of the trials and from the order of the results: what is learned
 * are the units of the values, not the numbers that were drawn.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "search/internal.h"
#include "search/parzen.h"
#include "search/population.h"
#include "search/scale.h"
#include "search/trial_archive.h"

/* Chosen by measurement: docs/search.md. */
#define GOOD_SHARE 0.1
#define GOOD_MAX 25
#define LATEST_MAX 96 /* of the other trials, these and a sample of the older ones */
#define ARCHIVE_ROWS 224
#define OPEN_MAX 64 /* the latest open trials that are observations */
#define CHILD_SHARE 0.8
#define CHILDREN 4 /* candidates for a trial */
#define DRAWS 24
#define TRIES 32       /* in a discrete space, tries to find a new point, */
#define PROPOSALS_MAX 4 /* this many by the estimators, the rest by changes at random */

/* Random streams of a seed: of trial n, n; of its absent genes, the following. */
#define ABSENT_STREAM (UINT64_C(1) << 62)

struct ticket {
    uint64_t number;
    double units[]; /* NAN: absent */
};

/* The points that the estimators are fitted to; they are rows of the archive and tickets. */
struct points {
    const double **at;
    size_t count;
};

struct tpe {
    struct hy_population population;
    struct hy_trial_archive archive;
    struct hy_search_settings variation; /* for hy_genes_vary */
    bool is_discrete;                    /* the space has finitely many points */
    /* The rest belongs to the current ask. */
    struct hy_parzen good, rest;
    struct points all_good, all_rest, fit; /* `fit`: the points that have a group's dimensions */
    uint64_t *presence;                    /* by dimension: equal where two are present in the same points */
    size_t *dims;                          /* ordered by group */
    double *genes;                         /* of the proposal */
    double *children, *points;             /* CHILDREN candidates: their genes, and the units of their values */
    struct hy_value *values;
    struct ticket **open;                  /* OPEN_MAX, by number */
};

/* ---- life --------------------------------------------------------------------- */

static bool is_discrete(const struct hy_space *space)
{
    for (size_t i = 0; i < space->count; i++)
        if (space->dims[i].kind == HY_DIM_FLOAT && space->dims[i].low < space->dims[i].high)
            return false;
    return true;
}

static int points_init(struct points *p, size_t capacity)
{
    p->at = hy_calloc(capacity, sizeof *p->at);
    return p->at ? 0 : -ENOMEM;
}

static int init_scratch(struct tpe *t, const struct hy_space *space)
{
    size_t points = ARCHIVE_ROWS + OPEN_MAX;

    if (hy_parzen_init(&t->good, space, GOOD_MAX) < 0 || hy_parzen_init(&t->rest, space, points) < 0 ||
        points_init(&t->all_good, GOOD_MAX) < 0 || points_init(&t->all_rest, points) < 0 ||
        points_init(&t->fit, points) < 0)
        return -ENOMEM;
    t->presence = hy_calloc(space->count, sizeof *t->presence);
    t->dims = hy_calloc(space->count, sizeof *t->dims);
    t->genes = hy_calloc(space->count, sizeof *t->genes);
    t->children = hy_calloc(space->count * CHILDREN, sizeof *t->children);
    t->points = hy_calloc(space->count * CHILDREN, sizeof *t->points);
    t->values = hy_calloc(space->count, sizeof *t->values);
    t->open = hy_calloc(OPEN_MAX, sizeof(struct ticket *));
    return t->presence && t->dims && t->genes && t->children && t->points && t->values && t->open ? 0 : -ENOMEM;
}

/* As large as that of an evolution: 4 + 5/4 per dimension. */
static uint32_t population_size(size_t dims)
{
    uint64_t size = 4 + ((uint64_t)dims * 5 + 3) / 4;

    return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

static int init_state(struct tpe *t, const struct hy_search *s)
{
    struct hy_rng rng;

    t->variation = (struct hy_search_settings){.strategy = HY_DE_DEFAULT, .mutation = NAN, .crossover = NAN};
    t->is_discrete = is_discrete(&s->space);
    if (hy_population_init(&t->population, &s->space, population_size(s->space.count)) < 0 ||
        hy_trial_archive_init(&t->archive, s->space.count, ARCHIVE_ROWS, GOOD_MAX, LATEST_MAX) < 0)
        return -ENOMEM;
    hy_rng_seed(&rng, s->settings.seed, 0);
    hy_genes_spread(&t->population, &rng);
    return init_scratch(t, &s->space);
}

static int tpe_init(struct hy_search *s, struct hy_err *err)
{
    struct tpe *t;

    if (s->space.count == 0)
        return hy_err_set(err, -EINVAL, "a TPE search has nothing to vary: give it at least one dimension");
    s->total = s->settings.samples ? s->settings.samples : UINT64_MAX;
    s->state = t = hy_calloc(1, sizeof *t);
    if (!t || init_state(t, s) < 0)
        return hy_err_set(err, -ENOMEM, "out of memory for a TPE search of %zu dimensions", s->space.count);
    return 0;
}

static void tpe_done(struct hy_search *s)
{
    struct tpe *t = s->state;

    if (!t)
        return;
    hy_population_done(&t->population);
    hy_trial_archive_done(&t->archive);
    hy_parzen_done(&t->good);
    hy_parzen_done(&t->rest);
    free(t->all_good.at);
    free(t->all_rest.at);
    free(t->fit.at);
    free(t->presence);
    free(t->dims);
    free(t->genes);
    free(t->children);
    free(t->points);
    free(t->values);
    free(t->open);
    free(t);
}

/* ---- observations --------------------------------------------------------------- */

/*
 * The latest open trials, in the order of their numbers: the order of the map depends on its history,
 * and sums depend on the order of their terms.
 */
static size_t find_open(const struct hy_search *s, struct ticket **open)
{
    struct ticket *ticket;
    size_t count = 0;

    for (size_t i = 0; (ticket = hy_map_next(&s->open, &i));) {
        size_t at = count;

        while (at > 0 && open[at - 1]->number > ticket->number)
            at--;
        if (count < OPEN_MAX) {
            memmove(open + at + 1, open + at, (count++ - at) * sizeof(struct ticket *));
            open[at] = ticket;
        } else if (at > 0) { /* drops the earliest */
            memmove(open, open + 1, (at - 1) * sizeof(struct ticket *));
            open[at - 1] = ticket;
        }
    }
    return count;
}

static size_t good_count(const struct hy_trial_archive *a)
{
    double count = ceil(GOOD_SHARE * (double)a->finite);

    return count < GOOD_MAX ? (size_t)count : GOOD_MAX;
}

/* Fills all_good (the best first) and all_rest (in the order of their results, open ones last). */
static void collect_points(const struct hy_search *s, struct tpe *t)
{
    const struct hy_trial_archive *a = &t->archive;
    size_t good = good_count(a), open = find_open(s, t->open);

    t->all_good.count = t->all_rest.count = 0;
    for (size_t i = 0; i < good; i++)
        t->all_good.at[t->all_good.count++] = hy_trial_archive_units(a, a->ranked[i]);
    for (size_t i = good; i < a->count; i++)
        t->all_rest.at[t->all_rest.count++] = hy_trial_archive_units(a, a->ranked[i]);
    for (size_t i = 0; i < open; i++)
        t->all_rest.at[t->all_rest.count++] = t->open[i]->units;
}

/* ---- groups of dimensions --------------------------------------------------------- */

static void add_presence(struct tpe *t, const struct points *points, size_t dims)
{
    for (size_t i = 0; i < points->count; i++)
        for (size_t d = 0; d < dims; d++)
            t->presence[d] = (t->presence[d] ^ isnan(points->at[i][d])) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static void find_groups(struct tpe *t, size_t dims)
{
    for (size_t d = 0; d < dims; d++) {
        t->presence[d] = 0;
        t->dims[d] = d;
    }
    add_presence(t, &t->all_good, dims);
    add_presence(t, &t->all_rest, dims);
}

/* Moves the other dimensions of the group of t->dims[first] behind it. Returns the end of the group. */
static size_t gather_group(struct tpe *t, size_t first, size_t dims)
{
    size_t end = first + 1;

    for (size_t i = end; i < dims; i++)
        if (t->presence[t->dims[i]] == t->presence[t->dims[first]]) {
            size_t dim = t->dims[i];

            t->dims[i] = t->dims[end];
            t->dims[end++] = dim;
        }
    return end;
}

static void fit_points(struct tpe *t, struct hy_parzen *estimator, const struct points *points, const size_t *dims,
                       size_t count)
{
    t->fit.count = 0;
    for (size_t i = 0; i < points->count; i++)
        if (!isnan(points->at[i][dims[0]]))
            t->fit.at[t->fit.count++] = points->at[i];
    hy_parzen_fit(estimator, dims, count, t->fit.at, t->fit.count);
}

/* Fits both estimators to the dimensions first..end of t->dims. */
static void fit_group(struct tpe *t, size_t first, size_t end)
{
    fit_points(t, &t->good, &t->all_good, t->dims + first, end - first);
    fit_points(t, &t->rest, &t->all_rest, t->dims + first, end - first);
}

/* Of the group that was fitted last; 0 where the point does not have all its dimensions. */
static double log_ratio(const struct tpe *t, const double *point)
{
    for (size_t i = 0; i < t->good.dim_count; i++)
        if (isnan(point[t->good.dims[i]]))
            return 0;
    return hy_parzen_log_density(&t->good, point) - hy_parzen_log_density(&t->rest, point);
}

/* ---- proposals -------------------------------------------------------------------- */

static bool is_same(const double *a, const double *b, size_t dims)
{
    for (size_t i = 0; i < dims; i++)
        if (a[i] != b[i] && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* Whether a discrete space's point is a row of the archive or open. In other spaces, points hardly ever repeat. */
static bool is_known(const struct hy_search *s, const double *point)
{
    const struct tpe *t = s->state;
    const struct ticket *ticket;

    if (!t->is_discrete)
        return false;
    for (size_t i = 0; i < t->archive.count; i++)
        if (is_same(point, hy_trial_archive_units(&t->archive, t->archive.ranked[i]), s->space.count))
            return true;
    for (size_t i = 0; (ticket = hy_map_next(&s->open, &i));)
        if (is_same(point, ticket->units, s->space.count))
            return true;
    return false;
}

/* The units of the values that `genes` stand for: of integers and choices, the middles; NAN where absent. */
static void round_genes(const struct tpe *t, const struct hy_space *space, const double *genes, double *ret)
{
    hy_space_values(space, genes, t->values);
    hy_space_units(space, t->values, ret);
}

/* The most promising of some children for the slot; one that is known only if all are. */
static void propose_child(const struct hy_search *s, uint32_t slot, struct hy_rng *rng, double *ret)
{
    struct tpe *t = s->state;
    size_t dims = s->space.count, best = 0;
    double score[CHILDREN];

    for (size_t i = 0; i < CHILDREN; i++) {
        hy_genes_vary(&t->population, &t->variation, slot, rng, t->children + i * dims);
        round_genes(t, &s->space, t->children + i * dims, t->points + i * dims);
        score[i] = is_known(s, t->points + i * dims) ? -INFINITY : 0;
    }
    for (size_t first = 0, end; first < dims; first = end) {
        end = gather_group(t, first, dims);
        fit_group(t, first, end);
        for (size_t i = 0; i < CHILDREN; i++)
            score[i] += log_ratio(t, t->points + i * dims);
    }
    for (size_t i = 1; i < CHILDREN; i++)
        if (score[i] > score[best])
            best = i;
    memcpy(ret, t->children + best * dims, dims * sizeof *ret);
}

/* The group's dimensions of the best of several draws from the good density. */
static void draw_group(const struct hy_search *s, struct hy_rng *rng, double *ret)
{
    struct tpe *t = s->state;
    double *draw = t->points, best = -INFINITY;

    for (int n = 0; n < DRAWS; n++) {
        double score;

        hy_parzen_draw(&t->good, rng, draw);
        score = log_ratio(t, draw);
        for (size_t i = 0; score > best && i < t->good.dim_count; i++)
            ret[t->good.dims[i]] = draw[t->good.dims[i]];
        best = fmax(best, score);
    }
}

static void propose_draw(const struct hy_search *s, struct hy_rng *rng, double *ret)
{
    struct tpe *t = s->state;

    for (size_t first = 0, end; first < s->space.count; first = end) {
        end = gather_group(t, first, s->space.count);
        fit_group(t, first, end);
        draw_group(s, rng, ret);
    }
}

/* ---- asking and telling ------------------------------------------------------------- */

static uint32_t slot_of(const struct tpe *t, uint64_t number)
{
    return (uint32_t)((number - 1) % t->population.size);
}

static void propose(const struct hy_search *s, uint64_t number, struct hy_rng *rng, double *ret)
{
    struct tpe *t = s->state;

    if (number <= t->population.size) { /* the slot is still empty: its genes are its initial point */
        memcpy(ret, hy_population_genes(&t->population, slot_of(t, number)), s->space.count * sizeof *ret);
        return;
    }
    if (t->population.filled < HY_POPULATION_MIN) {
        hy_genes_random(&s->space, rng, ret);
        return;
    }
    collect_points(s, t);
    find_groups(t, s->space.count);
    if (hy_rng_double(rng) < CHILD_SHARE)
        propose_child(s, slot_of(t, number), rng, ret);
    else
        propose_draw(s, rng, ret);
}

/*
 * Fills t->genes. A discrete space gives known points repeatedly, and to run one again
 * gives no information. An exhausted space gives repetitions.
 */
static void choose_genes(const struct hy_search *s, uint64_t number)
{
    struct tpe *t = s->state;
    struct hy_rng rng;

    hy_rng_seed(&rng, s->settings.seed, number);
    for (int i = 0; i < TRIES; i++) {
        if (i < PROPOSALS_MAX)
            propose(s, number, &rng, t->genes);
        else
            t->genes[hy_rng_below(&rng, s->space.count)] = hy_rng_double(&rng);
        round_genes(t, &s->space, t->genes, t->points);
        if (!is_known(s, t->points))
            return;
    }
}

static struct ticket *new_ticket(const struct hy_search *s, uint64_t number)
{
    struct ticket *c = hy_malloc(sizeof *c + s->space.count * sizeof c->units[0]);

    if (c)
        c->number = number;
    return c;
}

static int tpe_ask(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket)
{
    struct tpe *t = s->state;
    struct ticket *c = new_ticket(s, number);

    if (!c)
        return -ENOMEM;
    choose_genes(s, number);
    hy_space_values(&s->space, t->genes, values);
    hy_space_units(&s->space, values, c->units);
    *ret_ticket = c;
    return 1;
}

static int tpe_restore(struct hy_search *s, uint64_t number, const struct hy_value *values, void **ret_ticket)
{
    struct ticket *c = new_ticket(s, number);

    if (!c)
        return -ENOMEM;
    hy_space_units(&s->space, values, c->units);
    *ret_ticket = c;
    return 0;
}

/* As in evolution: replaces the point of its slot if it is not worse, else the worst one of all if it is not worse. */
static void update_population(struct hy_population *p, uint32_t slot, const double *genes, double cost)
{
    if (!hy_population_empty(p, slot) && cost > p->cost[slot])
        slot = p->ranked[p->filled - 1];
    if (hy_population_empty(p, slot) || cost <= p->cost[slot])
        hy_population_put(p, slot, genes, cost);
}

/* Variation needs a gene for every dimension. */
static void fill_absent(const struct hy_search *s, struct ticket *c)
{
    struct hy_rng rng;

    hy_rng_seed(&rng, s->settings.seed, ABSENT_STREAM + c->number);
    for (size_t i = 0; i < s->space.count; i++)
        if (isnan(c->units[i]))
            c->units[i] = hy_rng_double(&rng);
}

static void tpe_tell(struct hy_search *s, void *ticket, double cost)
{
    struct tpe *t = s->state;
    struct ticket *c = ticket;

    hy_trial_archive_add(&t->archive, c->units, cost);
    fill_absent(s, c);
    update_population(&t->population, slot_of(t, c->number), c->units, cost);
    free(c);
}

const struct hy_search_ops hy_tpe_ops = {
    .init = tpe_init,
    .done = tpe_done,
    .ask = tpe_ask,
    .restore = tpe_restore,
    .tell = tpe_tell,
    .drop = free,
};
