/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define OWN_PER_COLUMN 2 /* allocations of a column at most: ends and bools */

/* By Arrow's format letter. */
static const uint8_t numbers[128] = {
    ['b'] = HY_DTYPE_BOOL,   ['c'] = HY_DTYPE_INT8,    ['C'] = HY_DTYPE_UINT8,   ['s'] = HY_DTYPE_INT16,
    ['S'] = HY_DTYPE_UINT16, ['i'] = HY_DTYPE_INT32,   ['I'] = HY_DTYPE_UINT32,  ['l'] = HY_DTYPE_INT64,
    ['L'] = HY_DTYPE_UINT64, ['e'] = HY_DTYPE_FLOAT16, ['f'] = HY_DTYPE_FLOAT32, ['g'] = HY_DTYPE_FLOAT64,
};

/* A run of values of one array; `at` includes the array's offset. */
struct run {
    const struct ArrowSchema *schema;
    const struct ArrowArray *array;
    int64_t at, count;
};

/* ---- arrays ------------------------------------------------------------------------------ */

static bool has_format_of(const struct ArrowSchema *s, const char *letters)
{
    return s->format[0] && !s->format[1] && strchr(letters, s->format[0]);
}

static enum hy_dtype dtype_of(const struct ArrowSchema *s)
{
    const unsigned char letter = (unsigned char)s->format[0];

    return letter < 128 && letter && !s->format[1] ? (enum hy_dtype)numbers[letter] : 0;
}

static bool is_bit_set(const uint8_t *bits, int64_t i)
{
    return bits[i / 8] >> i % 8 & 1;
}

static bool has_nulls(const struct run *r)
{
    const uint8_t *bits = r->array->n_buffers > 0 ? r->array->buffers[0] : NULL;

    if (!bits || r->array->null_count == 0)
        return false;
    for (int64_t i = r->at; i < r->at + r->count; i++)
        if (!is_bit_set(bits, i))
            return true;
    return false;
}

/* `count` values of an array, from `from` on. */
static int run_init(struct run *r, const struct ArrowSchema *s, const struct ArrowArray *a, int64_t from, int64_t count)
{
    if (from < 0 || count < 0 || a->offset < 0 || from > a->length || count > a->length - from)
        return -EINVAL;
    *r = (struct run){s, a, a->offset + from, count};
    return s->dictionary || has_nulls(r) ? -ENOTSUP : 0;
}

/* ---- owned memory ------------------------------------------------------------------------ */

static void *own_alloc(struct hy_arrow_batch *a, size_t count, size_t size)
{
    void *memory = hy_reallocarray(NULL, count ? count : 1, size);

    if (memory)
        a->own[a->own_count++] = memory;
    return memory;
}

void hy_arrow_batch_done(struct hy_arrow_batch *a)
{
    for (uint32_t i = 0; i < a->own_count; i++)
        free(a->own[i]);
    free(a->own);
    free(a->batch.columns);
    *a = (struct hy_arrow_batch){0};
}

/* Arrow's offsets, of 32 or 64 bits, as int64 from 0 on. *ret_first is the original first one. */
static int convert_ends(struct hy_arrow_batch *a, const struct run *r, bool is_large, const int64_t **ret,
                        int64_t *ret_first)
{
    const void *source = r->array->buffers[1];
    int64_t *ends = own_alloc(a, (size_t)r->count + 1, sizeof *ends);
    int64_t before = 0;

    if (!ends || (!source && r->count))
        return ends ? -EINVAL : -ENOMEM;
    *ret = ends;
    *ret_first = ends[0] = 0;
    for (int64_t i = 0; source && i <= r->count; i++) {
        const int64_t end = is_large ? ((const int64_t *)source)[r->at + i] : ((const int32_t *)source)[r->at + i];

        if (end < before)
            return -EINVAL;
        *ret_first = i == 0 ? end : *ret_first;
        ends[i] = end - *ret_first;
        before = end;
    }
    return 0;
}

/* ---- columns ----------------------------------------------------------------------------- */

static int convert_bools(struct hy_arrow_batch *a, struct hy_batch_column *c, const struct run *r)
{
    const uint8_t *bits = r->array->buffers[1];
    uint8_t *bytes = own_alloc(a, (size_t)r->count, 1);

    if (!bytes)
        return -ENOMEM;
    for (int64_t i = 0; i < r->count; i++)
        bytes[i] = is_bit_set(bits, r->at + i);
    c->values = bytes;
    c->values_n = (size_t)r->count;
    return 0;
}

