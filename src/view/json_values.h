/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output for programs. */
#ifndef HY_VIEW_JSON_VALUES_H
#define HY_VIEW_JSON_VALUES_H

#include "base/json.h"
#include "view/out.h"
#include "hopyard.pb-c.h"

/* A trial as JSON ({"number": 7, "state": "done", "params": {…}, …}); NULL when out of memory. */
json_t *hy_json_trial(const Hy__TrialView *t, const char *metric);
/* Appends the object and drops the reference; NULL counts as out of memory. */
void hy_json_take(struct hy_out *out, json_t *object);
/* The same, and a newline. */
void hy_json_line_take(struct hy_out *out, json_t *object);
/* Appends any value without spaces: [64,64]. 0 or -ENOMEM. */
int hy_json_append_compact(struct hy_buf *b, const json_t *value);

#endif
