/* SPDX-License-Identifier: Apache-2.0 */
#include "search/cma_choices.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "search/portable_math.h"
#include "search/scale.h"

#define RATE 0.25   /* how far a generation moves the shares */
#define COMMON 0.73 /* of all points have no choice that the margin alone would give them */

int hy_cma_choices_init(struct hy_cma_choices *c, const struct hy_space *space)
{
    *c = (struct hy_cma_choices){.space = space};
    c->first = hy_calloc(space->count + 1, sizeof *c->first);
    if (!c->first)
        return -ENOMEM;
    for (size_t i = 0; i < space->count; i++) {
        c->first[i] = c->total;
        if (space->dims[i].kind != HY_DIM_CATEGORY)
            continue;
        c->total += space->dims[i].choice_count;
        c->dims++;
    }
    c->shares = hy_calloc(c->total + 1, sizeof *c->shares);
    c->sums = hy_calloc(c->total + 1, sizeof *c->sums);
    c->weights = hy_calloc(space->count + 1, sizeof *c->weights);
    return c->shares && c->sums && c->weights ? 0 : -ENOMEM;
}

void hy_cma_choices_done(struct hy_cma_choices *c)
{
    free(c->first);
    free(c->shares);
    free(c->sums);
    free(c->weights);
    *c = (struct hy_cma_choices){0};
}

void hy_cma_choices_start(struct hy_cma_choices *c)
{
    for (size_t i = 0; i < c->space->count; i++) {
        const struct hy_dim *dim = &c->space->dims[i];

        for (size_t k = 0; dim->kind == HY_DIM_CATEGORY && k < dim->choice_count; k++)
            c->shares[c->first[i] + k] = 1 / (double)dim->choice_count;
    }
}

double hy_cma_choices_at(const struct hy_cma_choices *c, size_t dim, double u)
{
    const double *shares = &c->shares[c->first[dim]];
    size_t count = c->space->dims[dim].choice_count, k = 0;

    for (double sum = shares[0]; k + 1 < count && sum <= u; sum += shares[k])
        k++;
    return ((double)k + 0.5) / (double)count;
}

void hy_cma_choices_add(struct hy_cma_choices *c, double weight, const double *units)
{
    for (size_t i = 0; weight > 0 && c->dims > 0 && i < c->space->count; i++) {
        const struct hy_dim *dim = &c->space->dims[i];

        if (dim->kind != HY_DIM_CATEGORY || isnan(units[i]))
            continue;
        c->sums[c->first[i] + hy_unit_part(units[i], dim->choice_count)] += weight;
        c->weights[i] += weight;
    }
}

/* No share below the margin; what that takes is taken from the others in proportion to what they have above it. */
static void keep_margin(double *shares, size_t count, double margin)
{
    double sum = 0, above = 0;

    for (size_t k = 0; k < count; k++) {
        shares[k] = fmax(shares[k], margin);
        sum += shares[k];
        above += shares[k] - margin;
    }
    for (size_t k = 0; k < count && above > 0; k++)
        shares[k] += (1 - sum) * (shares[k] - margin) / above;
}

static void update_dim(struct hy_cma_choices *c, size_t dim)
{
    size_t count = c->space->dims[dim].choice_count;
    double *shares = &c->shares[c->first[dim]], *sums = &c->sums[c->first[dim]];
    double rate = RATE * c->weights[dim];

    for (size_t k = 0; k < count && c->weights[dim] > 0; k++)
        shares[k] += rate * (sums[k] / c->weights[dim] - shares[k]);
    if (count > 1)
        keep_margin(shares, count, (1 - hy_pow(COMMON, 1 / (double)c->dims)) / (double)(count - 1));
    memset(sums, 0, count * sizeof *sums);
    c->weights[dim] = 0;
}

void hy_cma_choices_update(struct hy_cma_choices *c)
{
    for (size_t i = 0; c->dims > 0 && i < c->space->count; i++)
        if (c->space->dims[i].kind == HY_DIM_CATEGORY)
            update_dim(c, i);
}
