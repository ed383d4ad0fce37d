/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a part of one replica of a block, from one DataNode, front to back. */
#ifndef HY_HDFS_DATA_BLOCK_READER_H
#define HY_HDFS_DATA_BLOCK_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdfs.pb-c.h"

struct hy_err;
struct hy_hdfs_cluster;
struct hy_hdfs_block_reader;

struct hy_hdfs_block_request {
    struct hy_hdfs_cluster *cluster;
    const Hdfs__ExtendedBlock *block;
    const Hdfs__Token *token;
    const Hdfs__DatanodeID *node;
    uint64_t from, to; /* bytes of the block: from < to <= its length */
    bool may_be_local; /* nobody writes to it: its files may be read, where the DataNode is on this machine (short_circuit.h) */
    int patience_ms;
};

/* Asks for it; the answer is awaited by the first read, so that two blocks can be on their way at once. */
int hy_hdfs_block_reader_open(struct hy_hdfs_block_reader **ret, const struct hy_hdfs_block_request *want, struct hy_err *err);
/*
 * How many bytes came, all of which fit their sums: fewer than n only at the
 * end. -EBADMSG when some do not fit: the replica is bad. After an error the
 * reader is of no more use; hy_hdfs_block_reader_offset tells how far it came.
 */
int64_t hy_hdfs_block_reader_read(struct hy_hdfs_block_reader *r, void *into, size_t n, struct hy_err *err);
/* Where in the block the next byte is. */
uint64_t hy_hdfs_block_reader_offset(const struct hy_hdfs_block_reader *r);
/* For who works between two reads (hy_hdfs_sock_widen). */
void hy_hdfs_block_reader_widen(struct hy_hdfs_block_reader *r);
void hy_hdfs_block_reader_close(struct hy_hdfs_block_reader *r);

#endif
