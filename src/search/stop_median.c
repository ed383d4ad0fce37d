/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The median rule: the best value of a trial so far against the median of other trials at the same step.
 *
 * Others are all trials that have reached this step, whatever became of them. (Completed ones alone would be none for
 * as long as the first trials run, and later the survivors of this rule.) Each counts with the mean of its values up to
 * the step, as in Vizier (Golovin et al., 2017). That is lenient while values improve quickly, and less sensitive to
 * noise than the value at the step. On simulated learning curves (60 trials, 8 at a time), means ran 45% of all steps
 * and kept the best trial in 95% of the runs; values at the step 28% and 90%. With much noise, it was 53% and 97%
 * against 32% and 68%.
 *
 * Memory is bounded: steps share a cell where they differ by less than 1/64, so there are at most 3,712 cells, and each
 * has the latest HY_STOP_WINDOW means. A search improves, so the latest ones are those to compare with, too. A trial
 * counts once in each cell, with its first report there, and is compared then.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "search/stop_internal.h"

#define EXACT_BITS 7 /* steps below 2^7 have a cell each, */
#define SHARE_BITS 6 /* and from there on each power of two has 2^6 */
#define CELLS ((1 << EXACT_BITS) + ((63 - EXACT_BITS) << SHARE_BITS))

struct cell {
    double *sorted; /* ascending */
    double *latest; /* the same, a ring in the order of the reports */
    size_t count, oldest;
};

static size_t cell_of(int64_t step)
{
    unsigned bits;

    if (step < 1 << EXACT_BITS)
        return (size_t)step;
    bits = 63 - (unsigned)__builtin_clzll((unsigned long long)step);
    return (1 << EXACT_BITS) + ((size_t)(bits - EXACT_BITS) << SHARE_BITS) +
           ((size_t)(step >> (bits - SHARE_BITS)) & ((1 << SHARE_BITS) - 1));
}

static int median_init(struct hy_stopper *s)
{
    s->state = hy_calloc(CELLS, sizeof(struct cell));
    return s->state ? 0 : -ENOMEM;
}

static void median_done(struct hy_stopper *s)
{
    struct cell *cells = s->state;

    for (size_t i = 0; cells && i < CELLS; i++) {
        free(cells[i].sorted);
        free(cells[i].latest);
    }
    free(cells);
}

/* The position of the first one that is not less. */
static size_t find(const struct cell *c, double mean)
{
    size_t low = 0, high = c->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (c->sorted[middle] < mean)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* In place of the oldest one. */
static void replace(struct cell *c, double mean)
{
    size_t from = find(c, c->latest[c->oldest]), to = find(c, mean);

    c->latest[c->oldest] = mean;
    c->oldest = (c->oldest + 1) % c->count;
    if (to > from)
        memmove(c->sorted + from, c->sorted + from + 1, (--to - from) * sizeof *c->sorted);
    else
        memmove(c->sorted + to + 1, c->sorted + to, (from - to) * sizeof *c->sorted);
    c->sorted[to] = mean;
}

static int insert(struct cell *c, double mean)
{
    size_t at;

    if (c->count == HY_STOP_WINDOW) {
        replace(c, mean);
        return 0;
    }
    if (hy_array_grow(c->sorted, c->count) < 0 || hy_array_grow(c->latest, c->count) < 0)
        return -ENOMEM;
    at = find(c, mean);
    memmove(c->sorted + at + 1, c->sorted + at, (c->count - at) * sizeof *c->sorted);
    c->sorted[at] = mean;
    c->latest[c->count++] = mean;
    return 0;
}

/* Neither overflows nor differs from values that are all equal. */
static double midpoint(double low, double high)
{
    return low + (high / 2 - low / 2);
}

static bool is_worse(const struct cell *c, double best)
{
    return best > midpoint(c->sorted[(c->count - 1) / 2], c->sorted[c->count / 2]);
}

static int median_report(struct hy_stopper *s, struct hy_stop_trial *t, int64_t step, double cost)
{
    size_t at = cell_of(step);
    struct cell *c = &((struct cell *)s->state)[at];
    double best = fmin(t->best, cost), n = (double)t->median.reports + 1;
    double mean = n == 1 ? cost : t->median.mean + (cost / n - t->median.mean / n); /* as in midpoint */
    enum hy_decision decision = HY_DECISION_CONTINUE;

    if (at >= t->median.next_cell) {
        if (step >= s->settings.min_step && c->count >= s->settings.min_trials && is_worse(c, best))
            decision = HY_DECISION_STOP;
        if (insert(c, mean) < 0)
            return -ENOMEM;
        t->median.next_cell = at + 1;
    }
    t->best = best;
    t->median.mean = mean;
    t->median.reports++;
    return (int)decision;
}

const struct hy_stop_ops hy_median_ops = {
    .init = median_init,
    .done = median_done,
    .report = median_report,
};
