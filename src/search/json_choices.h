/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of choices written as JSON; private to this part.
 *
 * Strict (RFC 8259), within limits that readers can represent: integers of 64
 * bits, other numbers within the range of a double, no NUL and no unpaired
 * surrogate in a string, 200 levels. Whitespace is dropped; all else is kept as
 * written.
 */
#ifndef HY_SEARCH_JSON_CHOICES_H
#define HY_SEARCH_JSON_CHOICES_H

#include <stddef.h>

struct hy_choices {
    char **texts; /* the value of a JSON string; the JSON of all else */
    char **json;
    size_t count;
    const char *fault; /* the syntax error, as a clause ... */
    const char *at;    /* ... and its position in the list */
};

/*
 * Splits a JSON array into its elements. `ret` is all zero before; call
 * hy_choices_done after success and failure. 0, -ENOMEM, or -EINVAL with fault and
 * at.
 */
int hy_choices_parse(struct hy_choices *ret, const char *list);
void hy_choices_done(struct hy_choices *c);

#endif
