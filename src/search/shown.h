/* SPDX-License-Identifier: Apache-2.0 */
/* A user's text in a message of one line; private to this part. */
#ifndef HY_SEARCH_SHOWN_H
#define HY_SEARCH_SHOWN_H

#include <stddef.h>

#define HY_SHOWN_MAX 64 /* bytes */

struct hy_shown {
    char text[HY_SHOWN_MAX + 8];
};

/* Truncated, and control characters and bytes that are not UTF-8 replaced. */
struct hy_shown hy_show(const char *text);
struct hy_shown hy_show_n(const char *text, size_t n);

#endif
