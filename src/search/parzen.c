/* SPDX-License-Identifier: Apache-2.0 */
#include "search/parzen.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "search/portable_math.h"
#include "search/scale.h"

#define WIDTH_PARTS 100.0 /* a kernel is at least this part of [0, 1] wide; with n kernels, 1 / (n + 2) */
#define FACTORS_MAX 16    /* of a product, before its logarithm is taken: each is above 1e-3 */

struct hy_parzen_center {
    double unit;
    size_t kernel;
};

int hy_parzen_init(struct hy_parzen *p, const struct hy_space *space, size_t capacity)
{
    size_t cells = space->count * capacity;

    *p = (struct hy_parzen){.space = space, .capacity = capacity};
    p->center = hy_calloc(cells, sizeof *p->center);
    p->width = hy_calloc(cells, sizeof *p->width);
    p->factor = hy_calloc(cells, sizeof *p->factor);
    p->same = hy_calloc(space->count, sizeof *p->same);
    p->other = hy_calloc(space->count, sizeof *p->other);
    p->log_norm = hy_calloc(capacity, sizeof *p->log_norm);
    p->scratch = hy_calloc(capacity, sizeof *p->scratch);
    p->sorted = hy_calloc(capacity, sizeof *p->sorted);
    if (p->center && p->width && p->factor && p->same && p->other && p->log_norm && p->scratch && p->sorted)
        return 0;
    hy_parzen_done(p);
    return -ENOMEM;
}

void hy_parzen_done(struct hy_parzen *p)
{
    free(p->center);
    free(p->width);
    free(p->factor);
    free(p->same);
    free(p->other);
    free(p->log_norm);
    free(p->scratch);
    free(p->sorted);
    *p = (struct hy_parzen){0};
}

/* ---- arithmetic that is fast enough for every pair of a candidate and a kernel ---- */

/* exp(x) for x <= 0, relative error 1e-7; not below 1e-304. The loop that calls it is vectorized. */
static inline double exp_fast(double x)
{
    const double rounding = 0x1.8p52; /* adding it moves the integer part to the lowest bits */
    double bounded = x < -700 ? -700 : x, t = bounded * (1 / HY_LN2) + rounding;
    double r = (bounded * (1 / HY_LN2) - (t - rounding)) * HY_LN2;
    double series = 1 + r * (1 + r * (1.0 / 2 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720))))));
    uint64_t bits;
    double power;

    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, sizeof power);
    return series * power;
}

/* The normal distribution's cdf, absolute error 2e-7 (Abramowitz and Stegun, 7.1.28). */
static double cdf_fast(double z)
{
    double x = fabs(z) / HY_SQRT2, upper;
    double q =
        1 + x * (0.0705230784 +
                 x * (0.0422820123 + x * (0.0092705272 + x * (0.0001520143 + x * (0.0002765672 + x * 0.0000430638)))));

    q *= q;
    q *= q;
    q *= q;
    q *= q;
    upper = 0.5 / q;
    return z < 0 ? upper : 1 - upper;
}

static double draw_normal(struct hy_rng *rng)
{
    for (;;) {
        double u = 2 * hy_rng_double(rng) - 1, v = 2 * hy_rng_double(rng) - 1, square = u * u + v * v;

        if (square > 0 && square < 1)
            return u * sqrt(-2 * hy_ln(square) / square);
    }
}

/* ---- fitting ------------------------------------------------------------------ */

static bool is_below(const struct hy_parzen_center *a, const struct hy_parzen_center *b)
{
    return a->unit < b->unit || (a->unit == b->unit && a->kernel < b->kernel);
}

/* Shell sort: several times faster than qsort for a few hundred. */
static void sort_centers(struct hy_parzen_center *c, size_t count)
{
    static const size_t gaps[] = {301, 132, 57, 23, 10, 4, 1};

    for (size_t g = 0; g < HY_COUNT(gaps); g++)
        for (size_t i = gaps[g]; i < count; i++) {
            struct hy_parzen_center kept = c[i];
            size_t at = i;

            for (; at >= gaps[g] && is_below(&kept, &c[at - gaps[g]]); at -= gaps[g])
                c[at] = c[at - gaps[g]];
            c[at] = kept;
        }
}

/* The distance to the farther of the two neighbors; a single point's neighbors are the bounds. */
static void set_widths(struct hy_parzen *p, const double *center, double *width)
{
    double least = fmax(1 / WIDTH_PARTS, 1 / ((double)p->count + 2));

    for (size_t i = 0; i < p->count; i++)
        p->sorted[i] = (struct hy_parzen_center){center[i], i};
    sort_centers(p->sorted, p->count);
    for (size_t i = 0; i < p->count; i++) {
        double unit = p->sorted[i].unit, below = unit, above = 1 - unit;

        if (i > 0)
            below = unit - p->sorted[i - 1].unit;
        if (i + 1 < p->count)
            above = p->sorted[i + 1].unit - unit;
        else if (i > 0)
            above = 0; /* the outermost points have one neighbor, not a bound */
        if (i == 0 && p->count > 1)
            below = 0;
        width[p->sorted[i].kernel] = fmin(1, fmax(least, fmax(below, above)));
    }
}

/* The part of [0, 1] that the integer at `unit` covers. */
static double int_cell(const struct hy_dim *dim, double unit)
{
    double value;

    if (!dim->log)
        return 1 / (dim->high - dim->low + 1);
    value = hy_dim_at(dim, unit).number;
    return hy_log2((value + 0.5) / (value - 0.5)) / hy_log2((dim->high + 0.5) / (dim->low - 0.5));
}

