/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Of the text that this thread parses now. */
static _Thread_local bool is_loading, has_failed;

/* While a text is parsed, a failed allocation is recorded and tried once more. */
static void *allocate(size_t size)
{
    void *block = hy_malloc(size);

    if (block || !is_loading)
        return block;
    has_failed = true;
    return malloc(size ? size : 1);
}

void hy_json_init(void)
{
    json_set_alloc_funcs(allocate, free);
}

json_t *hy_json_load(const char *text, size_t n, size_t flags, json_error_t *where)
{
    json_t *root;

    hy_json_init();
    is_loading = true;
    has_failed = false;
    root = json_loadb(text, n, flags, where);
    is_loading = false;
    if (!has_failed)
        return root;
    json_decref(root);
    if (where)
        memset(where, 0, sizeof *where);
    return NULL;
}

json_t *hy_json_parse(const char *text, size_t flags)
{
    return text ? hy_json_load(text, strlen(text), flags, NULL) : NULL;
}
