/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- from birth to death -------------------------------------------------------------- */

static int begin(struct hy_consumer *in)
{
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);

    if (rc)
        return -rc;
    rc = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (rc == 0)
        rc = pthread_cond_init(&in->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (rc)
        return -rc;
    rc = pthread_mutex_init(&in->lock, NULL);
    if (rc)
        pthread_cond_destroy(&in->changed);
    return -rc;
}

struct hy_consumer *hy_consumer_new(struct hy_feed_hub *hub)
{
    struct hy_consumer *in = hy_calloc(1, sizeof *in);

    if (!in || begin(in) < 0) {
        free(in);
        hy_feed_hub_close(hub);
        return NULL;
    }
    in->hub = hub;
    in->users = 1;
    return in;
}

struct hy_consumer *hy_consumer_ref(struct hy_consumer *in)
{
    pthread_mutex_lock(&in->lock);
    in->users++;
    pthread_mutex_unlock(&in->lock);
    return in;
}

void hy_consumer_unref(struct hy_consumer *in)
{
    unsigned left;

    if (!in)
        return;
    pthread_mutex_lock(&in->lock);
    left = --in->users;
    pthread_mutex_unlock(&in->lock);
    if (left)
        return;
    hy_consumer_close(in);
    free(in->owed);
    pthread_cond_destroy(&in->changed);
    pthread_mutex_destroy(&in->lock);
    free(in);
}

/* ---- who is in ------------------------------------------------------------------------- */

/* Until it is not set; false when it took too long. With the lock. */
static bool wait_until_not(struct hy_consumer *in, const bool *flag, int timeout_ms)
{
    const int64_t end = hy_clock_ms() + timeout_ms;
    const struct timespec t = {.tv_sec = end / 1000, .tv_nsec = end % 1000 * 1000000};

    while (*flag)
        if (pthread_cond_timedwait(&in->changed, &in->lock, &t) == ETIMEDOUT)
            return !*flag;
    return true;
}

void hy_consumer_wait_idle(struct hy_consumer *in, int timeout_ms)
{
    pthread_mutex_lock(&in->lock);
    (void)wait_until_not(in, &in->is_taken, timeout_ms); /* who comes in sees it */
    pthread_mutex_unlock(&in->lock);
}

int hy_consumer_enter(struct hy_consumer *in, bool takes, int timeout_ms)
{
    int rc = 0;

    pthread_mutex_lock(&in->lock);
    if (!in->hub)
        rc = -ESHUTDOWN;
    else if (takes && in->is_taken)
        rc = -EBUSY;
    if (rc == 0) {
        in->is_taken |= takes;
        in->waiting++;
        if (in->is_in)
            hy_feed_hub_wake(in->hub);
        if (!wait_until_not(in, &in->is_in, timeout_ms))
            rc = -EAGAIN;
        else if (!in->hub) /* closed meanwhile */
            rc = -ESHUTDOWN;
        in->waiting--;
        in->is_in |= rc == 0;
        if (rc < 0 && takes)
            in->is_taken = false;
        pthread_cond_broadcast(&in->changed);
    }
    pthread_mutex_unlock(&in->lock);
    return rc;
}

void hy_consumer_leave(struct hy_consumer *in, bool takes)
{
    pthread_mutex_lock(&in->lock);
    in->is_in = false;
    if (takes)
        in->is_taken = false;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
}

/* Who takes rows lets those in who wait. */
static void let_others_in(struct hy_consumer *in)
{
    pthread_mutex_lock(&in->lock);
    if (in->waiting) {
        in->is_in = false;
        pthread_cond_broadcast(&in->changed);
        while (in->waiting || in->is_in)
            pthread_cond_wait(&in->changed, &in->lock);
        in->is_in = true;
    }
    pthread_mutex_unlock(&in->lock);
}

/* ---- messages ---------------------------------------------------------------------------- */