/*
 * The mass that a normal distribution has in an integer's cell is nearly proportional to the
 * density in its middle of one that is wider by the cell's variance, w²/12.
 */
static void fit_number(struct hy_parzen *p, size_t d, double *norm)
{
    const struct hy_dim *dim = &p->space->dims[d];
    const double *center = p->center + d * p->capacity, *width = p->width + d * p->capacity;
    double *factor = p->factor + d * p->capacity;

    for (size_t i = 0; i < p->count; i++) {
        double cell = dim->kind == HY_DIM_INT ? int_cell(dim, center[i]) : 0;
        double sigma = sqrt(width[i] * width[i] + cell * cell / 12);

        factor[i] = -0.5 / (sigma * sigma);
        norm[i] *= sigma * (cdf_fast((1 - center[i]) / sigma) - cdf_fast(-center[i] / sigma)) * sqrt(2 * HY_PI);
    }
}

/*
 * The point's choice counts as seen once, and all choices together as seen `choice_count` / (n + 1)
 * times. Relative to the uniform distribution, as the density of a number is.
 */
static void fit_choice(struct hy_parzen *p, size_t d)
{
    double choices = (double)p->space->dims[d].choice_count, prior = 1 / ((double)p->count + 1);

    p->same[d] = hy_ln(choices * (1 + prior) / (1 + choices * prior));
    p->other[d] = hy_ln(choices * prior / (1 + choices * prior));
}

static void take_logarithms(struct hy_parzen *p, double *norm)
{
    for (size_t i = 0; i < p->count; i++) {
        p->log_norm[i] -= hy_ln(norm[i]);
        norm[i] = 1;
    }
}

void hy_parzen_fit(struct hy_parzen *p, const size_t *dims, size_t dim_count, const double *const *points, size_t count)
{
    double *norm = p->scratch;
    size_t factors = 0;

    assert(count <= p->capacity);
    p->count = count;
    p->dims = dims;
    p->dim_count = dim_count;
    for (size_t i = 0; i < count; i++) {
        p->log_norm[i] = 0;
        norm[i] = 1;
    }
    for (size_t n = 0; n < dim_count; n++) {
        size_t d = dims[n];
        double *center = p->center + d * p->capacity;

        for (size_t i = 0; i < count; i++)
            center[i] = points[i][d];
        if (p->space->dims[d].kind == HY_DIM_CATEGORY) {
            fit_choice(p, d);
            continue;
        }
        set_widths(p, center, p->width + d * p->capacity);
        fit_number(p, d, norm);
        if (++factors % FACTORS_MAX == 0)
            take_logarithms(p, norm);
    }
    take_logarithms(p, norm);
}

/* ---- using -------------------------------------------------------------------- */

/* The middle of the part of [0, 1] of an integer or a choice. */
static double round_unit(const struct hy_dim *dim, double unit)
{
    return dim->kind == HY_DIM_FLOAT ? unit : hy_dim_unit(dim, hy_dim_at(dim, unit));
}

static double draw_number(const struct hy_parzen *p, size_t d, size_t kernel, struct hy_rng *rng)
{
    double center = p->center[d * p->capacity + kernel], width = p->width[d * p->capacity + kernel];

    double unit;

    do /* [0, 1] has at least a third of the mass */
        unit = center + width * draw_normal(rng);
    while (unit < 0 || unit > 1);
    return round_unit(&p->space->dims[d], unit);
}

static double draw_choice(const struct hy_parzen *p, size_t d, size_t kernel, struct hy_rng *rng)
{
    double others = (double)p->space->dims[d].choice_count / ((double)p->count + 1);

    if (hy_rng_double(rng) * (1 + others) < 1)
        return p->center[d * p->capacity + kernel];
    return round_unit(&p->space->dims[d], hy_rng_double(rng));
}

void hy_parzen_draw(const struct hy_parzen *p, struct hy_rng *rng, double *ret)
{
    size_t kernel = (size_t)hy_rng_below(rng, (uint64_t)p->count + 1);

    for (size_t n = 0; n < p->dim_count; n++) {
        size_t d = p->dims[n];

        if (kernel == p->count)
            ret[d] = round_unit(&p->space->dims[d], hy_rng_double(rng));
        else if (p->space->dims[d].kind == HY_DIM_CATEGORY)
            ret[d] = draw_choice(p, d, kernel, rng);
        else
            ret[d] = draw_number(p, d, kernel, rng);
    }
}

static void add_dim(const struct hy_parzen *p, size_t d, double unit, double *terms)
{
    const double *center = p->center + d * p->capacity, *factor = p->factor + d * p->capacity;
    double same = p->same[d], other = p->other[d];

    if (p->space->dims[d].kind == HY_DIM_CATEGORY)
        for (size_t i = 0; i < p->count; i++)
            terms[i] += center[i] == unit ? same : other;
    else
        for (size_t i = 0; i < p->count; i++)
            terms[i] += (unit - center[i]) * (unit - center[i]) * factor[i];
}

double hy_parzen_log_density(const struct hy_parzen *p, const double *point)
{
    double *terms = p->scratch, most = 0, sum = 0;

    memcpy(terms, p->log_norm, p->count * sizeof *terms);
    for (size_t n = 0; n < p->dim_count; n++)
        add_dim(p, p->dims[n], point[p->dims[n]], terms);
    for (size_t i = 0; i < p->count; i++)
        most = terms[i] > most ? terms[i] : most;
    for (size_t i = 0; i < p->count; i++)
        terms[i] = exp_fast(terms[i] - most);
    for (size_t i = 0; i < p->count; i++)
        sum += terms[i];
    return most + hy_ln((sum + hy_exp(-most)) / ((double)p->count + 1));
}
