/* SPDX-License-Identifier: Apache-2.0 */
#include "search/scale.h"

#include <math.h>
#include <stdint.h>

#include "search/portable_math.h"

static double within(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* Weighted, since the difference of huge bounds could overflow. */
static double between(double low, double high, double unit)
{
    return low * (1 - unit) + high * unit;
}

static double between_logs(double low, double high, double unit)
{
    return hy_exp2(between(hy_log2(low), hy_log2(high), unit));
}

size_t hy_unit_part(double unit, size_t n)
{
    double part = floor(unit * (double)n);

    return part < (double)n ? (size_t)part : n - 1;
}

static double int_at(const struct hy_dim *dim, double unit)
{
    int64_t low = (int64_t)dim->low, high = (int64_t)dim->high;

    if (dim->log) /* each integer covers half a step to either side */
        return round(between_logs(dim->low - 0.5, dim->high + 0.5, unit));
    return (double)(low + (int64_t)hy_unit_part(unit, (size_t)(high - low) + 1));
}

struct hy_value hy_dim_at(const struct hy_dim *dim, double unit)
{
    double value;

    if (dim->kind == HY_DIM_CATEGORY)
        return (struct hy_value){(double)hy_unit_part(unit, dim->choice_count)};
    if (dim->kind == HY_DIM_INT)
        value = int_at(dim, unit);
    else
        value = dim->log ? between_logs(dim->low, dim->high, unit) : between(dim->low, dim->high, unit);
    return (struct hy_value){within(value, dim->low, dim->high)};
}

/* The part of [low, high] below `value`. */
static double part_of(double low, double high, double value)
{
    return low < high ? within((value / 2 - low / 2) / (high / 2 - low / 2), 0, 1) : 0.5;
}

double hy_dim_unit(const struct hy_dim *dim, struct hy_value value)
{
    double v = value.number;

    if (isnan(v))
        return v;
    if (dim->kind == HY_DIM_CATEGORY)
        return (v + 0.5) / (double)dim->choice_count;
    if (dim->kind == HY_DIM_INT && !dim->log)
        return (v - dim->low + 0.5) / (dim->high - dim->low + 1);
    if (!dim->log)
        return part_of(dim->low, dim->high, v);
    if (dim->kind == HY_DIM_INT)
        return part_of(hy_log2(dim->low - 0.5), hy_log2(dim->high + 0.5), hy_log2(v));
    return part_of(hy_log2(dim->low), hy_log2(dim->high), hy_log2(v));
}

void hy_space_values(const struct hy_space *space, const double *units, struct hy_value *ret)
{
    for (size_t i = 0; i < space->count; i++)
        ret[i] = hy_dim_at(&space->dims[i], units[i]);
}

void hy_space_units(const struct hy_space *space, const struct hy_value *values, double *ret)
{
    for (size_t i = 0; i < space->count; i++)
        ret[i] = hy_dim_unit(&space->dims[i], values[i]);
}
