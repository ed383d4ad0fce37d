/* SPDX-License-Identifier: Apache-2.0 */
/* Names and paths of shares: pure functions over text. */
#ifndef HY_SHARE_NAMES_H
#define HY_SHARE_NAMES_H

#include <stdbool.h>

struct hy_err;

#define HY_SHARED "Shared"     /* the directory of entries */
#define HY_SHARE_PATH_MAX 4096 /* bytes */

/* A path relative to a project that may be shared, without "." and "..". 0, -EINVAL or -EPERM with a sentence. */
int hy_share_check_path(const char *path, struct hy_err *err);
/* The absolute path or URL of a target, of the same kind. */
int hy_share_check_target(const char *target, struct hy_err *err);
/* "OWNER::NAME". */
int hy_share_check_name(const char *name, struct hy_err *err);

/* A name of hopyard's own data. Not of an upload in progress (.hopyard-…), which becomes a file of the data set. */
bool hy_share_is_private(const char *name);
/* Whether `path` is `directory`, or is below it; "" is above all. */
bool hy_share_is_below(const char *path, const char *directory);

#endif
