/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CMA-ES: generations from a normal distribution that adapts to the better half of
 * each (cma_normal.c), and from a distribution of every category (cma_choices.c).
 *
 * A generation is complete once as many results as it has points are known. Synchronous: an
 * ask beyond it waits, so all its points come from one distribution, and
 * their order has no effect. Asynchronous: an ask always gets a point of the newest distribution,
 * and a late result is used where it is, as if it had been drawn from the newest.
 *
 * The numbers behind a point are a Sobol sequence, one point per trial: even in every
 * generation, and over generations.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "search/cma_choices.h"
#include "search/cma_normal.h"
#include "search/internal.h"
#include "search/portable_math.h"
#include "search/scale.h"
#include "search/spread.h"

#define SIGMA0 0.25     /* of a start */
#define BOUND_NEAR 0.5  /* standard deviations */
#define DRAW_STREAM 0x636d612d64726177ULL  /* "cma-draw": keeps its points apart from those of other searches */
#define START_STREAM 0x636d612d73746172ULL /* "cma-star" */
#define SIZE_MIN 4
#define DOUBLINGS_MAX 8
#define TRIES 32       /* to make a point unlike the others in a space without real numbers, */
#define CHANGES_FROM 8 /* this many by the distributions, the rest at random */
#define SPREAD_MIN 1e-9 /* of the largest deviation: less is converged */

struct point {
    struct point *next; /* of the generation: a worse one, or an equal one with a higher number */
    uint64_t number;
    double cost;
    double units[]; /* of its values */
};

struct cma {
    size_t count; /* dimensions of the normal distribution: numbers with more than one value */
    size_t *dims;
    bool is_discrete; /* no real numbers: points can repeat */
    struct hy_cma_normal normal;
    struct hy_cma_choices choices;
    double reach;          /* standard deviations, beyond which the margin lies */
    double *z, *x, *units; /* for one point */
    struct point *told;    /* of this generation, the best first */
    uint32_t told_count;
    uint64_t settled; /* results of complete generations */
    uint32_t starts;
    double best; /* since the last start */
    uint64_t best_generation;
};

static uint32_t default_size(size_t dims)
{
    return SIZE_MIN + (uint32_t)(3 * hy_ln((double)dims));
}

static int check_settings(const struct hy_search *s, struct hy_err *err)
{
    if (s->space.count == 0)
        return hy_err_set(err, -EINVAL, "CMA-ES has nothing to vary: give it at least one dimension");
    if (s->settings.population && s->settings.population < SIZE_MIN)
        return hy_err_set(err, -EINVAL, "a population of %u is too small: CMA-ES needs at least %d",
                          s->settings.population, SIZE_MIN);
    return 0;
}

static void start(struct hy_search *s)
{
    struct cma *c = s->state;
    uint32_t doublings = c->starts < DOUBLINGS_MAX ? c->starts : DOUBLINGS_MAX;
    uint32_t size = s->settings.population > UINT32_MAX >> doublings ? UINT32_MAX : s->settings.population << doublings;

    for (size_t i = 0; i < c->count; i++)
        c->x[i] = 0.5;
    if (c->starts > 0)
        hy_sobol_point(s->settings.seed ^ START_STREAM, c->starts, c->count, c->x);
    hy_cma_normal_start(&c->normal, size, c->x, SIGMA0);
    hy_cma_choices_start(&c->choices);
    c->reach = -hy_normal_quantile(1 / (fmax(1, (double)c->count) * size));
    c->best = INFINITY;
    c->best_generation = 0;
    c->starts++;
}

static int init_state(struct hy_search *s, struct cma *c)
{
    size_t all = s->space.count;

    c->dims = hy_calloc(all, sizeof *c->dims);
    c->z = hy_calloc(all, sizeof *c->z);
    c->x = hy_calloc(all, sizeof *c->x);
    c->units = hy_calloc(all, sizeof *c->units);
    if (!c->dims || !c->z || !c->x || !c->units)
        return -ENOMEM;
    c->is_discrete = true;
    for (size_t i = 0; i < all; i++) {
        const struct hy_dim *dim = &s->space.dims[i];

        if (dim->kind != HY_DIM_CATEGORY && dim->low < dim->high)
            c->dims[c->count++] = i;
        c->is_discrete &= dim->kind != HY_DIM_FLOAT || dim->low == dim->high;
    }
    if (hy_cma_normal_init(&c->normal, c->count) < 0)
        return -ENOMEM;
    return hy_cma_choices_init(&c->choices, &s->space);
}