static struct hy_feed_queue *find_queue(struct hy_consumer *in, const char *name)
{
    for (int i = 0; i < HY_CONSUMER_QUEUES && strlen(name) < HY_FEED_QUEUE_MAX; i++) {
        struct hy_feed_queue *q = &in->queues[i];

        if (!q->name[0])
            memcpy(q->name, name, strlen(name) + 1);
        if (strcmp(q->name, name) == 0)
            return q;
    }
    return NULL;
}

struct hy_feed_queue *hy_consumer_queue(struct hy_consumer *in, const char *name)
{
    struct hy_feed_queue *q;

    pthread_mutex_lock(&in->lock);
    q = find_queue(in, name);
    pthread_mutex_unlock(&in->lock);
    return q;
}

static void put_down(struct hy_consumer *in, struct hy_feed_queue *q)
{
    hy_batch_cursor_end(&q->reading);
    if (q->is_in_hand)
        hy_feed_hub_release(in->hub, q->taken.feeder);
    q->is_in_hand = false;
}

void hy_consumer_discard(struct hy_consumer *in, struct hy_feed_queue *q, bool is_nonsense)
{
    hy_batch_cursor_end(&q->reading);
    if (is_nonsense && q->is_in_hand) {
        hy_feed_hub_drop(in->hub, q->taken.feeder);
        q->is_in_hand = false;
    }
    put_down(in, q);
}

/* The batch that has come is in hand, if it has rows and makes sense. 0 or -ENOMEM. */
static int take_up(struct hy_consumer *in, struct hy_feed_queue *q)
{
    int rc;

    q->is_in_hand = true;
    hy_feed_hub_accept_pickles(in->hub, q->taken.feeder, q->takes_pickles);
    q->reading.number = ++in->messages;
    rc = hy_batch_cursor_begin(&q->reading, q->taken.batch);
    if (rc < 0)
        hy_consumer_discard(in, q, rc == -EBADMSG);
    else if (hy_batch_cursor_is_done(&q->reading))
        put_down(in, q);
    return rc == -ENOMEM ? rc : 0;
}

/* What is in hand was pickled for who took rows, and now somebody takes columns. 0 or -Exxx. */
static int turn_back(struct hy_consumer *in, struct hy_feed_queue *q)
{
    const struct hy_batch_column *c;
    int rc;

    if (q->takes_pickles || q->taken.batch->rows || !hy_batch_cursor_is_pickled(&q->reading) || !in->again)
        return 0;
    c = &q->taken.batch->columns[0];
    rc = in->again(in->requeue_context, q->name, c->values, c->values_n, q->reading.next);
    hy_consumer_discard(in, q, rc == -EBADMSG);
    return rc == -EBADMSG ? 0 : rc;
}

/* The next one that is there: NOTHING when there is none, PARTITION for its end, or ROWS. */
static int look(struct hy_consumer *in, struct hy_feed_queue *q)
{
    int rc = q->is_in_hand ? turn_back(in, q) : 0;

    while (rc == 0 && !q->is_in_hand) {
        rc = hy_feed_hub_next(in->hub, q->name, &q->taken);
        if (rc <= 0)
            return rc < 0 ? rc : HY_CONSUMER_TIMEOUT;
        if (q->taken.is_end) {
            hy_feed_hub_release(in->hub, q->taken.feeder);
            return HY_CONSUMER_PARTITION;
        }
        rc = take_up(in, q);
        if (rc == 0 && q->is_in_hand)
            rc = turn_back(in, q);
    }
    return rc < 0 ? rc : HY_CONSUMER_ROWS;
}

/* Whether it is over for who takes rows: no hub, no rows any more. */
static bool is_over(const struct hy_consumer *in)
{
    return !in->hub || in->is_terminated || atomic_load(&in->is_interrupted);
}

static int wait_once(struct hy_consumer *in, struct hy_feed_queue *q, int other, int64_t end)
{
    const int64_t left = end - hy_clock_ms();
    int rc = hy_feed_hub_wait(in->hub, q->name, other, left > 0 ? (int)left : 0);

    if (rc < 0)
        return rc;
    return rc == HY_FEED_HUB_OVER ? HY_CONSUMER_END : rc == HY_FEED_HUB_OTHER ? HY_CONSUMER_OTHER : HY_CONSUMER_TIMEOUT;
}

