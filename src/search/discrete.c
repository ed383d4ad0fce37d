/* SPDX-License-Identifier: Apache-2.0 */
#include "search/discrete.h"

#include <errno.h>
#include <math.h>

#include "base/mem.h"
#include "search/scale.h"

int hy_discrete_check(const struct hy_dim *dim, const char *search, struct hy_err *err)
{
    const char *what = dim->normal ? "normal distribution" : dim->log ? "log-scaled range" : "range of real numbers";

    if (!dim->normal && !dim->log && hy_discrete_width(dim) > 0)
        return 0;
    return hy_err_set(err, -EINVAL,
                      "'%.80s' is a %s: %s needs a list of values (%.80s=0.1,0.01), "
                      "or use a random search",
                      dim->name, what, search, dim->name);
}

/* ---- steps of real numbers ---------------------------------------------- */

/* Whether x is the double nearest to an integer divided by `ten`; both are exact, so the quotient is rounded once. */
static bool is_decimal(double x, double ten)
{
    double scaled = round(x * ten);

    return fabs(scaled) <= HY_INT_LIMIT && scaled / ten == x;
}

/* The smallest power of ten that makes integers of all three, or 0. */
static double decimal_scale(double a, double b, double c)
{
    static const double tens[] = {1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

    for (size_t i = 0; i < HY_COUNT(tens); i++)
        if (is_decimal(a, tens[i]) && is_decimal(b, tens[i]) && is_decimal(c, tens[i]))
            return tens[i];
    return 0;
}

static double step_at(const struct hy_dim *dim, double n)
{
    double ten = decimal_scale(dim->low, dim->step, 0), sum = round(dim->low * ten) + n * round(dim->step * ten);

    return ten > 0 && fabs(sum) <= HY_INT_LIMIT ? sum / ten : dim->low + n * dim->step;
}

static double steps_above(const struct hy_dim *dim, double value)
{
    return (value / 2 - dim->low / 2) / (dim->step / 2);
}

double hy_discrete_last(const struct hy_dim *dim)
{
    double ten = decimal_scale(dim->low, dim->high, dim->step);

    if (dim->kind == HY_DIM_INT)
        return hy_discrete_at(dim, hy_discrete_width(dim) - 1).number;
    if (ten > 0)
        return step_at(dim, floor((round(dim->high * ten) - round(dim->low * ten)) / round(dim->step * ten)));
    return step_at(dim, floor(steps_above(dim, dim->high) * (1 + 1e-12))); /* it may be a rounded sum of steps */
}

/* ---- all ---------------------------------------------------------------- */

static int64_t int_step(const struct hy_dim *dim)
{
    return dim->step > 0 ? (int64_t)dim->step : 1;
}

uint64_t hy_discrete_width(const struct hy_dim *dim)
{
    if (dim->kind == HY_DIM_CATEGORY)
        return dim->choice_count;
    if (dim->kind == HY_DIM_INT)
        return (uint64_t)(((int64_t)dim->high - (int64_t)dim->low) / int_step(dim)) + 1;
    return dim->step > 0 ? (uint64_t)round(steps_above(dim, dim->high)) + 1 : 0;
}

struct hy_value hy_discrete_at(const struct hy_dim *dim, uint64_t n)
{
    if (dim->kind == HY_DIM_FLOAT)
        return (struct hy_value){step_at(dim, (double)n)};
    if (dim->kind == HY_DIM_INT)
        return (struct hy_value){(double)((int64_t)dim->low + (int64_t)n * int_step(dim))};
    return (struct hy_value){(double)n};
}

uint64_t hy_discrete_index(const struct hy_dim *dim, struct hy_value value)
{
    double last = (double)(hy_discrete_width(dim) - 1), n = value.number;

    if (dim->kind == HY_DIM_INT)
        n = (n - dim->low) / (double)int_step(dim);
    else if (dim->kind == HY_DIM_FLOAT)
        n = steps_above(dim, n);
    n = round(n);
    return n > 0 ? (uint64_t)(n < last ? n : last) : 0;
}
