/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block reader (block_reader.h) that reads ahead in a thread when that pays: when
 * the caller works between two reads and a synchronous read would stall it.
 */
#ifndef HY_HDFS_DATA_READ_AHEAD_H
#define HY_HDFS_DATA_READ_AHEAD_H

#include <stddef.h>
#include <stdint.h>

struct hy_hdfs_read_ahead;
struct hy_hdfs_block_reader;
struct hy_err;

/* Takes `r`, also on failure. NULL when out of memory. */
struct hy_hdfs_read_ahead *hy_hdfs_read_ahead_new(struct hy_hdfs_block_reader *r);
void hy_hdfs_read_ahead_close(struct hy_hdfs_read_ahead *a);

/* Like hy_hdfs_block_reader_read and hy_hdfs_block_reader_offset. */
int64_t hy_hdfs_read_ahead_read(struct hy_hdfs_read_ahead *a, void *into, size_t n, struct hy_err *err);
uint64_t hy_hdfs_read_ahead_offset(const struct hy_hdfs_read_ahead *a);

#endif
