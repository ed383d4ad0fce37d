/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"

/* Of the text that this thread parses or writes now. */
static _Thread_local bool is_loading, has_failed;

/* While a text is parsed or written, a failed allocation is recorded and tried once more. */
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

char *hy_json_dump(const json_t *json, size_t flags)
{
    char *text;

    hy_json_init();
    is_loading = true;
    has_failed = false;
    text = json_dumps(json, flags);
    is_loading = false;
    if (has_failed)
        free(hy_take(text));
    return text;
}

json_t *hy_json_parse(const char *text, size_t flags)
{
    return text ? hy_json_load(text, strlen(text), flags, NULL) : NULL;
}

void hy_json_free_at(json_t **json)
{
    json_decref(*json);
}

json_t *hy_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *hy_json_text(const char *text)
{
    json_t *json;
    struct hy_buf b;

    if (!text)
        return json_null();
    json = json_string(text);
    if (json)
        return json;
    /* No UTF-8, or out of memory. */
    hy_buf_init(&b, SIZE_MAX / 2);
    for (size_t i = 0, n = strlen(text), len; i < n; i += len ? len : 1) {
        len = hy_utf8_len(text + i, n - i);
        if ((len ? hy_buf_append(&b, text + i, len) : hy_append_printable(&b, text + i, 1)) < 0)
            break;
    }
    if (b.len)
        json = json_stringn((const char *)hy_buf_bytes(&b), b.len);
    hy_buf_done(&b);
    return json;
}

int hy_json_set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) < 0 ? -ENOMEM : 0;
}
