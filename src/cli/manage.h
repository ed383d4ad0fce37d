/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that remove things share. */
#ifndef HY_CLI_MANAGE_H
#define HY_CLI_MANAGE_H

/* 1 when the folder is one run's log folder in this project, and nothing else. */
int hy_logdir_is_safe(const char *project, const char *logdir);

#endif
