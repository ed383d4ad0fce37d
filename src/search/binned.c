/* SPDX-License-Identifier: Apache-2.0 */
#include "search/binned.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

/* The metric is clipped at this many interquartile ranges beyond the quartiles: otherwise one diverged trial with a
 * loss of 1e30 would make up all of the variance. */
#define OUTLIER_DISTANCE 10

struct entry {
    double value;
    size_t count, row;
};

void hy_binned_done(struct hy_binned *b)
{
    for (size_t i = 0; i < b->count; i++)
        free(b->columns[i].bins);
    free(b->columns);
    free(b->targets);
    *b = (struct hy_binned){0};
}

uint64_t hy_bins_all(const struct hy_binned_column *c)
{
    return UINT64_MAX >> (HY_BINS - c->bin_count);
}

double hy_bins_mass(const struct hy_binned_column *c, uint64_t bins)
{
    double mass = 0;

    for (; bins; bins &= bins - 1)
        mass += c->mass[__builtin_ctzll(bins)];
    return mass;
}

/* ---- the metric -------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Computes with halves, since the difference of two doubles may overflow. */
static int scale_targets(struct hy_binned *b, const double *metric)
{
    hy_cleanup_free double *sorted = hy_calloc(b->rows, sizeof *sorted);
    double low, high, reach;

    b->targets = hy_calloc(b->rows, sizeof *b->targets);
    if (!sorted || !b->targets)
        return -ENOMEM;
    for (size_t i = 0; i < b->rows; i++)
        sorted[i] = metric[i] / 2;
    qsort(sorted, b->rows, sizeof *sorted, compare_doubles);
    low = sorted[0];
    high = sorted[b->rows - 1];
    reach = OUTLIER_DISTANCE * (sorted[b->rows * 3 / 4] - sorted[b->rows / 4]);
    if (reach > 0) {
        low = fmax(low, sorted[b->rows / 4] - reach);
        high = fmin(high, sorted[b->rows * 3 / 4] + reach);
    }
    for (size_t i = 0; i < b->rows && low < high; i++)
        b->targets[i] = (fmin(fmax(metric[i] / 2, low), high) - low) / (high - low);
    return 0;
}

/* ---- hyperparameters ----------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int compare_counts(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return compare_entries(a, b);
}

/* The values of a column in ascending order, without missing ones. */
static size_t sort_values(const struct hy_param_column *p, size_t rows, struct entry *ret)
{
    size_t n = 0;

    for (size_t i = 0; i < rows; i++)
        if (!isnan(p->values[i]))
            ret[n++] = (struct entry){.value = p->values[i], .row = i};
    qsort(ret, n, sizeof *ret, compare_entries);
    return n;
}

static size_t count_distinct(const struct entry *sorted, size_t n)
{
    size_t distinct = 0;

    for (size_t i = 0; i < n; i++)
        distinct += i == 0 || sorted[i].value != sorted[i - 1].value;
    return distinct;
}

/* One bin for each value if there are few, otherwise an equal number of rows per bin; equal values share a bin. */
static void bin_numbers(struct hy_binned_column *c, const struct entry *sorted, size_t n, size_t most)
{
    bool few = count_distinct(sorted, n) <= most;
    size_t in_bin = 0, left = most;

    for (size_t i = 0; i < n; i++) {
        bool is_new = i && sorted[i].value != sorted[i - 1].value;

        if (is_new && (few || in_bin >= (n - i + in_bin + left - 1) / left)) {
            c->bin_count++;
            left--;
            in_bin = 0;
        }
        in_bin++;
        c->bins[sorted[i].row] = (uint8_t)c->bin_count;
    }
    c->bin_count += n > 0;
}

/* The most frequent choices first. */
static int bin_choices(struct hy_binned_column *c, const struct hy_param_column *p, size_t rows, size_t most)
{
    hy_cleanup_free struct entry *choices = hy_calloc(p->choice_count, sizeof *choices);
    hy_cleanup_free uint8_t *bin_of = hy_calloc(p->choice_count, sizeof *bin_of);
    size_t used = p->choice_count < most ? p->choice_count : most;

    if (!choices || !bin_of)
        return -ENOMEM;
    for (size_t i = 0; i < p->choice_count; i++)
        choices[i] = (struct entry){.value = (double)i, .row = i};
    for (size_t i = 0; i < rows; i++)
        if (!isnan(p->values[i]))
            choices[(size_t)p->values[i]].count++;
    qsort(choices, p->choice_count, sizeof *choices, compare_counts);
    for (size_t i = 0; i < p->choice_count; i++)
        bin_of[choices[i].row] = (uint8_t)(c->bin_count + (i < used ? i : used - 1));
    for (size_t i = 0; i < rows; i++)
        if (!isnan(p->values[i]))
            c->bins[i] = bin_of[(size_t)p->values[i]];
    c->bin_count += used;
    return 0;
}

static int bin_column(struct hy_binned_column *c, const struct hy_param_column *p, size_t rows)
{
    hy_cleanup_free struct entry *sorted = hy_calloc(rows, sizeof *sorted);
    size_t n;
    int rc = 0;

    c->bins = hy_calloc(rows, sizeof *c->bins);
    if (!sorted || !c->bins)
        return -ENOMEM;
    n = sort_values(p, rows, sorted);
    c->is_category = p->choices;
    c->has_missing = n < rows;
    c->bin_count = c->has_missing;
    if (c->is_category)
        rc = bin_choices(c, p, rows, HY_BINS - c->bin_count);
    else
        bin_numbers(c, sorted, n, HY_BINS - c->bin_count);
    for (size_t i = 0; i < rows && rc == 0; i++)
        c->mass[c->bins[i]] += 1 / (double)rows;
    return rc;
}

int hy_binned_init(struct hy_binned *b, const struct hy_trial_columns *trials)
{
    *b = (struct hy_binned){.rows = trials->rows, .columns = hy_calloc(trials->count, sizeof *b->columns)};
    if (!b->columns || scale_targets(b, trials->metric) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < trials->count; i++) {
        struct hy_binned_column *c = &b->columns[b->count];

        *c = (struct hy_binned_column){.param = i};
        b->count++;
        if (bin_column(c, &trials->params[i], b->rows) < 0)
            return -ENOMEM;
        if (c->bin_count < 2) { /* it has one value in all trials */
            free(c->bins);
            b->count--;
        }
    }
    return 0;
}
