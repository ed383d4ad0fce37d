/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message, in host byte order:
 *
 *     header     64 bytes: u32 magic, rows, columns, 0; u64 offset and length of the row schema; 0
 *     columns    128 bytes each, struct column_header
 *     schema, values, value ends, row ends   at the offsets in head and columns, in any order
 *
 * Offsets count from the first byte of the message.
 */
#include "feed/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAGIC 0x31627968u /* "hyb1" */
#define ALIGNMENT 64u
#define SIZE_LIMIT (1ull << 31) /* of a row or item in bytes; of a dimension; of items in all rows */

struct header {
    uint32_t magic, rows, columns, zero;
    uint64_t schema_at, schema_n, zeros[4];
};

struct column_header {
    uint8_t dtype, dims, is_ragged, zero[5];
    uint64_t shape[HY_BATCH_DIMS];
    uint64_t items;
    uint64_t values_at, values_n, value_ends_at, row_ends_at, zeros[2];
};

_Static_assert(sizeof(struct header) == 64 && sizeof(struct column_header) == 128, "the format of the peer");

static const struct {
    const char *name;
    size_t size;
} dtypes[HY_DTYPES] = {
    [HY_DTYPE_BOOL] = {"bool", 1},       [HY_DTYPE_INT8] = {"int8", 1},       [HY_DTYPE_INT16] = {"int16", 2},
    [HY_DTYPE_INT32] = {"int32", 4},     [HY_DTYPE_INT64] = {"int64", 8},     [HY_DTYPE_UINT8] = {"uint8", 1},
    [HY_DTYPE_UINT16] = {"uint16", 2},   [HY_DTYPE_UINT32] = {"uint32", 4},   [HY_DTYPE_UINT64] = {"uint64", 8},
    [HY_DTYPE_FLOAT16] = {"float16", 2}, [HY_DTYPE_FLOAT32] = {"float32", 4}, [HY_DTYPE_FLOAT64] = {"float64", 8},
    [HY_DTYPE_BYTES] = {"bytes", 0},     [HY_DTYPE_STR] = {"str", 0},         [HY_DTYPE_PICKLE] = {"pickle", 0},
};

size_t hy_dtype_size(enum hy_dtype dtype)
{
    return dtypes[dtype].size;
}

const char *hy_dtype_name(enum hy_dtype dtype)
{
    return dtypes[dtype].name;
}

enum hy_dtype hy_dtype_by_name(const char *name)
{
    for (unsigned i = 1; i < HY_DTYPES; i++)
        if (strcmp(name, dtypes[i].name) == 0)
            return (enum hy_dtype)i;
    return 0;
}

static bool has_value_ends(enum hy_dtype dtype)
{
    return dtype == HY_DTYPE_BYTES || dtype == HY_DTYPE_STR;
}

/* ---- counts ------------------------------------------------------------------------ */

int hy_batch_column_item_values(const struct hy_batch_column *c, uint64_t *ret)
{
    uint64_t each = 1;

    for (unsigned i = 0; i < c->dims; i++)
        if (__builtin_mul_overflow(each, c->shape[i], &each))
            return -EBADMSG;
    *ret = each;
    return 0;
}

int hy_batch_column_values(const struct hy_batch_column *c, uint64_t rows, uint64_t *ret)
{
    uint64_t each;

    if (hy_batch_column_item_values(c, &each) < 0 || __builtin_mul_overflow(each, c->is_ragged ? c->items : rows, ret))
        return -EBADMSG;
    return 0;
}

bool hy_batch_column_is_uniform(const struct hy_batch_column *c, uint32_t rows, uint64_t *ret_items)
{
    uint64_t from, to, items = 0;

    for (uint32_t i = 0; i < rows; i++) {
        if (!hy_ends_at(c->row_ends, i, c->items, &from, &to) || (i > 0 && to - from != items))
            return false;
        items = to - from;
    }
    *ret_items = items;
    return rows > 0;
}

/*
 * A shape must be possible within a message even without its dimensions of 0: readers make arrays of it, and libraries
 * refuse arrays whose other dimensions are too large.
 */
