/* SPDX-License-Identifier: Apache-2.0 */
/* Plots of a run for a terminal: its history, the importance of its hyperparameters, the metric against one of them. */
#ifndef HY_VIEW_PLOT_H
#define HY_VIEW_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "search/search.h"
#include "view/out.h"

struct hy_plot_metric {
    const char *name;
    bool maximize;
};

/* The values of all trials, and the best so far. `values` has that of trial i + 1; NAN: none. 0 or -Exxx. */
int hy_plot_history(struct hy_out *out, const struct hy_plot_metric *metric, const double *values, size_t count);
/* Bars of shares; or the reason why there are none. 0 or -Exxx. */
int hy_plot_importance(struct hy_out *out, const struct hy_importance *m, const struct hy_trial_columns *c);
/* The metric against one hyperparameter. `is_log`: on a logarithmic axis, if all its values are positive. 0 or -Exxx.
 */
int hy_plot_scatter(struct hy_out *out, const struct hy_plot_metric *metric, const struct hy_trial_columns *c,
                    size_t param, bool is_log);

/* Whether a logarithmic axis is suitable: for a log-scaled range, and for a list of positive numbers that spans a
 * factor of 100 or more. */
bool hy_dim_is_log(const struct hy_dim *dim);

#endif
