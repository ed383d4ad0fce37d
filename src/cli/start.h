/* SPDX-License-Identifier: Apache-2.0 */
/* From a RunSpec to a run that somebody watches: what `run`, `train` and `resume` share. */
#ifndef HY_CLI_START_H
#define HY_CLI_START_H

#include "cli/options.h"
#include "cli/watch.h"
#include "hopyard.pb-c.h"

/* A seed if none was given, and the surroundings. */
int hy_run_prepare(const struct hy_args *args, const char *project, Hy__RunSpec *spec, struct hy_err *err);
/* A run that this command has started. */
struct hy_started {
    int64_t run;
    int owner;        /* of a run that ends with this command: hy_driver_launch; -1: it does not */
    int64_t since_ms; /* wall */
};

/* Starts its driver. */
int hy_run_launch(const struct hy_args *args, const Hy__RunSpec *spec, struct hy_started *ret, struct hy_err *err);

/* What --json and --html ask for. -EINVAL with a sentence for both. */
int hy_output_format(const struct hy_args *args, enum hy_output *ret, struct hy_err *err);
/* Once a run has begun: --tensorboard, then shows it, or leaves it (--detach). The exit status. */
int hy_run_follow(const struct hy_args *args, const char *project, const struct hy_started *started, enum hy_output form);

#endif
