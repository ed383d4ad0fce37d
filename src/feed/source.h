/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source: who feeds rows into a training process of the same machine, which has
 * a hub (feed/hub.h) at a name that both know.
 *
 * What is put lies in a ring of the source's own; when that is full, it waits. It
 * never waits for a hub that is gone, and learns when the hub has had enough: that
 * is -ESHUTDOWN, and no failure. A source need not wait until it is accepted: what
 * it has put is taken then, also when the source has ended meanwhile.
 *
 * Who dies in the middle of a partition has given what was put whole, and gives it
 * once more when it is tried again: each row comes at least once.
 *
 * A source is used by one thread at a time.
 */
#ifndef HY_FEED_SOURCE_H
#define HY_FEED_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "feed/ring.h"

#define HY_FEED_NAME_MAX 100u /* with its NUL; 5 of them are the hub's own */
#define HY_QUEUE_MAX 64u      /* the same */

struct hy_batch;
struct hy_err;
struct hy_source; /* opaque */

struct hy_source_options {
    const char *queue; /* "input" */
    size_t size;       /* of the ring: a message has at most half of that */
    bool wants_results;
};

/* 0; -ESHUTDOWN when the hub has had enough, -ECONNREFUSED when nobody is at the name. */
int hy_source_open(const char *name, const struct hy_source_options *o, struct hy_source **ret, struct hy_err *err);
void hy_source_close(struct hy_source *s); /* NULL is fine */

/* ---- rows ---- */

/* Of one batch. */
size_t hy_source_most(const struct hy_source *s);
/* Sends the batch: 1; 0 when there is no room for it now; -EMSGSIZE when there never will be; -EINVAL; -ESHUTDOWN,
 * -EPIPE when the hub is gone. */
int hy_source_put(struct hy_source *s, const struct hy_batch *b);
/* May rows come as somebody else has pickled them, in batches that do not say how many they are? */
bool hy_source_takes_pickles(const struct hy_source *s);
/* A partition ends here. The same. */
int hy_source_put_end(struct hy_source *s);

/* What there may be to wait for, by bits; both is fine. */
enum hy_source_event { HY_SOURCE_ROOM = 1, HY_SOURCE_RESULTS = 2 };

/*
 * Waits for room for `need` bytes (0: for none), or for results. Which of them, as a bit; 0 when it took too long;
 * -ESHUTDOWN, -EPIPE when the hub is gone.
 */
int hy_source_wait(struct hy_source *s, size_t need, int timeout_ms);
/* Waits until all is taken. 1, 0, -ESHUTDOWN, -EPIPE. */
int hy_source_wait_until_taken(struct hy_source *s, int timeout_ms);

/* ---- results ---- */

/* The next batch of them, not parsed: 1, 0 when there is none now, -EPROTO. */
int hy_source_next(struct hy_source *s, struct hy_message *ret);
void hy_source_release(struct hy_source *s);

/* Bytes that the last batch which had no room needs. */
size_t hy_source_need(const struct hy_source *s);

#endif
