/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of Python as columns, and back: feed_pack.c, feed_unpack.c. The types
 * Source and Hub are made of them (source.c, hub.c). All with the GIL.
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
    uint64_t each; /* values in a row, or in an item */
};

struct hy_packer {
    struct hy_feed_schema schema;
    struct hy_buf text;
    PyObject **keys;                 /* by node: in a dict its name; of a Row its fields */
    struct hy_builder *builders;     /* by column */
    struct hy_batch_column *columns; /* the same, as a batch has them */
    size_t keys_count, builders_count;
    uint32_t rows; /* that are in the builders */
    PyObject *array_type, *scalar_type, *row_type; /* NumPy's and pyspark's, once they are seen; or NULL */
};

/* Sends a batch: 1, 0 when nobody wants more, -1 with an exception set. */
typedef int hy_pack_send_fn(void *context, const struct hy_batch *b);

struct hy_pack_sink {
    hy_pack_send_fn *send;
    void *context;
    size_t most; /* bytes of a message */
};

void hy_packer_done(struct hy_packer *p);
/* Sends a list's rows from `from` up to `to`, in as many batches as their shapes and sizes want. 1, 0, -1: as above. */
int hy_pack_rows(struct hy_packer *p, PyObject *list, Py_ssize_t from, Py_ssize_t to, const struct hy_pack_sink *how);

/* ---- feed_unpack.c ---- */

/*
 * A float here and there of those that were made last. Python gives memory back to the system as soon as nothing is in it
 * any more, and fetches it again for the next rows, which costs as much as making these; so something stays in it.
 */
struct hy_float_pins {
    PyObject *list[64];
    unsigned next, since;
};
void hy_float_pins_done(struct hy_float_pins *p);

struct hy_unpacker {
    struct hy_float_pins *pins;        /* NULL: what is made is not much */
    const struct hy_batch_cursor *of; /* NULL: nothing is being unpacked */
    uint64_t number;             /* of that reading */
    PyObject **keys;   /* by node, as in a packer */
    PyObject **arrays; /* by column: all rows of a NumPy column; the list of rows that were pickled */
    size_t keys_count, arrays_count;
    PyObject *make_row; /* pyspark's, when there is a Row */
    bool has_arrays;
};

/* Begins with a batch, which must last. 0; -1 with an exception set; -EBADMSG without one when it makes no sense. */
int hy_unpack_begin(struct hy_unpacker *u, const struct hy_batch_cursor *r);
/* Appends up to `most` rows of it to the list. How many; -1 or -EBADMSG, as above. */
Py_ssize_t hy_unpack_rows(struct hy_unpacker *u, struct hy_batch_cursor *r, PyObject *list, Py_ssize_t most);
void hy_unpack_end(struct hy_unpacker *u);
/* The list of rows that was pickled, by us or by Spark; a new reference or NULL. */
PyObject *hy_unpickle(const void *bytes, size_t n);

/* struct hy_gather_sink's: values go to bytearrays, which are in the list that is the context. */
void *hy_grow_bytearray(void *list, uint32_t column, size_t n);
/* [(dtype, shape, values, value_ends, row_ends), ...]; a new reference or NULL. */
PyObject *hy_gathered_columns(const struct hy_gathered *g, PyObject *arrays);
/* (2, 3) */
PyObject *hy_shape_tuple(const struct hy_batch_column *c, bool has_first, uint64_t first);

#endif
