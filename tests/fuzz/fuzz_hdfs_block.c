/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range of a block, read from a DataNode in several reads, as by read-ahead threads. No read returns more than
 * requested, not even at the end. The actions are the first byte, the number of bytes, and the sizes of the reads.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hdfs/data/block_reader.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "scripted.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static int64_t read_piece(struct hy_hdfs_block_reader *r, size_t n)
{
    struct hy_err err = {0};
    char *room = malloc(n ? n : 1); /* of exactly that size, so that an overflow is detected */
    int64_t got;

    check(room != NULL);
    got = hy_hdfs_block_reader_read(r, room, n, &err);
    check(got < 0 ? err.code < 0 && err.text[0] : (uint64_t)got <= n);
    free(room);
    return got;
}

static void read_block(struct hy_hdfs_cluster *c)
{
    Hdfs__ExtendedBlock block = HDFS__EXTENDED_BLOCK__INIT;
    Hdfs__DatanodeID node = HDFS__DATANODE_ID__INIT;
    const int from = hy_script_action(), n = hy_script_action();
    struct hy_hdfs_block_request want = {.cluster = c,
                                         .block = &block,
                                         .node = &node,
                                         .timeout_ms = 1000,
                                         .may_be_local = true,
                                         .from = from < 0 ? 0 : (uint64_t)from};
    struct hy_hdfs_block_reader *r;
    struct hy_err err = {0};
    int64_t got = 0;
    int piece;

    want.to = want.from + (n < 1 ? 1 : (uint64_t)n);
    block.poolid = node.ipaddr = node.hostname = node.datanodeuuid = (char *)"x";
    node.xferport = 9866;
    if (hy_hdfs_block_reader_open(&r, &want, &err) < 0) {
        check(err.code < 0 && err.text[0]);
        return;
    }
    while (got >= 0 && (piece = hy_script_action()) >= 0) {
        got = read_piece(r, (size_t)piece);
        check(hy_hdfs_block_reader_offset(r) >= want.from && hy_hdfs_block_reader_offset(r) <= want.to);
    }
    hy_hdfs_block_reader_widen(r);
    hy_hdfs_block_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_hdfs_cluster c = {.name = "hdfs://nn", .user = "u", .client_name = "client"};
    struct hy_err err = {0};

    if (!hy_script_begin(data, size))
        return 0;
    c.conf = hy_hdfs_conf_load(NULL, &err);
    if (c.conf) {
        read_block(&c);
        read_block(&c); /* possibly over the same connection */
    }
    hy_script_end();
    hy_hdfs_conf_free((struct hy_hdfs_conf *)c.conf);
    return 0;
}
