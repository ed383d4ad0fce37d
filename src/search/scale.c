/* SPDX-License-Identifier: Apache-2.0 */
#include "search/scale.h"

#include <math.h>
#include <stdint.h>

#include "search/discrete.h"
#include "search/expression.h"
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

/* The part of [low, high] below `value`. */
static double part_of(double low, double high, double value)
{
    return low < high ? within((value / 2 - low / 2) / (high / 2 - low / 2), 0, 1) : 0.5;
}

size_t hy_unit_part(double unit, size_t n)
{
    double part = floor(unit * (double)n);

    return part < (double)n ? (size_t)part : n - 1;
}

/* ---- normal distributions ----------------------------------------------- */

/*
 * The part of the standard normal distribution that a dimension has. If most of it is
 * above 0, its mirror image: the probabilities of a lower tail have small relative errors.
 */
struct normal_part {
    bool is_mirrored;
    double from, to; /* the probabilities of lower values */
};

/* The value in standard deviations from the mean. */
static double standardized(const struct hy_dim *dim, double value)
{
    if (!isfinite(value))
        return value;
    if (dim->log)
        value = value > 0 ? hy_ln(value) : -INFINITY;
    return (value - dim->mean) / dim->deviation;
}

/* Each step is the part of the distribution within half a step to either side. */
static struct normal_part part_of_normal(const struct hy_dim *dim)
{
    double low = standardized(dim, dim->low - dim->step / 2), high = standardized(dim, dim->high + dim->step / 2);

    if (low + high > 0)
        return (struct normal_part){true, hy_normal_cdf(-high), hy_normal_cdf(-low)};
    return (struct normal_part){false, hy_normal_cdf(low), hy_normal_cdf(high)};
}

double hy_normal_share(const struct hy_dim *dim)
{
    struct normal_part part = part_of_normal(dim);

    return part.to - part.from;
}

/* The value in standard deviations; finite for every unit: p is not closer to 0 and 1 than a random number is. */
static double normal_at(const struct normal_part *part, double unit)
{
    double p = between(part->from, part->to, part->is_mirrored ? 1 - unit : unit), z;

    p = within(p, part->to * 0x1p-53, 1 - 0x1p-53);
    z = p > 0.5 ? -hy_normal_quantile(1 - p) : hy_normal_quantile(p);
    return part->is_mirrored ? -z : z;
}

static double value_of_normal(const struct hy_dim *dim, double unit)
{
    struct normal_part part = part_of_normal(dim);
    double value = part.from < part.to ? dim->mean + dim->deviation * normal_at(&part, unit) : dim->low;

    if (dim->log)
        value = hy_exp(value);
    return dim->step > 0 ? hy_discrete_at(dim, hy_discrete_index(dim, (struct hy_value){value})).number : value;
}

static double unit_of_normal(const struct hy_dim *dim, double value)
{
    struct normal_part part = part_of_normal(dim);
    double z = standardized(dim, value), unit;

    unit = part_of(part.from, part.to, hy_normal_cdf(part.is_mirrored ? -z : z));
    return part.is_mirrored ? 1 - unit : unit;
}

/* ---- dimensions --------------------------------------------------------- */

/* Values that all have the same part of [0, 1]. */
static bool is_even(const struct hy_dim *dim)
{
    return dim->kind == HY_DIM_CATEGORY || (!dim->log && !dim->normal && (dim->kind == HY_DIM_INT || dim->step > 0));
}

static double number_at(const struct hy_dim *dim, double unit)
{
    if (dim->normal)
        return value_of_normal(dim, unit);
    if (dim->kind == HY_DIM_INT) /* each integer covers half a step to either side */
        return round(between_logs(dim->low - 0.5, dim->high + 0.5, unit));
    return dim->log ? between_logs(dim->low, dim->high, unit) : between(dim->low, dim->high, unit);
}

struct hy_value hy_dim_at(const struct hy_dim *dim, double unit)
{
    if (is_even(dim))
        return hy_discrete_at(dim, hy_unit_part(unit, hy_discrete_width(dim)));
    return (struct hy_value){within(number_at(dim, unit), dim->low, dim->high)};
}

double hy_dim_unit(const struct hy_dim *dim, struct hy_value value)
{
    double v = value.number;

    if (isnan(v))
        return v;
    if (is_even(dim))
        return ((double)hy_discrete_index(dim, value) + 0.5) / (double)hy_discrete_width(dim);
    if (dim->normal)
        return unit_of_normal(dim, v);
    if (!dim->log)
        return part_of(dim->low, dim->high, v);
    if (dim->kind == HY_DIM_INT)
        return part_of(hy_log2(dim->low - 0.5), hy_log2(dim->high + 0.5), hy_log2(v));
    return part_of(hy_log2(dim->low), hy_log2(dim->high), hy_log2(v));
}

/* ---- spaces ------------------------------------------------------------- */

bool hy_space_has_rules(const struct hy_space *space)
{
    size_t i = 0;

    while (i < space->count && !space->dims[i].active)
        i++;
    return i < space->count || space->constraint_count > 0;
}

bool hy_space_is_active(const struct hy_space *space, size_t i, const struct hy_value *values)
{
    const struct hy_expression *active = space->dims[i].active;

    return !active || hy_expression_test(active, space, values) == HY_TRUE;
}

static struct hy_value value_at(const struct hy_space *space, size_t i, double unit, const struct hy_value *values)
{
    return hy_space_is_active(space, i, values) ? hy_dim_at(&space->dims[i], unit) : (struct hy_value){NAN};
}

void hy_space_values(const struct hy_space *space, const double *units, struct hy_value *ret)
{
    for (size_t i = 0; i < space->count; i++)
        ret[i] = value_at(space, i, units[i], ret);
}

void hy_space_units(const struct hy_space *space, const struct hy_value *values, double *ret)
{
    for (size_t i = 0; i < space->count; i++)
        ret[i] = hy_dim_unit(&space->dims[i], values[i]);
}

bool hy_space_draw(const struct hy_space *space, struct hy_rng *rng, size_t limit, double *ret_units,
                   struct hy_value *ret)
{
    while (limit-- > 0) {
        for (size_t i = 0; i < space->count; i++) {
            double unit = hy_rng_double(rng);

            if (ret_units)
                ret_units[i] = unit;
            ret[i] = value_at(space, i, unit, ret);
        }
        if (hy_space_allows(space, ret))
            return true;
    }
    return false;
}
