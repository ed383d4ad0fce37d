/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rank waits for others: it spins, yields, and then sleeps until its bell rings. A bell (doorbell) is an abstract
 * unix datagram socket: it can be polled together with TCP sockets, and no descriptor has to be passed. A ring by an
 * unrelated process causes a spurious wakeup, nothing else.
 *
 * Every wait also detects the failure of the group: `check` is called when `watch_fd` is readable and every 100 ms.
 * Once it has returned an error, all waits return that error.
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
    int bell;                                    /* of this rank, bound; -1: none (a single rank) */
    int watch_fd;                                /* -1: none */
    int (*check)(void *arg, struct hy_err *err); /* 0 or -Exxx with a message; NULL: none */
    void *arg;
    unsigned awaited_local;                      /* the awaited rank: local index + 1; 0: none on this host ... */
    unsigned awaited_peer;                       /* ... or rank + 1 on another host */
    struct hy_err failed;                        /* failed.code < 0: sticky, all waits fail */
    unsigned spins, yields;                      /* before it sleeps; 0: from the table (choice.h) */
    int64_t checked_ms;                          /* private: when `check` was last called */
};

/* Creates a bell with a random name, which is written to `name` (without the leading NUL). */
int hy_bell_open(char name[HY_BELL_MAX], struct hy_err *err);
/* Rings the bell of that name. A bell that is ringing already, or does not exist, is not an error. */
void hy_bell_ring(int from, const char *name);

/*
 * Sleeps until the bell rings, one of `more` is ready, or after timeout_ms (-1: no timeout); then drains the bell.
 * 0, or waiter->failed.code. May return early: check the condition again.
 */
int hy_waiter_sleep(struct hy_waiter *w, struct pollfd *more, nfds_t more_count, int timeout_ms);

/* The same in two parts, for a caller that polls by itself while other threads use the waiter: the descriptors to
 * poll, and what follows from their events. */
#define HY_WAITER_FDS 2
#define HY_WAITER_BELL 0 /* the first of them */
void hy_waiter_fds(const struct hy_waiter *w, struct pollfd fds[HY_WAITER_FDS]);
int hy_waiter_polled(struct hy_waiter *w, const struct pollfd fds[HY_WAITER_FDS]);

#endif
