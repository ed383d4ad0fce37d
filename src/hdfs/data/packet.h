/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of the data transfer protocol, and checksums of chunks. Pure; the format is in packet.c. */
#ifndef HY_HDFS_DATA_PACKET_H
#define HY_HDFS_DATA_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_HDFS_PACKET_HEADER_MAX 64u
#define HY_HDFS_PACKET_BODY_MAX (16u << 20) /* Hadoop's limit */

struct hy_hdfs_packet {
    uint64_t offset; /* of its first byte in the block */
    int64_t number;  /* counts from 0 in a block; -1: a heartbeat */
    uint32_t sums;   /* bytes of checksums, which come first */
    uint32_t data;   /* bytes of data after them */
    bool is_last;    /* of the block; it has no data */
    bool is_sync;    /* acknowledged only after it is on disk */
};

/* Parses a packet header. Returns its length, 0 when it is incomplete, or -EPROTO. */
int hy_hdfs_packet_parse(const uint8_t *bytes, size_t n, struct hy_hdfs_packet *ret);
/* Writes the header and returns its length. */
size_t hy_hdfs_packet_format(const struct hy_hdfs_packet *p, uint8_t out[HY_HDFS_PACKET_HEADER_MAX]);

/* A checksum of 4 bytes, big-endian, for each chunk. */
struct hy_hdfs_checksums {
    int type; /* HDFS__CHECKSUM_TYPE__… */
    uint32_t chunk;
};

/* Whether the type is known and the chunk size is valid: 1 byte to 16 MiB. */
bool hy_hdfs_checksums_are_supported(const struct hy_hdfs_checksums *s);
/* Bytes of checksums for n bytes of data. */
size_t hy_hdfs_checksums_size(const struct hy_hdfs_checksums *s, size_t n);
void hy_hdfs_checksums_compute(const struct hy_hdfs_checksums *s, const void *bytes, size_t n, uint8_t *sums);
/* Offset of the first chunk with a wrong checksum; n when all are right. */
size_t hy_hdfs_checksums_check(const struct hy_hdfs_checksums *s, const void *bytes, size_t n, const uint8_t *sums);

#endif
