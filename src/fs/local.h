/* SPDX-License-Identifier: Apache-2.0 */
/* Files of this machine. */
#ifndef HY_FS_LOCAL_H
#define HY_FS_LOCAL_H

struct hy_err;
struct hy_fs_backend;

/* The path in a URL of this machine, without trailing slashes: "link/" would be what the link leads to. */
int hy_fs_local_path(const char *url, char **ret, struct hy_err *err);

extern const struct hy_fs_backend hy_fs_local;

#endif