static int cma_init(struct hy_search *s, struct hy_err *err)
{
    struct cma *c;
    int rc = check_settings(s, err);

    if (rc < 0)
        return rc;
    if (s->settings.population == 0)
        s->settings.population = default_size(s->space.count);
    s->total = s->settings.samples ? s->settings.samples : UINT64_MAX;
    s->state = c = hy_calloc(1, sizeof *c);
    if (!c || init_state(s, c) < 0)
        return hy_err_set(err, -ENOMEM, "out of memory for CMA-ES with %zu dimensions", s->space.count);
    start(s);
    return 0;
}

static void clear_told(struct cma *c)
{
    while (c->told) {
        struct point *p = c->told;

        c->told = p->next;
        free(p);
    }
    c->told_count = 0;
}

static void cma_done(struct hy_search *s)
{
    struct cma *c = s->state;

    if (!c)
        return;
    clear_told(c);
    hy_cma_normal_done(&c->normal);
    hy_cma_choices_done(&c->choices);
    free(c->dims);
    free(c->z);
    free(c->x);
    free(c->units);
    free(c);
}

/* ---- asking -------------------------------------------------------------- */

static double mirrored(double x)
{
    x = fabs(x);
    x -= 2 * floor(x / 2);
    return x > 1 ? 2 - x : x;
}

/*
 * A coordinate beyond a bound is mirrored, unless the mean is near that bound: then it is put on it. So
 * points reach an optimum at the bound exactly, and elsewhere do not pile up at bounds.
 */
static double within(double x, double mean, double deviation)
{
    if (x < 0)
        return mean < BOUND_NEAR * deviation ? 0 : mirrored(x);
    if (x > 1)
        return 1 - mean < BOUND_NEAR * deviation ? 1 : mirrored(x);
    return x;
}

/* Fills c->x with the point of a trial, before it is fitted into the space. */
static void draw(const struct hy_search *s, uint64_t number)
{
    struct cma *c = s->state;

    hy_sobol_point(s->settings.seed ^ DRAW_STREAM, number, c->count, c->z);
    for (size_t i = 0; i < c->count; i++)
        c->z[i] = hy_normal_quantile(c->z[i]);
    hy_cma_normal_at(&c->normal, c->z, c->x);
}

/* Half way between two values. */
static double border(const struct hy_dim *dim, double a, double b)
{
    return (hy_dim_unit(dim, (struct hy_value){a}) + hy_dim_unit(dim, (struct hy_value){b})) / 2;
}

/* The part of [0, 1] that is an integer; the first and the last one have no end. */
static void int_part(const struct hy_dim *dim, double value, double *ret_low, double *ret_high)
{
    double step = dim->step > 0 ? dim->step : 1;

    *ret_low = value > dim->low ? border(dim, value - step, value) : -INFINITY;
    *ret_high = value < dim->high ? border(dim, value, value + step) : INFINITY;
}

/*
 * By how much an integer is drawn further from its mean: as much as gives other integers a small
 * chance (the margin of R. Hamano et al., "CMA-ES with margin", 2022).
 */
static double margin_factor(const struct hy_search *s, size_t i)
{
    const struct cma *c = s->state;
    const struct hy_dim *dim = &s->space.dims[c->dims[i]];
    double mean = c->normal.mean[i], low, high;

    if (dim->kind != HY_DIM_INT)
        return 1;
    int_part(dim, hy_dim_at(dim, fmin(1, fmax(0, mean))).number, &low, &high);
    return fmax(1, fmin(mean - low, high - mean) / (c->reach * hy_cma_normal_deviation(&c->normal, i)));
}

static void make_units(const struct hy_search *s, uint64_t number, double *units)
{
    struct cma *c = s->state;
    struct hy_rng rng;

    draw(s, number);
    hy_rng_seed(&rng, s->settings.seed ^ DRAW_STREAM, number);
    for (size_t i = 0; i < s->space.count; i++)
        units[i] = s->space.dims[i].kind == HY_DIM_CATEGORY ? hy_cma_choices_at(&c->choices, i, hy_rng_double(&rng))
                                                            : 0.5;
    for (size_t i = 0; i < c->count; i++) {
        double mean = c->normal.mean[i];

        units[c->dims[i]] = within(mean + margin_factor(s, i) * (c->x[i] - mean), mean,
                                   hy_cma_normal_deviation(&c->normal, i));
    }
}

