/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's record of its shares, shares.json in the project's private directory:
 *
 *     {"version": 1, "shares": [{"path": "Resources/train", "user": "bob", "id": "1001", "owner_id": "1000",
 *      "write": false, "state": "granted", "since_ms": 1763400000000,
 *      "prior": [{"path": "Resources/train/a", "access": 4, "on_new": -1, "owner_on_new": -1, "default": false}]}]}
 *
 * It is replaced as a whole, and synced: permissions change only after they are recorded.
 */
#ifndef HY_SHARE_RECORDS_H
#define HY_SHARE_RECORDS_H

#include "share/share.h"

#define HY_SHARE_PRIORS_MAX 200000u /* of one share */

/* Waits until no other call changes the project's shares. A descriptor that holds the lock, or -Exxx. */
int hy_share_lock(const struct hy_share_project *p, struct hy_err *err);

int hy_share_records_load(const struct hy_share_project *p, struct hy_shares *ret, struct hy_err *err);
int hy_share_records_save(const struct hy_share_project *p, const struct hy_shares *s, struct hy_err *err);
/* Pure: the text of the file. -EINVAL when it is damaged. */
int hy_share_records_parse(const char *text, size_t n, struct hy_shares *ret, struct hy_err *err);

void hy_share_done(struct hy_share *s);
/* Takes `s`. */
int hy_shares_add(struct hy_shares *list, struct hy_share *s, struct hy_err *err);
void hy_shares_remove(struct hy_shares *list, size_t i);

/* Adds a copy; call hy_share_sort_priors after the last. */
int hy_share_add_prior(struct hy_share *s, const struct hy_share_prior *prior, struct hy_err *err);
void hy_share_sort_priors(struct hy_share *s);
/* NULL: there was nothing before. */
const struct hy_share_prior *hy_share_find_prior(const struct hy_share *s, const char *path);

#endif
