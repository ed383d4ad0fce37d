/* SPDX-License-Identifier: Apache-2.0 */
#include "search/json_choices.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"

#define DEPTH_MAX 200
#define NO_CHARACTER UINT32_MAX

struct scan {
    const char *at;
    struct hy_buf json;  /* the element so far, without whitespace */
    struct hy_buf plain; /* the last text, without quotes and escapes */
    const char *fault;
    int depth;
};

static int fail(struct scan *s, const char *what)
{
    s->fault = what;
    return -EINVAL;
}

static void skip_blanks(struct scan *s)
{
    while (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n')
        s->at++;
}

/* Copies n bytes. */
static int take(struct scan *s, size_t n)
{
    int rc = hy_buf_append(&s->json, s->at, n);

    s->at += n;
    return rc;
}

/* ---- texts ---------------------------------------------------------------- */

/* Four hexadecimal digits. */
static uint32_t code_unit(const char *s)
{
    static const char hex[] = "0123456789abcdef0123456789ABCDEF";
    uint32_t unit = 0;

    for (int i = 0; i < 4; i++) {
        const char *digit = s[i] ? strchr(hex, s[i]) : NULL;

        if (!digit)
            return NO_CHARACTER;
        unit = unit << 4 | ((uint32_t)(digit - hex) & 15);
    }
    return unit;
}

/* The character of "\uXXXX", or of a pair of them; *ret_n: how many bytes they take. */
static uint32_t escaped(const char *s, size_t *ret_n)
{
    uint32_t high = code_unit(s + 2), low;

    *ret_n = 6;
    if (high < 0xd800 || high > 0xdfff)
        return high;
    if (high > 0xdbff || s[6] != '\\' || s[7] != 'u')
        return NO_CHARACTER;
    low = code_unit(s + 8);
    *ret_n = 12;
    return low >= 0xdc00 && low <= 0xdfff ? 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00) : NO_CHARACTER;
}

static int append_utf8(struct hy_buf *b, uint32_t c)
{
    const char two[] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 63))};
    const char three[] = {(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)), two[1]};
    const char four[] = {(char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 63)), three[1], two[1]};
    const char one = (char)c;

    return c < 0x80      ? hy_buf_append(b, &one, 1)
           : c < 0x800   ? hy_buf_append(b, two, sizeof two)
           : c < 0x10000 ? hy_buf_append(b, three, sizeof three)
                         : hy_buf_append(b, four, sizeof four);
}

static int unicode_escape(struct scan *s)
{
    size_t n;
    uint32_t c = escaped(s->at, &n);

    if (c == NO_CHARACTER)
        return fail(s, "\\u and its digits are not a character");
    if (c == 0)
        return fail(s, "a string may not contain a NUL");
    s->at += n;
    return append_utf8(&s->plain, c);
}

static int escape(struct scan *s)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *letter = s->at[1] ? strchr(letters, s->at[1]) : NULL;

    if (s->at[1] == 'u')
        return unicode_escape(s);
    if (!letter)
        return fail(s, "invalid escape (a backslash itself is \\\\)");
    s->at += 2;
    return hy_buf_append(&s->plain, meant + (letter - letters), 1);
}

static int character(struct scan *s)
{
    size_t n = hy_utf8_len(s->at, strnlen(s->at, 4));
    int rc;

    if (*s->at == '\\')
        return escape(s);
    if (n == 0)
        return fail(s, "a byte is not UTF-8");
    if ((unsigned char)*s->at < 0x20)
        return fail(s, "a control character must be escaped, as in \\n or \\u001b");
    rc = hy_buf_append(&s->plain, s->at, n);
    s->at += n;
    return rc;
}

static int text(struct scan *s)
{
    const char *from = s->at++;
    int rc = 0;

    hy_buf_clear(&s->plain);
    while (rc == 0 && *s->at && *s->at != '"')
        rc = character(s);
    if (rc < 0)
        return rc;
    if (*s->at != '"') {
        s->at = from;
        return fail(s, "a string is not terminated");
    }
    s->at++;
    return hy_buf_append(&s->json, from, (size_t)(s->at - from));
}

/* ---- the rest --------------------------------------------------------------- */

