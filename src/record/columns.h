/* SPDX-License-Identifier: Apache-2.0 */
/*
 * columns: rows of features, kept column by column.
 *
 * All values of a column lie one behind the other, and offsets say where each
 * row's begin and end, as in Arrow's large lists; so NumPy and Arrow take them
 * as they are:
 *
 *     rows       [[1, 2], [], [3]]
 *     values     1 2 3               int64, float, or bytes
 *     row_ends   0 2 2 3             one more than rows
 *
 * Values that are byte strings have offsets of their own (`value_ends`, in
 * bytes). A column of steps (a SequenceExample's feature list) has one level
 * more: row_ends counts steps, and `step_ends` counts values.
 *
 * A row may lack a feature, or have it without values: `there` tells them apart.
 */
#ifndef HY_RECORD_COLUMNS_H
#define HY_RECORD_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define HY_COLUMNS_MAX 65536u

enum hy_kind {
    HY_KIND_NONE, /* no row has had a value yet */
    HY_KIND_BYTES,
    HY_KIND_FLOAT,
    HY_KIND_INT64,
};

struct hy_column {
    char *name; /* any bytes; a NUL is behind them */
    size_t name_n;
    enum hy_kind kind;
    bool has_steps;
    uint64_t rows; /* that have been ended here */
    struct hy_buf values;
    struct hy_buf value_ends, step_ends, row_ends; /* int64 each, beginning with 0; those that it has */
    struct hy_buf there; /* a byte for each row: 1, or 0 where it has no such feature */
};

struct hy_columns {
    uint64_t rows;
    size_t count;
    struct hy_column *list; /* in the order in which they were first seen */
    size_t room, next;      /* private */
    bool is_closed;         /* no others than these are taken */
};

void hy_columns_init(struct hy_columns *c);
void hy_columns_done(struct hy_columns *c);
/* Forgets the rows, and keeps the columns and their memory. */
void hy_columns_clear(struct hy_columns *c);

/* The column of that name, or NULL. Looks first where the last look ended: rows have the same order mostly. */
struct hy_column *hy_columns_find(struct hy_columns *c, const char *name, size_t n, bool has_steps);
/* One of that name and kind, which may be there already. NULL when out of memory, or there are too many. */
struct hy_column *hy_columns_add(struct hy_columns *c, const char *name, size_t n, bool has_steps, enum hy_kind kind);

/*
 * A row in a column: begun, filled, ended. One that was begun before, for the
 * same row, is forgotten; rows in between that it does not have become empty
 * ones. 0 or -ENOMEM.
 */
int hy_column_begin(struct hy_column *c, uint64_t row);
int hy_column_add_bytes(struct hy_column *c, const void *bytes, size_t n);
/* Room for so many numbers (4 or 8 bytes each), and how many of them it became. NULL when out of memory. */
void *hy_column_reserve(struct hy_column *c, size_t count);
void hy_column_added(struct hy_column *c, size_t count);
int hy_column_end_step(struct hy_column *c);
int hy_column_end(struct hy_column *c);

/* The row is complete. */
void hy_columns_end_row(struct hy_columns *c);
/* It is not to be, after all: takes back what was added for it. */
void hy_columns_undo_row(struct hy_columns *c);
/* Empty rows at the ends of columns that lack them; call it before they are read. 0 or -ENOMEM. */
int hy_columns_fill(struct hy_columns *c);

/* How many values, steps or rows there are up to here: `rows + 1` (and so on) of them. */
static inline const int64_t *hy_column_ends(const struct hy_buf *ends)
{
    return (const int64_t *)(const void *)hy_buf_bytes(ends);
}

#endif
