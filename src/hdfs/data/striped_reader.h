/* SPDX-License-Identifier: Apache-2.0 */
/* Reads erasure-coded files, whose blocks are groups of blocks on several DataNodes. */
#ifndef HY_HDFS_DATA_STRIPED_READER_H
#define HY_HDFS_DATA_STRIPED_READER_H

#include <stddef.h>
#include <stdint.h>

#include "hdfs.pb-c.h"

struct hy_err;
struct hy_hdfs_cluster;
struct hy_hdfs_striped_reader;

/* NULL: err->code is -ENOTSUP for an unknown codec. For one thread at a time. */
struct hy_hdfs_striped_reader *hy_hdfs_striped_reader_new(struct hy_hdfs_cluster *c,
                                                          const Hdfs__ErasureCodingPolicy *policy, int timeout_ms,
                                                          struct hy_err *err);
void hy_hdfs_striped_reader_free(struct hy_hdfs_striped_reader *s);

/* Reads 1 to n bytes of the group at `at`; -Exxx when too few of its units are readable. The group must stay valid
 * until another one is read, or hy_hdfs_striped_reader_reset. */
int64_t hy_hdfs_striped_reader_read(struct hy_hdfs_striped_reader *s, const Hdfs__LocatedBlock *group, void *into,
                                    size_t n, uint64_t at, struct hy_err *err);
/* Closes its connections and clears the list of failed DataNodes. */
void hy_hdfs_striped_reader_reset(struct hy_hdfs_striped_reader *s);

#endif
