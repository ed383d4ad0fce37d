/* SPDX-License-Identifier: Apache-2.0 */
/* JSON for programs that read what we print. */
#ifndef HY_CLI_JS_H
#define HY_CLI_JS_H

#include "base/json.h"
#include "cli/out.h"
#include "hopyard.pb-c.h"

/* A trial as JSON ({"number": 7, "state": "done", "params": {…}, …}); NULL when out of memory. */
json_t *hy_json_trial(const Hy__TrialView *t, const char *metric);
/* A number, or null for NaN and infinities, which JSON does not know. */
json_t *hy_json_number(double value);
/* Text that is UTF-8 in the end: other bytes become \xNN. NULL is null. */
json_t *hy_json_text(const char *text);
/* Appends the object and gives it away; NULL counts as out of memory. */
void hy_json_take(struct hy_out *out, json_t *object);
/* The same, and a newline. */
void hy_json_line_take(struct hy_out *out, json_t *object);
/* Appends any value without blanks: [64,64]. 0 or -ENOMEM. */
int hy_json_append_compact(struct hy_buf *b, const json_t *value);
/* Sets object[name]; takes the value. 0 or -ENOMEM (a NULL value or object too). */
int hy_json_set(json_t *object, const char *name, json_t *value);

void hy_json_free_at(json_t **json);
#define hy_cleanup_json __attribute__((cleanup(hy_json_free_at)))

#endif
