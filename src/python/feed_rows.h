/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python rows to columns and back (feed_pack.c, feed_unpack.c), for the types Source
 * and Hub (feed_source.c, feed_hub.c). Requires the GIL.
 */
#ifndef HY_PYTHON_FEED_ROWS_H
#define HY_PYTHON_FEED_ROWS_H

#include "files.h"

#include <stdbool.h>

#include "base/buf.h"
#include "feed/feed.h"

/* ---- feed_pack.c ---- */

struct hy_builder {
    struct hy_batch_column column;
    struct hy_buf values, value_ends, row_ends;
    uint64_t each; /* values per row, or per item of a ragged column */
};

struct hy_packer {
    struct hy_feed_schema schema;
    struct hy_buf text;
    PyObject **keys;                 /* by node: its key in a dict; the fields of a Row */
    struct hy_builder *builders;     /* by column */
    struct hy_batch_column *columns; /* by column, for the batch */
    size_t keys_count, builders_count;
    uint32_t rows; /* in the builders */
    PyObject *array_type, *scalar_type, *row_type; /* of NumPy and pyspark; NULL until the first one is seen */
};

/* Sends a batch: 1, 0 when the receiver is gone or has terminated, -1 with an exception set. */
typedef int hy_pack_send_fn(void *context, const struct hy_batch *b);

struct hy_pack_sink {
    hy_pack_send_fn *send;
    void *context;
    size_t max; /* bytes of a batch */
};

void hy_packer_done(struct hy_packer *p);
/* Sends rows [from, to) of a list, in as many batches as their schemas and sizes require. 1, 0, -1: as above. */
int hy_pack_rows(struct hy_packer *p, PyObject *list, Py_ssize_t from, Py_ssize_t to, const struct hy_pack_sink *how);

/* ---- feed_unpack.c ---- */

/*
 * References to a few of the last floats. Python returns an arena to the system as soon as it is empty and allocates it
 * again for the next rows, which costs as much as creating them; a pinned float keeps its arena.
 */
struct hy_float_pins {
    PyObject *list[64];
    unsigned next, since;
};
void hy_float_pins_done(struct hy_float_pins *p);

struct hy_unpacker {
    struct hy_float_pins *pins;        /* NULL: too few rows to matter */
    const struct hy_batch_cursor *of; /* NULL: no batch */
    uint64_t number;             /* of that cursor */
    PyObject **keys;   /* by node, as in a packer */
    PyObject **arrays; /* by column: all rows of a NumPy column; the list of pickled rows */
    size_t keys_count, arrays_count;
    PyObject *make_row; /* of pyspark, when the schema has a Row */
    bool has_arrays;
};

/* The batch must outlive the unpacker. 0; -1 with an exception set; -EBADMSG, without one, for an invalid batch. */
int hy_unpack_begin(struct hy_unpacker *u, const struct hy_batch_cursor *r);
/* Appends up to `max` rows to the list. Their number; -1 or -EBADMSG, as above. */
Py_ssize_t hy_unpack_rows(struct hy_unpacker *u, struct hy_batch_cursor *r, PyObject *list, Py_ssize_t max);
void hy_unpack_end(struct hy_unpacker *u);
/* The list of rows in a pickle of ours or of Spark; a new reference or NULL. */
PyObject *hy_unpickle(const void *bytes, size_t n);

/* hy_gather_sink.grow: values in bytearrays; the context is the list of them. */
void *hy_grow_bytearray(void *list, uint32_t column, size_t n);
/* [(dtype, shape, values, value_ends, row_ends), ...]; a new reference or NULL. */
PyObject *hy_gathered_columns(const struct hy_gathered *g, PyObject *arrays);
/* (2, 3) */
PyObject *hy_shape_tuple(const struct hy_batch_column *c, bool has_first, uint64_t first);

#endif
