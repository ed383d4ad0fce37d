/* SPDX-License-Identifier: Apache-2.0 */
/* Runs as text and JSON, for `ls`, `show` and `best`. */
#ifndef HY_VIEW_RUN_DESCRIPTION_H
#define HY_VIEW_RUN_DESCRIPTION_H

#include <jansson.h>

#include "view/out.h"
#include "store/store.h"

/* A JSON array of arguments, quoted for a shell; free it. NULL when out of memory. */
char *hy_command_text(const char *json);
/* "hopyard 0.1.0, kernel 6.1, …" of a JSON object; free it. NULL when out of memory. */
char *hy_versions_text(const char *json);
/* "3m ago", "2d ago"; returns `out`. */
char *hy_format_age(int64_t wall_ms, int64_t now_ms, char *out, size_t size);
/* "2026-11-15 04:30:12", local time; returns `out`. */
char *hy_format_time(int64_t wall_ms, char *out, size_t size);

/* The tags of a label (store.h) as an array. NULL when out of memory. */
json_t *hy_json_tags(const char *json);
/* The store's row of a run, without its trials. `logdir`: as shown to the user, the HDFS URL for a project on HDFS.
 * `socket`: of its driver; NULL: it has none. NULL when out of memory. */
json_t *hy_json_run(const struct hy_run_row *row, const struct hy_run_counts *counts, bool alive, const char *logdir,
                    const char *socket);

#endif
