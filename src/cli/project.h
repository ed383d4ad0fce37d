/* SPDX-License-Identifier: Apache-2.0 */
/* The project of a command: --project, or the default (client/runs.h). */
#ifndef HY_CLI_PROJECT_H
#define HY_CLI_PROJECT_H

#include "cli/options.h"
#include "client/client.h"

/* Free it. NULL with a message. */
char *hy_project(const struct hy_args *args, struct hy_err *err);
/* The same for a new run: creates the directory if it does not exist. */
char *hy_project_made(const struct hy_args *args, struct hy_err *err);
/* Opens the project's store. */
int hy_project_store(const struct hy_args *args, enum hy_store_mode mode, struct hy_store **ret, struct hy_err *err);

#endif
