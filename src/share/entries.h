/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of the receiver, for resolve.c. */
#ifndef HY_SHARE_ENTRIES_H
#define HY_SHARE_ENTRIES_H

#include "share/share.h"

/* -ENOENT, -ENOTDIR: there is no such entry. */
int hy_share_entry_read(const char *project, const char *name, struct hy_share_entry *ret, struct hy_err *err);
/* resolve.c: checks that this user can read e->target, and sets e->owner. */
int hy_share_find_target(struct hy_share_entry *e, struct hy_err *err);

#endif
