/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp, log, erf and the normal distribution, equal to the last bit on every machine;
 * private to this part.
 *
 * libm's last bit depends on the C library and on the processor, and one different
 * bit gives different trials for the same seed. These functions use only operations
 * that IEEE 754 defines exactly (+, -, *, /, sqrt, floor, frexp, ldexp), in a fixed
 * order. Their relative error is a few units in the last place (hy_erfc: below 1e-11 where
 * its value is a normal number).
 */
#ifndef HY_SEARCH_PORTABLE_MATH_H
#define HY_SEARCH_PORTABLE_MATH_H

#define HY_LN2 0.693147180559945309417232121458
#define HY_SQRT2 1.41421356237309504880168872421
#define HY_PI 3.14159265358979323846264338328

double hy_log2(double x); /* x > 0 */
double hy_ln(double x);   /* natural; x > 0 */
double hy_exp2(double x);
double hy_exp(double x); /* 0 below -745, INFINITY above 709.8 */
/* base > 0 */
double hy_pow(double base, double exponent);

double hy_erf(double x);
double hy_erfc(double x);

/* The standard normal distribution. */
double hy_normal_density(double x);
double hy_normal_cdf(double x);
double hy_normal_quantile(double p); /* 0 < p < 1 */

#endif
