/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that remove things share. */
#ifndef HY_CLI_MANAGE_H
#define HY_CLI_MANAGE_H

/* One run's log folder in this project, PROJECT/Logs/TensorFlow/APP/RUN: opened step by step, so that what was
 * checked is what is removed. */
struct hy_logdir {
    int logs, app, run;
    char *path; /* the names below lie in it */
    char *app_name, *run_name;
};
#define HY_LOGDIR_NONE {.logs = -1, .app = -1, .run = -1}

/* -EPERM, -ENOTDIR and the like when `logdir` is anything else, or not made by a driver of this user's. */
int hy_logdir_open(const char *project, const char *logdir, struct hy_logdir *ret);
void hy_logdir_done(struct hy_logdir *d);
#define hy_cleanup_logdir __attribute__((cleanup(hy_logdir_done)))
/* Removes it, and the application's folder with the last of its runs. 0 or -Exxx. */
int hy_logdir_remove(const struct hy_logdir *d);

#endif
