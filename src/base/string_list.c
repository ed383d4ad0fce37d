/* SPDX-License-Identifier: Apache-2.0 */
#include "base/string_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

int hy_string_list_add(struct hy_string_list *l, const char *s)
{
    return hy_string_list_take(l, hy_strdup(s));
}

int hy_string_list_take(struct hy_string_list *l, char *s)
{
    if (!s || hy_array_grow(l->items, l->count) < 0) {
        free(s);
        return -ENOMEM;
    }
    l->items[l->count++] = s;
    return 0;
}

bool hy_string_list_has(const struct hy_string_list *l, const char *s)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i], s) == 0)
            return true;
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void hy_string_list_sort(struct hy_string_list *l)
{
    if (l->count > 1)
        qsort(l->items, l->count, sizeof *l->items, by_bytes);
}

void hy_string_list_done(struct hy_string_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct hy_string_list){0};
}
