/* SPDX-License-Identifier: Apache-2.0 */
#include "search/discrete.h"

#include <errno.h>

int hy_discrete_check(const struct hy_dim *dim, const char *search, struct hy_err *err)
{
    if (dim->kind != HY_DIM_FLOAT && !dim->log)
        return 0;
    return hy_err_set(err, -EINVAL,
                      "'%.80s' is a %s: %s needs a list of values (%.80s=0.1,0.01), "
                      "or use a random search",
                      dim->name, dim->log ? "log-scaled range" : "range of real numbers", search, dim->name);
}

uint64_t hy_discrete_width(const struct hy_dim *dim)
{
    if (dim->kind == HY_DIM_CATEGORY)
        return dim->choice_count;
    return (uint64_t)((int64_t)dim->high - (int64_t)dim->low) + 1;
}

struct hy_value hy_discrete_at(const struct hy_dim *dim, uint64_t n)
{
    int64_t from = dim->kind == HY_DIM_INT ? (int64_t)dim->low : 0;

    return (struct hy_value){(double)(from + (int64_t)n)};
}
