/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record: TFRecord, TensorFlow's file format for a sequence of byte strings, and
 * tf.Example as columns.
 *
 * All but the last section are pure functions over bytes. The format is drawn in
 * record.c.
 */
#ifndef HY_RECORD_H
#define HY_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct hy_err;

/* ---- checksums ---------------------------------------------------------------------- */

/* CRC-32C (Castagnoli) of n more bytes; `crc` is that of the bytes before them, 0 at the start. */
uint32_t hy_crc32c(uint32_t crc, const void *bytes, size_t n);
/* Of `count` consecutive chunks of n bytes each: faster than one call per chunk. */
void hy_crc32c_each(const void *bytes, size_t n, size_t count, uint32_t *crcs);
/* As TFRecord stores it: the CRC of data that contains its own CRC detects little. */
uint32_t hy_crc32c_mask(uint32_t crc);

/* ---- records ------------------------------------------------------------------------ */

/* Appends one record. 0, -ENOBUFS when the buffer would exceed its maximum, or -ENOMEM; on failure `b` is unchanged. */
int hy_record_append(struct hy_buf *b, const void *bytes, size_t n);

/*
 * The same for a payload that is built in place: begin reserves n bytes, with the
 * results of append; the caller writes them; end adds the checksums. A record that
 * was begun and not ended leaves `b` unchanged.
 */
int hy_record_begin(struct hy_buf *b, size_t n, uint8_t **ret_bytes);
void hy_record_end(struct hy_buf *b, uint8_t *bytes, size_t n);

struct hy_record {
    const uint8_t *bytes; /* borrowed from the parsed buffer */
    size_t n;
};

/*
 * Parses the first record of `bytes`. Returns its length, or 0 when it is
 * incomplete: *ret_need is then the number of bytes required for the next call to
 * make progress. -EBADMSG when a checksum is wrong, -EMSGSIZE when the record is
 * longer than `max`, with a short reason in *ret_why.
 */
int64_t hy_record_parse(const uint8_t *bytes, size_t n, size_t max, struct hy_record *ret, size_t *ret_need,
                        const char **ret_why);

/* ---- columns: rows of features, stored column by column ------------------------------ */

/*
 * The values of a column are contiguous, and offsets give the bounds of each row,
 * as in Arrow's large lists; so NumPy and Arrow use them without a copy:
 *
 *     rows       [[1, 2], [], [3]]
 *     values     1 2 3               int64, float, or bytes
 *     row_ends   0 2 2 3             one more than rows
 *
 * Byte strings have additional offsets (`value_ends`, in bytes). A column of steps
 * (a SequenceExample's feature list) has one more level: row_ends counts steps,
 * and `step_ends` counts values.
 *
 * A row may lack a feature, or have it without values: `there` distinguishes them.
 */

#define HY_COLUMNS_MAX 65536u

enum hy_column_kind {
    HY_KIND_NONE, /* no row has had a value yet */
    HY_KIND_BYTES,
    HY_KIND_FLOAT,
    HY_KIND_INT64,
};

struct hy_column {
    char *name; /* any bytes, followed by a NUL */
    size_t name_n;
    enum hy_column_kind kind;
    bool has_steps;
    uint64_t rows; /* ended in this column */
    struct hy_buf values;
    struct hy_buf value_ends, step_ends, row_ends; /* int64, starting with 0; only those that apply */
    struct hy_buf there; /* a byte per row: 1, or 0 when the row lacks the feature */
};

struct hy_columns {
    uint64_t rows;
    size_t count;
    struct hy_column *list; /* in the order of first appearance */
    size_t next; /* private */
    bool is_closed; /* ignores features without a column */
};

void hy_columns_init(struct hy_columns *c);
void hy_columns_done(struct hy_columns *c);
/* Removes the rows; keeps the columns and their memory. */
void hy_columns_clear(struct hy_columns *c);

/* The column of that name, or NULL. The search starts after the last hit, since most rows have the same order. */
struct hy_column *hy_columns_find(struct hy_columns *c, const char *name, size_t n, bool has_steps);
/* Finds or adds the column of that name and kind. NULL when out of memory, or there are too many. */
struct hy_column *hy_columns_add(struct hy_columns *c, const char *name, size_t n, bool has_steps,
                                 enum hy_column_kind kind);