static struct point *make_point(const struct hy_search *s, uint64_t number, const struct hy_value *values)
{
    struct point *p = hy_malloc(sizeof *p + s->space.count * sizeof p->units[0]);

    if (!p)
        return NULL;
    p->next = NULL;
    p->number = number;
    p->cost = INFINITY;
    hy_space_units(&s->space, values, p->units);
    return p;
}

static int cma_ask(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket)
{
    struct cma *c = s->state;
    struct point *p;

    if (!s->settings.asynchronous && number - 1 - c->settled >= c->normal.size)
        return 0;
    make_units(s, number, c->units);
    hy_space_values(&s->space, c->units, values);
    p = make_point(s, number, values);
    if (!p)
        return -ENOMEM;
    *ret_ticket = p;
    return 1;
}

static int cma_restore(struct hy_search *s, uint64_t number, const struct hy_value *values, void **ret_ticket)
{
    struct point *p = make_point(s, number, values);

    if (!p)
        return -ENOMEM;
    *ret_ticket = p;
    return 0;
}

/* ---- telling ------------------------------------------------------------- */

/*
 * The coordinate that a value stands for. Only a real number inside the bounds is one. An
 * integer stands for its part of [0, 1], and a bound for all that is beyond it: the coordinate is then the one that
 * is drawn for this trial, or the nearest to it that the value can stand for. An absent value is imputed by the mean.
 * This depends on the state, the trial's number and its value only.
 */
static double coordinate(const struct hy_search *s, size_t i, double unit)
{
    const struct cma *c = s->state;
    const struct hy_dim *dim = &s->space.dims[c->dims[i]];
    double low = unit, high = unit, mean = c->normal.mean[i], factor = margin_factor(s, i), x;

    if (isnan(unit))
        return mean;
    if (dim->kind == HY_DIM_INT)
        int_part(dim, hy_dim_at(dim, unit).number, &low, &high);
    else if (unit <= 0)
        low = -INFINITY;
    else if (unit >= 1)
        high = INFINITY;
    x = mean + factor * (c->x[i] - mean);
    return mean + (fmin(high, fmax(low, x)) - mean) / factor;
}

static void add_point(struct hy_search *s, uint32_t rank, const struct point *p)
{
    struct cma *c = s->state;
    bool failed = p->cost == INFINITY;

    draw(s, p->number);
    for (size_t i = 0; i < c->count; i++)
        c->x[i] = coordinate(s, i, p->units[c->dims[i]]);
    hy_cma_normal_add(&c->normal, rank, failed, c->x);
    if (!failed)
        hy_cma_choices_add(&c->choices, hy_cma_normal_weight(&c->normal, rank), p->units);
}

static bool is_converged(const struct cma *c)
{
    double most = 0;
    double patience = 20 + 30.0 * (double)c->choices.space->count / c->normal.size;

    for (size_t i = 0; i < c->count; i++)
        most = fmax(most, hy_cma_normal_deviation(&c->normal, i));
    return (c->count > 0 && most < SPREAD_MIN) || (double)(c->normal.generation - c->best_generation) > patience;
}

static void settle(struct hy_search *s)
{
    struct cma *c = s->state;
    uint32_t rank = 0;
    bool ok;

    c->settled += c->told_count;
    if (c->told->cost < c->best) {
        c->best = c->told->cost;
        c->best_generation = c->normal.generation;
    }
    for (struct point *p = c->told; p; p = p->next)
        add_point(s, rank++, p);
    clear_told(c);
    hy_cma_choices_update(&c->choices);
    ok = hy_cma_normal_update(&c->normal);
    if (!ok || is_converged(c))
        start(s);
}

static void cma_tell(struct hy_search *s, void *ticket, double cost)
{
    struct cma *c = s->state;
    struct point *p = ticket, **at = &c->told;

    p->cost = cost;
    while (*at && ((*at)->cost < cost || ((*at)->cost == cost && (*at)->number < p->number)))
        at = &(*at)->next;
    p->next = *at;
    *at = p;
    if (++c->told_count == c->normal.size)
        settle(s);
}

const struct hy_search_ops hy_cma_ops = {
    .init = cma_init,
    .done = cma_done,
    .ask = cma_ask,
    .restore = cma_restore,
    .tell = cma_tell,
    .drop = free,
};
