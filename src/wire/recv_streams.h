/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving ends of a session's streams: the offset received of each, the
 * credit advertised to the sender, and which streams are finished. Data is not
 * stored here, except for an incomplete control message.
 *
 * Private to the mux.
 */
#ifndef HY_WIRE_RECV_STREAMS_H
#define HY_WIRE_RECV_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "wire/idset.h"

#define HY_RECV_STREAMS_MAX 4096 /* data streams open at a time */

struct hy_frame;
struct hy_mark;

struct hy_recv_stream {
    uint32_t id;
    bool forgotten; /* kept only until the sender is notified */
    uint64_t received, consumed;
    uint64_t advertised_received, advertised_limit; /* in the last CREDIT or Hello */
    struct hy_list credit_due;              /* in the list below while a CREDIT is due */
};

struct hy_recv_streams {
    struct hy_recv_stream control;
    struct hy_buf message; /* control bytes of an incomplete message */
    struct hy_map data;    /* id to struct hy_recv_stream */
    struct hy_list credit_due; /* streams with a CREDIT to send */
    bool urgent;           /* send it now: the sender may be blocked */
    struct hy_idset used;  /* numbers that were opened or forgotten */
};

void hy_recv_streams_init(struct hy_recv_streams *in);
void hy_recv_streams_done(struct hy_recv_streams *in);

/*
 * Handles a DATA frame. *ret_bytes and *ret_n are the new bytes of a data
 * stream; those of the control stream are appended to `message`. 1 if there are
 * new bytes, 0 if not, or -Exxx; then nothing has changed.
 */
int hy_recv_streams_data(struct hy_recv_streams *in, const struct hy_frame *f, const uint8_t **ret_bytes, size_t *ret_n,
                         const char **ret_why);
/* The first complete control message: 1, 0, or -EPROTO. Remove it with hy_recv_streams_drop_message. */
int hy_recv_streams_message(const struct hy_recv_streams *in, const uint8_t **ret_bytes, size_t *ret_n,
                            const char **ret_why);
void hy_recv_streams_drop_message(struct hy_recv_streams *in, size_t n);

void hy_recv_streams_consumed(struct hy_recv_streams *in, uint32_t id, size_t n);
void hy_recv_streams_forget(struct hy_recv_streams *in, uint32_t id);

/* Appends the CREDIT frames that are due. 0 or -Exxx. */
int hy_recv_streams_emit(struct hy_recv_streams *in, struct hy_buf *out);

/* The marks of a Hello, at most HY_RECV_STREAMS_MAX + 1; only counts them when `marks` is NULL. */
size_t hy_recv_streams_marks(struct hy_recv_streams *in, struct hy_mark *marks);

#endif
