/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two pieces of memory go round: the thread fills one, who reads empties the
 * other. Receiving and checking a piece takes about a third of the time in which
 * TensorFlow takes records out of it; with the thread they happen at once, for
 * the price of a copy. Who does nothing else but read has no use for it, and
 * gets the bytes straight from the socket.
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

#define PIECE (512u << 10)
#define PIECES 2u
#define TRIAL (4u << 20) /* so much is read before it is decided */

struct piece {
    uint8_t *bytes;
    size_t n, at; /* [at, n) is still to go */
    bool is_full;
};

struct hy_hdfs_read_ahead {
    struct hy_hdfs_block_reader *reader; /* the thread's, while there is one */
    uint64_t at;

    bool is_decided;
    uint64_t tried;
    int64_t reading_ns, between_ns, left_ns; /* left: when the last read ended */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t changed;
    struct piece pieces[PIECES];
    unsigned filling, emptying;
    bool is_to_stop, is_over;
    int64_t rc; /* how it ended */
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

static bool wait_for_room(struct hy_hdfs_read_ahead *a, struct piece *p)
{
    bool goes_on;

    pthread_mutex_lock(&a->lock);
    while (p->is_full && !a->is_to_stop)
        pthread_cond_wait(&a->changed, &a->lock);
    goes_on = !a->is_to_stop;
    pthread_mutex_unlock(&a->lock);
    return goes_on;
}

/* What came before it failed is good. */
static void hand_over(struct hy_hdfs_read_ahead *a, struct piece *p, int64_t rc, size_t n, const struct hy_err *err)
{
    pthread_mutex_lock(&a->lock);
    p->n = n;
    p->at = 0;
    p->is_full = n > 0;
    if (rc < (int64_t)PIECE) {
        a->is_over = true;
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
    int64_t rc = PIECE;

    while (rc == PIECE && wait_for_room(a, &a->pieces[a->filling])) {
        struct piece *p = &a->pieces[a->filling];
        const uint64_t before = hy_hdfs_block_reader_offset(a->reader);

        rc = hy_hdfs_block_reader_read(a->reader, p->bytes, PIECE, &err);
        hand_over(a, p, rc, (size_t)(hy_hdfs_block_reader_offset(a->reader) - before), &err);
        a->filling = (a->filling + 1) % PIECES;
    }
    return NULL;
}

/* Signals are for the program's own threads. Without memory or a thread it goes on as before. */
static void start(struct hy_hdfs_read_ahead *a)
{
    sigset_t all, old;

    hy_hdfs_block_reader_widen(a->reader);
    for (unsigned i = 0; i < PIECES; i++)
        if (!(a->pieces[i].bytes = hy_malloc(PIECE)))
            return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    a->has_thread = pthread_create(&a->thread, NULL, fill, a) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- who reads --------------------------------------------------------------------- */

/* Straight from the socket; and how the time goes. */
static int64_t read_here(struct hy_hdfs_read_ahead *a, void *into, size_t n, struct hy_err *err)
{
    const int64_t begun = hy_clock_ns();
    const int64_t rc = hy_hdfs_block_reader_read(a->reader, into, n, err);

    a->at = hy_hdfs_block_reader_offset(a->reader);
    if (a->left_ns)
        a->between_ns += begun - a->left_ns;
    a->left_ns = hy_clock_ns();
    a->reading_ns += a->left_ns - begun;
    a->tried += rc > 0 ? (uint64_t)rc : 0;
    return rc;
}

/* The next bytes of the thread's; 0 when it has no more. */
static size_t take(struct hy_hdfs_read_ahead *a, uint8_t *into, size_t n)
{
    struct piece *p = &a->pieces[a->emptying];

    pthread_mutex_lock(&a->lock);
    while (!p->is_full && !a->is_over)
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
        a->emptying = (a->emptying + 1) % PIECES;
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
    if (!a->is_decided && a->tried >= TRIAL) {
        a->is_decided = true;
        if (2 * a->between_ns > a->reading_ns)
            start(a);
    }
    return a->has_thread ? read_from_thread(a, into, n, err) : read_here(a, into, n, err);
}

void hy_hdfs_read_ahead_close(struct hy_hdfs_read_ahead *a)
{
    if (!a)
        return;
    if (a->has_thread) {
        pthread_mutex_lock(&a->lock);
        a->is_to_stop = true;
        pthread_cond_signal(&a->changed);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL); /* after its piece: at once, but for a DataNode that has fallen silent */
    }
    hy_hdfs_block_reader_close(a->reader);
    for (unsigned i = 0; i < PIECES; i++)
        free(a->pieces[i].bytes);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a);
}
