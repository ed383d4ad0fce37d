/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grid: every combination, the first name slowest. A trial's number is all
 * there is to know about it: its digits in a mixed radix are the choices.
 */
#include <errno.h>

#include "search/kinds.h"

static uint64_t width(const struct hy_dim *dim)
{
    if (dim->kind == HY_DIM_CATEGORY)
        return dim->choice_count;
    return (uint64_t)((int64_t)dim->high - (int64_t)dim->low) + 1;
}

static int grid_init(struct hy_search *s, struct hy_err *err)
{
    uint64_t total = 1;

    for (size_t i = 0; i < s->space.count; i++) {
        const struct hy_dim *dim = &s->space.dims[i];

        if (dim->kind == HY_DIM_FLOAT || dim->log)
            return hy_err_set(err, -EINVAL,
                              "'%.80s' is a %s: a grid needs its values one by one (%.80s=0.1,0.01), "
                              "or use a random search",
                              dim->name, dim->log ? "log-scaled range" : "range of real numbers", dim->name);
        if (__builtin_mul_overflow(total, width(dim), &total) || total == UINT64_MAX)
            return hy_err_set(err, -EINVAL,
                              "the grid has too many trials to count (more than 2^64 at '%.80s'); "
                              "give fewer values",
                              dim->name);
    }
    s->total = total; /* an empty space has one point */
    return 0;
}

static void grid_done(struct hy_search *s)
{
    (void)s;
}

static int grid_ask(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket)
{
    uint64_t rest = number - 1;

    for (size_t i = s->space.count; i-- > 0;) {
        const struct hy_dim *dim = &s->space.dims[i];
        uint64_t digit = rest % width(dim);

        rest /= width(dim);
        values[i].number = (double)((int64_t)digit + (dim->kind == HY_DIM_INT ? (int64_t)dim->low : 0));
    }
    *ret_ticket = &hy_plain_ticket;
    return 1;
}

const struct hy_search_ops hy_grid_ops = {grid_init, grid_done, grid_ask, hy_plain_tell, hy_plain_drop};