/*
 * A row in a column is begun, filled, ended. Beginning the same row again discards
 * its first version; rows in between become empty rows. 0 or -ENOMEM.
 */
int hy_column_begin(struct hy_column *c, uint64_t row);
int hy_column_add_bytes(struct hy_column *c, const void *bytes, size_t n);
/* Reserves space for `count` numbers (4 or 8 bytes each); `added` commits those written. NULL when out of memory. */
void *hy_column_reserve(struct hy_column *c, size_t count);
void hy_column_added(struct hy_column *c, size_t count);
int hy_column_end_step(struct hy_column *c);
int hy_column_end(struct hy_column *c);

/* The row is complete. */
void hy_columns_end_row(struct hy_columns *c);
/* Discards the current row. */
void hy_columns_undo_row(struct hy_columns *c);
/* Appends empty rows to columns that are shorter than others; call it before reading them. 0 or -ENOMEM. */
int hy_columns_fill(struct hy_columns *c);

/* The offsets in one of a column's `…_ends`. */
static inline const int64_t *hy_column_ends(const struct hy_buf *ends)
{
    return (const int64_t *)(const void *)hy_buf_bytes(ends);
}

/* ---- tf.Example and tf.SequenceExample, to columns and back --------------------------- */

/*
 * Adds an example as a row, without building a message in between. Features
 * without a column get one, unless the columns are closed. -EBADMSG with a message
 * when the bytes are not an example, -EINVAL when a feature has another type than
 * in earlier rows, or -ENOMEM; on failure no row is added.
 */
int hy_example_parse(struct hy_columns *c, const uint8_t *bytes, size_t n, struct hy_err *err);
/* The same for a SequenceExample: its context, and columns with steps. */
int hy_sequence_example_parse(struct hy_columns *c, const uint8_t *bytes, size_t n, struct hy_err *err);

/*
 * Appends a row of filled columns as a record: an Example, or a SequenceExample
 * when `is_sequence`. Leaves out columns of unknown kind and features that are not
 * `there`. 0, -ENOBUFS or -ENOMEM; on failure `b` is unchanged.
 */
int hy_example_append(struct hy_buf *b, const struct hy_columns *c, uint64_t row, bool is_sequence);

/* ---- Parquet: the columns of a file, from its footer -------------------------------------- */

struct hy_parquet_column {
    char *path; /* "a.b": b is a column of the group a */
    const char *type; /* "int64", "byte array", …; NULL: unknown */
    const char *meaning; /* "string", "timestamp", …; NULL: none */
    const char *repetition; /* "required", "optional", "repeated"; NULL: unknown */
};

struct hy_parquet {
    struct hy_parquet_column *columns;
    size_t column_count;
    int64_t rows;
    uint64_t group_count;
    char *created_by; /* NULL: unknown */
};

/* The length of the metadata, which precedes the last 8 bytes of a file; -EBADMSG: it is not a Parquet file. */
int64_t hy_parquet_footer(const uint8_t tail[8]);
/* Parses the metadata. 0, -EBADMSG with a short reason in *ret_why, or -ENOMEM. */
int hy_parquet_parse(const uint8_t *bytes, size_t n, struct hy_parquet *ret, const char **ret_why);
void hy_parquet_done(struct hy_parquet *f);

/* ---- files of records, by URL (fs.h) --------------------------------------------------- */

/* Plain, or compressed by gzip or zlib as TensorFlow does, detected by the first bytes. */
struct hy_records;

int hy_records_open(const char *url, struct hy_records **ret, struct hy_err *err);
/* Records longer than this (at most 2 GB, the default) count as damaged: for readers with little memory. */
void hy_records_limit(struct hy_records *r, size_t bytes);
/*
 * The next record, valid until the next call. 1, or 0 at the end of the file.
 * -EBADMSG with a message that gives the position where the file is damaged or
 * truncated, or reports that it is not a file of records; or a read error.
 */
int hy_records_next(struct hy_records *r, struct hy_record *ret, struct hy_err *err);
/* Offset of the last record: in the file, or in the decompressed data. */
uint64_t hy_records_at(const struct hy_records *r);
/* NULL is fine. */
void hy_records_close(struct hy_records *r);

#endif
