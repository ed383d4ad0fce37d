/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of TensorFlow's example.proto and feature.proto:
 *
 *     Example          1: Features
 *     SequenceExample  1: Features (the context)   2: FeatureLists
 *     Features         1: map of name to Feature
 *     FeatureLists     1: map of name to FeatureList
 *     FeatureList      1: Feature, one for each step
 *     Feature          1: BytesList   2: FloatList   3: Int64List (oneof)
 *     each list        1: values; numbers packed, or one by one
 *     map entry        1: name   2: value
 *
 * Unknown fields are skipped, as in protobuf. The last entry of a repeated name
 * counts.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "record/record.h"

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* Bytes still to be parsed. */
struct span {
    const uint8_t *at, *end;
};

struct field {
    uint32_t number;
    enum wire type;
    struct span bytes; /* of BYTES */
    uint64_t value;    /* of the others */
};

static size_t left(const struct span *s)
{
    return (size_t)(s->end - s->at);
}

/* ---- protobuf encoding ----------------------------------------------------------- */

static int take_varint(struct span *s, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 70 && s->at < s->end; shift += 7) {
        const uint8_t byte = *s->at++;

        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (byte < 0x80) {
            *ret = value;
            return 0;
        }
    }
    return -EBADMSG;
}

static int take_fixed(struct span *s, size_t n, uint64_t *ret)
{
    uint64_t value = 0;

    if (left(s) < n)
        return -EBADMSG;
    memcpy(&value, s->at, n); /* little-endian, like all supported machines */
    s->at += n;
    *ret = value;
    return 0;
}

static int take_bytes(struct span *s, struct span *ret)
{
    uint64_t n;

    if (take_varint(s, &n) < 0 || n > left(s))
        return -EBADMSG;
    *ret = (struct span){s->at, s->at + n};
    s->at += n;
    return 0;
}

/* 1, 0 at the end, or -EBADMSG. */
static int next_field(struct span *s, struct field *ret)
{
    uint64_t key;
    int rc;

    if (s->at == s->end)
        return 0;
    *ret = (struct field){0};
    if (take_varint(s, &key) < 0 || key >> 3 == 0 || key >> 3 > 0x1fffffff)
        return -EBADMSG;
    ret->number = (uint32_t)(key >> 3);
    ret->type = (enum wire)(key & 7);
    switch (ret->type) {
    case VARINT:
        rc = take_varint(s, &ret->value);
        break;
    case FIXED64:
        rc = take_fixed(s, 8, &ret->value);
        break;
    case FIXED32:
        rc = take_fixed(s, 4, &ret->value);
        break;
    case BYTES:
        rc = take_bytes(s, &ret->bytes);
        break;
    default: /* groups are obsolete */
        rc = -EBADMSG;
    }
    return rc < 0 ? rc : 1;
}

/*
 * A fast path for the expected field: bytes after a key of one byte. When another field follows, consumes nothing and
 * leaves it to next_field. All common writers encode examples this way.
 */
static inline bool take_expected(struct span *s, uint8_t key, struct span *ret)
{
    struct span rest = *s;
    uint64_t n;

    if (left(&rest) < 2 || *rest.at++ != key)
        return false;
    if (*rest.at < 0x80)
        n = *rest.at++;
    else if (take_varint(&rest, &n) < 0)
        return false;
    if (n > left(&rest))
        return false;
    ret->at = rest.at;
    ret->end = s->at = rest.at + n;
    return true;
}

static inline uint8_t key_of(unsigned number)
{
    return (uint8_t)(number << 3 | BYTES);
}

/* ---- values ------------------------------------------------------------------------ */

static int add_floats(struct hy_column *c, const struct span *packed)
{
    const size_t count = left(packed) / sizeof(float);
    void *to;

    if (left(packed) % sizeof(float))
        return -EBADMSG;
    to = hy_column_reserve(c, count);
    if (!to)
        return -ENOMEM;
    if (count)
        memcpy(to, packed->at, left(packed));
    hy_column_added(c, count);
    return 0;
}

