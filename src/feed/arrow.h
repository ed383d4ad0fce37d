/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrow's record batches as batches of ours, by Arrow's C data interface: whoever
 * has one gives pointers to its memory, and nobody needs Arrow's libraries.
 *
 * There are columns of numbers, truths, texts and byte strings, and of lists of
 * numbers and truths. Nulls have no column, nor has any other type.
 */
#ifndef HY_FEED_ARROW_H
#define HY_FEED_ARROW_H

#include <stdbool.h>
#include <stdint.h>

#include "feed/batch.h"

struct hy_buf;

/* As the interface has them, to the byte; what is not used here has no type. */
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct hy_arrow {
    struct hy_batch batch; /* its shape is the caller's to fill in */
    void **own;            /* private: ends and truths, which Arrow has in another form */
    uint32_t own_count;
};

/*
 * Rows of a record batch, from `begin` on; values are not copied. From an empty one; then hy_arrow_done, whatever it
 * was. 0, -ENOTSUP when it has what has no column, -EINVAL when it makes no sense or has not so many rows, -ENOMEM.
 */
int hy_arrow_rows(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t begin, uint32_t rows,
                  struct hy_arrow *ret);
void hy_arrow_done(struct hy_arrow *a);

/* How a row is made of the columns, as in feed/shape.h: a tuple of them. 0, -EINVAL, -ENOMEM. */
int hy_arrow_shape(const struct ArrowSchema *schema, struct hy_buf *ret);

#endif
