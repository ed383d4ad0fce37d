/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hub: where rows come into a training process, from any number of feeders of
 * the same machine (feed/source.h).
 *
 * It listens at a name. Each feeder has a ring of its own, and a queue that it
 * feeds ("input"); batches are taken from those of a queue in turn. A feeder that
 * makes no sense is dropped, and sees that; others are not touched by it. So are
 * processes of other users than this one's and root.
 *
 * When a feeder dies in the middle of a partition, what it had sent whole is still
 * taken. Whoever tries its partition again sends those rows again: a row comes at
 * least once, and once when nothing dies.
 *
 * Used by one thread at a time, but for hy_hub_end and hy_hub_wake.
 */
#ifndef HY_FEED_HUB_H
#define HY_FEED_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "feed/batch.h"
#include "feed/source.h"

#define HY_HUB_FEEDERS_MAX 1024u

struct hy_hub; /* opaque */

/* 0; -EADDRINUSE when another hub has the name. */
int hy_hub_open(const char *name, struct hy_hub **ret, struct hy_err *err);
/* Feeders see that it is gone. NULL is fine. */
void hy_hub_close(struct hy_hub *h);

enum hy_hub_event {
    HY_HUB_NOTHING, /* it took too long */
    HY_HUB_MESSAGE,
    HY_HUB_OTHER, /* the caller's own descriptor is ready */
    HY_HUB_OVER,  /* all that came is taken, and no more is expected; or it has been terminated */
    HY_HUB_WOKEN, /* by hy_hub_wake */
};

/* Waits for a message of the queue, and for `other` (-1: none) to be readable. An event, or -Exxx. */
int hy_hub_wait(struct hy_hub *h, const char *queue, int other, int timeout_ms);

struct hy_taken {
    uint64_t feeder; /* its number; never used twice */
    bool wants_results, is_end; /* is_end: of its partition, and no batch */
    struct hy_batch *batch;     /* the feeder's; there until hy_hub_release */
};

/* The next message of the queue: 1, 0 when there is none now, -Exxx. Each feeder's must be released before its next. */
int hy_hub_next(struct hy_hub *h, const char *queue, struct hy_taken *ret);
void hy_hub_release(struct hy_hub *h, uint64_t feeder);
/* Tells it whether rows may come as somebody else has pickled them; at first they may not. */
void hy_hub_say_pickles(struct hy_hub *h, uint64_t feeder, bool may_come);
/* What it sent makes no sense to the caller: it is not heard any more, and sees that. */
void hy_hub_drop(struct hy_hub *h, uint64_t feeder);

/* Results for a feeder: 1; 0 when there is no room for *ret_need bytes now; -EPIPE when it is gone; -EMSGSIZE when they
 * are too large; -EINVAL. */
int hy_hub_put(struct hy_hub *h, uint64_t feeder, const struct hy_batch *results, size_t *ret_need);
/* Waits for that room. 1, 0, -EPIPE. */
int hy_hub_wait_for_room(struct hy_hub *h, uint64_t feeder, size_t need, int timeout_ms);
/* Of one batch of results; 0 when the feeder is gone. */
size_t hy_hub_most(struct hy_hub *h, uint64_t feeder);

/* No more feeders are expected, but those that have come; from any thread. */
void hy_hub_end(struct hy_hub *h);
/* Ends a wait; from any thread. */
void hy_hub_wake(struct hy_hub *h);
/*
 * It has had enough: feeders that are there are told at once, and those that come later, as long as the hub is open.
 * What they have sent is not taken.
 */
int hy_hub_terminate(struct hy_hub *h, struct hy_err *err);

/* How many made no sense. */
uint64_t hy_hub_dropped(const struct hy_hub *h);

#endif
