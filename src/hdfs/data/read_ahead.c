/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double buffering: the thread fills one buffer while the caller empties the other.
 * To receive and verify a buffer takes about a third of the time in which TensorFlow
 * extracts records from it; the thread overlaps the two, at the price of a copy. A
 * caller that only reads gets no thread, and the bytes directly from the socket.
 */
#include "hdfs/data/read_ahead.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "hdfs/data/block_reader.h"

#define BUFFER_SIZE (512u << 10)
#define BUFFERS 2u
#define MEASURED (4u << 20) /* bytes read before the decision */

struct buffer {
    uint8_t *bytes;
    size_t n, at; /* [at, n) is left */
    bool is_full;
};

struct hy_hdfs_read_ahead {
    struct hy_hdfs_block_reader *reader; /* used by the thread, if there is one */
    uint64_t at;

    bool is_decided;
    uint64_t measured; /* bytes */
    int64_t reading_ns, between_ns, last_end_ns; /* last_end: of the last read */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    struct buffer buffers[BUFFERS];
    unsigned filling, emptying;
    bool is_stopping, is_finished;
    int64_t rc; /* final result */
    struct hy_err err;
};

struct hy_hdfs_read_ahead *hy_hdfs_read_ahead_new(struct hy_hdfs_block_reader *r)
{
    struct hy_hdfs_read_ahead *a = hy_calloc(1, sizeof(*a));

    if (!a) {
        hy_hdfs_block_reader_close(r);
        return NULL;
    }
    a->reader = r;
    a->at = hy_hdfs_block_reader_offset(r);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    return a;
}

uint64_t hy_hdfs_read_ahead_offset(const struct hy_hdfs_read_ahead *a)
{
    return a->at;
}

/* ---- the thread -------------------------------------------------------------------- */

static bool wait_for_buffer(struct hy_hdfs_read_ahead *a, struct buffer *p)
{
    bool continues;

    pthread_mutex_lock(&a->lock);
    while (p->is_full && !a->is_stopping)
        pthread_cond_wait(&a->changed, &a->lock);
    continues = !a->is_stopping;
    pthread_mutex_unlock(&a->lock);
    return continues;
}

/* Bytes before a failure are good. */
static void publish(struct hy_hdfs_read_ahead *a, struct buffer *p, int64_t rc, size_t n, const struct hy_err *err)
{
    pthread_mutex_lock(&a->lock);
    p->n = n;
    p->at = 0;
    p->is_full = n > 0;
    if (rc < (int64_t)BUFFER_SIZE) {
        a->is_finished = true;
        a->rc = rc < 0 ? rc : 0;
        a->err = *err;
    }
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void *fill(void *arg)
{
    struct hy_hdfs_read_ahead *a = arg;
    struct hy_err err = {0};
    int64_t rc = BUFFER_SIZE;

    while (rc == BUFFER_SIZE && wait_for_buffer(a, &a->buffers[a->filling])) {
        struct buffer *p = &a->buffers[a->filling];
        const uint64_t before = hy_hdfs_block_reader_offset(a->reader);

        rc = hy_hdfs_block_reader_read(a->reader, p->bytes, BUFFER_SIZE, &err);
        publish(a, p, rc, (size_t)(hy_hdfs_block_reader_offset(a->reader) - before), &err);
        a->filling = (a->filling + 1) % BUFFERS;
    }
    return NULL;
}

/* Blocks signals: they are for the threads of the program. Without memory or a thread it continues as before. */
static void start(struct hy_hdfs_read_ahead *a)
{
    sigset_t all, old;

    hy_hdfs_block_reader_widen(a->reader);
    for (unsigned i = 0; i < BUFFERS; i++)
        if (!(a->buffers[i].bytes = hy_malloc(BUFFER_SIZE)))
            return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    a->has_thread = pthread_create(&a->thread, NULL, fill, a) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- the caller --------------------------------------------------------------------- */

/* Directly from the socket, with measurements. */
static int64_t read_directly(struct hy_hdfs_read_ahead *a, void *into, size_t n, struct hy_err *err)
{
    const int64_t start_ns = hy_clock_ns();
    const int64_t rc = hy_hdfs_block_reader_read(a->reader, into, n, err);

    a->at = hy_hdfs_block_reader_offset(a->reader);
    if (a->last_end_ns)
        a->between_ns += start_ns - a->last_end_ns;
    a->last_end_ns = hy_clock_ns();
    a->reading_ns += a->last_end_ns - start_ns;
    a->measured += rc > 0 ? (uint64_t)rc : 0;
    return rc;
}

/* The next bytes from the thread; 0 when there are no more. */
static size_t take(struct hy_hdfs_read_ahead *a, uint8_t *into, size_t n)
{
    struct buffer *p = &a->buffers[a->emptying];

    pthread_mutex_lock(&a->lock);
    while (!p->is_full && !a->is_finished)
        pthread_cond_wait(&a->changed, &a->lock);
    if (!p->is_full)
        n = 0;
    pthread_mutex_unlock(&a->lock);
    if (n == 0)
        return 0;
    if (n > p->n - p->at)
        n = p->n - p->at;
    memcpy(into, p->bytes + p->at, n);
    p->at += n;
    if (p->at == p->n) {
        pthread_mutex_lock(&a->lock);
        p->is_full = false;
        pthread_cond_signal(&a->changed);
        pthread_mutex_unlock(&a->lock);
        a->emptying = (a->emptying + 1) % BUFFERS;
    }
    return n;
}

static int64_t read_from_thread(struct hy_hdfs_read_ahead *a, uint8_t *into, size_t n, struct hy_err *err)
{
    size_t done = 0, some;

    while (done < n && (some = take(a, into + done, n - done)) > 0) {
        done += some;
        a->at += some;
    }
    if (done == n || a->rc == 0)
        return (int64_t)done;
    if (err)
        *err = a->err;
    return a->rc;
}

int64_t hy_hdfs_read_ahead_read(struct hy_hdfs_read_ahead *a, void *into, size_t n, struct hy_err *err)
{
    if (!a->is_decided && a->measured >= MEASURED) {
        a->is_decided = true;
        if (2 * a->between_ns > a->reading_ns)
            start(a);
    }
    return a->has_thread ? read_from_thread(a, into, n, err) : read_directly(a, into, n, err);
}

void hy_hdfs_read_ahead_close(struct hy_hdfs_read_ahead *a)
{
    if (!a)
        return;
    if (a->has_thread) {
        pthread_mutex_lock(&a->lock);
        a->is_stopping = true;
        pthread_cond_signal(&a->changed);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL); /* after the current buffer; waits only for a DataNode that sends nothing */
    }
    hy_hdfs_block_reader_close(a->reader);
    for (unsigned i = 0; i < BUFFERS; i++)
        free(a->buffers[i].bytes);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a);
}
