/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in words and in JSON, for `ls`, `show` and `best`. */
#ifndef HY_VIEW_RUN_DESCRIPTION_H
#define HY_VIEW_RUN_DESCRIPTION_H

#include <jansson.h>

#include "view/out.h"
#include "store/store.h"

/* A JSON array of arguments as a shell would take it; free it. NULL when out of memory. */
char *hy_command_text(const char *json);
/* "hopyard 0.1.0, kernel 6.1, …" of a JSON object; free it. NULL when out of memory. */
char *hy_versions_text(const char *json);
/* "3m ago", "2d ago"; returns `out`. */
char *hy_format_age(int64_t wall_ms, int64_t now_ms, char *out, size_t size);
/* "2026-11-15 04:30:12", this place's time; returns `out`. */
char *hy_format_time(int64_t wall_ms, char *out, size_t size);

/* Everything the store knows of a run, but for its trials. NULL when out of memory. */
/* `logdir`: as people know it. */
json_t *hy_json_run(const struct hy_run_row *row, const struct hy_run_counts *counts, bool alive, const char *logdir);

#endif
