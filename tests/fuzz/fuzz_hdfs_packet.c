/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of a DataNode: an accepted header that is formatted and parsed again is the same. */
#include <stdlib.h>
#include <string.h>

#include "hdfs/data/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_sums(const struct hy_hdfs_packet *p, const uint8_t *rest, size_t n)
{
    const struct hy_hdfs_checksums checksums = {.type = (int)(p->offset % 3),
                                                .chunk = 1 + (uint32_t)(p->number & 0xff)};
    uint8_t *sums = malloc(hy_hdfs_checksums_size(&checksums, n) + 1);

    check(sums && hy_hdfs_checksums_are_supported(&checksums));
    hy_hdfs_checksums_compute(&checksums, rest, n, sums);
    check(hy_hdfs_checksums_check(&checksums, rest, n, sums) == n);
    if (n && checksums.type) {
        sums[0] ^= 1;
        check(hy_hdfs_checksums_check(&checksums, rest, n, sums) == 0);
    }
    free(sums);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t again[HY_HDFS_PACKET_HEADER_MAX];
    struct hy_hdfs_packet p, q;
    int n = hy_hdfs_packet_parse(data, size, &p);
    size_t head;

    if (n <= 0)
        return 0;
    check((size_t)n <= size && p.sums <= HY_HDFS_PACKET_BODY_MAX && p.data <= HY_HDFS_PACKET_BODY_MAX);
    head = hy_hdfs_packet_format(&p, again);
    check(head <= sizeof(again) && hy_hdfs_packet_parse(again, head, &q) == (int)head);
    check(p.offset == q.offset && p.number == q.number && p.sums == q.sums && p.data == q.data &&
          p.is_last == q.is_last && p.is_sync == q.is_sync);
    for (size_t cut = 0; cut < head; cut++)
        check(hy_hdfs_packet_parse(again, cut, &q) <= 0);
    check_sums(&p, data + n, size - (size_t)n);
    return 0;
}
