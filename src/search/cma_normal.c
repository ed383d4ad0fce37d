/* SPDX-License-Identifier: Apache-2.0 */
#include "search/cma_normal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "search/portable_math.h"

#define PIVOT_MIN 1e-14 /* of the variance: below, the covariance is singular */

int hy_cma_normal_init(struct hy_cma_normal *d, size_t count)
{
    size_t square;

    *d = (struct hy_cma_normal){.count = count};
    if (__builtin_mul_overflow(count, count, &square) || square > SIZE_MAX / 64)
        return -ENOMEM;
    /* One allocation: three matrices and six vectors. */
    d->covariance = hy_calloc(3 * square + 6 * count + 1, sizeof *d->covariance);
    if (!d->covariance)
        return -ENOMEM;
    d->factor = d->covariance + square;
    d->sum = d->factor + square;
    d->mean = d->sum + square;
    d->path = d->mean + count;
    d->step_path = d->path + count;
    d->step = d->step_path + count;
    d->y = d->step + count;
    d->white = d->y + count;
    return 0;
}

void hy_cma_normal_done(struct hy_cma_normal *d)
{
    free(d->covariance);
    *d = (struct hy_cma_normal){0};
}

/* ---- weights and rates -------------------------------------------------------- */

/* Falls with the rank; positive for the better half. */
static double raw_weight(uint32_t size, uint32_t rank)
{
    return hy_ln((size + 1) / 2.0) - hy_ln(rank + 1.0);
}

double hy_cma_normal_weight(const struct hy_cma_normal *d, uint32_t rank)
{
    double raw = raw_weight(d->size, rank);

    return raw * (raw > 0 ? d->positive : d->negative);
}

static void set_rates(struct hy_cma_rates *r, double n, double effective)
{
    r->step_path = (effective + 2) / (n + effective + 5);
    r->damping = 1 + 2 * fmax(0, sqrt((effective - 1) / (n + 1)) - 1) + r->step_path;
    r->path = (4 + effective / n) / (n + 4 + 2 * effective / n);
    r->one = 2 / ((n + 1.3) * (n + 1.3) + effective);
    r->mu = fmin(1 - r->one, 2 * (0.25 + effective - 2 + 1 / effective) / ((n + 2) * (n + 2) + effective));
}

static void set_weights(struct hy_cma_normal *d)
{
    double n = fmax((double)d->count, 1), sum[2] = {0}, squares[2] = {0}, bad;
    const struct hy_cma_rates *r = &d->rates;

    for (uint32_t i = 0; i < d->size; i++) {
        double raw = raw_weight(d->size, i);

        sum[raw < 0] += fabs(raw);
        squares[raw < 0] += raw * raw;
    }
    d->effective = sum[0] * sum[0] / squares[0];
    set_rates(&d->rates, n, d->effective);
    /* As much as keeps the size of C, suits the number of bad points, and keeps C positive definite. */
    bad = fmin(1 + r->one / r->mu, 1 + 2 * (sum[1] * sum[1] / squares[1]) / (d->effective + 2));
    d->negative = fmin(bad, (1 - r->one - r->mu) / (n * r->mu)) / sum[1];
    d->positive = 1 / sum[0];
}

static void clear_sums(struct hy_cma_normal *d)
{
    memset(d->sum, 0, d->count * d->count * sizeof *d->sum);
    memset(d->step, 0, d->count * sizeof *d->step);
    d->weights = d->squares = d->total = 0;
}

void hy_cma_normal_start(struct hy_cma_normal *d, uint32_t size, const double *mean, double sigma)
{
    size_t n = d->count;

    d->size = size;
    d->sigma = sigma;
    d->generation = 0;
    memset(d->covariance, 0, 2 * n * n * sizeof *d->covariance); /* and the factor */
    for (size_t i = 0; i < n; i++) {
        d->mean[i] = mean[i];
        d->path[i] = d->step_path[i] = 0;
        d->covariance[i * n + i] = d->factor[i * n + i] = 1;
    }
    set_weights(d);
    clear_sums(d);
}

/* ---- drawing ---------------------------------------------------------------- */

void hy_cma_normal_at(const struct hy_cma_normal *d, const double *z, double *ret)
{
    size_t n = d->count;

    for (size_t i = 0; i < n; i++) {
        double sum = 0;

        for (size_t j = 0; j <= i; j++)
            sum += d->factor[i * n + j] * z[j];
        ret[i] = d->mean[i] + d->sigma * sum;
    }
}

double hy_cma_normal_deviation(const struct hy_cma_normal *d, size_t dim)
{
    return d->sigma * sqrt(d->covariance[dim * d->count + dim]);
}

