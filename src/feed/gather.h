/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of several batches as one: each column in one piece, whoever wants it, as
 * NumPy's arrays or TensorFlow's tensors.
 *
 * What is gathered is told beforehand (hy_gather_want), and numbers are cast to it
 * while they are copied; or it is what the first batch has, and batches that are
 * not exactly like it are left alone.
 *
 * What lies in a batch may be changed by another process meanwhile: each end is
 * checked where it is used. When a batch fails in the middle, what was gathered
 * before it is as it was.
 */
#ifndef HY_FEED_GATHER_H
#define HY_FEED_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "feed/batch.h"
#include "feed/shape.h"

#define HY_WANTED_NAME_MAX 64u

/* ---- a batch that is used up from its first row on ---- */

#define HY_READING_UNKNOWN UINT32_MAX

struct hy_reading {
    const struct hy_batch *batch; /* NULL: none */
    struct hy_shape shape;
    uint32_t rows;   /* of the batch; HY_READING_UNKNOWN until a pickle is read that does not tell */
    uint32_t next;   /* row */
    uint64_t number; /* the owner's: which batch it is */
};

/* The batch must last until the end. 0; -EBADMSG, -ENOMEM: there is nothing to end. */
int hy_reading_begin(struct hy_reading *r, const struct hy_batch *b);
void hy_reading_end(struct hy_reading *r);

static inline bool hy_reading_is_over(const struct hy_reading *r)
{
    return !r->batch || r->next == r->rows;
}

/* Rows that were pickled have no columns. */
static inline bool hy_reading_is_pickled(const struct hy_reading *r)
{
    return r->shape.nodes[0].kind == '*';
}

/* Do all rows of a ragged column have as many items as the first? Then how many that is. */
bool hy_column_is_even(const struct hy_batch_column *c, uint32_t rows, uint64_t *ret_items);

/* ---- what is wanted ---- */

struct hy_wanted_column {
    char name[HY_WANTED_NAME_MAX]; /* as messages have it */
    enum hy_dtype dtype;           /* BYTES for texts of any kind */
    bool is_ragged;
    int dims; /* of a row, or of an item when it is ragged; -1: any */
    int64_t shape[HY_BATCH_DIMS]; /* -1: any */
};

struct hy_wanted {
    char *text;              /* how a row is made of them, as in feed/shape.h: leaves are "a" */
    struct hy_shape shape;   /* the same, parsed */
    bool may_have_more;      /* rows may have columns behind those that are wanted, and names of their own */
    uint32_t count;          /* of columns */
    struct hy_wanted_column *columns;
    char *seen;              /* private: the shape of the last batch, and where its columns are */
    size_t seen_n;
    uint32_t *places;
};

/* Takes a copy of all. 0, -EINVAL when text and columns do not fit together, -ENOMEM. */
int hy_wanted_init(struct hy_wanted *w, const char *text, bool may_have_more, const struct hy_wanted_column *columns,
                   uint32_t count);
void hy_wanted_done(struct hy_wanted *w);

/* ---- what is gathered ---- */

/* Where values are put. */
struct hy_gather_how {
    /* The column's memory, which is that of before or has its bytes, with room for n; NULL when there is none. Where
     * this is NULL, memory is the gathered's own, aligned for TensorFlow, and from where the next two have it. */
    void *(*grow)(void *context, uint32_t column, size_t n);
    void *context;
    void *(*take)(size_t n); /* NULL: from the system */
    void (*drop)(void *memory);
    /* Texts as what somebody else has for them, of that size; 0: as their bytes, with ends. They may be moved. */
    size_t text_size;
    void (*put_text)(void *to, const char *text, size_t n);
    void (*drop_text)(void *text);
};

struct hy_gathered_column {
    struct hy_batch_column like; /* type and shape of what is gathered; the rest means nothing */
    void *values;                /* what grow gave; NULL: none yet */
    size_t values_n, room;       /* in bytes */
    struct hy_buf value_ends, row_ends;
    size_t kept, value_ends_kept, row_ends_kept; /* private: bytes to go back to */
};

struct hy_gathered {
    struct hy_gather_how how;
    uint32_t count;
    char *shape; /* of the rows, where nothing was told beforehand */
    size_t shape_n;
    uint64_t rows;
    struct hy_gathered_column *columns;
};

#define HY_GATHER_OTHERWISE "take such rows by next_batch or columns"
/* wanted.c: whether the batch has what is wanted, and the columns' shapes, where anything goes. 0, -EINVAL and why not,
 * -EBADMSG, -ENOMEM. */
int hy_wanted_fit(struct hy_wanted *w, const struct hy_reading *r, struct hy_gathered *g, struct hy_err *err);

/* To be filled in, from nothing: `how` is the caller's to fill in first. 0 or -ENOMEM. */
int hy_gather_want(struct hy_gathered *g, const struct hy_wanted *w);
/*
 * Takes up to `most` rows from where the reading is; of `w` when that is wanted. How many; 0 when the batch is another,
 * and nothing is wanted; -EINVAL and why, when it is not what is wanted; -EBADMSG when it makes no sense; -ENOMEM.
 */
int64_t hy_gather(struct hy_gathered *g, struct hy_reading *r, struct hy_wanted *w, uint64_t most, struct hy_err *err);
void hy_gathered_done(struct hy_gathered *g);

#endif
