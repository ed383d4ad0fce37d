/* SPDX-License-Identifier: Apache-2.0 */
#include "search/trial_archive.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

int hy_trial_archive_init(struct hy_trial_archive *a, size_t dims, size_t capacity, size_t best, size_t latest)
{
    assert(best + latest < capacity);
    *a = (struct hy_trial_archive){.dims = dims, .capacity = capacity, .best = best, .latest = latest};
    a->units = hy_calloc(dims * capacity, sizeof *a->units);
    a->cost = hy_calloc(capacity, sizeof *a->cost);
    a->priority = hy_calloc(capacity, sizeof *a->priority);
    a->ranked = hy_calloc(capacity, sizeof *a->ranked);
    a->aged = hy_calloc(capacity, sizeof *a->aged);
    if (a->units && a->cost && a->priority && a->ranked && a->aged)
        return 0;
    hy_trial_archive_done(a);
    return -ENOMEM;
}

void hy_trial_archive_done(struct hy_trial_archive *a)
{
    free(a->units);
    free(a->cost);
    free(a->priority);
    free(a->ranked);
    free(a->aged);
    *a = (struct hy_trial_archive){0};
}

/*
 * The one of the lowest priority that is neither among the best nor among the latest.
 * Priorities are random and never change, so those that stay are a uniform sample.
 */
static size_t row_to_evict(const struct hy_trial_archive *a)
{
    size_t evicted = SIZE_MAX;

    for (size_t i = 0; i < a->count - a->latest; i++) {
        size_t row = a->aged[i];

        if (a->cost[row] >= a->cost[a->ranked[a->best]] &&
            (evicted == SIZE_MAX || a->priority[row] < a->priority[evicted]))
            evicted = row;
    }
    return evicted;
}

static void remove_row(size_t *rows, size_t count, size_t row)
{
    size_t at = 0;

    while (rows[at] != row)
        at++;
    memmove(rows + at, rows + at + 1, (count - at - 1) * sizeof *rows);
}

static size_t take_row(struct hy_trial_archive *a)
{
    size_t row = a->count;

    if (a->count < a->capacity)
        return row;
    row = row_to_evict(a);
    remove_row(a->ranked, a->count, row);
    remove_row(a->aged, a->count, row);
    a->count--;
    return row;
}

static void rank_row(struct hy_trial_archive *a, size_t row)
{
    size_t low = 0, high = a->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (a->cost[a->ranked[middle]] <= a->cost[row])
            low = middle + 1;
        else
            high = middle;
    }
    memmove(a->ranked + low + 1, a->ranked + low, (a->count - low) * sizeof *a->ranked);
    a->ranked[low] = row;
}

void hy_trial_archive_add(struct hy_trial_archive *a, const double *units, double cost)
{
    size_t row = take_row(a);
    struct hy_rng rng;

    hy_rng_seed(&rng, 0, ++a->added);
    a->priority[row] = hy_rng_next(&rng);
    a->finite += isfinite(cost) != 0;
    a->cost[row] = cost;
    memcpy(a->units + row * a->dims, units, a->dims * sizeof *units);
    rank_row(a, row);
    a->aged[a->count++] = row;
}
