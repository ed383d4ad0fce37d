/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON a trial writes. Python's NaN, Infinity and -Infinity are not JSON, so
 * literals are replaced before the text is parsed:
 *
 *     NaN ► null    Infinity ► true    -Infinity ► false
 *     null ► ""     true ► 1           false ► 0
 *
 * which loses nothing: strings are skipped like null, and booleans count as 0 or 1.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/metric.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "wire/wire.h"

static const struct {
    const char *from, *to;
} words[] = {{"NaN", "null"},  {"Infinity", "true"}, {"-Infinity", "false"},
             {"null", "\"\""}, {"true", "1"},        {"false", "0"}};

static bool is_word_char(uint8_t c)
{
    return isalnum(c) || c == '_' || c == '.' || c == '+' || c == '-' || c >= 0x80;
}

/* The length of the literal at `at`. */
static size_t word_length(const uint8_t *at, const uint8_t *end)
{
    size_t n = 0;

    while (at + n < end && is_word_char(at[n]))
        n++;
    return n;
}

static size_t string_length(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *p = at + 1;

    while (p < end && *p != '"')
        p += *p == '\\' && p + 1 < end ? 2 : 1;
    return (size_t)((p < end ? p + 1 : end) - at);
}

static int append_word(struct hy_buf *b, const uint8_t *at, size_t n)
{
    for (size_t i = 0; i < HY_COUNT(words); i++)
        if (strlen(words[i].from) == n && memcmp(words[i].from, at, n) == 0)
            return hy_buf_append_str(b, words[i].to);
    return hy_buf_append(b, at, n);
}

static int rename_words(const uint8_t *at, size_t n, struct hy_buf *b)
{
    const uint8_t *end = at + n;
    int rc = 0;

    while (at < end && rc == 0) {
        size_t len = word_length(at, end);

        if (len) {
            rc = append_word(b, at, len);
        } else {
            len = *at == '"' ? string_length(at, end) : 1;
            rc = hy_buf_append(b, at, len);
        }
        at += len;
    }
    return rc;
}

static bool is_blank(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isspace(bytes[i]))
            return false;
    return true;
}

/* Undoes the replacement; false when it is not a number. */
static bool env_number(const json_t *value, double *ret)
{
    switch (json_typeof(value)) {
    case JSON_INTEGER:
    case JSON_REAL:
        *ret = json_number_value(value);
        return true;
    case JSON_NULL:
        *ret = (double)NAN;
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        *ret = json_is_true(value) ? (double)INFINITY : -(double)INFINITY;
        return true;
    default:
        return false;
    }
}

static int pass_numbers(json_t *root, const char *metric, hy_result_cb cb, void *arg, struct hy_err *err)
{
    const char *name;
    json_t *value;
    double number;
    int rc = 0;

    if (env_number(root, &number)) {
        if (!metric || !*metric)
            return hy_err_set(
                err, -EINVAL,
                "the result is a bare number and the run has no metric to name it; write {\"name\": number}");
        return cb(arg, metric, number);
    }
    if (!json_is_object(root))
        return hy_err_set(err, -EINVAL, "the result is neither a JSON object nor a number; write {\"name\": number}");
    if (json_object_size(root) > HY_VALUES_LIMIT)
        return hy_err_set(err, -EINVAL, "the result has %zu values, and at most %u are allowed; write fewer",
                          json_object_size(root), HY_VALUES_LIMIT);
    json_object_foreach(root, name, value)
    {
        if (strlen(name) > HY_NAME_LIMIT)
            return hy_err_set(err, -EINVAL,
                              "the result has a name of %zu bytes, and at most %u are allowed; write a shorter one",
                              strlen(name), HY_NAME_LIMIT);
        if (env_number(value, &number))
            rc = cb(arg, name, number);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int hy_result_parse(const uint8_t *bytes, size_t n, const char *metric, hy_result_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf text;
    json_error_t where;
    json_t *root;
    int rc;

    hy_buf_init(&text, 2 * HY_RESULT_LIMIT);
    if (n > HY_RESULT_LIMIT)
        return hy_err_set(err, -EINVAL, "the result has %zu bytes, and at most %u are allowed; write only numbers", n,
                          HY_RESULT_LIMIT);
    if (is_blank(bytes, n))
        return hy_err_set(err, -EINVAL, "the result is empty");
    rc = rename_words(bytes, n, &text);
    if (rc < 0)
        return hy_err_set(err, rc, "out of memory");
    root = hy_json_load((const char *)hy_buf_bytes(&text), text.len,
                        JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &where);
    if (!root && !where.text[0])
        return hy_err_oom(err);
    if (!root)
        return hy_err_set(err, -EINVAL, "the result is not valid JSON: line %d: %s", where.line, where.text);
    rc = pass_numbers(root, metric, cb, arg, err);
    json_decref(root);
    return rc;
}
