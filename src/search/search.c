/* SPDX-License-Identifier: Apache-2.0 */
#include "search/search.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "search/expression.h"
#include "search/internal.h"
#include "search/scale.h"
#include "search/shown.h"

#define POINTS_TRIED 10000 /* before constraints count as unsatisfiable, and */
#define DRAWS_MAX 100000   /* before a point of these is taken instead of a random one */
#define POINTS_SEED 1      /* not the user's: whether a space is valid does not depend on it */

#define ALLOWED_DRAWN 64 /* points, of which the nearest one is taken */
#define ALLOWED_STREAM (UINT64_C(1) << 61)

static const struct hy_search_ops *const kinds[] = {
    [HY_SEARCH_GRID] = &hy_grid_ops,     [HY_SEARCH_RANDOM] = &hy_random_ops, [HY_SEARCH_EVOLVE] = &hy_evolve_ops,
    [HY_SEARCH_PAIRED] = &hy_paired_ops, [HY_SEARCH_TPE] = &hy_tpe_ops,       [HY_SEARCH_CMA] = &hy_cma_ops,
};

const char *hy_search_kind_name(enum hy_search_kind kind)
{
    static const char *const names[] = {
        [HY_SEARCH_GRID] = "grid",     [HY_SEARCH_RANDOM] = "random", [HY_SEARCH_EVOLVE] = "evolve",
        [HY_SEARCH_PAIRED] = "paired", [HY_SEARCH_TPE] = "tpe",       [HY_SEARCH_CMA] = "cma",
    };

    return (size_t)kind < HY_COUNT(names) ? names[kind] : NULL;
}

char hy_stateless_ticket;

void hy_stateless_done(struct hy_search *s)
{
    (void)s;
}

void hy_stateless_tell(struct hy_search *s, void *ticket, double cost)
{
    (void)s;
    (void)ticket;
    (void)cost;
}

void hy_stateless_drop(void *ticket)
{
    (void)ticket;
}

static bool visits_all(const struct hy_search *s)
{
    return s->settings.kind == HY_SEARCH_GRID || s->settings.kind == HY_SEARCH_PAIRED;
}

int hy_search_too_many(struct hy_err *err)
{
    char count[32];

    return hy_err_set(err, -EINVAL,
                      "there are more than %s points, too many to check the conditions and constraints of each; "
                      "give fewer values, or use a random search",
                      hy_format_count(HY_VISITED_MAX, count, sizeof count));
}

int hy_search_unsatisfied(const struct hy_space *space, const char *points, struct hy_err *err)
{
    if (space->constraint_count > 1)
        return hy_err_set(err, -EINVAL, "no %s satisfies all constraints", points);
    return hy_err_set(err, -EINVAL, "no %s satisfies the constraint '%s'", points,
                      hy_show(hy_expression_text(space->constraints[0])).text);
}

/* Whether one constraint alone is violated by all points. */
static bool is_violated(const struct hy_space *space, const struct hy_expression *constraint, struct hy_value *values)
{
    struct hy_rng rng;

    hy_rng_seed(&rng, POINTS_SEED, 0);
    for (int i = 0; i < POINTS_TRIED; i++) {
        hy_space_draw(space, &rng, 1, NULL, values);
        if (hy_expression_test(constraint, space, values) != HY_FALSE)
            return false;
    }
    return true;
}

/* The first constraint that all points violate, or all constraints together. */
static int unsatisfied(const struct hy_space *space, struct hy_value *values, struct hy_err *err)
{
    char count[32], points[64];
    struct hy_space blamed = *space;

    snprintf(points, sizeof points, "point of %s", hy_format_count(POINTS_TRIED, count, sizeof count));
    for (size_t i = 0; i < space->constraint_count && blamed.constraint_count > 1; i++)
        if (is_violated(space, space->constraints[i], values)) {
            blamed.constraints = &space->constraints[i];
            blamed.constraint_count = 1;
        }
    return hy_search_unsatisfied(&blamed, points, err);
}

/* Looks for a point that satisfies the constraints. */
static int check_constraints(struct hy_search *s, struct hy_err *err)
{
    hy_cleanup_free struct hy_value *values = NULL;
    struct hy_rng rng;

    if (s->space.constraint_count == 0 || visits_all(s))
        return 0;
    values = hy_calloc(s->space.count + 1, sizeof *values);
    s->allowed = hy_calloc(s->space.count + 1, sizeof *s->allowed);
    if (!values || !s->allowed)
        return hy_err_set(err, -ENOMEM, "out of memory for a search");
    hy_rng_seed(&rng, POINTS_SEED, 0);
    return hy_space_draw(&s->space, &rng, POINTS_TRIED, s->allowed, values) ? 0 : unsatisfied(&s->space, values, err);
}

void hy_search_draw(const struct hy_search *s, struct hy_rng *rng, double *ret_units, struct hy_value *ret)
{
    if (hy_space_draw(&s->space, rng, DRAWS_MAX, ret_units, ret))
        return;
    hy_space_values(&s->space, s->allowed, ret);
    for (size_t i = 0; i < s->space.count && ret_units; i++)
        ret_units[i] = s->allowed[i];
}

static int start(struct hy_search *s, const struct hy_space *space, struct hy_err *err)
{
    int rc = hy_space_copy(&s->space, space, err);

    if (rc == 0)
        rc = check_constraints(s, err);
    return rc < 0 ? rc : s->ops->init(s, err);
}

