/* SPDX-License-Identifier: Apache-2.0 */
/* Reads erasure-coded files: their blocks are groups of blocks, one on each of several DataNodes. */
#ifndef HY_HDFS_DATA_STRIPED_READER_H
#define HY_HDFS_DATA_STRIPED_READER_H

#include <stddef.h>
#include <stdint.h>

#include "hdfs.pb-c.h"

struct hy_err;
struct hy_hdfs_cluster;
struct hy_hdfs_striped_reader;

/* NULL: -ENOTSUP for a code that is not known. For one thread at a time. */
struct hy_hdfs_striped_reader *hy_hdfs_striped_reader_new(struct hy_hdfs_cluster *c, const Hdfs__ErasureCodingPolicy *policy, int patience_ms,
                                  struct hy_err *err);
void hy_hdfs_striped_reader_free(struct hy_hdfs_striped_reader *s);

/* How many of the group's bytes from `at` on came: at least one, at most n; or -Exxx when it cannot be had from
 * what is left of the group. The group must stay where it is until another one is read, or hy_hdfs_striped_reader_reset. */
int64_t hy_hdfs_striped_reader_read(struct hy_hdfs_striped_reader *s, const Hdfs__LocatedBlock *group, void *into, size_t n, uint64_t at,
                        struct hy_err *err);
/* Closes its connections, and forgets which DataNodes failed. */
void hy_hdfs_striped_reader_reset(struct hy_hdfs_striped_reader *s);

#endif
