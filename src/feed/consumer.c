/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- life cycle ----------------------------------------------------------------------- */

static int init_locks(struct hy_consumer *c)
{
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);

    if (rc)
        return -rc;
    rc = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (rc == 0)
        rc = pthread_cond_init(&c->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (rc)
        return -rc;
    rc = pthread_mutex_init(&c->lock, NULL);
    if (rc)
        pthread_cond_destroy(&c->changed);
    return -rc;
}

struct hy_consumer *hy_consumer_new(struct hy_feed_hub *hub)
{
    struct hy_consumer *c = hy_calloc(1, sizeof *c);

    if (!c || init_locks(c) < 0) {
        free(c);
        hy_feed_hub_close(hub);
        return NULL;
    }
    c->hub = hub;
    c->users = 1;
    return c;
}

struct hy_consumer *hy_consumer_ref(struct hy_consumer *c)
{
    pthread_mutex_lock(&c->lock);
    c->users++;
    pthread_mutex_unlock(&c->lock);
    return c;
}

void hy_consumer_unref(struct hy_consumer *c)
{
    unsigned left;

    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    left = --c->users;
    pthread_mutex_unlock(&c->lock);
    if (left)
        return;
    hy_consumer_close(c);
    free(c->outstanding);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- entering and leaving -------------------------------------------------------------- */

/* Waits until the flag is clear; false on timeout. Called with the lock held. */
static bool wait_until_clear(struct hy_consumer *c, const bool *flag, int timeout_ms)
{
    const int64_t end = hy_clock_ms() + timeout_ms;
    const struct timespec t = {.tv_sec = end / 1000, .tv_nsec = end % 1000 * 1000000};

    while (*flag)
        if (pthread_cond_timedwait(&c->changed, &c->lock, &t) == ETIMEDOUT)
            return !*flag;
    return true;
}

void hy_consumer_wait_idle(struct hy_consumer *c, int timeout_ms)
{
    pthread_mutex_lock(&c->lock);
    (void)wait_until_clear(c, &c->has_taker, timeout_ms); /* hy_consumer_enter checks it again */
    pthread_mutex_unlock(&c->lock);
}

int hy_consumer_enter(struct hy_consumer *c, bool takes_rows, int timeout_ms)
{
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    if (!c->hub)
        rc = -ESHUTDOWN;
    else if (takes_rows && c->has_taker)
        rc = -EBUSY;
    if (rc == 0) {
        c->has_taker |= takes_rows;
        c->waiting++;
        if (c->is_entered)
            hy_feed_hub_wake(c->hub);
        if (!wait_until_clear(c, &c->is_entered, timeout_ms))
            rc = -EAGAIN;
        else if (!c->hub) /* closed meanwhile */
            rc = -ESHUTDOWN;
        c->waiting--;
        c->is_entered |= rc == 0;
        if (rc < 0 && takes_rows)
            c->has_taker = false;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void hy_consumer_leave(struct hy_consumer *c, bool takes_rows)
{
    pthread_mutex_lock(&c->lock);
    c->is_entered = false;
    if (takes_rows)
        c->has_taker = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* The thread that takes rows yields to all threads that wait to enter. */
static void yield_to_waiting(struct hy_consumer *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->waiting) {
        c->is_entered = false;
        pthread_cond_broadcast(&c->changed);
        while (c->waiting || c->is_entered)
            pthread_cond_wait(&c->changed, &c->lock);
        c->is_entered = true;
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- messages ---------------------------------------------------------------------------- */

static struct hy_feed_queue *find_or_add_queue(struct hy_consumer *c, const char *name)
{
    for (int i = 0; i < HY_CONSUMER_QUEUES && strlen(name) < HY_FEED_QUEUE_MAX; i++) {
        struct hy_feed_queue *q = &c->queues[i];

        if (!q->name[0])
            memcpy(q->name, name, strlen(name) + 1);
        if (strcmp(q->name, name) == 0)
            return q;
    }
    return NULL;
}

struct hy_feed_queue *hy_consumer_queue(struct hy_consumer *c, const char *name)
{
    struct hy_feed_queue *q;

    pthread_mutex_lock(&c->lock);
    q = find_or_add_queue(c, name);
    pthread_mutex_unlock(&c->lock);
    return q;
}

static void release_batch(struct hy_consumer *c, struct hy_feed_queue *q)
{
    hy_batch_cursor_end(&q->cursor);
    if (q->has_batch)
        hy_feed_hub_release(c->hub, q->message.feeder);
    q->has_batch = false;
}

void hy_consumer_discard(struct hy_consumer *c, struct hy_feed_queue *q, bool is_invalid)
{
    hy_batch_cursor_end(&q->cursor);
    if (is_invalid && q->has_batch) {
        hy_feed_hub_drop(c->hub, q->message.feeder);
        q->has_batch = false;
    }
    release_batch(c, q);
}

/* Holds the batch that has arrived unless it is empty or invalid. 0 or -ENOMEM. */
static int hold_batch(struct hy_consumer *c, struct hy_feed_queue *q)
{
    int rc;

    q->has_batch = true;
    hy_feed_hub_accept_pickles(c->hub, q->message.feeder, q->accepts_pickles);
    q->cursor.number = ++c->messages;
    rc = hy_batch_cursor_begin(&q->cursor, q->message.batch);
    if (rc < 0)
        hy_consumer_discard(c, q, rc == -EBADMSG);
    else if (hy_batch_cursor_is_done(&q->cursor))
        release_batch(c, q);
    return rc == -ENOMEM ? rc : 0;
}

/* A batch that was pickled for a caller that took rows is fed again when the caller takes columns. 0 or -Exxx. */
static int requeue_pickle(struct hy_consumer *c, struct hy_feed_queue *q)
{
    const struct hy_batch_column *pickle;
    int rc;

    if (q->accepts_pickles || q->message.batch->rows || !hy_batch_cursor_is_pickled(&q->cursor) || !c->requeue)
        return 0;
    pickle = &q->message.batch->columns[0];
    rc = c->requeue(c->requeue_context, q->name, pickle->values, pickle->values_n, q->cursor.next);
    hy_consumer_discard(c, q, rc == -EBADMSG);
    return rc == -EBADMSG ? 0 : rc;
}

/* Without waiting: ROWS, PARTITION, or TIMEOUT when there is no message yet. */
static int find_batch(struct hy_consumer *c, struct hy_feed_queue *q)
{
    int rc = q->has_batch ? requeue_pickle(c, q) : 0;

    while (rc == 0 && !q->has_batch) {
        rc = hy_feed_hub_next(c->hub, q->name, &q->message);
        if (rc <= 0)
            return rc < 0 ? rc : HY_CONSUMER_TIMEOUT;
        if (q->message.is_end) {
            hy_feed_hub_release(c->hub, q->message.feeder);
            return HY_CONSUMER_PARTITION;
        }
        rc = hold_batch(c, q);
        if (rc == 0 && q->has_batch)
            rc = requeue_pickle(c, q);
    }
    return rc < 0 ? rc : HY_CONSUMER_ROWS;
}

/* Whether the thread that takes rows has to return. */
static bool is_over(const struct hy_consumer *c)
{
    return !c->hub || c->is_terminated || atomic_load(&c->is_interrupted);
}

static int wait_once(struct hy_consumer *c, struct hy_feed_queue *q, int other, int64_t end)
{
    const int64_t left = end - hy_clock_ms();
    int rc = hy_feed_hub_wait(c->hub, q->name, other, left > 0 ? (int)left : 0);

    if (rc < 0)
        return rc;
    return rc == HY_FEED_HUB_OVER ? HY_CONSUMER_END : rc == HY_FEED_HUB_OTHER ? HY_CONSUMER_OTHER : HY_CONSUMER_TIMEOUT;
}

int hy_consumer_next(struct hy_consumer *c, struct hy_feed_queue *q, bool stop_at_partition, int other, int timeout_ms)
{
    const int64_t end = hy_clock_ms() + timeout_ms;
    bool is_expired = false;
    int rc;

    for (;;) {
        yield_to_waiting(c);
        if (is_over(c))
            rc = HY_CONSUMER_END;
        else if ((rc = find_batch(c, q)) == HY_CONSUMER_PARTITION && !stop_at_partition)
            continue;
        if (rc == HY_CONSUMER_TIMEOUT && !is_expired) {
            is_expired = hy_clock_ms() >= end; /* one more attempt after the deadline */
            rc = wait_once(c, q, other, end);
            if (rc == HY_CONSUMER_TIMEOUT)
                continue;
        }
        return rc;
    }
}

/* ---- outstanding results ----------------------------------------------------------------- */

static int add_outstanding(struct hy_consumer *c, uint64_t feeder, uint64_t rows)
{
    if (c->outstanding_first == c->outstanding_count)
        c->outstanding_first = c->outstanding_count = 0;
    if (c->outstanding_count > c->outstanding_first && c->outstanding[c->outstanding_count - 1].feeder == feeder) {
        c->outstanding[c->outstanding_count - 1].rows += rows;
        return 0;
    }
    if (c->outstanding_first > c->outstanding_room / 2) {
        memmove(c->outstanding, c->outstanding + c->outstanding_first,
                (c->outstanding_count - c->outstanding_first) * sizeof *c->outstanding);
        c->outstanding_count -= c->outstanding_first;
        c->outstanding_first = 0;
    }
    if (c->outstanding_count == c->outstanding_room) {
        struct hy_outstanding *grown = hy_reallocarray(c->outstanding, 2 * c->outstanding_room + 16, sizeof *grown);

        if (!grown)
            return -ENOMEM;
        c->outstanding = grown;
        c->outstanding_room = 2 * c->outstanding_room + 16;
    }
    c->outstanding[c->outstanding_count++] = (struct hy_outstanding){feeder, rows};
    return 0;
}

int hy_consumer_advance(struct hy_consumer *c, struct hy_feed_queue *q, uint64_t rows)
{
    int rc = q->message.needs_results && rows ? add_outstanding(c, q->message.feeder, rows) : 0;

    if (hy_batch_cursor_is_done(&q->cursor))
        release_batch(c, q);
    return rc;
}

/* ---- end ---------------------------------------------------------------------------------- */

void hy_consumer_end(struct hy_consumer *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->hub)
        hy_feed_hub_end(c->hub);
    pthread_mutex_unlock(&c->lock);
}

void hy_consumer_interrupt(struct hy_consumer *c)
{
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->is_interrupted, true);
    if (c->hub)
        hy_feed_hub_wake(c->hub);
    pthread_mutex_unlock(&c->lock);
}

int hy_consumer_terminate(struct hy_consumer *c, struct hy_err *err)
{
    int rc;

    for (int i = 0; i < HY_CONSUMER_QUEUES; i++)
        release_batch(c, &c->queues[i]);
    c->outstanding_first = c->outstanding_count = 0;
    rc = hy_feed_hub_terminate(c->hub, err);
    c->is_terminated = rc == 0;
    atomic_store(&c->is_interrupted, false);
    return rc;
}

void hy_consumer_close(struct hy_consumer *c)
{
    struct hy_feed_hub *hub;

    for (int i = 0; i < HY_CONSUMER_QUEUES; i++) {
        hy_batch_cursor_end(&c->queues[i].cursor);
        c->queues[i].has_batch = false;
    }
    pthread_mutex_lock(&c->lock);
    hub = hy_take(c->hub); /* threads that wake the hub hold the lock */
    atomic_store(&c->is_interrupted, false);
    pthread_mutex_unlock(&c->lock);
    hy_feed_hub_close(hub);
}
