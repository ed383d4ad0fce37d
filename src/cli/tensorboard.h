/* SPDX-License-Identifier: Apache-2.0 */
/* A child process `hopyard tensorboard` for a run that was started with --tensorboard. */
#ifndef HY_CLI_TENSORBOARD_H
#define HY_CLI_TENSORBOARD_H

#include "cli/options.h"
#include "store/store.h"

struct hy_tensorboard_child {
    int complaints;    /* its standard error; -1: written to the driver's log */
    char address[128]; /* "" while unknown */
};

/*
 * Starts one that ends with this process; the driver's updates contain its
 * address. If `detached`, starts one that ends with the run's driver, and waits
 * for its address. 0 or -Exxx with a message; *ret is valid in both cases.
 */
int hy_tensorboard_child_start(const char *project, int64_t run, bool detached, struct hy_tensorboard_child *ret,
                               struct hy_err *err);

#endif
