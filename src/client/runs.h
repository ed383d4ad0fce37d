/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs as the store has them: found by what the user typed, copied out of the
 * store, and told in the driver's words where there is no driver any more.
 */
#ifndef HY_CLIENT_RUNS_H
#define HY_CLIENT_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "hopyard.pb-c.h"
#include "store/store.h"

/*
 * The project's directory: `given`, $HOPYARD_PROJECT, or the current one; absolute. A project that is a URL has a local
 * directory in its place (store.h). Free it. NULL with a message.
 */
char *hy_project_path(const char *given, struct hy_err *err);
/* The same for a new run: makes the directory if it does not exist. */
char *hy_project_make(const char *given, struct hy_err *err);

void hy_store_close_at(struct hy_store **s);
#define hy_cleanup_store __attribute__((cleanup(hy_store_close_at)))

struct hy_run_info {
    struct hy_run_row row; /* its texts are copies */
    struct hy_run_counts counts;
    char *shown;       /* row.logdir as people know it: of a project on HDFS, its URL there */
    bool alive;        /* its driver lives */
    Hy__RunSpec *spec; /* NULL when it cannot be read */
};

/* Copies the run `text` names (number or name; NULL: the newest). 0, -ENOENT with a sentence … */
int hy_run_info_find(struct hy_store *s, const char *text, struct hy_run_info *ret, struct hy_err *err);
void hy_run_info_done(struct hy_run_info *r); /* a zeroed one is empty */
#define hy_cleanup_run_info __attribute__((cleanup(hy_run_info_done)))

/* "running", "done" …, or "interrupted": its driver is gone; "waiting": its driver has recorded what for (supply.c). */
const char *hy_run_state_text(const struct hy_run_row *row, bool alive);

/* ROW as the driver tells of trials; its texts are borrowed from the row. */
void hy_trial_view(const struct hy_trial_row *row, Hy__TrialView *view);
/* The same with everything its own (hy_proto_memory). NULL when out of memory. */
Hy__TrialView *hy_trial_view_new(const struct hy_trial_row *row);

/* What the driver's last update would say (hy_proto_memory; the trials are not in it). */
int hy_run_info_update(struct hy_store *s, const struct hy_run_info *r, Hy__Update **ret, struct hy_err *err);

/* The file the run's driver logs to; free it. NULL when out of memory. */
char *hy_driver_log(struct hy_store *s, int64_t run);

#endif
