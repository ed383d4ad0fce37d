/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record; all numbers are little-endian. A file is a sequence of records:
 *
 *      0                8        12              12+n     16+n
 *     +----------------+--------+------- - - ---+--------+
 *     | length         | check  | bytes         | check  |
 *     +----------------+--------+------- - - ---+--------+
 *
 *     length   u64  n, of the bytes
 *     check    u32  masked CRC-32C of the eight bytes of the length
 *     bytes         n of them
 *     check    u32  masked CRC-32C of the bytes
 *
 * Masked: rotated right by 15 bits, plus 0xa282ead8 (modulo 2^32). The length has a
 * separate checksum, so that a reader does not wait for the bytes of a damaged one.
 */
#include "record/record.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"

#define HEAD 12u
#define TAIL 4u
#define MASK 0xa282ead8u

uint32_t hy_crc32c_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + MASK;
}

static uint32_t check_of(const uint8_t *bytes, size_t n)
{
    return hy_crc32c_mask(hy_crc32c(0, bytes, n));
}

int hy_record_begin(struct hy_buf *b, size_t n, uint8_t **ret_bytes)
{
    size_t whole;
    uint8_t *at;

    if (__builtin_add_overflow(n, HEAD + TAIL, &whole) || whole > b->max - b->len)
        return -ENOBUFS;
    at = hy_buf_reserve(b, whole);
    if (!at)
        return -ENOMEM;
    *ret_bytes = at + HEAD;
    return 0;
}

void hy_record_end(struct hy_buf *b, uint8_t *bytes, size_t n)
{
    uint8_t *head = bytes - HEAD;

    hy_put_le(head, n, 8);
    hy_put_le(head + 8, check_of(head, 8), 4);
    hy_put_le(bytes + n, check_of(bytes, n), 4);
    hy_buf_added(b, HEAD + n + TAIL);
}

int hy_record_append(struct hy_buf *b, const void *bytes, size_t n)
{
    uint8_t *at;
    int rc = hy_record_begin(b, n, &at);

    if (rc < 0)
        return rc;
    if (n)
        memcpy(at, bytes, n);
    hy_record_end(b, at, n);
    return 0;
}

static int bad(const char **ret_why, int rc, const char *why)
{
    *ret_why = why;
    return rc;
}

int64_t hy_record_parse(const uint8_t *bytes, size_t n, size_t max, struct hy_record *ret, size_t *ret_need,
                        const char **ret_why)
{
    uint64_t length;

    if (n < HEAD) {
        *ret_need = HEAD;
        return 0;
    }
    length = hy_get_le(bytes, 8);
    if (hy_get_le(bytes + 8, 4) != check_of(bytes, 8))
        return bad(ret_why, -EBADMSG, "a record's length does not match its checksum");
    if (length > max || length > INT64_MAX - HEAD - TAIL)
        return bad(ret_why, -EMSGSIZE, "a record is too long");
    if (n - HEAD < length + TAIL) {
        *ret_need = HEAD + (size_t)length + TAIL;
        return 0;
    }
    if (hy_get_le(bytes + HEAD + length, 4) != check_of(bytes + HEAD, (size_t)length))
        return bad(ret_why, -EBADMSG, "a record's bytes do not match their checksum");
    *ret = (struct hy_record){.bytes = bytes + HEAD, .n = (size_t)length};
    return (int64_t)(HEAD + length + TAIL);
}
