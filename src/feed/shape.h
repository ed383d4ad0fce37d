/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of a row: which columns make up what, as a short text.
 *
 *     f i b s y    a Python float, int, bool, str, bytes
 *     lf li ...    lists of those, nested as the column's shape has it
 *     a            a NumPy array; a NumPy scalar where the column's shape is ()
 *     (ab) [ab]    a tuple, a list
 *     {1:x f}      a dict: the length of a key, the key, and what it is for
 *     <1:x f>      a pyspark.sql.Row, the same way
 *     *            rows that were pickled together, as a list
 *
 * Each leaf is a column, in the order in which they stand. So ([784 floats], 3)
 * is "(lfi)". Spaces mean nothing, but within a key.
 */
#ifndef HY_FEED_SHAPE_H
#define HY_FEED_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "feed/batch.h"

#define HY_SHAPE_NODES_MAX 8192u
#define HY_SHAPE_DEPTH_MAX 16u

struct hy_buf;

struct hy_shape_node {
    char kind;       /* f i b s y l a ( [ { < * */
    char element;    /* of a list of values: f i b s y */
    uint32_t count;  /* what a tuple, list, dict or Row has, one level below */
    uint32_t column; /* of a leaf */
    const char *key; /* in a dict or Row; in the text that was parsed */
    size_t key_n;
};

struct hy_shape {
    size_t count, room;
    uint32_t columns;
    struct hy_shape_node *nodes; /* each before those below it */
};

void hy_shape_done(struct hy_shape *s);
/* Adds one behind the others, and gives it; NULL when out of memory or there are too many. For who builds one. */
struct hy_shape_node *hy_shape_add(struct hy_shape *s, char kind);
/* As text; 0 or -Exxx. */
int hy_shape_write(const struct hy_shape *s, struct hy_buf *b);

/* From an empty or used one; keys point into the text. 0, -EBADMSG, -ENOMEM. */
int hy_shape_parse(const char *text, size_t n, struct hy_shape *s);
/* Are the columns of the batch what the leaves want? 0 or -EBADMSG. */
int hy_shape_check(const struct hy_shape *s, const struct hy_batch *b);

#endif
