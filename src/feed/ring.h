/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring: messages from one process to another, through memory that both have.
 *
 * One writes and one reads. A message lies in one piece: who writes asks for
 * room, fills it where it is and sends it; who reads looks at it where it is and
 * lets it go. The ring itself copies nothing.
 *
 * The memory is a memfd whose size is sealed, so that no reader is hit by its
 * being cut. Beside it there is a socket between the two (unix, stream): a byte
 * on it wakes who sleeps, and its end tells that the other is gone. Neither
 * trusts the other: whatever is in the shared memory is checked before use.
 *
 * Each side is used by one thread at a time.
 */
#ifndef HY_FEED_RING_H
#define HY_FEED_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_err;
struct hy_ring;

#define HY_RING_LEAST (64u << 10)
#define HY_RING_MOST (1u << 30)

/*
 * A new ring for who writes, with room for at least `size` bytes, and the memfd
 * for who reads, which is the caller's to send and to close. `socket` is the
 * ring's from now on, at a failure, too.
 */
int hy_ring_new(size_t size, int socket, struct hy_ring **ret, int *ret_memory, struct hy_err *err);
/* The same ring for who reads; `memory` stays the caller's. -EPROTO when it is no ring. */
int hy_ring_open(int memory, int socket, struct hy_ring **ret, struct hy_err *err);
/* The other side sees the end of the socket. NULL is fine. */
void hy_ring_close(struct hy_ring *r);

/* Of one message. */
size_t hy_ring_most(const struct hy_ring *r);
/* To be polled for POLLIN, by who waits for several; then hy_ring_woken. */
int hy_ring_socket(const struct hy_ring *r);

/* ---- who writes ---- */

/* Room for n bytes, 8-byte aligned; NULL when there is none now. What was reserved and not sent is reserved anew. */
void *hy_ring_reserve(struct hy_ring *r, size_t n);
/* Sends what was reserved, or the first n bytes of it. `kind` is the caller's own. */
void hy_ring_send(struct hy_ring *r, uint32_t kind, size_t n);
/* Waits until there is room for n bytes, for at most timeout_ms (-1: no end). 1, 0 when it took too long, -EPIPE when
 * the other is gone, -EMSGSIZE when there will never be so much. */
int hy_ring_wait_for_room(struct hy_ring *r, size_t n, int timeout_ms);
/* For who polls himself: true when it may sleep, since there is no room for n bytes; then somebody will wake it. */
bool hy_ring_may_sleep_for_room(struct hy_ring *r, size_t n);
/* Waits until the other has taken all. 1, 0 or -EPIPE. */
int hy_ring_wait_until_empty(struct hy_ring *r, int timeout_ms);
/* What the other has said last; 0 before. */
uint32_t hy_ring_word(const struct hy_ring *r);

/* ---- who reads ---- */

struct hy_message {
    const void *bytes; /* 8-byte aligned; there until hy_ring_release */
    size_t n;
    uint32_t kind;
};

/* The next message: 1, 0 when there is none now, -EPROTO when the ring makes no sense. */
int hy_ring_next(struct hy_ring *r, struct hy_message *ret);
/* It is used up. */
void hy_ring_release(struct hy_ring *r);
/* A word for who writes, who looks when it wants to. What it means is for the two. */
void hy_ring_say(struct hy_ring *r, uint32_t word);
/* Waits for a message. 1, 0 when it took too long, -EPIPE when the other is gone and nothing is left, -EPROTO. */
int hy_ring_wait_for_message(struct hy_ring *r, int timeout_ms);

/* For who polls himself: true when it may sleep, since nothing is there; then somebody will wake it. */
bool hy_ring_may_sleep(struct hy_ring *r);
/* After the socket was ready: 0, or -EPIPE when the other is gone. */
int hy_ring_woken(struct hy_ring *r);

#endif