/* Each takes at least one byte: so there are at most as many as bytes. */
static int add_varints(struct hy_column *c, struct span packed)
{
    int64_t *to = hy_column_reserve(c, left(&packed));
    size_t count = 0;
    uint64_t value;

    if (!to)
        return -ENOMEM;
    while (packed.at < packed.end) {
        if (*packed.at < 0x80)
            value = *packed.at++;
        else if (take_varint(&packed, &value) < 0)
            return -EBADMSG;
        to[count++] = (int64_t)value;
    }
    hy_column_added(c, count);
    return 0;
}

static int add_number(struct hy_column *c, uint64_t value, size_t width)
{
    void *to = hy_column_reserve(c, 1);

    if (!to)
        return -ENOMEM;
    memcpy(to, &value, width);
    hy_column_added(c, 1);
    return 0;
}

static int add_value(struct hy_column *c, const struct field *f)
{
    switch (c->kind) {
    case HY_KIND_BYTES:
        return f->type == BYTES ? hy_column_add_bytes(c, f->bytes.at, left(&f->bytes)) : -EBADMSG;
    case HY_KIND_FLOAT:
        if (f->type == BYTES)
            return add_floats(c, &f->bytes);
        return f->type == FIXED32 ? add_number(c, f->value, sizeof(float)) : -EBADMSG;
    case HY_KIND_INT64:
        if (f->type == BYTES)
            return add_varints(c, f->bytes);
        return f->type == VARINT ? add_number(c, f->value, sizeof(int64_t)) : -EBADMSG;
    default:
        return -EBADMSG;
    }
}

