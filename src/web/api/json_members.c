/* SPDX-License-Identifier: Apache-2.0 */
#include "web/api/json_members.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"

#define DEPTH_MAX 64

/* Each of these returns where a value ends, or NULL when there is none. */
static const char *skip_value(const char *p, int depth);

static const char *skip_space(const char *p)
{
    return p + strspn(p, " \t\n\r");
}

static const char *skip_digits(const char *p)
{
    const char *end = p;

    while (isdigit((unsigned char)*end))
        end++;
    return end > p ? end : NULL;
}

static const char *skip_number(const char *p)
{
    p += *p == '-';
    p = *p == '0' ? p + 1 : skip_digits(p);
    if (p && *p == '.')
        p = skip_digits(p + 1);
    if (p && (*p == 'e' || *p == 'E')) {
        p++;
        p = skip_digits(p + (*p == '+' || *p == '-'));
    }
    return p;
}

/* After a backslash. */
static const char *skip_escape(const char *p)
{
    if (*p != 'u')
        return *p && strchr("\"\\/bfnrt", *p) ? p + 1 : NULL;
    for (int i = 1; i <= 4; i++)
        if (!isxdigit((unsigned char)p[i]))
            return NULL;
    return p + 5;
}

static const char *skip_string(const char *p)
{
    if (*p++ != '"')
        return NULL;
    while (p && *p != '"') {
        unsigned char c = (unsigned char)*p;

        if (c < 0x20) /* the end of the text, too */
            return NULL;
        if (c == '\\') {
            p = skip_escape(p + 1);
        } else if (c < 0x80) {
            p++;
        } else {
            size_t len = hy_utf8_len(p, strnlen(p, 4));

            p = len ? p + len : NULL;
        }
    }
    return p ? p + 1 : NULL;
}

static const char *skip_member(const char *p, int depth, struct hy_json_piece *name, struct hy_json_piece *value)
{
    name->text = p;
    p = skip_string(p);
    if (!p)
        return NULL;
    name->len = (size_t)(p - name->text);
    p = skip_space(p);
    if (*p != ':')
        return NULL;
    value->text = p = skip_space(p + 1);
    p = skip_value(p, depth);
    if (p)
        value->len = (size_t)(p - value->text);
    return p;
}

static const char *skip_element(const char *p, int depth, bool is_object)
{
    struct hy_json_piece name, value;

    return is_object ? skip_member(p, depth, &name, &value) : skip_value(p, depth);
}

static const char *skip_container(const char *p, int depth)
{
    bool is_object = *p == '{';
    char end = is_object ? '}' : ']';

    p = skip_space(p + 1);
    if (*p == end)
        return p + 1;
    for (;;) {
        p = skip_element(p, depth - 1, is_object);
        if (!p)
            return NULL;
        p = skip_space(p);
        if (*p == end)
            return p + 1;
        if (*p != ',')
            return NULL;
        p = skip_space(p + 1);
    }
}

static const char *skip_word(const char *p, const char *word)
{
    size_t n = strlen(word);

    return strncmp(p, word, n) == 0 ? p + n : NULL;
}

static const char *skip_value(const char *p, int depth)
{
    if (depth < 0)
        return NULL;
    switch (*p) {
    case '{':
    case '[':
        return skip_container(p, depth);
    case '"':
        return skip_string(p);
    case 't':
        return skip_word(p, "true");
    case 'f':
        return skip_word(p, "false");
    case 'n':
        return skip_word(p, "null");
    default:
        return skip_number(p);
    }
}

static bool is_object(const char *text)
{
    const char *end = *text == '{' ? skip_value(text, DEPTH_MAX) : NULL;

    return end && *skip_space(end) == '\0';
}

int hy_json_members(const char *text, hy_json_member_cb cb, void *arg)
{
    const char *p = text ? skip_space(text) : "";
    int rc = 0;

    if (!is_object(p))
        return -EINVAL;
    p = skip_space(p + 1);
    while (*p != '}' && rc == 0) {
        struct hy_json_piece name, value;

        p = skip_space(skip_member(p, DEPTH_MAX, &name, &value)); /* it is valid: is_object has read it */
        if (*p == ',')
            p = skip_space(p + 1);
        rc = cb(arg, name, value);
    }
    return rc;
}
