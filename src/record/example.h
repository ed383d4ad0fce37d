/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf.Example and tf.SequenceExample, to columns (columns.h) and back.
 *
 * No message is built on the way: values go from the encoded bytes straight to
 * where the column keeps them. Pure functions over bytes.
 */
#ifndef HY_RECORD_EXAMPLE_H
#define HY_RECORD_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_buf;
struct hy_columns;
struct hy_err;

/*
 * Adds an example as a row. Features that no column is there for get one,
 * unless the columns are closed. -EBADMSG with a sentence when the bytes are no
 * example, -EINVAL when a feature has another type than in the rows before, or
 * -ENOMEM; then there is no such row.
 */
int hy_example_parse(struct hy_columns *c, const uint8_t *bytes, size_t n, struct hy_err *err);
/* The same for a SequenceExample: its context, and columns with steps. */
int hy_sequence_example_parse(struct hy_columns *c, const uint8_t *bytes, size_t n, struct hy_err *err);

/*
 * Appends a row of filled columns as a record (record.h): as an Example, or as
 * a SequenceExample where `is_sequence`. A column whose kind is not known is left
 * out, and a feature that is not `there`. 0, -ENOBUFS or -ENOMEM; then `b` is unchanged.
 */
int hy_example_append(struct hy_buf *b, const struct hy_columns *c, uint64_t row, bool is_sequence);

#endif
