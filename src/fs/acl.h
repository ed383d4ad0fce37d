/* SPDX-License-Identifier: Apache-2.0 */
/* ACLs of local files, for local.c. */
#ifndef HY_FS_ACL_H
#define HY_FS_ACL_H

#include "fs/fs.h"

int hy_fs_local_acl_get(const char *url, struct hy_fs_acl *ret, struct hy_err *err);
int hy_fs_local_acl_set(const char *url, const struct hy_fs_acl *acl, struct hy_err *err);
int hy_fs_local_acl_walk(const char *url, hy_fs_acl_visit *visit, void *arg, struct hy_err *err);

#endif
