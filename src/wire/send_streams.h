/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending ends of a session's streams. Queued data is kept until the peer
 * acknowledges it, so that it can be sent again on a new connection.
 *
 *        acked          sent           released       sealed         end
 *          |              |                |             |            |
 *     -----+--------------+----------------+-------------+------------+----->
 *     freed   in flight      may be sent    its turn is    queued in
 *                                           committing     this turn
 *
 * Private to the mux.
 */
#ifndef HY_WIRE_SEND_STREAMS_H
#define HY_WIRE_SEND_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "wire/idset.h"

struct hy_send_stream {
    uint32_t id;
    uint32_t round;      /* the last resumption that listed it */
    struct hy_buf bytes; /* from acked to end */
    uint64_t acked, sent, released, sealed;
    uint64_t highest;                   /* ever sent: an older connection may have sent more */
    uint64_t limit;                     /* the peer's credit; end never exceeds it */
    bool is_forgotten;                  /* by the peer; its number goes to the set below */
    struct hy_list ready, dirty, writable; /* in the lists below, or unlinked */
};

struct hy_send_streams {
    struct hy_send_stream control;
    struct hy_map data;   /* id to struct hy_send_stream */
    struct hy_list ready; /* data streams with data to send, round robin */
    struct hy_list dirty; /* with data that is not released */
    struct hy_list writable; /* whose owner is to be notified of room */
    struct hy_idset forgotten; /* by the peer: data written to them is discarded */
    size_t unacked;       /* bytes, of all streams */
    uint32_t round;
};

void hy_send_streams_init(struct hy_send_streams *o);
void hy_send_streams_done(struct hy_send_streams *o);

/* Reserves n bytes for a control message at *ret_at, to be filled at once.
 * 0, -ENOMEM, or -ENOBUFS when the queue is full. */
int hy_send_streams_message(struct hy_send_streams *o, size_t n, uint8_t **ret_at);
size_t hy_send_streams_room(const struct hy_send_streams *o, uint32_t id);
int hy_send_streams_write(struct hy_send_streams *o, uint32_t id, const uint8_t *bytes, size_t n);
bool hy_send_streams_is_forgotten(const struct hy_send_streams *o, uint32_t id); /* by the peer */
size_t hy_send_streams_unacked(const struct hy_send_streams *o, uint32_t id);
void hy_send_streams_forget(struct hy_send_streams *o, uint32_t id);

/* Ends the turn: hy_send_streams_release allows what is queued so far to be sent. */
void hy_send_streams_seal(struct hy_send_streams *o);
void hy_send_streams_release(struct hy_send_streams *o);
/* Drops data that was not released. */
void hy_send_streams_discard(struct hy_send_streams *o);
bool hy_send_streams_ready(const struct hy_send_streams *o);
/* Appends one DATA frame: control first, then the data streams round robin.
 * 1, 0 when there is nothing to send, or -Exxx. */
int hy_send_streams_emit(struct hy_send_streams *o, struct hy_buf *out);

/* The peer has received the bytes before `offset` and allows those before `limit`. */
int hy_send_streams_credit(struct hy_send_streams *o, uint32_t id, uint64_t offset, uint64_t limit,
                           const char **ret_why);

/* A new connection: begin, then the peer's mark of each stream, then end. */
void hy_send_streams_resume_begin(struct hy_send_streams *o);
int hy_send_streams_resume(struct hy_send_streams *o, uint32_t id, uint64_t offset, uint64_t limit,
                           const char **ret_why);
void hy_send_streams_resume_end(struct hy_send_streams *o);

/* Removes the first stream of `writable`: 1 and its id, or 0. */
int hy_send_streams_take_writable(struct hy_send_streams *o, uint32_t *ret_id);

#endif
