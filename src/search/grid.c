/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grid: every combination, the first name varies slowest. A trial's number
 * determines it: its digits in a mixed radix are the choices.
 */
#include <errno.h>

#include "search/discrete.h"
#include "search/internal.h"

static int grid_init(struct hy_search *s, struct hy_err *err)
{
    uint64_t total = 1;

    for (size_t i = 0; i < s->space.count; i++) {
        const struct hy_dim *dim = &s->space.dims[i];
        int rc = hy_discrete_check(dim, "a grid", err);

        if (rc < 0)
            return rc;
        if (__builtin_mul_overflow(total, hy_discrete_width(dim), &total) || total == UINT64_MAX)
            return hy_err_set(err, -EINVAL,
                              "the grid has too many trials (more than 2^64 at '%.80s'); "
                              "give fewer values",
                              dim->name);
    }
    s->total = total; /* an empty space has one point */
    return 0;
}

static int grid_ask(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket)
{
    uint64_t rest = number - 1;

    for (size_t i = s->space.count; i-- > 0;) {
        const struct hy_dim *dim = &s->space.dims[i];

        values[i] = hy_discrete_at(dim, rest % hy_discrete_width(dim));
        rest /= hy_discrete_width(dim);
    }
    *ret_ticket = &hy_stateless_ticket;
    return 1;
}

const struct hy_search_ops hy_grid_ops = {
    .init = grid_init,
    .done = hy_stateless_done,
    .ask = grid_ask,
    .tell = hy_stateless_tell,
    .drop = hy_stateless_drop,
};
