/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame, all numbers little-endian:
 *
 *      0       4  5  6     8        12
 *     +--------+--+--+-----+--------+----------------- - -
 *     | length |v |t |  0  | stream | payload
 *     +--------+--+--+-----+--------+----------------- - -
 *
 *     length   u32  of the payload
 *     v        u8   version of the format, 1
 *     t        u8   type
 *     0        u16  must be zero
 *     stream   u32  DATA and CREDIT: which; otherwise zero
 *
 *     type        payload
 *     1 HELLO     a Hello message
 *     2 DATA      u64 offset of the first byte, then at least one byte
 *     3 CREDIT    u64 all bytes before this offset have arrived,
 *                 u64 bytes before this offset may be sent
 *     4 PING      nothing; answered by
 *     5 PONG      nothing
 *     6 MESSAGE   local sockets only: one message
 *
 * A CREDIT whose two numbers are 2^64-1 means that the receiver has forgotten
 * the stream: the sender may discard its data.
 */
#include "wire/frame.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"

static int bad(const char **ret_why, const char *why)
{
    *ret_why = why;
    return -EPROTO;
}

static int parse_payload(struct hy_frame *f, const char **ret_why)
{
    switch (f->type) {
    case HY_FRAME_HELLO:
    case HY_FRAME_MESSAGE:
        return f->stream == 0 ? 0 : bad(ret_why, "nonzero stream in a frame without a stream");
    case HY_FRAME_PING:
    case HY_FRAME_PONG:
        return f->stream == 0 && f->n == 0 ? 0 : bad(ret_why, "ping with a payload");
    case HY_FRAME_DATA:
        if (f->n <= 8)
            return bad(ret_why, "data frame without data");
        f->offset = hy_get_le(f->bytes, 8);
        f->bytes += 8;
        f->n -= 8;
        return f->offset <= UINT64_MAX / 2 ? 0 : bad(ret_why, "offset of a data frame out of range");
    case HY_FRAME_CREDIT:
        if (f->n != 16)
            return bad(ret_why, "credit frame of a wrong length");
        f->offset = hy_get_le(f->bytes, 8);
        f->limit = hy_get_le(f->bytes + 8, 8);
        f->bytes = NULL;
        f->n = 0;
        return 0;
    }
    return bad(ret_why, "unknown frame type");
}

/* Checks the fixed bytes of the header as soon as they have arrived, so that other
 * protocols are rejected at once. */
int64_t hy_frame_parse(const uint8_t *bytes, size_t n, size_t max, struct hy_frame *ret, const char **ret_why)
{
    struct hy_frame f = {0};
    size_t length;
    int rc;

    if (n >= 4 && hy_get_le(bytes, 4) > max) {
        *ret_why = "frame too long";
        return -EMSGSIZE;
    }
    if (n >= 5 && bytes[4] != HY_FRAME_VERSION)
        return bad(ret_why, "unknown frame version");
    if (n < HY_FRAME_HEADER)
        return 0;
    if (bytes[5] < HY_FRAME_HELLO || bytes[5] > HY_FRAME_MESSAGE)
        return bad(ret_why, "unknown frame type");
    if (bytes[6] || bytes[7])
        return bad(ret_why, "reserved bits set in a frame");
    length = (size_t)hy_get_le(bytes, 4);
    if (n - HY_FRAME_HEADER < length)
        return 0;
    f.type = (enum hy_frame_type)bytes[5];
    f.stream = (uint32_t)hy_get_le(bytes + 8, 4);
    f.bytes = bytes + HY_FRAME_HEADER;
    f.n = length;
    rc = parse_payload(&f, ret_why);
    if (rc < 0)
        return rc;
    *ret = f;
    return (int64_t)(HY_FRAME_HEADER + length);
}

int hy_frame_append(struct hy_buf *out, const struct hy_frame *f)
{
    size_t extra = f->type == HY_FRAME_DATA ? 8 : f->type == HY_FRAME_CREDIT ? 16 : 0;
    size_t total = HY_FRAME_HEADER + extra + f->n;
    uint8_t *at;

    assert(f->n <= UINT32_MAX - 16);
    if (total > out->max - out->len)
        return -ENOBUFS;
    at = hy_buf_reserve(out, total);
    if (!at)
        return -ENOMEM;
    hy_put_le(at, extra + f->n, 4);
    at[4] = HY_FRAME_VERSION;
    at[5] = (uint8_t)f->type;
    at[6] = at[7] = 0;
    hy_put_le(at + 8, f->stream, 4);
    if (extra)
        hy_put_le(at + 12, f->offset, 8);
    if (extra == 16)
        hy_put_le(at + 20, f->limit, 8);
    if (f->n)
        memcpy(at + HY_FRAME_HEADER + extra, f->bytes, f->n);
    hy_buf_added(out, total);
    return 0;
}
