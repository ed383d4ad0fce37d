/* SPDX-License-Identifier: Apache-2.0 */
/* Log directories of runs, for `rm` and `gc`. */
#ifndef HY_CLI_MANAGE_H
#define HY_CLI_MANAGE_H

/* The log directory of a run, PROJECT/Logs/TensorFlow/APP/RUN. Each component is opened, so that the directory that
 * was checked is the one that is removed, even if a path changes meanwhile. */
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

#endif
