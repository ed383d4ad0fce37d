/* SPDX-License-Identifier: Apache-2.0 */
#include "view/json_values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

static void write_string(struct hy_out *out, const char *s)
{
    hy_out_str(out, "\"");
    while (*s) {
        size_t n = strcspn(s, "\"\\\001\002\003\004\005\006\007\010\011\012\013\014\015\016\017\020\021\022\023\024"
                              "\025\026\027\030\031\032\033\034\035\036\037\177");

        hy_out_bytes(out, s, n);
        s += n;
        if (*s == '"' || *s == '\\')
            hy_outf(out, "\\%c", *s++);
        else if (*s)
            hy_outf(out, "\\u%04x", (unsigned char)*s++);
    }
    hy_out_str(out, "\"");
}

static void write_value(struct hy_out *out, const json_t *value, bool compact);

static void write_object(struct hy_out *out, const json_t *object, bool compact)
{
    const char *name, *before = "";
    json_t *value;

    hy_out_str(out, "{");
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        hy_out_str(out, before);
        write_string(out, name);
        hy_out_str(out, compact ? ":" : ": ");
        write_value(out, value, compact);
        before = compact ? "," : ", ";
    }
    hy_out_str(out, "}");
}

static void write_array(struct hy_out *out, const json_t *array, bool compact)
{
    const char *between = compact ? "," : ", ";

    hy_out_str(out, "[");
    for (size_t i = 0; i < json_array_size(array); i++) {
        hy_out_str(out, i ? between : "");
        write_value(out, json_array_get(array, i), compact);
    }
    hy_out_str(out, "]");
}

/* jansson writes 0.1 as 0.10000000000000001; the shortest form is easier to read and to diff. 1.0 keeps its
 * ".0", because many readers parse 1 as an integer. */
static void write_real(struct hy_out *out, double value)
{
    char number[40];

    hy_format_double(value, number, sizeof number);
    hy_out_str(out, number);
    if (!strpbrk(number, ".e"))
        hy_out_str(out, ".0");
}

static void write_value(struct hy_out *out, const json_t *value, bool compact)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        write_object(out, value, compact);
        break;
    case JSON_ARRAY:
        write_array(out, value, compact);
        break;
    case JSON_STRING:
        write_string(out, json_string_value(value));
        break;
    case JSON_INTEGER:
        hy_outf(out, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        write_real(out, json_real_value(value));
        break;
    default:
        hy_out_str(out, json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null");
    }
}

int hy_json_append_compact(struct hy_buf *b, const json_t *value)
{
    hy_cleanup_out struct hy_out out;

    hy_out_init(&out, &(struct hy_style){0});
    write_value(&out, value, true);
    return out.rc < 0 ? out.rc : hy_buf_append(b, hy_buf_bytes(&out.buf), out.buf.len);
}

void hy_json_take(struct hy_out *out, json_t *object)
{
    if (object)
        write_value(out, object, false);
    else if (out->rc == 0)
        out->rc = -ENOMEM;
    json_decref(object);
}

void hy_json_line_take(struct hy_out *out, json_t *object)
{
    hy_json_take(out, object);
    hy_out_str(out, "\n");
}

/* The parameters as JSON, or as a string when they are not valid JSON. */
static json_t *params_of(const Hy__TrialView *t)
{
    json_t *params = t->params[0] ? hy_json_parse(t->params, 0) : NULL;

    return params ? params : hy_json_text(t->params);
}

json_t *hy_json_trial(const Hy__TrialView *t, const char *metric)
{
    json_t *o = json_object();
    int rc = 0;

    rc |= hy_json_set(o, "number", json_integer((json_int_t)t->number));
    rc |= hy_json_set(o, "state", hy_json_text(t->state));
    rc |= hy_json_set(o, "params", params_of(t));
    rc |= hy_json_set(o, "value", metric && *metric && t->has_value ? hy_json_number(t->value) : json_null());
    rc |= hy_json_set(o, "elapsed_ms", json_integer(t->elapsed_ms));
    rc |= hy_json_set(o, "attempt", json_integer(t->attempt));
    if (t->agent[0])
        rc |= hy_json_set(o, "agent", hy_json_text(t->agent));
    if (t->dir[0])
        rc |= hy_json_set(o, "dir", hy_json_text(t->dir));
    if (t->message[0])
        rc |= hy_json_set(o, "message", hy_json_text(t->message));
    if (rc < 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}
