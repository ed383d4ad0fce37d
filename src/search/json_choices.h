/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to search: a list of choices written as JSON.
 *
 * Strict (RFC 8259), within what its readers can hold: whole numbers of 64 bits,
 * others within a double's range, no NUL and no half of a surrogate pair in a
 * text, 200 levels. Blanks are dropped; otherwise everything stays as written.
 */
#ifndef HY_SEARCH_JSON_CHOICES_H
#define HY_SEARCH_JSON_CHOICES_H

#include <stddef.h>

struct hy_choices {
    char **texts; /* a JSON string's text; of all else its JSON */
    char **json;
    size_t count;
    const char *fault; /* what was wrong, as a clause ... */
    const char *at;    /* ... and where, in the list */
};

/*
 * Splits a JSON array into its elements. `ret` is zeroed before and is to be
 * done with after, however it went. 0, -ENOMEM, or -EINVAL with fault and at.
 */
int hy_choices_parse(struct hy_choices *ret, const char *list);
void hy_choices_done(struct hy_choices *c);

#endif