static bool is_within_limits(const struct hy_batch_column *c)
{
    uint64_t product = dtypes[c->dtype].size ? dtypes[c->dtype].size : 1;

    for (unsigned i = 0; i < c->dims; i++)
        if (c->shape[i] > SIZE_LIMIT || (c->shape[i] && __builtin_mul_overflow(product, c->shape[i], &product)))
            return false;
    return product <= SIZE_LIMIT && (!c->is_ragged || c->items <= SIZE_LIMIT);
}

/* The size of an array of ends in bytes: one more than what they delimit. */
static int ends_size(uint64_t count, uint64_t *ret)
{
    return count == UINT64_MAX || __builtin_mul_overflow(count + 1, sizeof(int64_t), ret) ? -EBADMSG : 0;
}

/* Checks the size of values against type and shape. Returns the sizes of ends; 0: it has none. */
static int sizes_of(const struct hy_batch_column *c, uint64_t rows, uint64_t *ret_value_ends, uint64_t *ret_row_ends)
{
    uint64_t values, bytes;

    *ret_value_ends = *ret_row_ends = 0;
    if (c->dtype == HY_DTYPE_PICKLE)
        return c->dims || c->is_ragged ? -EBADMSG : 0;
    if (!is_within_limits(c) || hy_batch_column_values(c, rows, &values) < 0 ||
        (c->is_ragged && ends_size(rows, ret_row_ends) < 0))
        return -EBADMSG;
    if (has_value_ends(c->dtype))
        return ends_size(values, ret_value_ends);
    return __builtin_mul_overflow(values, dtypes[c->dtype].size, &bytes) || bytes != c->values_n ? -EBADMSG : 0;
}

/* ---- writing ----------------------------------------------------------------------- */

static int add_size(size_t *total, uint64_t n)
{
    const size_t padded = n <= SIZE_MAX / 4 ? (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : SIZE_MAX;

    return padded == SIZE_MAX || __builtin_add_overflow(*total, padded, total) ? -EINVAL : 0;
}

int hy_batch_size(const struct hy_batch *b, size_t *ret)
{
    size_t total = sizeof(struct header) + ALIGNMENT; /* the message itself may start anywhere */

    if (b->rows > HY_BATCH_ROWS_MAX || b->count > HY_BATCH_COLUMNS_MAX || b->schema_n > HY_BATCH_SCHEMA_MAX ||
        add_size(&total, b->count * sizeof(struct column_header)) < 0 || add_size(&total, b->schema_n) < 0)
        return -EINVAL;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct hy_batch_column *c = &b->columns[i];
        uint64_t value_ends, row_ends;

        if (sizes_of(c, b->rows, &value_ends, &row_ends) < 0 || add_size(&total, c->values_n) < 0 ||
            add_size(&total, value_ends) < 0 || add_size(&total, row_ends) < 0)
            return -EINVAL;
    }
    *ret = total;
    return 0;
}

/* Copies bytes to the next aligned offset from *at, which moves behind them. Returns the offset. */
static uint64_t append_aligned(uint8_t *room, size_t *at, const void *bytes, size_t n)
{
    const size_t here = *at + (size_t)(-((uintptr_t)room + *at) % ALIGNMENT);

    if (n == 0)
        return 0;
    memcpy(room + here, bytes, n);
    *at = here + n;
    return here;
}