/* ---- learning --------------------------------------------------------------- */

/* L^-1 y in place; returns its squared length. */
static double whiten(const struct hy_cma_normal *d, double *y)
{
    size_t n = d->count;
    double square = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++)
            y[i] -= d->factor[i * n + j] * y[j];
        y[i] /= d->factor[i * n + i];
        square += y[i] * y[i];
    }
    return square;
}

/* The lower triangle of to += weight * y y' */
static void add_outer(double *to, size_t n, double weight, const double *y)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            to[i * n + j] += weight * y[i] * y[j];
}

void hy_cma_normal_add(struct hy_cma_normal *d, uint32_t rank, bool failed, const double *x)
{
    double w = hy_cma_normal_weight(d, rank), square;

    if (failed && w > 0)
        return;
    for (size_t i = 0; i < d->count; i++)
        d->y[i] = d->white[i] = (x[i] - d->mean[i]) / d->sigma;
    d->total += w;
    if (w > 0) {
        d->weights += w;
        d->squares += w * w;
        for (size_t i = 0; i < d->count; i++)
            d->step[i] += w * d->y[i];
        add_outer(d->sum, d->count, w, d->y);
        return;
    }
    square = whiten(d, d->white);
    if (square > 0) /* as long as is typical, so that C stays positive definite */
        add_outer(d->sum, d->count, w * (double)d->count / square, d->y);
}

/* The step of the mean, which may leave the unit cube by one standard deviation: then most points are at the bound. */
static void limit_step(struct hy_cma_normal *d)
{
    for (size_t i = 0; i < d->count; i++) {
        double beyond = hy_cma_normal_deviation(d, i), mean = d->mean[i] + d->sigma * d->step[i] / d->weights;

        d->step[i] = (fmin(1 + beyond, fmax(-beyond, mean)) - d->mean[i]) / d->sigma;
    }
}

/* Returns the length of the step size's path. */
static double extend_paths(struct hy_cma_normal *d)
{
    const struct hy_cma_rates *r = &d->rates;
    double effective = d->weights * d->weights / d->squares, n = (double)d->count, square = 0, longest, scale;

    memcpy(d->white, d->step, d->count * sizeof *d->white);
    whiten(d, d->white);
    scale = sqrt(r->step_path * (2 - r->step_path) * effective);
    for (size_t i = 0; i < d->count; i++) {
        d->step_path[i] = (1 - r->step_path) * d->step_path[i] + scale * d->white[i];
        square += d->step_path[i] * d->step_path[i];
    }
    /* While the step size is much too small, the path of the covariance must not grow. */
    longest = (2 + 4 / (n + 1)) * n * (1 - hy_pow(1 - r->step_path, 2 * (double)d->generation));
    d->is_growing = square >= longest;
    scale = d->is_growing ? 0 : sqrt(r->path * (2 - r->path) * effective);
    for (size_t i = 0; i < d->count; i++)
        d->path[i] = (1 - r->path) * d->path[i] + scale * d->step[i];
    return sqrt(square);
}

static void learn_covariance(struct hy_cma_normal *d)
{
    const struct hy_cma_rates *r = &d->rates;
    double kept = 1 - r->one - r->mu * d->total + (d->is_growing ? r->one * r->path * (2 - r->path) : 0);
    size_t n = d->count;

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            double *c = &d->covariance[i * n + j];

            *c = kept * *c + r->one * d->path[i] * d->path[j] + r->mu * d->sum[i * n + j];
        }
}

/* The Cholesky factor of C. False where C is singular, or not a number. */
static bool factorize(struct hy_cma_normal *d)
{
    size_t n = d->count;

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            const double *a = &d->factor[i * n], *b = &d->factor[j * n];
            double rest = d->covariance[i * n + j];

            for (size_t k = 0; k < j; k++)
                rest -= a[k] * b[k];
            if (i > j)
                d->factor[i * n + j] = rest / b[j];
            else if (rest > PIVOT_MIN * d->covariance[i * n + i])
                d->factor[i * n + i] = sqrt(rest);
            else
                return false;
        }
    return true;
}

bool hy_cma_normal_update(struct hy_cma_normal *d)
{
    double n = (double)d->count, typical = sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n)), length;
    bool is_regular = true;

    d->generation++;
    if (d->count > 0 && d->weights > 0) {
        limit_step(d);
        length = extend_paths(d);
        learn_covariance(d);
        for (size_t i = 0; i < d->count; i++)
            d->mean[i] += d->sigma * d->step[i];
        d->sigma *= hy_exp(fmin(1, d->rates.step_path / d->rates.damping * (length / typical - 1)));
        is_regular = factorize(d);
    }
    clear_sums(d);
    return is_regular;
}