static int number(struct scan *s)
{
    size_t n = hy_json_number_len(s->at);

    if (n == 0)
        return fail(s, "a value is missing (strings need double quotes)");
    if (!hy_json_number_fits(s->at, n))
        return fail(s, "a number is too large; write it as a string, in double quotes");
    return take(s, n);
}

static int word(struct scan *s)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < HY_COUNT(words); i++)
        if (strncmp(s->at, words[i], strlen(words[i])) == 0)
            return take(s, strlen(words[i]));
    return number(s);
}

static int container(struct scan *s, bool object);

static int value(struct scan *s)
{
    switch (*s->at) {
    case '"':
        return text(s);
    case '[':
    case '{':
        return container(s, *s->at == '{');
    default:
        return word(s);
    }
}

/* "name": value */
static int member(struct scan *s)
{
    int rc = *s->at == '"' ? text(s) : fail(s, "a name in double quotes is missing");

    if (rc < 0)
        return rc;
    skip_blanks(s);
    rc = *s->at == ':' ? take(s, 1) : fail(s, "a ':' is missing");
    if (rc < 0)
        return rc;
    skip_blanks(s);
    return value(s);
}

static int members(struct scan *s, bool object)
{
    int rc;

    for (;;) {
        skip_blanks(s);
        rc = object ? member(s) : value(s);
        if (rc < 0)
            return rc;
        skip_blanks(s);
        if (*s->at != ',')
            return 0;
        rc = take(s, 1);
        if (rc < 0)
            return rc;
    }
}

static int container(struct scan *s, bool object)
{
    const char close = object ? '}' : ']';
    int rc;

    if (++s->depth >= DEPTH_MAX) /* the list itself is one level */
        return fail(s, "a value is nested too deeply");
    rc = take(s, 1);
    skip_blanks(s);
    if (rc == 0 && *s->at != close)
        rc = members(s, object);
    if (rc == 0 && *s->at != close)
        rc = fail(s, object ? "a ',' or '}' is missing" : "a ',' or ']' is missing");
    s->depth--;
    return rc < 0 ? rc : take(s, 1);
}

/* ---- the list --------------------------------------------------------------- */

static int add(struct hy_choices *c, const char *plain, const char *json)
{
    if (!plain || !json || hy_array_grow(c->texts, c->count) < 0 || hy_array_grow(c->json, c->count) < 0)
        return -ENOMEM;
    c->texts[c->count] = hy_strdup(plain);
    c->json[c->count] = hy_strdup(json);
    c->count++;
    return c->texts[c->count - 1] && c->json[c->count - 1] ? 0 : -ENOMEM;
}

static int element(struct scan *s, struct hy_choices *ret)
{
    bool quoted = *s->at == '"';
    int rc;

    hy_buf_clear(&s->json);
    rc = value(s);
    return rc < 0 ? rc : add(ret, hy_buf_cstr(quoted ? &s->plain : &s->json), hy_buf_cstr(&s->json));
}

static int elements(struct scan *s, struct hy_choices *ret)
{
    int rc;

    do {
        s->at++; /* '[' or ',' */
        skip_blanks(s);
        rc = *s->at == ']' && ret->count == 0 ? 0 : element(s, ret);
        skip_blanks(s);
    } while (rc == 0 && *s->at == ',');
    if (rc == 0 && *s->at != ']')
        rc = fail(s, "a ',' or ']' is missing");
    if (rc < 0)
        return rc;
    s->at++;
    skip_blanks(s);
    return *s->at ? fail(s, "text follows the end of the list") : 0;
}

int hy_choices_parse(struct hy_choices *ret, const char *list)
{
    struct scan s = {.at = list};
    size_t most = strlen(list) + 1; /* no element is longer than the list; plus a NUL */
    int rc;

    if (*list != '[') {
        ret->at = list;
        ret->fault = "a '[' is missing";
        return -EINVAL;
    }
    hy_buf_init(&s.json, most);
    hy_buf_init(&s.plain, most);
    rc = elements(&s, ret);
    hy_buf_done(&s.json);
    hy_buf_done(&s.plain);
    ret->fault = s.fault;
    ret->at = s.at;
    return rc;
}

void hy_choices_done(struct hy_choices *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->texts[i]);
        free(c->json[i]);
    }
    free(c->texts);
    free(c->json);
    *c = (struct hy_choices){0};
}
