/* SPDX-License-Identifier: Apache-2.0 */
/* What `hopyard tensorboard` shows, and the TensorBoard that shows it. */
#ifndef HY_CLI_TENSORBOARD_VIEWER_H
#define HY_CLI_TENSORBOARD_VIEWER_H

#include "cli/options.h"
#include "client/client.h"

struct hy_tensorboard_target {
    char *directory;        /* absolute, or a URL */
    struct hy_store *store; /* NULL: a directory without a run */
    struct hy_run_info info; /* of the run */
};

/* What `word` names: a run, a directory, a URL; NULL: the newest run. */
int hy_tensorboard_target(const struct hy_args *args, const char *word, struct hy_tensorboard_target *ret,
                          struct hy_err *err);
void hy_tensorboard_target_done(struct hy_tensorboard_target *t);

struct hy_tensorboard_viewer {
    char *program; /* free it */
    bool is_python; /* run with -m tensorboard.main */
};

int hy_tensorboard_viewer(const struct hy_tensorboard_target *t, bool needs_python, struct hy_tensorboard_viewer *ret,
                          struct hy_err *err);
/* Checks for the module before an address is printed. */
int hy_tensorboard_check(const struct hy_tensorboard_viewer *v, struct hy_err *err);
/* In a child: executes it, with `output_fd` as its output, or prints an error there. */
void hy_tensorboard_exec(pid_t parent, int output_fd, char *const *argv);
/* Sets its low priority; errors are printed to `output_fd`. */
void hy_tensorboard_lower_priority(int output_fd);

/* With --sock: TensorBoard in place of this process, on a unix socket (web/apps/apps.h). Returns the exit status. */
int hy_tensorboard_app(const struct hy_args *args);

#endif
