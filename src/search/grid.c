/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grid: every combination, the first name varies slowest. A trial's number
 * determines it: its digits in a mixed radix are the choices.
 *
 * With conditions or constraints the numbers have gaps, so points are visited in their
 * order. An inactive dimension has one value, none: the combinations that differ only in
 * it are one point.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "search/discrete.h"
#include "search/internal.h"
#include "search/scale.h"

/* With conditions or constraints: a trial, from which the next one is found. */
struct visit {
    uint64_t number; /* 0: none yet */
    struct hy_value values[];
};

/* ---- visiting ----------------------------------------------------------- */

/* Sets the dimensions from the i-th on to their first values. */
static void restart(const struct hy_space *space, size_t i, struct hy_value *values)
{
    for (; i < space->count; i++)
        values[i] = hy_space_is_active(space, i, values) ? hy_discrete_at(&space->dims[i], 0) : (struct hy_value){NAN};
}

/* The next point in the order; false: it was the last. */
static bool advance(const struct hy_space *space, struct hy_value *values)
{
    for (size_t i = space->count; i-- > 0;) {
        const struct hy_dim *dim = &space->dims[i];
        uint64_t next;

        if (isnan(values[i].number))
            continue;
        next = hy_discrete_index(dim, values[i]) + 1;
        if (next == hy_discrete_width(dim))
            continue;
        values[i] = hy_discrete_at(dim, next);
        restart(space, i + 1, values);
        return true;
    }
    return false;
}

static void visit_next(const struct hy_space *space, struct visit *v)
{
    bool some = true;

    if (v->number++ == 0)
        restart(space, 0, v->values);
    else
        some = advance(space, v->values);
    while (some && !hy_space_allows(space, v->values))
        some = advance(space, v->values);
}

/* Counts the trials. */
static int count_points(struct hy_search *s, struct hy_value *values, struct hy_err *err)
{
    uint64_t visited = 0;
    bool some = true;

    s->total = 0;
    for (restart(&s->space, 0, values); some; some = advance(&s->space, values)) {
        if (++visited > HY_VISITED_MAX)
            return hy_search_too_many(err);
        s->total += hy_space_allows(&s->space, values);
    }
    return s->total > 0 ? 0 : hy_search_unsatisfied(&s->space, "point of the grid", err);
}

static int visit_init(struct hy_search *s, struct hy_err *err)
{
    struct visit *v = hy_calloc(1, sizeof *v + s->space.count * sizeof v->values[0]);

    s->state = v;
    return v ? count_points(s, v->values, err) : hy_err_set(err, -ENOMEM, "out of memory for a grid");
}

/* ---- the search --------------------------------------------------------- */

static int grid_init(struct hy_search *s, struct hy_err *err)
{
    uint64_t total = 1;

    for (size_t i = 0; i < s->space.count; i++) {
        const struct hy_dim *dim = &s->space.dims[i];
        int rc = hy_discrete_check(dim, "a grid", err);

        if (rc < 0)
            return rc;
    }
    if (hy_space_has_rules(&s->space))
        return visit_init(s, err);
    for (size_t i = 0; i < s->space.count; i++) {
        const struct hy_dim *dim = &s->space.dims[i];

        if (__builtin_mul_overflow(total, hy_discrete_width(dim), &total) || total == UINT64_MAX)
            return hy_err_set(err, -EINVAL,
                              "the grid has too many trials (more than 2^64 at '%.80s'); "
                              "give fewer values",
                              dim->name);
    }
    s->total = total; /* an empty space has one point */
    return 0;
}

static void grid_done(struct hy_search *s)
{
    free(s->state);
}

static void number_to_values(const struct hy_space *space, uint64_t number, struct hy_value *values)
{
    uint64_t rest = number - 1;

    for (size_t i = space->count; i-- > 0;) {
        const struct hy_dim *dim = &space->dims[i];

        values[i] = hy_discrete_at(dim, rest % hy_discrete_width(dim));
        rest /= hy_discrete_width(dim);
    }
}

static int grid_ask(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket)
{
    struct visit *v = s->state;

    *ret_ticket = &hy_stateless_ticket;
    if (!v) {
        number_to_values(&s->space, number, values);
        return 1;
    }
    while (v->number < number) /* an ask that was not recorded is repeated */
        visit_next(&s->space, v);
    for (size_t i = 0; i < s->space.count; i++)
        values[i] = v->values[i];
    return 1;
}

const struct hy_search_ops hy_grid_ops = {
    .init = grid_init,
    .done = grid_done,
    .ask = grid_ask,
    .tell = hy_stateless_tell,
    .drop = hy_stateless_drop,
};
