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
    int64_t handle;
    unsigned users; /* guarded by streams_lock */
    struct hy_consumer *consumer;
    struct hy_feed_queue *queue;
    struct hy_batch_stream_options options;
    atomic_bool is_over;
    pthread_mutex_t busy; /* guards what follows */
    struct hy_signature signature;
    struct hy_gathered partial; /* a batch that is incomplete */
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hy_map streams;
static int64_t last_handle;

/* ---- life cycle ------------------------------------------------------------------------ */

static void destroy(struct hy_batch_stream *b)
{
    hy_gathered_done(&b->partial);
    hy_signature_done(&b->signature);
    hy_consumer_unref(b->consumer);
    pthread_mutex_destroy(&b->busy);
    free(b);
}

static struct hy_batch_stream *ref_stream(int64_t handle)
{
    struct hy_batch_stream *b;

    pthread_mutex_lock(&streams_lock);
    b = hy_map_get(&streams, (uint64_t)handle);
    if (b)
        b->users++;
    pthread_mutex_unlock(&streams_lock);
    return b;
}

static void unref_stream(struct hy_batch_stream *b)
{
    unsigned left;

    pthread_mutex_lock(&streams_lock);
    left = --b->users;
    pthread_mutex_unlock(&streams_lock);
    if (left == 0)
        destroy(b);
}

int hy_batch_stream_new(struct hy_consumer *c, const struct hy_batch_stream_options *o, struct hy_signature *sig,
                        struct hy_batch_stream **ret)
{
    struct hy_batch_stream *b = hy_calloc(1, sizeof *b);
    struct hy_feed_queue *queue = hy_consumer_queue(c, o->queue);
    int rc;

    if (!b || !queue || o->rows == 0 || pthread_mutex_init(&b->busy, NULL) != 0) {
        free(b);
        hy_signature_done(sig);
        return b ? -EINVAL : -ENOMEM;
    }
    b->consumer = hy_consumer_ref(c);
    b->queue = queue;
    b->options = *o;
    b->options.queue = queue->name;
    b->signature = *sig;
    *sig = (struct hy_signature){0};
    b->users = 1;
    pthread_mutex_lock(&streams_lock);
    b->handle = ++last_handle;
    rc = hy_map_put(&streams, (uint64_t)b->handle, b);
    pthread_mutex_unlock(&streams_lock);
    if (rc < 0)
        destroy(b);
    else
        *ret = b;
    return rc;
}

int64_t hy_batch_stream_handle(const struct hy_batch_stream *b)
{
    return b->handle;
}

bool hy_batch_stream_is_over(const struct hy_batch_stream *b)
{
    return atomic_load(&b->is_over);
}

void hy_batch_stream_free(struct hy_batch_stream *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&streams_lock);
    (void)hy_map_remove(&streams, (uint64_t)b->handle);
    pthread_mutex_unlock(&streams_lock);
    unref_stream(b);
}

/* ---- a batch ------------------------------------------------------------------------------ */

static int64_t gather(struct hy_batch_stream *b, struct hy_err *err)
{
    return hy_gather(&b->partial, &b->queue->cursor, &b->signature, b->options.rows - b->partial.rows, err);
}

/* Takes rows of the held batch. HY_CONSUMER_ROWS; -EINVAL or -ENOMEM: they stay in the queue. */
static int take_rows(struct hy_batch_stream *b, struct hy_err *err)
{
    int64_t count = gather(b, err);

    if (count == -EBADMSG) {
        hy_consumer_discard(b->consumer, b->queue, true);
        return HY_CONSUMER_ROWS;
    }
    return count < 0 ? (int)count : hy_consumer_advance(b->consumer, b->queue, (uint64_t)count);
}

/* Until the batch is complete or a consumer event interrupts it. Returns that event. */
static int fill_partial(struct hy_batch_stream *b, struct hy_err *err)
{
    int rc = HY_CONSUMER_ROWS;

    b->queue->accepts_pickles = false;
    while (rc == HY_CONSUMER_ROWS && b->partial.rows < b->options.rows) {
        rc = hy_consumer_next(b->consumer, b->queue, b->options.stop_at_partition, -1, SLICE_MS);
        if (rc == HY_CONSUMER_ROWS)
            rc = take_rows(b, err);
        else if (rc == HY_CONSUMER_PARTITION && b->partial.rows == 0)
            rc = HY_CONSUMER_ROWS;
    }
    return rc;
}

/* The event of the stream for an event of the consumer. */
static int event_for_caller(struct hy_batch_stream *b, int rc)
{
    const bool has_rows = b->partial.rows > 0;

    switch (rc) {
    case HY_CONSUMER_ROWS:
    case HY_CONSUMER_PARTITION:
        return HY_BATCH_STREAM_ROWS;
    case HY_CONSUMER_TIMEOUT:
        return HY_BATCH_STREAM_TIMEOUT;
    case HY_CONSUMER_END:
        return has_rows && !b->options.drop_remainder ? HY_BATCH_STREAM_ROWS : HY_BATCH_STREAM_END;
    default:
        return rc == -EINVAL && has_rows && !b->options.drop_remainder ? HY_BATCH_STREAM_ROWS : rc;
    }
}

/* Columns without values. */
static int begin_empty(const struct hy_batch_stream *b, const struct hy_gather_sink *sink, struct hy_gathered *ret)
{
    ret->sink = *sink;
    return hy_gather_begin(ret, &b->signature);
}

static int begin_partial(struct hy_batch_stream *b, const struct hy_gather_sink *sink)
{
    if (b->partial.columns)
        return 0;
    b->partial = (struct hy_gathered){.sink = *sink};
    return hy_gather_begin(&b->partial, &b->signature);
}

static int next_batch(struct hy_batch_stream *b, const struct hy_gather_sink *sink, struct hy_gathered *ret,
                      struct hy_err *err)
{
    int rc = hy_consumer_enter(b->consumer, true, SLICE_MS);

    if (rc == -EBUSY)
        hy_consumer_wait_idle(b->consumer, SLICE_MS);
    if (rc < 0) {
        rc = rc == -ESHUTDOWN ? HY_CONSUMER_END : HY_CONSUMER_TIMEOUT;
    } else {
        rc = begin_partial(b, sink);
        if (rc == 0)
            rc = fill_partial(b, err);
        hy_consumer_leave(b->consumer, true);
    }
    rc = event_for_caller(b, rc);
    atomic_store(&b->is_over, rc == HY_BATCH_STREAM_END);
    if (rc == HY_BATCH_STREAM_ROWS) {
        *ret = b->partial;
        b->partial = (struct hy_gathered){0};
    } else if (rc >= 0 && begin_empty(b, sink, ret) < 0) {
        rc = -ENOMEM;
    }
    if (rc < 0 && err->code == 0)
        hy_err_sys(err, rc, "cannot take rows");
    return rc;
}

/* One caller at a time; the others time out and call again. */
static int lock_stream(struct hy_batch_stream *b)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += SLICE_MS * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return -pthread_mutex_timedlock(&b->busy, &t);
}

int hy_batch_stream_next(int64_t handle, const struct hy_gather_sink *sink, struct hy_gathered *ret, struct hy_err *err)
{
    struct hy_batch_stream *b = ref_stream(handle);
    int rc;

    if (!b)
        return HY_BATCH_STREAM_END;
    if (lock_stream(b) == 0) {
        rc = next_batch(b, sink, ret, err);
        pthread_mutex_unlock(&b->busy);
    } else {
        rc = begin_empty(b, sink, ret);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot take rows");
    }
    unref_stream(b);
    return rc;
}
