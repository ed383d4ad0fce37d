/* SPDX-License-Identifier: Apache-2.0 */
/* `show --plot`: the trials of a run as plots. */
#ifndef HY_CLI_SHOW_PLOT_H
#define HY_CLI_SHOW_PLOT_H

#include <jansson.h>

#include "client/client.h"
#include "view/view.h"

/* Appends history, importance, and the metric against the two most important hyperparameters. 0, or -Exxx with a
 * message, also if the run has nothing to plot. */
int hy_show_plot(struct hy_store *store, const struct hy_run_info *info, struct hy_out *out, struct hy_err *err);

/* The names of hyperparameters for which a logarithmic axis is suitable, as a list; NULL when out of memory. */
json_t *hy_json_log_names(const Hy__RunSpec *spec);

#endif
