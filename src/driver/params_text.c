/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/params_text.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/driver.h"

#define DIR_MAX 200
#define TEXT_MAX (16u * 1024 * 1024)

/* ---- {name} in the command ------------------------------------------------------------------- */

/* The length of an identifier in braces at `s` ("{name}" gives 4), 0 if there is none. */
static size_t placeholder(const char *s)
{
    size_t n = 1;

    if (s[0] != '{' || !(isalpha((unsigned char)s[1]) || s[1] == '_'))
        return 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_' || s[n] == '-' || s[n] == '.')
        n++;
    return s[n] == '}' ? n - 1 : 0;
}

static int find_name(char *const *names, const char *name, size_t n)
{
    for (int i = 0; names[i]; i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0)
            return i;
    return -1;
}

static int unknown_name(char *const *names, const char *name, size_t n, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf list;

    hy_buf_init(&list, 300);
    for (int i = 0; names[i]; i++)
        if (hy_buf_printf(&list, "%s{%s}", i ? ", " : "", names[i]) < 0)
            break;
    return hy_err_set(err, -EINVAL, "unknown parameter {%.*s} in the command (%s%s); write {{%.*s}} for literal braces",
                      (int)n, name, list.len ? "parameters: " : "there are no parameters",
                      list.len ? hy_buf_cstr(&list) : "", (int)n, name);
}

int hy_command_check(char *const *argv, char *const *names, struct hy_err *err)
{
    for (; *argv; argv++) {
        for (const char *s = *argv; *s; s++) {
            size_t n = placeholder(s);

            if (s[0] == '{' && s[1] == '{')
                s++;
            else if (n && find_name(names, s + 1, n) < 0)
                return unknown_name(names, s + 1, n, err);
        }
    }
    return 0;
}

static int append_value(struct hy_buf *b, const struct hy_dim *dim, struct hy_value v)
{
    char room[64];

    return hy_buf_append_str(b, hy_value_text(dim, v, room, sizeof room));
}

static const struct hy_dim *find_dim(const struct hy_space *space, const char *name, size_t n)
{
    for (size_t i = 0; i < space->count; i++)
        if (strlen(space->dims[i].name) == n && memcmp(space->dims[i].name, name, n) == 0)
            return &space->dims[i];
    return NULL;
}

static char *take_text(struct hy_buf *b, int rc)
{
    const char *text = rc == 0 ? hy_buf_cstr(b) : NULL;

    return text ? hy_strdup(text) : NULL;
}

char *hy_command_expand(const char *template, const struct hy_space *space, const struct hy_value *values)
{
    hy_cleanup_buf struct hy_buf out;
    int rc = 0;

    hy_buf_init(&out, TEXT_MAX);
    for (const char *s = template; *s && rc == 0;) {
        size_t n = placeholder(s);
        const struct hy_dim *dim = n ? find_dim(space, s + 1, n) : NULL;

        if ((s[0] == '{' && s[1] == '{') || (s[0] == '}' && s[1] == '}')) {
            rc = hy_buf_append(&out, s, 1);
            s += 2;
        } else if (dim) {
            rc = append_value(&out, dim, values[dim - space->dims]);
            s += n + 2;
        } else {
            rc = hy_buf_append(&out, s++, 1);
        }
    }
    return take_text(&out, rc);
}

/* ---- directory names ------------------------------------------------------------------------- */

/* '%' and '~' are escapes here; '/' and control bytes are invalid in a name; the rest causes problems in shells,
 * URLs and TensorBoard. */
static int append_safe(struct hy_buf *b, const char *text)
{
    size_t left = strlen(text);
    int rc = 0;

    while (left && rc == 0) {
        size_t n = hy_utf8_len(text, left);
        unsigned char c = (unsigned char)*text;

        if (n > 1 || (n == 1 && (isalnum(c) || strchr("._+-=@:", c))))
            rc = hy_buf_append(b, text, n);
        else
            rc = hy_buf_printf(b, "%%%02X", c);
        n = n ? n : 1;
        text += n;
        left -= n;
    }
    return rc;
}

static int cut_long_name(struct hy_buf *b)
{
    char tail[24];
    size_t keep = DIR_MAX - 18;

    if (b->len <= DIR_MAX)
        return 0;
    snprintf(tail, sizeof tail, "~%016llx", (unsigned long long)hy_hash(hy_buf_bytes(b), b->len));
    while (keep && (hy_buf_bytes(b)[keep] & 0xc0) == 0x80) /* not in the middle of a character */
        keep--;
    b->len = keep;
    return hy_buf_append_str(b, tail);
}

/* ",NAME=VALUE" */
static int append_dir_part(struct hy_buf *b, const struct hy_dim *dim, struct hy_value v)
{
    char room[64];
    int rc = b->len ? hy_buf_append(b, ",", 1) : 0;

    if (rc == 0 && b->len == 0 && dim->name[0] == '.')
        rc = hy_buf_append_str(b, "_"); /* not a hidden directory, nor "." */
    if (rc == 0)
        rc = append_safe(b, dim->name);
    if (rc == 0)
        rc = hy_buf_append(b, "=", 1);
    return rc == 0 ? append_safe(b, hy_value_text(dim, v, room, sizeof room)) : rc;
}

