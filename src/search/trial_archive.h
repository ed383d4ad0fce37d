/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded record of finished trials: the best ones, the latest ones, and a uniform
 * random sample of the others; private to this part.
 *
 * A search that learns from it needs no more memory, and no more time for a trial, after a
 * million trials than after a thousand. What is kept depends only on the trials that were
 * added and on their order.
 */
#ifndef HY_SEARCH_TRIAL_ARCHIVE_H
#define HY_SEARCH_TRIAL_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

struct hy_trial_archive {
    size_t dims, capacity;
    size_t best, latest; /* how many of either are always kept */
    size_t count;        /* rows in use */
    uint64_t added;      /* trials, kept or not */
    uint64_t finite;     /* those of them with a finite cost */
    double *units;       /* private: by row, then by dimension */
    double *cost;        /* by row */
    uint64_t *priority;  /* private: by row */
    size_t *ranked;      /* the rows, best first; of equals the earlier one */
    size_t *aged;        /* the rows, in the order in which they were added */
};

/* `best` + `latest` < `capacity`. 0, -ENOMEM. */
int hy_trial_archive_init(struct hy_trial_archive *a, size_t dims, size_t capacity, size_t best, size_t latest);
void hy_trial_archive_done(struct hy_trial_archive *a); /* all zero is fine */

/* Takes a copy of the units. `cost` is not NAN. Costs O(capacity). */
void hy_trial_archive_add(struct hy_trial_archive *a, const double *units, double cost);

static inline const double *hy_trial_archive_units(const struct hy_trial_archive *a, size_t row)
{
    return a->units + row * a->dims;
}

#endif
