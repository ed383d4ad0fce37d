/* SPDX-License-Identifier: Apache-2.0 */
/* Packets: what a block's bytes travel in, between us and a DataNode. Pure; see packet.c. */
#ifndef HY_HDFS_DATA_PACKET_H
#define HY_HDFS_DATA_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_HDFS_PACKET_HEADER_MAX 64u
#define HY_HDFS_PACKET_BODY_MAX (16u << 20) /* as Hadoop has it */

struct hy_hdfs_packet {
    uint64_t offset; /* of its first byte in the block */
    int64_t number;  /* counts from 0 in a block; -1: a heartbeat */
    uint32_t sums;   /* bytes of checksums, which come first */
    uint32_t data;   /* bytes of data behind them */
    bool is_last;    /* of the block; it has no data */
    bool is_sync;    /* what it brings is to be on disk before it is acknowledged */
};

/* A packet's head: how many bytes it takes, 0 when there are not enough yet, or -EPROTO. */
int hy_hdfs_packet_parse(const uint8_t *bytes, size_t n, struct hy_hdfs_packet *ret);
/* Writes it and returns how many bytes it took. */
size_t hy_hdfs_packet_format(const struct hy_hdfs_packet *p, uint8_t out[HY_HDFS_PACKET_HEADER_MAX]);

/* How bytes are guarded: a sum of 4 bytes, the highest first, for each chunk. */
struct hy_hdfs_checksums {
    int type; /* HDFS__CHECKSUM_TYPE__… */
    uint32_t chunk;
};

/* Whether we know the type, and the chunk is one: 1 byte to 16 MiB. */
bool hy_hdfs_checksums_are_supported(const struct hy_hdfs_checksums *s);
/* How many bytes of sums guard n bytes. */
size_t hy_hdfs_checksums_size(const struct hy_hdfs_checksums *s, size_t n);
void hy_hdfs_checksums_compute(const struct hy_hdfs_checksums *s, const void *bytes, size_t n, uint8_t *sums);
/* Where the first chunk begins that does not fit its sum; n when all do. */
size_t hy_hdfs_checksums_check(const struct hy_hdfs_checksums *s, const void *bytes, size_t n, const uint8_t *sums);

#endif
