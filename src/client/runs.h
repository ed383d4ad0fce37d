/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in the store: looked up by number or name, copied, and converted to an
 * update like the driver's for runs that have no driver any more.
 */
#ifndef HY_CLIENT_RUNS_H
#define HY_CLIENT_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "hopyard.pb-c.h"
#include "store/store.h"

/*
 * The absolute path of the project directory: `given`, $HOPYARD_PROJECT, or the current directory. For a project that
 * is a URL, its local directory (store.h). Free it. NULL with a message.
 */
char *hy_project_path(const char *given, struct hy_err *err);
/* The same for a new run: creates the directory if it does not exist. */
char *hy_project_make(const char *given, struct hy_err *err);

void hy_store_close_at(struct hy_store **s);
#define hy_cleanup_store __attribute__((cleanup(hy_store_close_at)))

struct hy_run_info {
    struct hy_run_row row; /* its texts are copies */
    struct hy_run_counts counts;
    char *shown;       /* row.logdir as shown to the user: for a project on HDFS, the URL */
    bool alive;        /* its driver is running */
    Hy__RunSpec *spec; /* NULL when it cannot be read */
};

/* Copies the run named by `text` (number or name; NULL: the newest). 0, or -Exxx (-ENOENT …) with a message. */
int hy_run_info_find(struct hy_store *s, const char *text, struct hy_run_info *ret, struct hy_err *err);
void hy_run_info_done(struct hy_run_info *r); /* a zeroed one is empty */
#define hy_cleanup_run_info __attribute__((cleanup(hy_run_info_done)))

/* Calls back for all runs, newest first, with whether the driver of each is running. A nonzero result of `each` ends it
 * and is returned. */
typedef int hy_run_alive_fn(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts, bool alive);
int hy_runs_each(struct hy_store *s, hy_run_alive_fn *each, void *arg, struct hy_err *err);

/* "running", "done" …, "interrupted" (the driver has exited), or "waiting" (the message says for what). */
const char *hy_run_state_text(const struct hy_run_row *row, bool alive);

/* A row as the driver's view of a trial; its texts are borrowed from the row. */
void hy_trial_view(const struct hy_trial_row *row, Hy__TrialView *view);
/* The same as a deep copy (hy_proto_memory). NULL when out of memory. */
Hy__TrialView *hy_trial_view_new(const struct hy_trial_row *row);

/* The driver's last update, rebuilt from the store (hy_proto_memory), without trials. */
int hy_run_info_update(struct hy_store *s, const struct hy_run_info *r, Hy__Update **ret, struct hy_err *err);

/* The log file of the run's driver; free it. NULL when out of memory. */
char *hy_driver_log(struct hy_store *s, int64_t run);

#endif
