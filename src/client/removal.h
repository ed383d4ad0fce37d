/* SPDX-License-Identifier: Apache-2.0 */
/* Removing runs and their files. */
#ifndef HY_CLIENT_REMOVAL_H
#define HY_CLIENT_REMOVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "client/runs.h"

/* The log directory of a run, PROJECT/Logs/TensorFlow/APP/RUN. Each component is opened, so that the directory that
 * was checked is the one that is removed, even if a path changes in the meantime. */
struct hy_logdir {
    int logs, app, run;
    char *path; /* contains the names below */
    char *app_name, *run_name;
};
#define HY_LOGDIR_NONE {.logs = -1, .app = -1, .run = -1}

/* -EPERM, -ENOTDIR … if `logdir` is another directory or was not created by a driver of this user. */
int hy_logdir_open(const char *project, const char *logdir, struct hy_logdir *ret);
void hy_logdir_done(struct hy_logdir *d);
#define hy_cleanup_logdir __attribute__((cleanup(hy_logdir_done)))
/* Removes the directory, and the application's directory if it is empty then. 0 or -Exxx. */
int hy_logdir_remove(const struct hy_logdir *d);

/* The driver of a run that has ended still stops its agents. Waits until it has exited; false after 30 s. */
bool hy_run_await_exit(struct hy_store *s, int64_t run);
/* Removes a run that is over, with its files, from a store that is open for writing. 0; `ret_left` then says what could
 * not be removed (code 0: nothing is left). -EBUSY: the run is running. */
int hy_run_remove(struct hy_store *s, const struct hy_run_info *info, struct hy_err *ret_left, struct hy_err *err);

#endif
