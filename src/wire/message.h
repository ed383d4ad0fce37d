/* SPDX-License-Identifier: Apache-2.0 */
/* Parses messages, in memory bounded by the length of the input. */
#ifndef HY_WIRE_MESSAGE_H
#define HY_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

struct hy_buf;
struct hy_mark;
struct hy_mux;

/* Parses a message of this type, to be freed by protobuf_c_message_free_unpacked(m, NULL).
 * 0, -ENOMEM, or -EPROTO if it is malformed. */
int hy_message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t n, ProtobufCMessage **ret);

struct hy_hello {
    uint32_t protocol;
    uint8_t session[HY_SESSION_SIZE];
    bool resumed;
    struct hy_mark *marks; /* owned */
    size_t mark_count;
};

/* 0 or -Exxx with a reason. */
int hy_hello_parse(const uint8_t *bytes, size_t n, struct hy_hello *ret, const char **ret_why);
void hy_hello_done(struct hy_hello *h);
/* Appends a HELLO frame with the mux's marks to `out`. 0 or -ENOMEM. */
int hy_hello_append(struct hy_buf *out, const uint8_t session[HY_SESSION_SIZE], bool resumed, struct hy_mux *m);

#endif
