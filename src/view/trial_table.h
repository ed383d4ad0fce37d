/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials as lines of a table, the same for the live view and for `show`: one
 * column per parameter where they fit, otherwise all of them in one.
 */
#ifndef HY_VIEW_TRIAL_TABLE_H
#define HY_VIEW_TRIAL_TABLE_H

#include "view/text_table.h"
#include "hopyard.pb-c.h"

/* What a table that is drawn again should keep. Zeroed: nothing yet. */
struct hy_trial_table_layout {
    struct hy_text_table_layout grid;
    bool steps, messages;
};

struct hy_trial_table_options {
    struct hy_trial_table_layout *memory; /* NULL: drawn once */
    const char *metric;              /* NULL or "": no column for it */
    uint64_t best;                   /* this trial's value stands out; 0: none */
    unsigned spin;                   /* which picture of the turning symbol; 0: it stands still */
    int64_t later_ms;                /* how long ago the running trials' times were true */
    bool agents;                     /* a column for where they run */
    bool titles;
    bool ranks; /* they are the ranks of a training */
};

/* Renders the trials as lines into `out`. 0 or -Exxx. */
int hy_trial_table_render(struct hy_out *out, const Hy__TrialView *const *trials, size_t count,
                     const struct hy_trial_table_options *look);

/* "✓ done" or, without symbols, "done"; and the color that goes with it. */
void hy_state_text(const struct hy_style *style, const char *state, unsigned spin, char *ret, size_t size);
enum hy_tint hy_state_tint(const char *state);

/* "0.9312": six digits for people. Returns `out`. */
char *hy_format_metric(double value, char *out, size_t size);

/* "lr=0.001 dropout=0.45" of a JSON object ("" when it is none), `brief` or with
 * all digits; free it. NULL when out of memory. */
char *hy_json_params(const char *json, bool brief);

/* Appends the same between `before` and `after`; nothing where there are none. */
void hy_out_params(struct hy_out *out, enum hy_tint tint, const char *before, const char *json, const char *after);

#endif
