/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The importance of hyperparameters: the share of the metric's variance that each explains alone, and that pairs
 * explain beyond that (fANOVA: Hutter, Hoos and Leyton-Brown, 2014).
 *
 * A random forest of 64 regression trees is fitted to the trials. Its variance is decomposed under the assumption that
 * the hyperparameters are independent and each is distributed as in the trials, so the scale of a hyperparameter
 * (linear or logarithmic) has no effect. Shares of single hyperparameters, of all pairs and of larger groups add up to
 * 1. The same trials give the same shares on every machine.
 */
#ifndef HY_SEARCH_IMPORTANCE_H
#define HY_SEARCH_IMPORTANCE_H

#include <stddef.h>

#include "search/trial_columns.h"

#define HY_IMPORTANCE_METHOD "fANOVA, random forest of 64 trees"
#define HY_IMPORTANCE_TRIALS_MIN 8
#define HY_IMPORTANCE_PAIRS 10

struct hy_param_share {
    size_t param; /* its index in the trial columns */
    double share;
};

struct hy_pair_share {
    size_t first, second; /* the more important one first */
    double share;
};

struct hy_importance {
    struct hy_param_share *params; /* all hyperparameters, the most important one first */
    size_t count;                  /* 0: `why` says why there are none */
    struct hy_pair_share pairs[HY_IMPORTANCE_PAIRS]; /* the most important ones */
    size_t pair_count;
    char why[160]; /* "": there are shares */
};

/* For finished columns. 0 or -ENOMEM; call hy_importance_done in any case. */
int hy_importance_init(struct hy_importance *m, const struct hy_trial_columns *trials);
void hy_importance_done(struct hy_importance *m);
#define hy_cleanup_importance __attribute__((cleanup(hy_importance_done)))

#endif
