/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POSIX ACLs as Linux stores them in the attributes system.posix_acl_access and
 * system.posix_acl_default. Pure.
 *
 *     version  u32, 2
 *     entries  each: tag u16, perm u16, id u32      all little-endian
 *
 * in the order owner (tag 1), users (2, by id), group (4), groups (8, by id), mask
 * (0x10), others (0x20). The id of entries without a name is ~0.
 */
#ifndef HY_FS_POSIX_ACL_H
#define HY_FS_POSIX_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_buf;
struct hy_fs_acl;

#define HY_POSIX_ACL_BYTES_MAX 65536u /* of an attribute */

/* Appends the entries to `acl`. -EPROTO: invalid, -E2BIG, or -ENOMEM; after an error, some may have been added. */
int hy_posix_acl_parse(const uint8_t *bytes, size_t n, bool is_default, struct hy_fs_acl *acl);
/* Appends the entries with this `is_default` in their order. -EINVAL when a name is not a number. */
int hy_posix_acl_format(const struct hy_fs_acl *acl, bool is_default, struct hy_buf *b);

#endif
