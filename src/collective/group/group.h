/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group's inside.
 *
 * A request is a `struct work` from its start until somebody has waited for it.
 * Until it is over it belongs to who has the turn (progress.c): the group's
 * thread, or one that waits while that sleeps. Then it is the waiter's. `lock`
 * guards the lists and maps and the state of works; it is never held while
 * numbers are moved. `turn` comes before `lock`.
 *
 *   group.c      what others call
 *   progress.c   the thread: asks, orders, sleep
 *   perform.c    an order is carried out
 *
 * A group of one has no thread: who waits for a request carries it out.
 */
#ifndef HY_COLLECTIVE_GROUP_H
#define HY_COLLECTIVE_GROUP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "collective.pb-c.h"
#include "collective/collective.h"
#include "collective/comm/comm.h"
#include "collective/group/negotiate.h"
#include "collective/group/rendezvous.h"
#include "collective/group/timeline.h"

struct work {
    struct hy_list link;       /* in group.fresh, then in group.asked */
    int64_t ticket;
    uint64_t key;              /* by set and name */
    struct hy_request request; /* name, tensors and splits are ours */
    struct hy_tensor *tensors;
    int64_t *splits;
    size_t split_count;
    bool is_done, is_waited_for;
    int64_t result;
    struct hy_err err;
    int64_t asked_us;          /* for the timeline */
};

/* What was agreed on once, and its number. */
struct cached_request {
    uint32_t id;
    uint64_t key;
    uint8_t *signature;
    size_t size;
};

struct group_set {
    struct hy_set *set;   /* NULL: we are no member */
    unsigned *members;
    unsigned count;       /* 0: not in use */
};

struct hy_group {
    struct hy_comm *comm;
    struct hy_rendezvous *rendezvous; /* NULL: of one */
    unsigned rank, size;
    pthread_t thread;
    bool has_thread;                  /* of who joins and leaves */
    bool alone;                       /* a group of one outside of a run: it has no thread */
    int wake;                         /* an eventfd: something is fresh, or we leave */
    atomic_bool asleep;               /* the thread, so that it must be woken */

    pthread_mutex_t progress_lock;             /* who goes round, and may touch what is below, the communicator, the council */
    pthread_mutex_t lock;
    pthread_cond_t over;              /* a work is */
    struct hy_map tickets, by_key;    /* struct work; by_key: those that are not over */
    struct hy_list queued;             /* not seen by the thread */
    unsigned blocked;                 /* threads that wait */
    int64_t polled_ms;                /* when hy_group_poll_for was called last */
    bool stopping;
    struct hy_err broken;             /* code < 0: nothing works any more ... */
    uint32_t missed;                  /* ... because this rank, less 1, has left; 0: not because of that */
    struct group_set sets[HY_SETS_MAX];
    struct hy_timeline *timeline;     /* NULL: none */
    atomic_bool has_timeline;

    /* Of who has the turn. */
    bool is_polling, polls_peers;           /* the thread, without the turn; also for what others say */
    struct hy_list asked;
    size_t asked_count;
    struct hy_negotiator *negotiator;       /* rank 0 */
    struct hy_buf *received;             /* bytes by rank; of others than 0: one */
    struct hy_map cached_requests;         /* by key */
    struct hy_map by_id;
    int64_t idle_since;              /* nothing was asked or ordered */
    const char *current;                /* the request that is carried out; NULL: none */
    int64_t current_since, current_warn_ms;
    struct hy_stall_limits stall_limits;
    bool reported_waiting, waiting_acknowledged, warned;
    bool may_leave;                      /* rank 0 knows that we leave, and orders nothing more */
    void *stage;                      /* tensors of a group, side by side */
    size_t stage_size;
};

static inline uint64_t hy_group_key(uint32_t set, uint64_t name_hash)
{
    return name_hash ^ (uint64_t)set << 40;
}

/* ---- group.c ---- */
/* It is over: whoever waits for it may have it. Not to be touched afterwards. */
void hy_work_complete(struct hy_group *g, struct work *w, int64_t result, const struct hy_err *err);
/* Also when there is no such request. */
bool hy_work_is_done(struct hy_group *g, int64_t ticket);
/* The end: everything that is not over fails, and what comes. */
void hy_group_break(struct hy_group *g, const struct hy_err *err);
/* What is not over of that name; NULL: nothing. With the lock. */
struct work *hy_group_find(struct hy_group *g, uint32_t set, const char *name);

/* ---- progress.c ---- */
extern const struct hy_negotiator_events hy_group_negotiator_events;
void *hy_group_progress(void *group);
/* While an order is carried out: who keeps it waiting? */
void hy_group_on_wait(void *group);
/* Goes round in the thread's place until the request is over, for a moment. Not at all if somebody else does. */
void hy_group_progress_inline(struct hy_group *g, int64_t ticket);
void hy_group_wake(struct hy_group *g);

/* ---- perform.c ---- */
/*
 * Carries out an order; `w` NULL: we have joined, and take part with nothing. 0 and *ret_result; -EINVAL: it is not
 * possible, on no rank, and that is all; else it is the end of the group: the others have done it, or wait for us.
 */
int hy_group_perform(struct hy_group *g, struct work *w, const Hy__Ask *ask, const Hy__Run *run, int64_t *ret_result,
                     struct hy_err *err);
bool hy_group_add_set(struct hy_group *g, uint32_t number, const int64_t *members, size_t count, struct hy_err *err);

#endif
