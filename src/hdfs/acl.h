/* SPDX-License-Identifier: Apache-2.0 */
/* Access control lists on HDFS. */
#ifndef HY_HDFS_ACL_H
#define HY_HDFS_ACL_H

#include <stdbool.h>

#include "hdfs.pb-c.h"

struct hy_err;
struct hy_fs_acl;
struct hy_hdfs_cluster;

int hy_hdfs_acl_get(struct hy_hdfs_cluster *c, const char *path, struct hy_fs_acl *ret, struct hy_err *err);
/* Replaces the whole list. */
int hy_hdfs_acl_set(struct hy_hdfs_cluster *c, const char *path, const struct hy_fs_acl *acl, struct hy_err *err);

/* Pure: the complete list. -EPROTO: invalid. */
int hy_hdfs_acl_parse(const Hdfs__AclStatus *status, struct hy_fs_acl *ret, struct hy_err *err);
/* Pure: letters, digits and punctuation that NameNodes accept in ACLs. */
bool hy_hdfs_is_user(const char *name);

#endif
