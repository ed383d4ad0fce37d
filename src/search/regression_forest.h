/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A random forest of regression trees over binned columns; private to this part.
 *
 * It has two stages. The mean of many trees underestimates effects that no first greedy split finds, above all
 * interactions. So the second half of the trees is fitted to the residuals of the first half, and weighted by how well
 * it predicts out-of-bag rows: fully where the columns determine the targets, not at all where the residuals are noise.
 */
#ifndef HY_SEARCH_REGRESSION_FOREST_H
#define HY_SEARCH_REGRESSION_FOREST_H

#include <stddef.h>
#include <stdint.h>

#include "search/binned.h"

#define HY_FOREST_TREES 64

struct hy_tree_node {
    uint64_t left_bins;  /* of the column: a row with one of these continues at `left` */
    uint32_t left, right; /* 0: a leaf */
    uint32_t column;
    double value; /* what a leaf adds to the prediction */
};

struct hy_tree {
    struct hy_tree_node *nodes; /* the first is the root */
    size_t count;
};

struct hy_forest {
    struct hy_tree trees[HY_FOREST_TREES];
    double *gains; /* of each column: by how much its splits have reduced the sum of squares */
};

/* The same data gives the same forest. 0 or -ENOMEM; call hy_forest_done in any case. */
int hy_forest_grow(struct hy_forest *f, const struct hy_binned *data, uint64_t seed);
void hy_forest_done(struct hy_forest *f);

/* The sum of its trees, for a row of data with the same columns. */
double hy_forest_predict(const struct hy_forest *f, const struct hy_binned *data, size_t row);

#endif