int hy_search_new(const struct hy_space *space, const struct hy_search_settings *settings, struct hy_search **ret,
                  struct hy_err *err)
{
    struct hy_search *s;
    int rc;

    if ((size_t)settings->kind >= HY_COUNT(kinds))
        return hy_err_set(err, -EINVAL, "invalid kind of search %d", (int)settings->kind);
    s = hy_calloc(1, sizeof *s);
    if (!s)
        return hy_err_set(err, -ENOMEM, "out of memory for a search");
    s->ops = kinds[settings->kind];
    s->settings = *settings;
    rc = start(s, space, err);
    if (rc < 0) {
        hy_search_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void hy_search_free(struct hy_search *s)
{
    void *ticket;

    if (!s)
        return;
    for (size_t i = 0; (ticket = hy_map_next(&s->open, &i));)
        s->ops->drop(ticket);
    hy_map_done(&s->open);
    s->ops->done(s);
    hy_space_done(&s->space);
    free(s->allowed);
    free(s);
}

uint64_t hy_search_total(const struct hy_search *s)
{
    return s->total;
}

const struct hy_space *hy_search_space(const struct hy_search *s)
{
    return &s->space;
}

/* Takes the ticket of the next trial, which is open from now on. */
static int open_take(struct hy_search *s, uint64_t number, void *ticket)
{
    int rc = hy_map_put(&s->open, number, ticket);

    if (rc < 0)
        s->ops->drop(ticket);
    else
        s->asked = number;
    return rc;
}

static double distance(const struct hy_space *space, const double *a, const struct hy_value *b)
{
    double sum = 0;

    for (size_t i = 0; i < space->count; i++) {
        double unit = hy_dim_unit(&space->dims[i], b[i]), gap = isnan(unit) || isnan(a[i]) ? 1 : unit - a[i];

        sum += isnan(unit) && isnan(a[i]) ? 0 : gap * gap;
    }
    return sum;
}

/* A search that learns need not know constraints: of some random points that satisfy them, the nearest one to its
 * proposal is tried. */
static int replace_by_allowed(struct hy_search *s, uint64_t number, struct hy_value *values, void **ticket)
{
    hy_cleanup_free double *proposed = hy_calloc(s->space.count, sizeof *proposed);
    hy_cleanup_free struct hy_value *drawn = hy_calloc(s->space.count, sizeof *drawn);
    double nearest = INFINITY;
    struct hy_rng rng;

    s->ops->drop(*ticket);
    if (!proposed || !drawn)
        return -ENOMEM;
    hy_space_units(&s->space, values, proposed);
    hy_rng_seed(&rng, s->settings.seed, ALLOWED_STREAM | number);
    for (int i = 0; i < ALLOWED_DRAWN; i++) {
        double d;

        hy_search_draw(s, &rng, NULL, drawn);
        d = distance(&s->space, proposed, drawn);
        if (d >= nearest)
            continue;
        nearest = d;
        memcpy(values, drawn, s->space.count * sizeof *values);
    }
    return s->ops->restore(s, number, values, ticket);
}

int hy_search_ask(struct hy_search *s, uint64_t *ret_number, struct hy_value *values)
{
    uint64_t number = s->asked + 1;
    void *ticket;
    int rc;

    if (s->asked == s->total)
        return -ENODATA;
    rc = s->ops->ask(s, number, values, &ticket);
    if (rc == 1 && s->ops->restore && !hy_space_allows(&s->space, values)) {
        rc = replace_by_allowed(s, number, values, &ticket);
        if (rc == 0)
            rc = 1;
    }
    if (rc <= 0)
        return rc;
    rc = open_take(s, number, ticket);
    if (rc < 0)
        return rc;
    *ret_number = number;
    return 1;
}

static bool is_equal(const struct hy_value *a, const struct hy_value *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (a[i].number != b[i].number && !(isnan(a[i].number) && isnan(b[i].number)))
            return false;
    return true;
}

static int ask_and_compare(struct hy_search *s, const struct hy_value *values)
{
    hy_cleanup_free struct hy_value *asked = hy_calloc(s->space.count + 1, sizeof *asked);
    uint64_t number;
    int rc = asked ? hy_search_ask(s, &number, asked) : -ENOMEM;

    if (rc < 0)
        return rc;
    return rc == 1 && is_equal(asked, values, s->space.count) ? 0 : -EUCLEAN;
}

bool hy_search_takes_values(const struct hy_search *s)
{
    return s->ops->restore != NULL;
}

int hy_search_restore(struct hy_search *s, const struct hy_value *values)
{
    void *ticket;
    int rc;

    if (s->asked == s->total)
        return -ENODATA;
    if (!s->ops->restore)
        return ask_and_compare(s, values);
    rc = s->ops->restore(s, s->asked + 1, values, &ticket);
    return rc < 0 ? rc : open_take(s, s->asked + 1, ticket);
}

int hy_search_tell(struct hy_search *s, uint64_t number, double value)
{
    void *ticket = hy_map_remove(&s->open, number);

    if (!ticket)
        return -ENOENT;
    s->ops->tell(s, ticket, !isfinite(value) ? INFINITY : s->settings.maximize ? -value : value);
    return 0;
}
