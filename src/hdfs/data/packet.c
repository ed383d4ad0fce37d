/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     4 bytes  length without the header: 4 + sums + data
 *     2 bytes  length of the header
 *     header   a PacketHeader (proto/hdfs.proto)
 *     sums     checksums: 4 bytes for each chunk of the data
 *     data
 *
 * Numbers are big-endian.
 */
#include "hdfs/data/packet.h"

#include <errno.h>
#include <pthread.h>

#include "base/text.h"
#include "hdfs.pb-c.h"
#include "record/record.h"

int hy_hdfs_packet_parse(const uint8_t *bytes, size_t n, struct hy_hdfs_packet *ret)
{
    Hdfs__PacketHeader *h;
    size_t body, head;
    int rc = -EPROTO;

    if (n < 6)
        return 0;
    body = hy_get_be(bytes, 4);
    head = hy_get_be(bytes + 4, 2);
    if (body < 4 || body - 4 > HY_HDFS_PACKET_BODY_MAX || head > HY_HDFS_PACKET_HEADER_MAX - 6)
        return -EPROTO;
    if (n < 6 + head)
        return 0;
    h = hdfs__packet_header__unpack(NULL, head, bytes + 6);
    if (!h)
        return -EPROTO;
    if (h->datalen >= 0 && (uint32_t)h->datalen <= body - 4 && h->offsetinblock >= 0) {
        *ret = (struct hy_hdfs_packet){
            .offset = (uint64_t)h->offsetinblock,
            .number = h->seqno,
            .sums = (uint32_t)(body - 4 - (uint32_t)h->datalen),
            .data = (uint32_t)h->datalen,
            .is_last = h->lastpacketinblock,
            .is_sync = h->syncblock,
        };
        rc = (int)(6 + head);
    }
    hdfs__packet_header__free_unpacked(h, NULL);
    return rc;
}

size_t hy_hdfs_packet_format(const struct hy_hdfs_packet *p, uint8_t out[HY_HDFS_PACKET_HEADER_MAX])
{
    Hdfs__PacketHeader h = HDFS__PACKET_HEADER__INIT;
    size_t head;

    h.offsetinblock = (int64_t)p->offset;
    h.seqno = p->number;
    h.lastpacketinblock = p->is_last;
    h.datalen = (int32_t)p->data;
    h.has_syncblock = h.syncblock = p->is_sync;
    head = hdfs__packet_header__pack(&h, out + 6);
    hy_put_be(out, 4 + p->sums + p->data, 4);
    hy_put_be(out + 4, head, 2);
    return 6 + head;
}

/* ---- checksums -------------------------------------------------------------------------- */

/* CRC-32 as in zlib: the checksum of older clusters. */
static uint32_t crc32_table[256];
static pthread_once_t crc32_is_made = PTHREAD_ONCE_INIT;

static void make_crc32_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        crc32_table[b] = crc;
    }
}

static uint32_t crc32(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;

    pthread_once(&crc32_is_made, make_crc32_table);
    while (n--)
        crc = crc >> 8 ^ crc32_table[(crc ^ *p++) & 0xff];
    return ~crc;
}

bool hy_hdfs_checksums_are_supported(const struct hy_hdfs_checksums *s)
{
    return s->type >= HDFS__CHECKSUM_TYPE__CHECKSUM_NULL && s->type <= HDFS__CHECKSUM_TYPE__CHECKSUM_CRC32C &&
           s->chunk > 0 && s->chunk <= HY_HDFS_PACKET_BODY_MAX;
}

size_t hy_hdfs_checksums_size(const struct hy_hdfs_checksums *s, size_t n)
{
    return s->type == HDFS__CHECKSUM_TYPE__CHECKSUM_NULL ? 0 : 4 * ((n + s->chunk - 1) / s->chunk);
}

#define BATCH 32u

/* Checksums of the first chunks, at most BATCH. Returns how many. */
static size_t first_sums(const struct hy_hdfs_checksums *s, const uint8_t *bytes, size_t n, uint32_t sums[BATCH])
{
    const size_t whole = n / s->chunk < BATCH ? n / s->chunk : BATCH;

    if (whole == 0) { /* the last chunk is shorter */
        *sums = s->type == HDFS__CHECKSUM_TYPE__CHECKSUM_CRC32C ? hy_crc32c(0, bytes, n) : crc32(bytes, n);
        return 1;
    }
    if (s->type == HDFS__CHECKSUM_TYPE__CHECKSUM_CRC32C)
        hy_crc32c_each(bytes, s->chunk, whole, sums);
    else
        for (size_t i = 0; i < whole; i++)
            sums[i] = crc32(bytes + i * s->chunk, s->chunk);
    return whole;
}

void hy_hdfs_checksums_compute(const struct hy_hdfs_checksums *s, const void *bytes, size_t n, uint8_t *sums)
{
    uint32_t made[BATCH];

    if (s->type == HDFS__CHECKSUM_TYPE__CHECKSUM_NULL)
        return;
    for (size_t at = 0, count; at < n; at += count * s->chunk) {
        count = first_sums(s, (const uint8_t *)bytes + at, n - at, made);
        for (size_t i = 0; i < count; i++, sums += 4)
            hy_put_be(sums, made[i], 4);
    }
}

size_t hy_hdfs_checksums_check(const struct hy_hdfs_checksums *s, const void *bytes, size_t n, const uint8_t *sums)
{
    uint32_t made[BATCH];

    if (s->type == HDFS__CHECKSUM_TYPE__CHECKSUM_NULL)
        return n;
    for (size_t at = 0, count; at < n; at += count * s->chunk) {
        count = first_sums(s, (const uint8_t *)bytes + at, n - at, made);
        for (size_t i = 0; i < count; i++, sums += 4)
            if (hy_get_be(sums, 4) != made[i])
                return at + i * s->chunk;
    }
    return n;
}
