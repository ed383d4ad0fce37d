/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of the store as columns of numbers and categories (search/trial_columns.h), for importance and plots. */
#ifndef HY_VIEW_TRIAL_COLUMNS_JSON_H
#define HY_VIEW_TRIAL_COLUMNS_JSON_H

#include <jansson.h>

#include "search/search.h"
#include "store/store.h"

/* Adds a trial if it is done and has a finite value. 0, -ENOMEM, or -E2BIG for too many hyperparameters. */
int hy_trial_columns_add_row(struct hy_trial_columns *c, const struct hy_trial_row *row);

/* {"method": "…", "trials": 250, "used": 250, "importance": [{"name": "lr", "share": 0.61}, …], "pairs": [{"names":
 * ["lr", "act"], "share": 0.2}, …], "why": null}; NULL when out of memory. */
json_t *hy_json_importance(const struct hy_importance *m, const struct hy_trial_columns *c);

#endif