size_t hy_batch_write(const struct hy_batch *b, void *room)
{
    struct header header = {.magic = MAGIC, .rows = b->rows, .columns = b->count, .schema_n = b->schema_n};
    size_t at = sizeof header + b->count * sizeof(struct column_header);

    header.schema_at = append_aligned(room, &at, b->schema, b->schema_n);
    memcpy(room, &header, sizeof header);
    for (uint32_t i = 0; i < b->count; i++) {
        const struct hy_batch_column *c = &b->columns[i];
        struct column_header d = {.dtype = (uint8_t)c->dtype,
                                  .dims = (uint8_t)c->dims,
                                  .is_ragged = c->is_ragged,
                                  .items = c->is_ragged ? c->items : 0,
                                  .values_n = c->values_n};
        uint64_t value_ends = 0, row_ends = 0;

        (void)sizes_of(c, b->rows, &value_ends, &row_ends); /* hy_batch_size has checked it */
        memcpy(d.shape, c->shape, c->dims * sizeof d.shape[0]);
        d.values_at = append_aligned(room, &at, c->values, c->values_n);
        d.value_ends_at = append_aligned(room, &at, c->value_ends, value_ends);
        d.row_ends_at = append_aligned(room, &at, c->row_ends, row_ends);
        memcpy((uint8_t *)room + sizeof header + i * sizeof d, &d, sizeof d);
    }
    return at;
}

/* ---- parsing ----------------------------------------------------------------------- */

static bool is_within(uint64_t at, uint64_t n, size_t all)
{
    return at <= all && n <= all - at && at % sizeof(int64_t) == 0;
}

static int parse_column(const uint8_t *bytes, size_t n, uint32_t rows, const struct column_header *d,
                        struct hy_batch_column *c)
{
    uint64_t value_ends, row_ends;

    if (d->dtype == 0 || d->dtype >= HY_DTYPES || d->dims > HY_BATCH_DIMS || d->is_ragged > 1)
        return -EBADMSG;
    *c = (struct hy_batch_column){.dtype = (enum hy_dtype)d->dtype,
                                  .dims = d->dims,
                                  .is_ragged = d->is_ragged,
                                  .items = d->items,
                                  .values_n = d->values_n};
    memcpy(c->shape, d->shape, sizeof c->shape);
    if (sizes_of(c, rows, &value_ends, &row_ends) < 0 || !is_within(d->values_at, c->values_n, n) ||
        !is_within(d->value_ends_at, value_ends, n) || !is_within(d->row_ends_at, row_ends, n))
        return -EBADMSG;
    c->values = bytes + d->values_at;
    c->value_ends = value_ends ? (const int64_t *)(const void *)(bytes + d->value_ends_at) : NULL;
    c->row_ends = row_ends ? (const int64_t *)(const void *)(bytes + d->row_ends_at) : NULL;
    return 0;
}

static int reserve(struct hy_batch *b, uint32_t count, size_t schema_n)
{
    struct hy_batch_column *columns;
    char *text = hy_reallocarray(b->text, schema_n + 1, 1);

    if (!text)
        return -ENOMEM;
    b->text = text;
    if (count <= b->room)
        return 0;
    columns = hy_reallocarray(b->columns, count, sizeof *columns);
    if (!columns)
        return -ENOMEM;
    b->columns = columns;
    b->room = count;
    return 0;
}

int hy_batch_parse(const void *bytes, size_t n, struct hy_batch *b)
{
    const uint8_t *from = bytes;
    struct header header;
    int rc;

    if (n < sizeof header)
        return -EBADMSG;
    memcpy(&header, from, sizeof header);
    if (header.magic != MAGIC || header.zero || header.rows > HY_BATCH_ROWS_MAX ||
        header.columns > HY_BATCH_COLUMNS_MAX || header.columns > (n - sizeof header) / sizeof(struct column_header) ||
        header.schema_n > HY_BATCH_SCHEMA_MAX || !is_within(header.schema_at, header.schema_n, n))
        return -EBADMSG;
    rc = reserve(b, header.columns, header.schema_n);
    for (uint32_t i = 0; i < header.columns && rc == 0; i++) {
        struct column_header d;

        memcpy(&d, from + sizeof header + i * sizeof d, sizeof d);
        rc = parse_column(from, n, header.rows, &d, &b->columns[i]);
    }
    if (rc < 0)
        return rc;
    memcpy(b->text, from + header.schema_at, header.schema_n);
    b->schema = b->text;
    b->schema_n = header.schema_n;
    b->rows = header.rows;
    b->count = header.columns;
    return 0;
}

void hy_batch_done(struct hy_batch *b)
{
    free(b->columns);
    free(b->text);
    *b = (struct hy_batch){0};
}