int hy_consumer_next(struct hy_consumer *in, struct hy_feed_queue *q, bool stops, int other, int timeout_ms)
{
    const int64_t end = hy_clock_ms() + timeout_ms;
    bool is_late = false;
    int rc;

    for (;;) {
        let_others_in(in);
        if (is_over(in))
            rc = HY_CONSUMER_END;
        else if ((rc = look(in, q)) == HY_CONSUMER_PARTITION && !stops)
            continue;
        if (rc == HY_CONSUMER_TIMEOUT && !is_late) {
            is_late = hy_clock_ms() >= end; /* and then looks once more */
            rc = wait_once(in, q, other, end);
            if (rc == HY_CONSUMER_TIMEOUT)
                continue;
        }
        return rc;
    }
}

/* ---- what is owed ------------------------------------------------------------------------ */

static int add_owed(struct hy_consumer *in, uint64_t feeder, uint64_t rows)
{
    if (in->outstanding_first == in->outstanding_count)
        in->outstanding_first = in->outstanding_count = 0;
    if (in->outstanding_count > in->outstanding_first && in->owed[in->outstanding_count - 1].feeder == feeder) {
        in->owed[in->outstanding_count - 1].rows += rows;
        return 0;
    }
    if (in->outstanding_first > in->outstanding_room / 2) {
        memmove(in->owed, in->owed + in->outstanding_first, (in->outstanding_count - in->outstanding_first) * sizeof *in->owed);
        in->outstanding_count -= in->outstanding_first;
        in->outstanding_first = 0;
    }
    if (in->outstanding_count == in->outstanding_room) {
        struct hy_outstanding *owed = hy_reallocarray(in->owed, 2 * in->outstanding_room + 16, sizeof *owed);

        if (!owed)
            return -ENOMEM;
        in->owed = owed;
        in->outstanding_room = 2 * in->outstanding_room + 16;
    }
    in->owed[in->outstanding_count++] = (struct hy_outstanding){feeder, rows};
    return 0;
}

int hy_consumer_advance(struct hy_consumer *in, struct hy_feed_queue *q, uint64_t rows)
{
    int rc = q->taken.wants_results && rows ? add_owed(in, q->taken.feeder, rows) : 0;

    if (hy_batch_cursor_is_done(&q->reading))
        put_down(in, q);
    return rc;
}

/* ---- its end ------------------------------------------------------------------------------ */

void hy_consumer_end(struct hy_consumer *in)
{
    pthread_mutex_lock(&in->lock);
    if (in->hub)
        hy_feed_hub_end(in->hub);
    pthread_mutex_unlock(&in->lock);
}

void hy_consumer_interrupt(struct hy_consumer *in)
{
    pthread_mutex_lock(&in->lock);
    atomic_store(&in->is_interrupted, true);
    if (in->hub)
        hy_feed_hub_wake(in->hub);
    pthread_mutex_unlock(&in->lock);
}

int hy_consumer_terminate(struct hy_consumer *in, struct hy_err *err)
{
    int rc;

    for (int i = 0; i < HY_CONSUMER_QUEUES; i++)
        put_down(in, &in->queues[i]);
    in->outstanding_first = in->outstanding_count = 0;
    rc = hy_feed_hub_terminate(in->hub, err);
    in->is_terminated = rc == 0;
    atomic_store(&in->is_interrupted, false);
    return rc;
}

void hy_consumer_close(struct hy_consumer *in)
{
    struct hy_feed_hub *hub;

    for (int i = 0; i < HY_CONSUMER_QUEUES; i++) {
        hy_batch_cursor_end(&in->queues[i].reading);
        in->queues[i].is_in_hand = false;
    }
    pthread_mutex_lock(&in->lock);
    hub = hy_take(in->hub); /* who wakes it has the lock */
    atomic_store(&in->is_interrupted, false);
    pthread_mutex_unlock(&in->lock);
    hy_feed_hub_close(hub);
}
