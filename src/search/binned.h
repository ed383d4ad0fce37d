/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials with their hyperparameters in bins; private to this part.
 *
 * A column has at most 64 bins: bin 0 is for trials without the hyperparameter, if there are some; numbers are in
 * ascending order, with an equal number of trials per bin if they have too many values for one bin each; a category has
 * a bin for each choice, and if it has too many, the rarest share one. So a set of bins is a mask of 64 bits, and the
 * region of a leaf is a mask for each column.
 */
#ifndef HY_SEARCH_BINNED_H
#define HY_SEARCH_BINNED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "search/trial_columns.h"

#define HY_BINS 64

struct hy_binned_column {
    size_t param;         /* its index in the trial columns */
    uint8_t *bins;        /* of each row */
    size_t bin_count;     /* at least 2; none is empty */
    double mass[HY_BINS]; /* the share of the rows in each bin */
    bool is_category;     /* its bins have no order */
    bool has_missing;     /* bin 0 */
};

struct hy_binned {
    struct hy_binned_column *columns; /* without hyperparameters that have one value in all trials */
    size_t count, rows;
    double *targets; /* the metric, scaled to 0 … 1; all 0 if it has one value */
};

/* 0 or -ENOMEM; call hy_binned_done in any case. */
int hy_binned_init(struct hy_binned *b, const struct hy_trial_columns *trials);
void hy_binned_done(struct hy_binned *b);
#define hy_cleanup_binned __attribute__((cleanup(hy_binned_done)))

/* All bins of a column. */
uint64_t hy_bins_all(const struct hy_binned_column *c);
/* The share of the rows that have one of these bins. */
double hy_bins_mass(const struct hy_binned_column *c, uint64_t bins);

#endif
