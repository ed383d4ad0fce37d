/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intake: what a process takes from its hub, message by message, and whom it
 * owes results. Rows may be taken as Python's, as NumPy's or as TensorFlow's, each
 * by a thread of its own; what one has left of a message the next goes on with.
 *
 * One thread takes rows. Others may come in meanwhile, to give results, to
 * terminate or to close: they wake who takes, which lets them in and goes on
 * after them.
 */
#ifndef HY_FEED_INTAKE_H
#define HY_FEED_INTAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "feed/gather.h"
#include "feed/hub.h"

#define HY_INTAKE_QUEUES 16

struct hy_queue {
    char name[HY_QUEUE_MAX]; /* "": not used yet */
    struct hy_taken taken;
    bool takes_pickles; /* who takes rows says so: rows may come as somebody else has pickled them */
    bool is_in_hand;    /* a message of it; `reading` says how much of it is taken */
    struct hy_reading reading;
};

struct hy_owed {
    uint64_t feeder, rows;
};

/* Has the rows of a pickle come again, from the first-th on, as columns if they have any. 0 or -Exxx. */
typedef int hy_again(void *context, const char *queue, const void *pickle, size_t n, uint32_t first);

struct hy_intake {
    struct hy_hub *hub; /* NULL: closed */
    hy_again *again;    /* for who takes columns where rows were taken before; NULL: they are refused */
    void *again_context;
    struct hy_queue queues[HY_INTAKE_QUEUES];
    struct hy_owed *owed; /* results, oldest first */
    size_t owed_first, owed_count, owed_room;
    bool is_terminated;
    atomic_bool is_asked; /* who is in leaves, since it ends */
    uint64_t messages;
    pthread_mutex_t lock; /* private, and all below */
    pthread_cond_t changed;
    bool is_in, is_taken;
    unsigned waiting, users;
};

/* The hub is its own from now on, at a failure, too. NULL when out of memory. */
struct hy_intake *hy_intake_new(struct hy_hub *hub);
struct hy_intake *hy_intake_ref(struct hy_intake *in);
void hy_intake_unref(struct hy_intake *in); /* NULL is fine; nobody may be in with the last */

/* ---- who is in ---- */

/*
 * Comes in, to take rows or for something else. 0, -EAGAIN when it took too long, -EBUSY when another takes rows,
 * -ESHUTDOWN when it is closed. All functions below are for who is in.
 */
int hy_intake_enter(struct hy_intake *in, bool takes, int timeout_ms);
void hy_intake_leave(struct hy_intake *in, bool takes);
/* Waits until nobody takes rows, or it took too long. From any thread. */
void hy_intake_await(struct hy_intake *in, int timeout_ms);

/* ---- rows ---- */

/* The queue of that name, a new one where there is none; NULL: it is too long, or one too many. From any thread. */
struct hy_queue *hy_intake_queue(struct hy_intake *in, const char *name);

enum hy_intake_event {
    HY_INTAKE_ROWS, /* are in hand */
    HY_INTAKE_PARTITION,
    HY_INTAKE_END,
    HY_INTAKE_OTHER, /* as hy_hub_wait has it */
    HY_INTAKE_NOTHING,
};

/* Until rows are in hand; `stops`: at the end of a partition, too. An event, or -Exxx. */
int hy_intake_message(struct hy_intake *in, struct hy_queue *q, bool stops, int other, int timeout_ms);
/* So many rows were taken of what is in hand, and the reading tells whether it is over. 0 or -ENOMEM. */
int hy_intake_took(struct hy_intake *in, struct hy_queue *q, uint64_t rows);
/* What is in hand is of no use; `is_nonsense`: and its feeder is not heard any more. */
void hy_intake_give_up(struct hy_intake *in, struct hy_queue *q, bool is_nonsense);

/* ---- its end ---- */

/* As hy_hub_end; from any thread, also when it is closed. */
void hy_intake_end(struct hy_intake *in);
/* Who takes rows is told that it is over, and comes out; from any thread. The next two do not ask any more. */
void hy_intake_ask(struct hy_intake *in);
int hy_intake_terminate(struct hy_intake *in, struct hy_err *err);
void hy_intake_close(struct hy_intake *in);

#endif
