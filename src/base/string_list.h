/* SPDX-License-Identifier: Apache-2.0 */
/* A growable list of owned strings. All zero is an empty list. */
#ifndef HY_BASE_STRING_LIST_H
#define HY_BASE_STRING_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct hy_string_list {
    char **items; /* read-only */
    size_t count; /* read-only */
};

/* Adds a copy. 0 or -ENOMEM. */
int hy_string_list_add(struct hy_string_list *l, const char *s);
/* Adds `s` itself and owns it, also on failure; NULL is -ENOMEM, so that the result of hy_asprintf can be passed. */
int hy_string_list_take(struct hy_string_list *l, char *s);
bool hy_string_list_has(const struct hy_string_list *l, const char *s);
void hy_string_list_sort(struct hy_string_list *l); /* by bytes */
void hy_string_list_done(struct hy_string_list *l); /* it is then empty */

#define hy_cleanup_string_list __attribute__((cleanup(hy_string_list_done)))

#endif
