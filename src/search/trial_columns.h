/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finished trials as columns: a value of the metric and the values of the hyperparameters of each.
 *
 * At most HY_TRIALS_KEPT trials are kept. If there are more, they are a random sample with a fixed seed: the same
 * trials in the same order give the same sample.
 *
 *     rc = hy_trial_columns_add(&c, value);                    1: set its hyperparameters
 *     rc = hy_trial_columns_set_number(&c, "lr", 0.1);
 *     rc = hy_trial_columns_set_text(&c, "act", "relu");
 *     rc = hy_trial_columns_finish(&c);                        after the last one
 */
#ifndef HY_SEARCH_TRIAL_COLUMNS_H
#define HY_SEARCH_TRIAL_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

#define HY_TRIALS_KEPT 2000
#define HY_TRIAL_COLUMNS_MAX 1000

struct hy_param_column {
    char *name;
    double *values;  /* read-only: one for each kept trial; NAN: it does not have this hyperparameter */
    char **choices;  /* read-only: sorted, `values` has their indices; NULL: `values` has numbers */
    size_t choice_count;
    char **texts; /* private: values that are not numbers, until hy_trial_columns_finish */
};

struct hy_trial_columns {
    struct hy_param_column *params; /* read-only */
    size_t count;                   /* read-only: of hyperparameters */
    double *metric;                 /* read-only: one for each kept trial */
    size_t rows;                    /* read-only: kept trials */
    uint64_t seen;                  /* read-only: all trials with a finite value */
    size_t row;                     /* private: of the trial added last */
    struct hy_rng rng;              /* private */
};

void hy_trial_columns_init(struct hy_trial_columns *c);
void hy_trial_columns_done(struct hy_trial_columns *c);
#define hy_cleanup_trial_columns __attribute__((cleanup(hy_trial_columns_done)))

/* Adds a trial. 1: it is in the sample, for now; 0: it is not, or its value is not finite; -ENOMEM. */
int hy_trial_columns_add(struct hy_trial_columns *c, double value);
/* A hyperparameter of the trial added last: a finite number, or the text of anything else. 0, -ENOMEM, or -E2BIG for
 * too many names. */
int hy_trial_columns_set_number(struct hy_trial_columns *c, const char *name, double value);
int hy_trial_columns_set_text(struct hy_trial_columns *c, const char *name, const char *text);
/* Turns columns with texts into categories. 0 or -ENOMEM. */
int hy_trial_columns_finish(struct hy_trial_columns *c);

#endif
