/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending ends of a session's streams. What is queued stays here until the
 * other end says that it has it: that is what a new connection starts from.
 *
 *        acked          sent           released       sealed         end
 *          |              |                |             |            |
 *     -----+--------------+----------------+-------------+------------+----->
 *      gone  on its way     may be sent     its turn is    queued in
 *                                           committing     this turn
 *
 * Private to the mux.
 */
#ifndef HY_WIRE_OUTGOING_H
#define HY_WIRE_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "wire/idset.h"

struct hy_outgoing {
    uint32_t id;
    uint32_t round;      /* the resumption that named it last */
    struct hy_buf bytes; /* from acked to end */
    uint64_t acked, sent, released, sealed;
    uint64_t highest;                   /* that was ever sent: an older connection may have got further */
    uint64_t limit;                     /* what the other end allows; end never passes it */
    bool sunk;                          /* on its way into the set below */
    struct hy_list ready, dirty, roomy; /* in the lists below, or in none */
};

struct hy_outgoings {
    struct hy_outgoing control;
    struct hy_map data;   /* id to struct hy_outgoing */
    struct hy_list ready; /* data streams with something to send, in turn */
    struct hy_list dirty; /* with something that is not released */
    struct hy_list roomy; /* with room that the owner has not been told of */
    struct hy_idset sunk; /* streams that the other end has forgotten: what is written vanishes */
    size_t unacked;       /* bytes, of all streams */
    uint32_t round;
};

void hy_outgoings_init(struct hy_outgoings *o);
void hy_outgoings_done(struct hy_outgoings *o);

/* Room for a control message of n bytes at *ret_at, to be filled at once.
 * 0, -ENOMEM, or -ENOBUFS when too much is waiting. */
int hy_outgoings_message(struct hy_outgoings *o, size_t n, uint8_t **ret_at);
size_t hy_outgoings_room(const struct hy_outgoings *o, uint32_t id);
int hy_outgoings_write(struct hy_outgoings *o, uint32_t id, const uint8_t *bytes, size_t n);
bool hy_outgoings_is_forgotten(const struct hy_outgoings *o, uint32_t id); /* by the other end */
size_t hy_outgoings_unacked(const struct hy_outgoings *o, uint32_t id);
void hy_outgoings_forget(struct hy_outgoings *o, uint32_t id);

/* What is queued by now ends here; hy_outgoings_release lets it go. */
void hy_outgoings_seal(struct hy_outgoings *o);
void hy_outgoings_release(struct hy_outgoings *o);
/* Drops what was not released. */
void hy_outgoings_discard(struct hy_outgoings *o);
bool hy_outgoings_ready(const struct hy_outgoings *o);
/* Appends one DATA frame: control first, then the data streams in turn.
 * 1, 0 when there is nothing to send, or -Exxx. */
int hy_outgoings_emit(struct hy_outgoings *o, struct hy_buf *out);

/* The other end has bytes before `offset` and allows those before `limit`. */
int hy_outgoings_credit(struct hy_outgoings *o, uint32_t id, uint64_t offset, uint64_t limit,
                        const char **ret_why);

/* A new connection: begin, then what the other end has, stream by stream, then end. */
void hy_outgoings_resume_begin(struct hy_outgoings *o);
int hy_outgoings_resume(struct hy_outgoings *o, uint32_t id, uint64_t offset, uint64_t limit,
                        const char **ret_why);
void hy_outgoings_resume_end(struct hy_outgoings *o);

/* Takes a stream that has room again: 1 and its id, or 0. */
int hy_outgoings_take_roomy(struct hy_outgoings *o, uint32_t *ret_id);

#endif
