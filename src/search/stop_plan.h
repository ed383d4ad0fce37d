/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of early stopping, and what follows from them: the steps of the rungs, and the trials of each bracket;
 * private to this part.
 */
#ifndef HY_SEARCH_STOP_PLAN_H
#define HY_SEARCH_STOP_PLAN_H

#include "search/stop.h"

#define HY_RUNGS_MAX 63 /* 2^0 … 2^62 */

struct hy_bracket_plan {
    uint32_t first_rung; /* the rung count: all trials run to the end */
    uint64_t trials;     /* 0: unlimited */
};

struct hy_stop_plan {
    int64_t steps[HY_RUNGS_MAX]; /* ascending */
    uint32_t rung_count;
    struct hy_bracket_plan brackets[HY_RUNGS_MAX + 1]; /* of a round */
    uint32_t bracket_count;
};

/* Fills in the defaults. 0, or -EINVAL with an option or a sentence. */
int hy_stop_settings_complete(struct hy_stop_settings *settings, struct hy_err *err);

/* For complete settings of HALVING, ASHA and HYPERBAND. */
void hy_stop_plan_make(struct hy_stop_plan *ret, const struct hy_stop_settings *settings);

#endif
