/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of links and local sockets. A pure codec; the format is in frame.c. */
#ifndef HY_WIRE_FRAME_H
#define HY_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

struct hy_buf;

#define HY_FRAME_VERSION 1
#define HY_FRAME_HEADER 12u
#define HY_FRAME_MAX (1024u * 1024) /* payload on a link between machines */

enum hy_frame_type {
    HY_FRAME_HELLO = 1,
    HY_FRAME_DATA,
    HY_FRAME_CREDIT,
    HY_FRAME_PING,
    HY_FRAME_PONG,
    HY_FRAME_MESSAGE,
};

struct hy_frame {
    enum hy_frame_type type;
    uint32_t stream;
    const uint8_t *bytes; /* borrowed: HELLO's, DATA's and MESSAGE's */
    size_t n;
    uint64_t offset; /* DATA: of the first byte; CREDIT: all before it have arrived */
    uint64_t limit;  /* CREDIT: bytes up to here may be sent */
};

/*
 * Parses the first frame of `bytes`. Returns its length in bytes, 0 if it is
 * incomplete, or -EPROTO (-EMSGSIZE if its payload exceeds `max`) with a reason
 * in *ret_why.
 */
int64_t hy_frame_parse(const uint8_t *bytes, size_t n, size_t max, struct hy_frame *ret, const char **ret_why);

/* Appends the frame to `out`. 0, -ENOMEM or -ENOBUFS; then `out` is unchanged. */
int hy_frame_append(struct hy_buf *out, const struct hy_frame *f);

#endif
