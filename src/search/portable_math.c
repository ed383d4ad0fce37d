/* SPDX-License-Identifier: Apache-2.0 */
#include "search/portable_math.h"

#include <math.h>

#define SQRT_PI 1.77245385090551602729816748334
#define SERIES_MAX 2.5   /* erf by its series up to here, by the continued fraction of erfc above */
#define ERFC_ZERO 27.3   /* erfc is 0 from here */
#define FRACTION_TERMS 80

/* The series of atanh; |t| <= 0.172, so that 12 terms reach the last bit. */
double hy_log2(double x)
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
    return exponent + 2 * sum / HY_LN2;
}

double hy_ln(double x)
{
    return hy_log2(x) * HY_LN2;
}

/* The series of exp; |r| <= 0.347. */
static double exp_series(double r)
{
    double term = 1, sum = 1;

    for (int k = 1; k < 18; k++) {
        term *= r / k;
        sum += term;
    }
    return sum;
}

double hy_exp2(double x)
{
    double whole = floor(x + 0.5);

    if (x < -1080)
        return 0;
    if (x > 1025)
        return INFINITY;
    return ldexp(exp_series((x - whole) * HY_LN2), (int)whole);
}

double hy_exp(double x)
{
    /* ln 2 in two parts: `whole` times the first has no rounding error. */
    static const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    double whole;

    if (x < -745.2)
        return 0;
    if (x > 709.79)
        return INFINITY;
    whole = floor(x / HY_LN2 + 0.5);
    return ldexp(exp_series(x - whole * ln2_high - whole * ln2_low), (int)whole);
}

double hy_pow(double base, double exponent)
{
    return hy_exp2(exponent * hy_log2(base));
}

/* All terms are positive: 2/sqrt(pi) exp(-x²) (x + 2x³/3 + 4x⁵/15 + …). */
static double erf_series(double x)
{
    double term = x, sum = x;

    for (int k = 1; k < 60; k++) {
        term *= 2 * x * x / (2 * k + 1);
        sum += term;
    }
    return 2 / SQRT_PI * hy_exp(-x * x) * sum;
}

/* exp(-x²)/sqrt(pi) / (x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …)))), from the inside. */
static double erfc_fraction(double x)
{
    double f = x;

    for (int k = FRACTION_TERMS; k > 0; k--)
        f = x + k / 2.0 / f;
    return hy_exp(-x * x) / SQRT_PI / f;
}

double hy_erfc(double x)
{
    if (x < 0)
        return 2 - hy_erfc(-x);
    if (x > ERFC_ZERO)
        return 0;
    return x < SERIES_MAX ? 1 - erf_series(x) : erfc_fraction(x);
}

double hy_erf(double x)
{
    if (x < 0)
        return -hy_erf(-x);
    return x < SERIES_MAX ? erf_series(x) : 1 - hy_erfc(x);
}

double hy_normal_density(double x)
{
    return hy_exp(-x * x / 2) / (HY_SQRT2 * SQRT_PI);
}

double hy_normal_cdf(double x)
{
    return hy_erfc(-x / HY_SQRT2) / 2;
}

static double polynomial(const double *coefficients, int count, double x)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        sum = sum * x + coefficients[i];
    return sum;
}

/* Acklam's rational approximation, relative error 1e-9. */
static double quantile_estimate(double p)
{
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                               1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
    static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,  -1.556989798598866e+02,
                               6.680131188771972e+01,  -1.328068155288572e+01, 1};
    static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                               -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
    static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                               3.754408661907416e+00, 1};
    double q, r;

    if (p < 0.02425) {
        q = sqrt(-2 * hy_ln(p));
        return polynomial(c, 6, q) / polynomial(d, 5, q);
    }
    if (p > 1 - 0.02425)
        return -quantile_estimate(1 - p);
    q = p - 0.5;
    r = q * q;
    return polynomial(a, 6, r) * q / polynomial(b, 6, r);
}

double hy_normal_quantile(double p)
{
    double x = quantile_estimate(p), error = hy_normal_cdf(x) - p, step = error / hy_normal_density(x);

    return x - step / (1 + x * step / 2); /* one step of Halley's method */
}
