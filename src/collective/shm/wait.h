/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rank waits for others: it looks, it yields, and then it sleeps until
 * somebody rings its bell. A bell is an abstract unix datagram socket, so it
 * can be polled beside TCP sockets and nothing need be handed over; who rings
 * a stranger's bell wakes him in vain, no more.
 *
 * Every wait also watches for the end of the world: `check` is called when
 * `watch_fd` is readable and every 100 ms, and what it answers below zero is the
 * answer of all waits from then on.
 */
#ifndef HY_COLLECTIVE_WAIT_H
#define HY_COLLECTIVE_WAIT_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define HY_BELL_MAX 64
#define HY_CHECK_MS 100

struct hy_waiter {
    int bell;                                    /* our own, bound; -1: none (one rank) */
    int watch_fd;                                /* -1: none */
    int (*check)(void *arg, struct hy_err *err); /* 0 or -Exxx with a sentence; NULL: none */
    void *arg;
    unsigned awaited_local;                      /* who is waited for: local index + 1, 0: nobody of this host ... */
    unsigned awaited_peer;                       /* ... or rank + 1 of another */
    struct hy_err failed;                        /* failed.code < 0: sticky, no wait succeeds any more */
    unsigned spins, yields;                      /* before it sleeps; 0: the table's */
    int64_t checked_ms;                          /* private: when `check` was last asked */
};

/* Makes a bell with a random name, which is written to `name` (no leading NUL there). */
int hy_bell_open(char name[HY_BELL_MAX], struct hy_err *err);
/* Rings the bell of that name; a bell that rings already, or nobody there, is no error. */
void hy_bell_ring(int from, const char *name);

/*
 * Sleeps until the bell rings, one of `more` is ready, or timeout_ms have gone (-1: no end); then empties the bell.
 * 0, or waiter->failed.code. Any of them may come early: look again.
 */
int hy_waiter_sleep(struct hy_waiter *w, struct pollfd *more, nfds_t more_count, int timeout_ms);

/* The same for who polls by himself, since others may use the waiter meanwhile: what to poll, and what to do then. */
#define HY_WAITER_FDS 2
#define HY_WAITER_BELL 0 /* the first of them */
void hy_waiter_fds(const struct hy_waiter *w, struct pollfd fds[HY_WAITER_FDS]);
int hy_waiter_polled(struct hy_waiter *w, const struct pollfd fds[HY_WAITER_FDS]);

#endif
