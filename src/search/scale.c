/* SPDX-License-Identifier: Apache-2.0 */
#include "search/scale.h"

#include <math.h>
#include <stdint.h>

#define LN2 0.693147180559945309417232121458

/* x > 0. The series of atanh; |t| <= 0.172, so that 12 terms reach the last bit. */
static double portable_log2(double x)
{
    int exponent;
    double m = frexp(x, &exponent), t, power, sum = 0;

    if (m < 0.70710678118654752) {
        m *= 2;
        exponent--;
    }
    t = (m - 1) / (m + 1);
    power = t;
    for (int k = 1; k < 24; k += 2) {
        sum += power / k;
        power *= t * t;
    }
    return exponent + 2 * sum / LN2;
}

/* The series of exp around the nearest integer: |r| <= 0.347. */
static double portable_exp2(double x)
{
    double whole = floor(x + 0.5), r = (x - whole) * LN2, term = 1, sum = 1;

    for (int k = 1; k < 18; k++) {
        term *= r / k;
        sum += term;
    }
    return ldexp(sum, (int)whole);
}

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
    return portable_exp2(between(portable_log2(low), portable_log2(high), unit));
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
