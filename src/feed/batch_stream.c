/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/feed.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/map.h"
#include "base/mem.h"

#define SLICE_MS 100

struct hy_batch_stream {
    int64_t number;
    unsigned users; /* with the table's lock, as the table itself */
    struct hy_consumer *intake;
    struct hy_feed_queue *queue;
    struct hy_batch_stream_options options;
    atomic_bool is_over;
    pthread_mutex_t turn; /* who has it has all below */
    struct hy_signature wanted;
    struct hy_gathered begun; /* a batch that is not whole yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hy_map table;
static int64_t last_number;

/* ---- from birth to death --------------------------------------------------------------- */

static void destroy(struct hy_batch_stream *b)
{
    hy_gathered_done(&b->begun);
    hy_signature_done(&b->wanted);
    hy_consumer_unref(b->intake);
    pthread_mutex_destroy(&b->turn);
    free(b);
}

static struct hy_batch_stream *hold(int64_t number)
{
    struct hy_batch_stream *b;

    pthread_mutex_lock(&lock);
    b = hy_map_get(&table, (uint64_t)number);
    if (b)
        b->users++;
    pthread_mutex_unlock(&lock);
    return b;
}

static void release(struct hy_batch_stream *b)
{
    unsigned left;

    pthread_mutex_lock(&lock);
    left = --b->users;
    pthread_mutex_unlock(&lock);
    if (left == 0)
        destroy(b);
}

int hy_batch_stream_new(struct hy_consumer *in, const struct hy_batch_stream_options *o, struct hy_signature *wanted,
                   struct hy_batch_stream **ret)
{
    struct hy_batch_stream *b = hy_calloc(1, sizeof *b);
    struct hy_feed_queue *queue = hy_consumer_queue(in, o->queue);
    int rc;

    if (!b || !queue || o->rows == 0 || pthread_mutex_init(&b->turn, NULL) != 0) {
        free(b);
        hy_signature_done(wanted);
        return b ? -EINVAL : -ENOMEM;
    }
    b->intake = hy_consumer_ref(in);
    b->queue = queue;
    b->options = *o;
    b->options.queue = queue->name;
    b->wanted = *wanted;
    *wanted = (struct hy_signature){0};
    b->users = 1;
    pthread_mutex_lock(&lock);
    b->number = ++last_number;
    rc = hy_map_put(&table, (uint64_t)b->number, b);
    pthread_mutex_unlock(&lock);
    if (rc < 0)
        destroy(b);
    else
        *ret = b;
    return rc;
}

int64_t hy_batch_stream_handle(const struct hy_batch_stream *b)
{
    return b->number;
}

bool hy_batch_stream_is_over(const struct hy_batch_stream *b)
{
    return atomic_load(&b->is_over);
}

void hy_batch_stream_free(struct hy_batch_stream *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&lock);
    (void)hy_map_remove(&table, (uint64_t)b->number);
    pthread_mutex_unlock(&lock);
    release(b);
}

/* ---- a batch ------------------------------------------------------------------------------ */

static int64_t gather(struct hy_batch_stream *b, struct hy_err *err)
{
    return hy_gather(&b->begun, &b->queue->reading, &b->wanted, b->options.rows - b->begun.rows, err);
}

/* Takes what is in hand. HY_CONSUMER_ROWS; -EINVAL or -ENOMEM: it stays there. */
static int take(struct hy_batch_stream *b, struct hy_err *err)
{
    int64_t count = gather(b, err);

    if (count == -EBADMSG) {
        hy_consumer_discard(b->intake, b->queue, true);
        return HY_CONSUMER_ROWS;
    }
    return count < 0 ? (int)count : hy_consumer_advance(b->intake, b->queue, (uint64_t)count);
}

/* Until the batch is whole, or there is no more for it now: why, as an event of the intake's. */
static int fill(struct hy_batch_stream *b, struct hy_err *err)
{
    int rc = HY_CONSUMER_ROWS;

    b->queue->takes_pickles = false;
    while (rc == HY_CONSUMER_ROWS && b->begun.rows < b->options.rows) {
        rc = hy_consumer_next(b->intake, b->queue, b->options.stops, -1, SLICE_MS);
        if (rc == HY_CONSUMER_ROWS)
            rc = take(b, err);
        else if (rc == HY_CONSUMER_PARTITION && b->begun.rows == 0)
            rc = HY_CONSUMER_ROWS;
    }
    return rc;
}

/* What it means for who asked. */
static int event_of(struct hy_batch_stream *b, int rc)
{
    const bool has_rows = b->begun.rows > 0;

    switch (rc) {
    case HY_CONSUMER_ROWS:
    case HY_CONSUMER_PARTITION:
        return HY_BATCH_STREAM_ROWS;
    case HY_CONSUMER_TIMEOUT:
        return HY_BATCH_STREAM_TIMEOUT;
    case HY_CONSUMER_END:
        return has_rows && !b->options.drops ? HY_BATCH_STREAM_ROWS : HY_BATCH_STREAM_END;
    default:
        return rc == -EINVAL && has_rows && !b->options.drops ? HY_BATCH_STREAM_ROWS : rc;
    }
}

/* The columns alone. */
static int describe(const struct hy_batch_stream *b, const struct hy_gather_sink *how, struct hy_gathered *ret)
{
    ret->how = *how;
    return hy_gather_begin(ret, &b->wanted);
}

static int begin(struct hy_batch_stream *b, const struct hy_gather_sink *how)
{
    if (b->begun.columns)
        return 0;
    b->begun = (struct hy_gathered){.how = *how};
    return hy_gather_begin(&b->begun, &b->wanted);
}

static int next(struct hy_batch_stream *b, const struct hy_gather_sink *how, struct hy_gathered *ret, struct hy_err *err)
{
    int rc = hy_consumer_enter(b->intake, true, SLICE_MS);

    if (rc == -EBUSY)
        hy_consumer_wait_idle(b->intake, SLICE_MS);
    if (rc < 0) {
        rc = rc == -ESHUTDOWN ? HY_CONSUMER_END : HY_CONSUMER_TIMEOUT;
    } else {
        rc = begin(b, how);
        if (rc == 0)
            rc = fill(b, err);
        hy_consumer_leave(b->intake, true);
    }
    rc = event_of(b, rc);
    atomic_store(&b->is_over, rc == HY_BATCH_STREAM_END);
    if (rc == HY_BATCH_STREAM_ROWS) {
        *ret = b->begun;
        b->begun = (struct hy_gathered){0};
    } else if (rc >= 0 && describe(b, how, ret) < 0) {
        rc = -ENOMEM;
    }
    if (rc < 0 && err->code == 0)
        hy_err_sys(err, rc, "rows cannot be taken");
    return rc;
}

/* Only one at a time; the others come again. */
static int lock_turn(struct hy_batch_stream *b)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += SLICE_MS * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return -pthread_mutex_timedlock(&b->turn, &t);
}

int hy_batch_stream_next(int64_t number, const struct hy_gather_sink *how, struct hy_gathered *ret, struct hy_err *err)
{
    struct hy_batch_stream *b = hold(number);
    int rc;

    if (!b)
        return HY_BATCH_STREAM_END;
    if (lock_turn(b) == 0) {
        rc = next(b, how, ret, err);
        pthread_mutex_unlock(&b->turn);
    } else {
        rc = describe(b, how, ret);
        if (rc < 0)
            hy_err_sys(err, rc, "rows cannot be taken");
    }
    release(b);
    return rc;
}