/* A list of values. */
static int add_list(struct hy_column *c, struct span list)
{
    struct field f = {.number = 1, .type = BYTES};
    int rc = 0;

    while (rc == 0 && take_expected(&list, key_of(1), &f.bytes))
        rc = add_value(c, &f);
    if (rc < 0)
        return rc;
    while ((rc = next_field(&list, &f)) > 0) {
        rc = f.number == 1 ? add_value(c, &f) : 0;
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* ---- features ---------------------------------------------------------------------- */

/* The list of a Feature, the last one of several, and its kind. */
static int open_feature(struct span feature, enum hy_column_kind *ret_kind, struct span *ret_list)
{
    struct field f;
    int rc;

    *ret_kind = HY_KIND_NONE;
    for (unsigned kind = HY_KIND_BYTES; kind <= HY_KIND_INT64; kind++) /* the field numbers */
        if (take_expected(&feature, key_of(kind), ret_list))
            *ret_kind = (enum hy_column_kind)kind;
    while ((rc = next_field(&feature, &f)) > 0) {
        if (f.number < HY_KIND_BYTES || f.number > HY_KIND_INT64)
            continue;
        if (f.type != BYTES)
            return -EBADMSG;
        *ret_kind = (enum hy_column_kind)f.number;
        *ret_list = f.bytes;
    }
    return rc;
}

static const char *const kind_names[] = {"nothing", "bytes", "float", "int64"};

static int another_kind(const struct hy_column *c, enum hy_column_kind kind, struct hy_err *err)
{
    return hy_err_set(err, -EINVAL, "the feature '%s' is %s here, but %s in earlier rows", c->name, kind_names[kind],
                      kind_names[c->kind]);
}

/* The column for a name and a kind; NULL with *ret_rc 0 when it is to be ignored. */
static struct hy_column *column_for(struct hy_columns *c, const struct span *name, bool has_steps,
                                    enum hy_column_kind kind, int *ret_rc, struct hy_err *err)
{
    struct hy_column *found = hy_columns_find(c, (const char *)name->at, left(name), has_steps);

    *ret_rc = 0;
    if (!found && !c->is_closed) {
        found = hy_columns_add(c, (const char *)name->at, left(name), has_steps, kind);
        if (!found)
            *ret_rc = hy_err_set(err, -ENOMEM, "out of memory for a column, or more than %u columns", HY_COLUMNS_MAX);
    }
    if (found && kind && found->kind == HY_KIND_NONE)
        found->kind = kind;
    if (found && kind && found->kind != kind) {
        *ret_rc = another_kind(found, kind, err);
        return NULL;
    }
    return found;
}

static int add_feature(struct hy_columns *c, const struct span *name, struct span feature, struct hy_err *err)
{
    struct hy_column *column;
    enum hy_column_kind kind;
    struct span list = {0};
    int rc = open_feature(feature, &kind, &list);

    if (rc < 0)
        return rc;
    column = column_for(c, name, false, kind, &rc, err);
    if (!column)
        return rc;
    rc = hy_column_begin(column, c->rows);
    if (rc < 0 || !kind) /* a feature without a kind counts as missing */
        return rc;
    rc = add_list(column, list);
    return rc == 0 ? hy_column_end(column) : rc;
}

/* The kind of the first step that has one. */
static int kind_of_steps(struct span steps, enum hy_column_kind *ret)
{
    struct field f;
    struct span list;
    int rc;

    *ret = HY_KIND_NONE;
    while (*ret == HY_KIND_NONE && (rc = next_field(&steps, &f)) > 0) {
        rc = f.number == 1 && f.type == BYTES ? open_feature(f.bytes, ret, &list) : 0;
        if (rc < 0)
            return rc;
    }
    return *ret ? 0 : rc;
}

static int add_step(struct hy_column *column, struct span feature, struct hy_err *err)
{
    enum hy_column_kind kind;
    struct span list = {0};
    int rc = open_feature(feature, &kind, &list);

    if (rc < 0)
        return rc;
    if (kind && kind != column->kind)
        return another_kind(column, kind, err);
    rc = kind ? add_list(column, list) : 0;
    return rc == 0 ? hy_column_end_step(column) : rc;
}

static int add_steps(struct hy_columns *c, const struct span *name, struct span steps, struct hy_err *err)
{
    struct hy_column *column;
    enum hy_column_kind kind;
    struct field f;
    int rc = kind_of_steps(steps, &kind);

    if (rc < 0)
        return rc;
    column = column_for(c, name, true, kind, &rc, err);
    if (!column)
        return rc;
    rc = hy_column_begin(column, c->rows);
    while (rc == 0 && (rc = next_field(&steps, &f)) > 0) {
        if (f.number == 1 && f.type != BYTES)
            return -EBADMSG;
        rc = f.number == 1 ? add_step(column, f.bytes, err) : 0;
    }
    return rc == 0 ? hy_column_end(column) : rc;
}

/* ---- maps -------------------------------------------------------------------------- */

typedef int (*add_entry)(struct hy_columns *c, const struct span *name, struct span value, struct hy_err *err);

static int add_map_entry(struct hy_columns *c, struct span entry, add_entry add, struct hy_err *err)
{
    struct span name = {entry.at, entry.at}, value = {entry.at, entry.at};
    struct field f;
    int rc;

    if (take_expected(&entry, key_of(1), &name) && take_expected(&entry, key_of(2), &value) && entry.at == entry.end)
        return add(c, &name, value, err);
    while ((rc = next_field(&entry, &f)) > 0) {
        if (f.number > 2)
            continue;
        if (f.type != BYTES)
            return -EBADMSG;
        *(f.number == 1 ? &name : &value) = f.bytes;
    }
    return rc < 0 ? rc : add(c, &name, value, err);
}

static int add_map(struct hy_columns *c, struct span map, add_entry add, struct hy_err *err)
{
    struct field f;
    int rc = 0;

    while (rc == 0 && take_expected(&map, key_of(1), &f.bytes))
        rc = add_map_entry(c, f.bytes, add, err);
    if (rc < 0)
        return rc;
    while ((rc = next_field(&map, &f)) > 0) {
        if (f.number != 1)
            continue;
        rc = f.type == BYTES ? add_map_entry(c, f.bytes, add, err) : -EBADMSG;
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* -ENOMSG when an Example has feature lists. */
static int parse(struct hy_columns *c, struct span message, bool is_sequence, struct hy_err *err)
{
    struct field f;
    int rc;

    while ((rc = next_field(&message, &f)) > 0) {
        if (f.number > 2)
            continue;
        if (f.number == 2 && f.type == BYTES && !is_sequence)
            return -ENOMSG;
        rc = f.type == BYTES ? add_map(c, f.bytes, f.number == 1 ? add_feature : add_steps, err) : -EBADMSG;
        if (rc < 0)
            return rc;
    }
    return rc;
}

static int add_row(struct hy_columns *c, const uint8_t *bytes, size_t n, bool is_sequence, struct hy_err *err)
{
    int rc = n ? parse(c, (struct span){bytes, bytes + n}, is_sequence, err) : 0;

    if (rc == 0) {
        hy_columns_end_row(c);
        return 0;
    }
    hy_columns_undo_row(c);
    if (rc == -ENOMSG)
        return hy_err_set(err, -EBADMSG, "the record has feature lists: it is a tf.SequenceExample, not a tf.Example");
    if (rc == -EBADMSG)
        hy_err_set(err, rc, "the record is not a %s", is_sequence ? "tf.SequenceExample" : "tf.Example");
    return rc;
}

int hy_example_parse(struct hy_columns *c, const uint8_t *bytes, size_t n, struct hy_err *err)
{
    return add_row(c, bytes, n, false, err);
}

int hy_sequence_example_parse(struct hy_columns *c, const uint8_t *bytes, size_t n, struct hy_err *err)
{
    return add_row(c, bytes, n, true, err);
}

/* ---- encoding -------------------------------------------------------------------------- */

/* The values of a row or of a step: [from, to). */
struct range {
    int64_t from, to;
};

static struct range range_of(const struct hy_buf *ends, int64_t i)
{
    return (struct range){hy_column_ends(ends)[i], hy_column_ends(ends)[i + 1]};
}

static size_t size_of_varint(uint64_t value)
{
    return (size_t)(9 * (64 - __builtin_clzll(value | 1)) + 64) / 64;
}

/* The size of a field of n bytes without its key. */
static size_t size_with_length(size_t n)
{
    return size_of_varint(n) + n;
}

static const int64_t *int64s(const struct hy_column *c)
{
    return (const int64_t *)(const void *)hy_buf_bytes(&c->values);
}

/* The values in their list; 1 is the size of a key. */
static size_t size_of_values(const struct hy_column *c, struct range r)
{
    size_t n = 0;

    if (r.from == r.to)
        return 0;
    switch (c->kind) {
    case HY_KIND_BYTES:
        for (int64_t i = r.from; i < r.to; i++) {
            const struct range bytes = range_of(&c->value_ends, i);

            n += 1 + size_with_length((size_t)(bytes.to - bytes.from));
        }
        return n;
    case HY_KIND_FLOAT:
        return 1 + size_with_length((size_t)(r.to - r.from) * sizeof(float));
    case HY_KIND_INT64:
        for (int64_t i = r.from; i < r.to; i++)
            n += size_of_varint((uint64_t)int64s(c)[i]);
        return 1 + size_with_length(n);
    default:
        return 0;
    }
}

static size_t size_of_feature(const struct hy_column *c, struct range r)
{
    return 1 + size_with_length(size_of_values(c, r));
}

static size_t size_of_steps(const struct hy_column *c, struct range steps)
{
    size_t n = 0;

    for (int64_t i = steps.from; i < steps.to; i++)
        n += 1 + size_with_length(size_of_feature(c, range_of(&c->step_ends, i)));
    return n;
}

/* A Feature, or a FeatureList. */
static size_t size_of_entry_value(const struct hy_column *c, uint64_t row)
{
    const struct range r = range_of(&c->row_ends, (int64_t)row);

    return c->has_steps ? size_of_steps(c, r) : size_of_feature(c, r);
}

static size_t size_of_entry(const struct hy_column *c, uint64_t row)
{
    return 1 + size_with_length(c->name_n) + 1 + size_with_length(size_of_entry_value(c, row));
}

/* Skips a column without a kind, which has no values in any row, and a feature that the row lacks. */
static bool is_said(const struct hy_column *c, uint64_t row, bool has_steps)
{
    return c->kind && c->has_steps == has_steps && (row >= c->there.len || hy_buf_bytes(&c->there)[row]);
}

static size_t size_of_map(const struct hy_columns *c, uint64_t row, bool has_steps)
{
    size_t n = 0;

    for (size_t i = 0; i < c->count; i++)
        if (is_said(&c->list[i], row, has_steps))
            n += 1 + size_with_length(size_of_entry(&c->list[i], row));
    return n;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

/* The key and length of a field of bytes. */
static uint8_t *put_head(uint8_t *at, unsigned number, size_t n)
{
    *at++ = key_of(number);
    return put_varint(at, n);
}

static uint8_t *put_bytes(uint8_t *at, unsigned number, const void *bytes, size_t n)
{
    at = put_head(at, number, n);
    if (n)
        memcpy(at, bytes, n);
    return at + n;
}

static uint8_t *put_int64s(uint8_t *at, const struct hy_column *c, struct range r)
{
    size_t n = 0;

    for (int64_t i = r.from; i < r.to; i++)
        n += size_of_varint((uint64_t)int64s(c)[i]);
    at = put_head(at, 1, n);
    for (int64_t i = r.from; i < r.to; i++)
        at = put_varint(at, (uint64_t)int64s(c)[i]);
    return at;
}

static uint8_t *put_values(uint8_t *at, const struct hy_column *c, struct range r)
{
    if (r.from == r.to)
        return at;
    if (c->kind == HY_KIND_INT64)
        return put_int64s(at, c, r);
    if (c->kind == HY_KIND_FLOAT)
        return put_bytes(at, 1, hy_buf_bytes(&c->values) + r.from * (int64_t)sizeof(float),
                         (size_t)(r.to - r.from) * sizeof(float));
    for (int64_t i = r.from; i < r.to; i++) {
        const struct range bytes = range_of(&c->value_ends, i);

        at = put_bytes(at, 1, hy_buf_bytes(&c->values) + bytes.from, (size_t)(bytes.to - bytes.from));
    }
    return at;
}

static uint8_t *put_feature(uint8_t *at, const struct hy_column *c, struct range r)
{
    return put_values(put_head(at, c->kind, size_of_values(c, r)), c, r);
}

static uint8_t *put_entry(uint8_t *at, const struct hy_column *c, uint64_t row)
{
    const struct range r = range_of(&c->row_ends, (int64_t)row);

    at = put_head(at, 1, size_of_entry(c, row));
    at = put_bytes(at, 1, c->name, c->name_n);
    at = put_head(at, 2, size_of_entry_value(c, row));
    if (!c->has_steps)
        return put_feature(at, c, r);
    for (int64_t i = r.from; i < r.to; i++) {
        const struct range step = range_of(&c->step_ends, i);

        at = put_feature(put_head(at, 1, size_of_feature(c, step)), c, step);
    }
    return at;
}

static uint8_t *put_map(uint8_t *at, const struct hy_columns *c, uint64_t row, bool has_steps, size_t n)
{
    at = put_head(at, has_steps ? 2 : 1, n);
    for (size_t i = 0; i < c->count; i++)
        if (is_said(&c->list[i], row, has_steps))
            at = put_entry(at, &c->list[i], row);
    return at;
}

int hy_example_append(struct hy_buf *b, const struct hy_columns *c, uint64_t row, bool is_sequence)
{
    const size_t features = size_of_map(c, row, false), lists = is_sequence ? size_of_map(c, row, true) : 0;
    const size_t n = 1 + size_with_length(features) + (is_sequence ? 1 + size_with_length(lists) : 0);
    uint8_t *bytes, *at;
    int rc = hy_record_begin(b, n, &bytes);

    if (rc < 0)
        return rc;
    at = put_map(bytes, c, row, false, features);
    if (is_sequence)
        put_map(at, c, row, true, lists);
    hy_record_end(b, bytes, n);
    return 0;
}
