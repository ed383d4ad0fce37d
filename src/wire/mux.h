/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mux: many byte streams over a sequence of connections.
 *
 * A pure state machine: frames in, frames out, no sockets and no clock. Every
 * byte of a stream has an offset. The receiver acknowledges what it has received
 * (the sender then frees it) and advertises up to which offset the sender may
 * send. When a connection breaks, each side keeps its mux; on the next one both
 * send in their Hello what they have received (hy_mux_marks) and resume from
 * there (hy_mux_resume).
 *
 * Stream 0 is the control stream: messages, each a u32 length and its bytes.
 * It has priority over data. Data streams are served round robin.
 */
#ifndef HY_WIRE_MUX_H
#define HY_WIRE_MUX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

struct hy_frame;
struct hy_buf;

#define HY_CONTROL_QUEUE (16u * 1024 * 1024)  /* unacknowledged control bytes */
#define HY_CONTROL_MAX (HY_CONTROL_QUEUE - 4) /* one control message */

struct hy_mux; /* opaque */

struct hy_mux_events {
    /* A control message. 0, or -Exxx: it is kept, and delivered again after the
     * next resumption. */
    int (*on_message)(void *arg, const uint8_t *bytes, size_t n);
    void (*on_data)(void *arg, uint32_t stream, const uint8_t *bytes, size_t n);
    void (*on_room)(void *arg, uint32_t stream);
};

struct hy_mark { /* the state of a receiving end */
    uint32_t stream;
    uint64_t offset, limit;
};

/* NULL only when out of memory. */
struct hy_mux *hy_mux_new(const struct hy_mux_events *events, void *arg);
void hy_mux_free(struct hy_mux *m); /* NULL is fine; not from within an event */

/* Reserves n bytes for a control message, to be filled at once. 0, -ENOMEM or -ENOBUFS. */
int hy_mux_message(struct hy_mux *m, size_t n, uint8_t **ret_at);
size_t hy_mux_room(const struct hy_mux *m, uint32_t stream);
int hy_mux_write(struct hy_mux *m, uint32_t stream, const uint8_t *bytes, size_t n);
bool hy_mux_is_forgotten(const struct hy_mux *m, uint32_t stream); /* by the peer */
size_t hy_mux_unacked(const struct hy_mux *m, uint32_t stream);
size_t hy_mux_unacked_all(const struct hy_mux *m);
/* The number of data streams with state, in both directions. */
size_t hy_mux_streams(const struct hy_mux *m);
void hy_mux_consumed(struct hy_mux *m, uint32_t stream, size_t n);
void hy_mux_forget(struct hy_mux *m, uint32_t stream);

/* Ends the turn: hy_mux_release allows what is queued so far to be sent; later
 * data waits for the next seal and release. */
void hy_mux_seal(struct hy_mux *m);
void hy_mux_release(struct hy_mux *m);
/* Drops data that was queued and not released. */
void hy_mux_discard(struct hy_mux *m);

enum hy_mux_need {
    HY_MUX_NOTHING,
    HY_MUX_ACKS, /* only acknowledgements, which may be delayed */
    HY_MUX_SEND, /* something to send now */
};
enum hy_mux_need hy_mux_need(const struct hy_mux *m);

/*
 * Appends frames to `out` until it holds `budget` bytes (or a little more) or
 * there is nothing left. 1 when there is more, 0 when not, -ENOMEM, or
 * -ECONNRESET for an injected frame loss: then the connection must be cut.
 */
int hy_mux_output(struct hy_mux *m, struct hy_buf *out, size_t budget);

/* Handles a DATA or CREDIT frame. 0 or -Exxx with a reason: then the connection must be cut. */
int hy_mux_input(struct hy_mux *m, const struct hy_frame *f, const char **ret_why);

/* The marks for the Hello of a new connection; frames of an older one must not be
 * passed in after this. Only counts them when `marks` is NULL. */
size_t hy_mux_marks(struct hy_mux *m, struct hy_mark *marks);
/* The marks of the peer's Hello. 0 or -Exxx with a reason. */
int hy_mux_resume(struct hy_mux *m, const struct hy_mark *marks, size_t n, const char **ret_why);

#endif
