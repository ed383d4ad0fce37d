/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members of a JSON object as slices of its text, without parsing the values: the hyperparameters of 100,000
 * trials are passed from the store to the page unchanged.
 */
#ifndef HY_WEB_JSON_MEMBERS_H
#define HY_WEB_JSON_MEMBERS_H

#include <stddef.h>

struct hy_json_piece {
    const char *text; /* not NUL-terminated */
    size_t len;
};

/* `name` has its quotation marks and escapes. A nonzero result ends the iteration and is returned. */
typedef int (*hy_json_member_cb)(void *arg, struct hy_json_piece name, struct hy_json_piece value);

/* 0, or -EINVAL when the text is not a JSON object (RFC 8259, UTF-8); then the callback was not called. */
int hy_json_members(const char *text, hy_json_member_cb cb, void *arg);

#endif
