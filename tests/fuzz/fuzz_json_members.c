/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a JSON object, compared with jansson: both accept the same texts, but for numbers that do not fit,
 * escaped NULs and halves of surrogate pairs, which are JSON but nothing that jansson could hold. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "web/api/json_members.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static bool is_beyond_jansson(const json_error_t *e)
{
    enum json_error_code code = json_error_code(e);

    return code == json_error_numeric_overflow || code == json_error_null_character ||
           code == json_error_null_byte_in_key || strstr(e->text, "surrogate") || strstr(e->text, "\\u");
}

static int count(void *arg, struct hy_json_piece name, struct hy_json_piece value)
{
    json_error_t error;
    json_t *key = json_loadb(name.text, name.len, JSON_DECODE_ANY, &error);

    check(key ? json_is_string(key) : is_beyond_jansson(&error));
    json_decref(key);
    check(value.len > 0);
    ++*(size_t *)arg;
    return 0;
}

static size_t openings(const char *text)
{
    size_t n = 0;

    for (; (text = strpbrk(text, "[{")); text++)
        n++;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    size_t members = 0;
    json_error_t error;
    json_t *object;
    int rc;

    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    rc = hy_json_members(text, count, &members);
    object = json_loads(text, 0, &error);
    if (json_is_object(object) && rc < 0)
        check(openings(text) > 60); /* ours has a limit of depth */
    if (rc == 0) {
        check(object ? json_is_object(object) : is_beyond_jansson(&error));
        check(!object || json_object_size(object) <= members);
    }
    json_decref(object);
    free(text);
    return 0;
}
