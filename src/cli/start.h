/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a run from a RunSpec and watches it; shared by `run`, `train`, `resume` and submissions. */
#ifndef HY_CLI_START_H
#define HY_CLI_START_H

#include "cli/options.h"
#include "cli/watch.h"
#include "hopyard.pb-c.h"

/* Sets a random seed if none was given, and adds the environment. */
int hy_run_prepare(const struct hy_args *args, const char *project, Hy__RunSpec *spec, struct hy_err *err);
/* A run that this command has started. */
struct hy_started {
    int64_t run;
    char *socket;     /* of its driver */
    int owner;        /* if the run ends with this command: the fd of hy_driver_launch, for hy_watch; otherwise -1 */
    int64_t since_ms; /* wall clock */
};
void hy_started_done(struct hy_started *s);
#define hy_cleanup_started __attribute__((cleanup(hy_started_done)))

/* Starts the driver. */
int hy_run_launch(const struct hy_args *args, const Hy__RunSpec *spec, struct hy_started *ret, struct hy_err *err);

/* `run`, `train` and `resume` without what follows: for the command line and for submissions. */
int hy_run_start(const struct hy_args *args, const char *project, struct hy_started *ret, struct hy_err *err);
int hy_train_start(const struct hy_args *args, const char *project, struct hy_started *ret, struct hy_err *err);
int hy_resume_start(const struct hy_args *args, const char *project, struct hy_started *ret, struct hy_err *err);

/* The format of --json or --html. -EINVAL with a message for both. */
int hy_output_format(const struct hy_args *args, enum hy_output *ret, struct hy_err *err);
/* Starts TensorBoard (--tensorboard), then watches the run or detaches (--detach). Returns the exit status. */
int hy_run_follow(const struct hy_args *args, const char *project, const struct hy_started *started,
                  enum hy_output form);

#endif
