/* SPDX-License-Identifier: Apache-2.0 */
/* Paired lists: the first values together, then the second ones, and so on. */
#include <errno.h>

#include "search/discrete.h"
#include "search/internal.h"

static int paired_init(struct hy_search *s, struct hy_err *err)
{
    const struct hy_dim *first = s->space.dims;

    s->total = 1; /* of an empty space, as in a grid */
    for (size_t i = 0; i < s->space.count; i++) {
        const struct hy_dim *dim = &s->space.dims[i];
        int rc = hy_discrete_check(dim, "a paired list", err);

        if (rc < 0)
            return rc;
        if (i == 0)
            s->total = hy_discrete_width(dim);
        if (hy_discrete_width(dim) != s->total)
            return hy_err_set(
                err, -EINVAL, "paired lists must be equally long, but '%.80s' has %llu values and '%.80s' has %llu",
                first->name, (unsigned long long)s->total, dim->name, (unsigned long long)hy_discrete_width(dim));
    }
    return 0;
}

static int paired_ask(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket)
{
    for (size_t i = 0; i < s->space.count; i++)
        values[i] = hy_discrete_at(&s->space.dims[i], number - 1);
    *ret_ticket = &hy_stateless_ticket;
    return 1;
}

const struct hy_search_ops hy_paired_ops = {
    .init = paired_init,
    .done = hy_stateless_done,
    .ask = paired_ask,
    .tell = hy_stateless_tell,
    .drop = hy_stateless_drop,
};
