/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard tensorboard` beside a run that was started with --tensorboard. */
#ifndef HY_CLI_TENSORBOARD_H
#define HY_CLI_TENSORBOARD_H

#include "cli/options.h"
#include "store/store.h"

struct hy_tensorboard_child {
    int complaints;    /* what it says on standard error; -1: that goes to the driver's log */
    char address[128]; /* "" when it is not known (yet) */
};

/*
 * Starts one that ends with this process; its address comes with the driver's
 * updates. Or, `detached`, one that ends with the run's driver, and waits for
 * its address. 0 or -Exxx with a sentence; *ret is to be used in either case.
 */
int hy_tensorboard_child_start(const char *project, int64_t run, bool detached, struct hy_tensorboard_child *ret,
                          struct hy_err *err);

#endif