char *hy_params_dir(const struct hy_space *space, const struct hy_value *values, uint64_t number)
{
    hy_cleanup_buf struct hy_buf out;
    int rc = 0;

    hy_buf_init(&out, TEXT_MAX);
    for (size_t i = 0; i < space->count && rc == 0; i++)
        if (!isnan(values[i].number))
            rc = append_dir_part(&out, &space->dims[i], values[i]);
    if (rc == 0 && out.len == 0)
        rc = hy_buf_printf(&out, "trial-%llu", (unsigned long long)number);
    if (rc == 0)
        rc = cut_long_name(&out);
    return take_text(&out, rc);
}

/* ---- JSON ------------------------------------------------------------ */

int hy_append_json_string(struct hy_buf *b, const char *text)
{
    json_t *value = json_string(text);
    hy_cleanup_buf struct hy_buf printable;
    hy_cleanup_free char *dump = NULL;

    hy_buf_init(&printable, TEXT_MAX);
    if (!value && hy_append_printable(&printable, text, strlen(text)) == 0) /* not valid UTF-8 */
        value = json_string(hy_buf_cstr(&printable));
    dump = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    return dump ? hy_buf_append_str(b, dump) : -ENOMEM;
}

/* A text that is a valid JSON number becomes a number; "007", "1." and "1e999" stay strings. */
static int append_text(struct hy_buf *b, const char *text)
{
    size_t n = hy_json_number_len(text);

    if (n && !text[n] && hy_json_number_fits(text, n))
        return hy_buf_append(b, text, n);
    return hy_append_json_string(b, text);
}

/* A float keeps its type: 1.0, for readers that take 1 for an integer. */
static int append_real(struct hy_buf *b, const char *text)
{
    int rc = hy_buf_append_str(b, text);

    return rc == 0 && !strpbrk(text, ".e") ? hy_buf_append_str(b, ".0") : rc;
}

static int append_json(struct hy_buf *b, const struct hy_dim *dim, struct hy_value v)
{
    const char *json = hy_value_json(dim, v), *text;
    char room[64];

    if (json)
        return hy_buf_append_str(b, json);
    text = hy_value_text(dim, v, room, sizeof room);
    return dim->kind == HY_DIM_FLOAT ? append_real(b, text) : append_text(b, text);
}

/* "NAME": VALUE */
static int append_member(struct hy_buf *b, const struct hy_dim *dim, struct hy_value v)
{
    int rc = hy_append_json_string(b, dim->name);

    if (rc == 0)
        rc = hy_buf_append_str(b, ": ");
    return rc == 0 ? append_json(b, dim, v) : rc;
}

char *hy_params_json(const struct hy_space *space, const struct hy_value *values)
{
    hy_cleanup_buf struct hy_buf out;
    int rc;

    hy_buf_init(&out, TEXT_MAX);
    rc = hy_buf_append_str(&out, "{");
    for (size_t i = 0; i < space->count && rc == 0; i++) {
        if (isnan(values[i].number))
            continue;
        rc = out.len > 1 ? hy_buf_append_str(&out, ", ") : 0;
        if (rc == 0)
            rc = append_member(&out, &space->dims[i], values[i]);
    }
    if (rc == 0)
        rc = hy_buf_append_str(&out, "}");
    return take_text(&out, rc);
}

/* ---- back from JSON -------------------------------------------------------------- */

/* Whether `*at` begins with `text`; moves it behind. */
static bool skip(const char **at, const char *text)
{
    size_t n = strlen(text);

    if (strncmp(*at, text, n) != 0)
        return false;
    *at += n;
    return true;
}

static bool ends(const char *at)
{
    return at[0] == ',' || at[0] == '}';
}

/* The first choice whose JSON is there. */
static int parse_choice(const struct hy_dim *dim, const char **at, struct hy_value *ret)
{
    for (size_t i = 0; i < dim->choice_count; i++) {
        hy_cleanup_buf struct hy_buf json;
        const char *end = *at;

        hy_buf_init(&json, TEXT_MAX);
        if (append_json(&json, dim, (struct hy_value){(double)i}) < 0 || !hy_buf_cstr(&json))
            return -ENOMEM;
        if (!skip(&end, hy_buf_cstr(&json)) || !ends(end))
            continue;
        *at = end;
        *ret = (struct hy_value){(double)i};
        return 0;
    }
    return -EINVAL;
}

static int parse_number(const char **at, struct hy_value *ret)
{
    char text[64];
    size_t n = strcspn(*at, ",}");

    if (n == 0 || n >= sizeof text)
        return -EINVAL;
    memcpy(text, *at, n);
    text[n] = '\0';
    *at += n;
    return hy_parse_double(text, &ret->number);
}

static int parse_member(const struct hy_dim *dim, const char **at, struct hy_value *ret)
{
    hy_cleanup_buf struct hy_buf name;
    int rc;

    hy_buf_init(&name, TEXT_MAX);
    if (hy_append_json_string(&name, dim->name) < 0 || hy_buf_append_str(&name, ": ") < 0 || !hy_buf_cstr(&name))
        return -ENOMEM;
    *ret = (struct hy_value){NAN};
    if (!skip(at, hy_buf_cstr(&name))) /* it was not active in this trial */
        return 0;
    rc = dim->kind == HY_DIM_CATEGORY ? parse_choice(dim, at, ret) : parse_number(at, ret);
    skip(at, ", ");
    return rc;
}

int hy_params_parse(const struct hy_space *space, const char *json, struct hy_value *ret)
{
    int rc = skip(&json, "{") ? 0 : -EINVAL;

    for (size_t i = 0; i < space->count && rc == 0; i++)
        rc = parse_member(&space->dims[i], &json, &ret[i]);
    return rc == 0 && strcmp(json, "}") != 0 ? -EINVAL : rc;
}
