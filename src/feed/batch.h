/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch: rows, column by column, as one message that says itself what is in it.
 *
 * A column has a type and a shape that all its rows share; or it is ragged: rows
 * have more or fewer items of that shape, and `row_ends` says where they begin and
 * end. Values that are byte strings have `value_ends`, in bytes. Both are int64,
 * one more than there are, as in src/record/record.h.
 *
 *     rows       [[1, 2], [], [3]]
 *     values     1 2 3
 *     row_ends   0 2 2 3
 *
 * How columns make up a row again is told by a text (feed/shape.h).
 *
 * What is read lies in memory that another process can still write to. So what is
 * checked is copied first (all but values and ends), and an end is checked where
 * it is used: hy_ends_at.
 */
#ifndef HY_FEED_BATCH_H
#define HY_FEED_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_BATCH_COLUMNS_MAX 4096u
#define HY_BATCH_ROWS_MAX (1u << 30)
#define HY_BATCH_SHAPE_MAX (64u << 10)
#define HY_BATCH_DIMS 8

/* The kinds of messages in a ring. */
enum hy_feed_kind {
    HY_FEED_BATCH = 1, /* rows, or results: the other way */
    HY_FEED_END = 2,   /* of a partition; empty */
};

enum hy_dtype {
    HY_DTYPE_BOOL = 1,
    HY_DTYPE_INT8,
    HY_DTYPE_INT16,
    HY_DTYPE_INT32,
    HY_DTYPE_INT64,
    HY_DTYPE_UINT8,
    HY_DTYPE_UINT16,
    HY_DTYPE_UINT32,
    HY_DTYPE_UINT64,
    HY_DTYPE_FLOAT16,
    HY_DTYPE_FLOAT32,
    HY_DTYPE_FLOAT64,
    HY_DTYPE_BYTES,
    HY_DTYPE_STR,    /* UTF-8 */
    HY_DTYPE_PICKLE, /* all rows as one run of bytes; a batch of 0 rows has as many as are in there */
    HY_DTYPES,
};

/* Of a number, in bytes; 0 for the others. */
size_t hy_dtype_size(enum hy_dtype dtype);
/* "float32", as NumPy has it, or "bytes", "str", "pickle". */
const char *hy_dtype_name(enum hy_dtype dtype);
/* The one of that name, or 0. */
enum hy_dtype hy_dtype_of(const char *name);

struct hy_batch_column {
    enum hy_dtype dtype;
    bool is_ragged;
    unsigned dims;
    uint64_t shape[HY_BATCH_DIMS]; /* of a row, or of an item when it is ragged */
    uint64_t items;                /* of all rows, when it is ragged */
    const void *values;
    size_t values_n;           /* in bytes */
    const int64_t *value_ends; /* of BYTES and STR */
    const int64_t *row_ends;   /* when it is ragged */
};

struct hy_batch {
    uint32_t rows, count;
    const char *shape; /* no NUL behind it */
    size_t shape_n;
    struct hy_batch_column *columns;
    char *text;  /* private to who has parsed it */
    size_t room; /* the same: columns that there is memory for */
};

/* Values in one row or item: the product of its shape. 0, or -EBADMSG when that is too many. */
int hy_column_each(const struct hy_batch_column *c, uint64_t *ret);
/* Values in all rows. */
int hy_column_values(const struct hy_batch_column *c, uint64_t rows, uint64_t *ret);

/* ---- who writes ---- */

/* How many bytes it will be. -EINVAL when columns do not fit together, or are too many. */
int hy_batch_size(const struct hy_batch *b, size_t *ret);
/* Writes it to room of that size, 8-byte aligned; buffers are 64-byte aligned where they come to lie. Returns the bytes
 * used. */
size_t hy_batch_write(const struct hy_batch *b, void *room);

/* ---- who reads ---- */

/* From an empty or used batch. 0, -EBADMSG when it makes no sense, -ENOMEM. Then hy_batch_done. */
int hy_batch_parse(const void *bytes, size_t n, struct hy_batch *b);
void hy_batch_done(struct hy_batch *b);

/* Where the i-th begins and ends; false when the ends do not rise, or pass `most`. */
static inline bool hy_ends_at(const int64_t *ends, size_t i, uint64_t most, uint64_t *ret_from, uint64_t *ret_to)
{
    const int64_t from = *(const volatile int64_t *)&ends[i], to = *(const volatile int64_t *)&ends[i + 1];

    *ret_from = (uint64_t)from;
    *ret_to = (uint64_t)to;
    return from >= 0 && from <= to && (uint64_t)to <= most;
}

#endif
