/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials as rows of a table, for the live view and for `show`: one column per
 * parameter if they fit, otherwise one column for all.
 */
#ifndef HY_VIEW_TRIAL_TABLE_H
#define HY_VIEW_TRIAL_TABLE_H

#include "view/text_table.h"
#include "hopyard.pb-c.h"

/* The layout that a redrawn table keeps. All zero at first. */
struct hy_trial_table_layout {
    struct hy_text_table_layout columns;
    bool steps, messages;
};

struct hy_trial_table_options {
    struct hy_trial_table_layout *layout; /* NULL: drawn once */
    const char *metric;              /* NULL or "": no column for it */
    uint64_t best;                   /* the trial whose value is highlighted; 0: none */
    unsigned spin;                   /* the frame of the spinner; 0: a static symbol */
    int64_t later_ms;                /* the age of the update: added to the times of running trials */
    bool agents;                     /* add a column for the agent */
    bool titles;
    bool ranks; /* the rows are ranks of a training */
};

/* Renders the trials as lines into `out`. 0 or -Exxx. */
int hy_trial_table_render(struct hy_out *out, const Hy__TrialView *const *trials, size_t count,
                          const struct hy_trial_table_options *options);

/* "✓ done" or, without Unicode, "done"; and its color. */
void hy_state_text(const struct hy_style *style, const char *state, unsigned spin, char *ret, size_t size);
enum hy_tint hy_state_tint(const char *state);

/* "0.9312": six significant digits. Returns `out`. */
char *hy_format_metric(double value, char *out, size_t size);

/* A JSON object as "lr=0.001 dropout=0.45" ("" if it is not an object), `brief` or with all digits; free it.
 * NULL when out of memory. */
char *hy_json_params(const char *json, bool brief);

/* Appends the same between `before` and `after`; nothing if there are no parameters. */
void hy_out_params(struct hy_out *out, enum hy_tint tint, const char *before, const char *json, const char *after);

#endif
