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

struct hy_batches {
    int64_t number;
    unsigned users; /* with the table's lock, as the table itself */
    struct hy_intake *intake;
    struct hy_feed_queue *queue;
    struct hy_batches_options options;
    atomic_bool is_over;
    pthread_mutex_t turn; /* who has it has all below */
    struct hy_wanted wanted;
    struct hy_gathered begun; /* a batch that is not whole yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hy_map table;
static int64_t last_number;

/* ---- from birth to death --------------------------------------------------------------- */

static void destroy(struct hy_batches *b)
{
    hy_gathered_done(&b->begun);
    hy_wanted_done(&b->wanted);
    hy_intake_unref(b->intake);
    pthread_mutex_destroy(&b->turn);
    free(b);
}

static struct hy_batches *hold(int64_t number)
{
    struct hy_batches *b;

    pthread_mutex_lock(&lock);
    b = hy_map_get(&table, (uint64_t)number);
    if (b)
        b->users++;
    pthread_mutex_unlock(&lock);
    return b;
}

static void release(struct hy_batches *b)
{
    unsigned left;

    pthread_mutex_lock(&lock);
    left = --b->users;
    pthread_mutex_unlock(&lock);
    if (left == 0)
        destroy(b);
}

int hy_batches_new(struct hy_intake *in, const struct hy_batches_options *o, struct hy_wanted *wanted,
                   struct hy_batches **ret)
{
    struct hy_batches *b = hy_calloc(1, sizeof *b);
    struct hy_feed_queue *queue = hy_intake_queue(in, o->queue);
    int rc;

    if (!b || !queue || o->rows == 0 || pthread_mutex_init(&b->turn, NULL) != 0) {
        free(b);
        hy_wanted_done(wanted);
        return b ? -EINVAL : -ENOMEM;
    }
    b->intake = hy_intake_ref(in);
    b->queue = queue;
    b->options = *o;
    b->options.queue = queue->name;
    b->wanted = *wanted;
    *wanted = (struct hy_wanted){0};
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

int64_t hy_batches_number(const struct hy_batches *b)
{
    return b->number;
}

bool hy_batches_is_over(const struct hy_batches *b)
{
    return atomic_load(&b->is_over);
}

void hy_batches_free(struct hy_batches *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&lock);
    (void)hy_map_remove(&table, (uint64_t)b->number);
    pthread_mutex_unlock(&lock);
    release(b);
}

/* ---- a batch ------------------------------------------------------------------------------ */

static int64_t gather(struct hy_batches *b, struct hy_err *err)
{
    return hy_gather(&b->begun, &b->queue->reading, &b->wanted, b->options.rows - b->begun.rows, err);
}

/* Takes what is in hand. HY_INTAKE_ROWS; -EINVAL or -ENOMEM: it stays there. */
static int take(struct hy_batches *b, struct hy_err *err)
{
    int64_t count = gather(b, err);

    if (count == -EBADMSG) {
        hy_intake_give_up(b->intake, b->queue, true);
        return HY_INTAKE_ROWS;
    }
    return count < 0 ? (int)count : hy_intake_took(b->intake, b->queue, (uint64_t)count);
}

/* Until the batch is whole, or there is no more for it now: why, as an event of the intake's. */
static int fill(struct hy_batches *b, struct hy_err *err)
{
    int rc = HY_INTAKE_ROWS;

    b->queue->takes_pickles = false;
    while (rc == HY_INTAKE_ROWS && b->begun.rows < b->options.rows) {
        rc = hy_intake_message(b->intake, b->queue, b->options.stops, -1, SLICE_MS);
        if (rc == HY_INTAKE_ROWS)
            rc = take(b, err);
        else if (rc == HY_INTAKE_PARTITION && b->begun.rows == 0)
            rc = HY_INTAKE_ROWS;
    }
    return rc;
}

/* What it means for who asked. */
static int event_of(struct hy_batches *b, int rc)
{
    const bool has_rows = b->begun.rows > 0;

    switch (rc) {
    case HY_INTAKE_ROWS:
    case HY_INTAKE_PARTITION:
        return HY_BATCHES_ROWS;
    case HY_INTAKE_NOTHING:
        return HY_BATCHES_NOTHING;
    case HY_INTAKE_END:
        return has_rows && !b->options.drops ? HY_BATCHES_ROWS : HY_BATCHES_END;
    default:
        return rc == -EINVAL && has_rows && !b->options.drops ? HY_BATCHES_ROWS : rc;
    }
}

/* The columns alone. */
static int describe(const struct hy_batches *b, const struct hy_gather_how *how, struct hy_gathered *ret)
{
    ret->how = *how;
    return hy_gather_want(ret, &b->wanted);
}

static int begin(struct hy_batches *b, const struct hy_gather_how *how)
{
    if (b->begun.columns)
        return 0;
    b->begun = (struct hy_gathered){.how = *how};
    return hy_gather_want(&b->begun, &b->wanted);
}

static int next(struct hy_batches *b, const struct hy_gather_how *how, struct hy_gathered *ret, struct hy_err *err)
{
    int rc = hy_intake_enter(b->intake, true, SLICE_MS);

    if (rc == -EBUSY)
        hy_intake_await(b->intake, SLICE_MS);
    if (rc < 0) {
        rc = rc == -ESHUTDOWN ? HY_INTAKE_END : HY_INTAKE_NOTHING;
    } else {
        rc = begin(b, how);
        if (rc == 0)
            rc = fill(b, err);
        hy_intake_leave(b->intake, true);
    }
    rc = event_of(b, rc);
    atomic_store(&b->is_over, rc == HY_BATCHES_END);
    if (rc == HY_BATCHES_ROWS) {
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
static int lock_turn(struct hy_batches *b)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += SLICE_MS * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return -pthread_mutex_timedlock(&b->turn, &t);
}

int hy_batches_next(int64_t number, const struct hy_gather_how *how, struct hy_gathered *ret, struct hy_err *err)
{
    struct hy_batches *b = hold(number);
    int rc;

    if (!b)
        return HY_BATCHES_END;
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
