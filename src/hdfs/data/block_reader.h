/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a range of one replica of a block sequentially, from one DataNode. */
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
    bool may_be_local; /* complete: a short-circuit read is allowed (short_circuit.h) */
    int timeout_ms;
};

/* Sends the request; the first read waits for the response, so that two blocks can be requested at once. */
int hy_hdfs_block_reader_open(struct hy_hdfs_block_reader **ret, const struct hy_hdfs_block_request *want,
                              struct hy_err *err);
/*
 * Returns the number of bytes read, all verified against their checksums: fewer
 * than n only at the end. -EBADMSG when a checksum is wrong: the replica is
 * corrupt. After an error the reader can only be closed;
 * hy_hdfs_block_reader_offset tells how far it got.
 */
int64_t hy_hdfs_block_reader_read(struct hy_hdfs_block_reader *r, void *into, size_t n, struct hy_err *err);
/* Offset in the block of the next byte. */
uint64_t hy_hdfs_block_reader_offset(const struct hy_hdfs_block_reader *r);
/* For a caller that works between two reads (hy_hdfs_sock_widen). */
void hy_hdfs_block_reader_widen(struct hy_hdfs_block_reader *r);
void hy_hdfs_block_reader_close(struct hy_hdfs_block_reader *r);

#endif