static int view_numbers(struct hy_arrow_batch *a, struct hy_batch_column *c, const struct run *r)
{
    c->dtype = dtype_of(r->schema);
    if (!c->dtype)
        return -ENOTSUP;
    if (c->dtype == HY_DTYPE_BOOL)
        return convert_bools(a, c, r);
    c->values_n = (size_t)r->count * hy_dtype_size(c->dtype);
    c->values = c->values_n ? (const uint8_t *)r->array->buffers[1] + (size_t)r->at * hy_dtype_size(c->dtype) : NULL;
    return 0;
}

static int view_strings(struct hy_arrow_batch *a, struct hy_batch_column *c, const struct run *r)
{
    int64_t first;
    int rc = convert_ends(a, r, has_format_of(r->schema, "UZ"), &c->value_ends, &first);

    if (rc < 0)
        return rc;
    c->dtype = has_format_of(r->schema, "uU") ? HY_DTYPE_STR : HY_DTYPE_BYTES;
    c->values_n = (size_t)c->value_ends[r->count];
    c->values = c->values_n ? (const uint8_t *)r->array->buffers[2] + first : NULL;
    return 0;
}

static int view_ragged_lists(struct hy_arrow_batch *a, struct hy_batch_column *c, const struct run *r)
{
    struct run items;
    int64_t first;
    int rc = convert_ends(a, r, r->schema->format[1] == 'L', &c->row_ends, &first);

    if (rc == 0)
        rc = run_init(&items, r->schema->children[0], r->array->children[0], first, c->row_ends[r->count]);
    if (rc < 0)
        return rc;
    c->is_ragged = true;
    c->items = (uint64_t)items.count;
    return view_numbers(a, c, &items);
}

/* "+w:784" */
static int view_fixed_lists(struct hy_arrow_batch *a, struct hy_batch_column *c, const struct run *r)
{
    char *end;
    const long long each = strtoll(r->schema->format + 3, &end, 10);
    int64_t first, count;
    struct run items;
    int rc;

    if (*end || each < 0 || __builtin_mul_overflow(r->at, each, &first) ||
        __builtin_mul_overflow(r->count, each, &count))
        return -EINVAL;
    rc = run_init(&items, r->schema->children[0], r->array->children[0], first, count);
    if (rc < 0)
        return rc;
    c->dims = 1;
    c->shape[0] = (uint64_t)each;
    return view_numbers(a, c, &items);
}

static int view_column(struct hy_arrow_batch *a, struct hy_batch_column *c, const struct run *r)
{
    const char *format = r->schema->format;
    const bool has_child = r->schema->n_children == 1 && r->array->n_children == 1;

    if (has_format_of(r->schema, "uUzZ"))
        return view_strings(a, c, r);
    if (has_child && (strcmp(format, "+l") == 0 || strcmp(format, "+L") == 0))
        return view_ragged_lists(a, c, r);
    if (has_child && strncmp(format, "+w:", 3) == 0)
        return view_fixed_lists(a, c, r);
    return view_numbers(a, c, r);
}

/* ---- batches ------------------------------------------------------------------------------- */

int hy_arrow_batch_view(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t begin, uint32_t rows,
                        struct hy_arrow_batch *ret)
{
    const int64_t count = array->n_children;
    struct run all;
    int rc = run_init(&all, schema, array, begin, rows);

    if (rc < 0 || strcmp(schema->format, "+s") != 0 || schema->n_children != count)
        return rc < 0 ? rc : -EINVAL;
    if (count < 1 || count > HY_BATCH_COLUMNS_MAX)
        return -ENOTSUP;
    ret->batch.columns = hy_calloc((size_t)count, sizeof *ret->batch.columns);
    ret->own = hy_calloc((size_t)count * OWN_PER_COLUMN, sizeof *ret->own);
    if (!ret->batch.columns || !ret->own)
        return -ENOMEM;
    ret->batch.rows = rows;
    ret->batch.count = (uint32_t)count;
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        struct run r;

        rc = run_init(&r, schema->children[i], array->children[i], all.at, rows);
        if (rc == 0)
            rc = view_column(ret, &ret->batch.columns[i], &r);
    }
    return rc;
}

int hy_arrow_schema(const struct ArrowSchema *schema, struct hy_buf *ret)
{
    struct hy_feed_schema row = {0};
    struct hy_feed_schema_node *node = hy_feed_schema_add(&row, '(');
    int rc = 0;

    if (node)
        node->count = (uint32_t)schema->n_children;
    for (int64_t i = 0; node && i < schema->n_children; i++) {
        const struct ArrowSchema *s = schema->children[i];

        node = hy_feed_schema_add(&row, has_format_of(s, "uU") ? 's' : has_format_of(s, "zZ") ? 'y' : 'a');
    }
    rc = node ? hy_feed_schema_write(&row, ret) : -ENOMEM;
    hy_feed_schema_done(&row);
    return rc;
}
