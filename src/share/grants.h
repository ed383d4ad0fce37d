/* SPDX-License-Identifier: Apache-2.0 */
/* The rights of one share: found, granted, revoked. `all` are the project's shares; the share may be among them. */
#ifndef HY_SHARE_GRANTS_H
#define HY_SHARE_GRANTS_H

#include "share/share.h"

/* Fills s->priors from the files. -EPERM: the data set contains hopyard's own data. */
int hy_share_scan(const char *project, const struct hy_shares *all, struct hy_share *s, struct hy_err *err);
/* -EPERM: the data set contains hopyard's own data by now. */
int hy_share_check_contents(const char *project, const struct hy_share *s, struct hy_err *err);
/* Both are idempotent. hopyard's own data is left out. */
int hy_share_grant(const char *project, const struct hy_shares *all, const struct hy_share *s,
                   struct hy_share_report *r, struct hy_err *err);
int hy_share_revoke(const char *project, const struct hy_shares *all, const struct hy_share *s,
                    struct hy_share_report *r, struct hy_err *err);

/* The nearest directory above the project that the user is known to be unable to pass through; *ret is NULL when there
 * is none.
 */
int hy_share_find_blocked(const char *project, const struct hy_share *s, char **ret, struct hy_err *err);

#endif
