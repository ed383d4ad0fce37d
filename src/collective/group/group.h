/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the group.
 *
 * A request is a `struct work` from its start until a caller has waited for it. Until it is done, it belongs to the
 * thread that holds `progress_lock` (progress.c): the group's thread, or a waiting thread while that one sleeps. Then
 * it belongs to the waiting thread. `lock` guards the lists and maps and the state of works; it is never held during
 * data transfers. `progress_lock` is taken before `lock`.
 *
 *   group.c      the interface
 *   messages.c   requests to rank 0, and its orders
 *   progress.c   the thread: when to send, to receive and to sleep
 *   perform.c    executes an order
 *
 * A group of one has no thread: the thread that waits for a request executes it.
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
    struct hy_list link;       /* in group.queued, then in group.asked */
    int64_t ticket;
    uint64_t key;              /* by set and name */
    struct hy_request request; /* name, tensors and splits are copies */
    struct hy_tensor *tensors;
    int64_t *splits;
    size_t split_count;
    bool is_done, is_waited_for;
    int64_t result;
    struct hy_err err;
    int64_t asked_us;          /* for the timeline */
};

/* A request that has an id. */
struct cached_request {
    uint32_t id;
    uint64_t key;
    uint8_t *signature;
    size_t size;
};

struct group_set {
    struct hy_set *set;   /* NULL: this rank is not a member */
    unsigned *members;
    unsigned count;       /* 0: not in use */
};

struct hy_group {
    struct hy_comm *comm;
    struct hy_rendezvous *rendezvous; /* NULL: a group of one */
    unsigned rank, size;
    pthread_t thread;
    bool has_thread;                  /* only for the thread that joins and leaves */
    bool alone;                       /* a group of one outside a run, without a thread */
    int wake;                         /* an eventfd: requests are queued, or the group stops */
    atomic_bool asleep;               /* the thread sleeps and must be woken */

    pthread_mutex_t progress_lock;             /* of the thread that makes progress: guards the communicator and
                                    * the fields at the end */
    pthread_mutex_t lock;
    pthread_cond_t over;              /* signaled when a work is done */
    struct hy_map tickets, by_key;    /* struct work; by_key: those that are not done */
    struct hy_list queued;             /* not sent yet */
    unsigned blocked;                 /* threads in hy_group_wait or hy_group_await */
    int64_t polled_ms;                /* when hy_group_poll_for was last called */
    bool stopping;
    struct hy_err broken;             /* code < 0: all requests fail ... */
    uint32_t missed;                  /* ... because this rank, minus 1, has left; 0: another reason */
    struct group_set sets[HY_SETS_MAX];
    struct hy_timeline *timeline;     /* NULL: none */
    atomic_bool has_timeline;

    /* Guarded by progress_lock. */
    bool is_polling, polls_peers;           /* the thread, without progress_lock; also for data of peers */
    struct hy_list asked;
    size_t asked_count;
    struct hy_negotiator *negotiator;       /* of rank 0 */
    struct hy_buf *received;             /* by rank; ranks other than 0 use the first only */
    struct hy_map cached_requests;         /* by key */
    struct hy_map by_id;
    int64_t idle_since;              /* the last request or order */
    const char *current;                /* the name of the request being executed; NULL: none */
    int64_t current_since, current_warn_ms;
    struct hy_stall_limits stall_limits;
    bool reported_waiting, waiting_acknowledged, warned;
    bool may_leave;                      /* rank 0 has acknowledged that this rank leaves: no more orders follow */
    void *stage;                      /* buffer for the tensors of a grouped request */
    size_t stage_size;
};

static inline uint64_t hy_group_key(uint32_t set, uint64_t name_hash)
{
    return name_hash ^ (uint64_t)set << 40;
}

/* ---- group.c ---- */
/* Completes a work, which belongs to the waiting thread afterwards. */
void hy_work_complete(struct hy_group *g, struct work *w, int64_t result, const struct hy_err *err);
/* True also when there is no such request. */
bool hy_work_is_done(struct hy_group *g, int64_t ticket);
/* Fails all pending and future requests. */
void hy_group_break(struct hy_group *g, const struct hy_err *err);
/* The pending request of that name; NULL: none. With `lock` held. */
struct work *hy_group_find(struct hy_group *g, uint32_t set, const char *name);

/* ---- messages.c: with progress_lock held ---- */
extern const struct hy_negotiator_events hy_group_negotiator_events;
int hy_group_send(struct hy_group *g, unsigned rank, const ProtobufCMessage *message); /* 0 or -Exxx */
/* Sends the queued requests to rank 0; whether there were any. */
bool hy_group_submit_queued(struct hy_group *g);
/* Receives messages of all peers, and executes orders; whether there were any. */
bool hy_group_receive_all(struct hy_group *g);
/* Reports to rank 0 whether this rank waits. */
void hy_group_report_waiting(struct hy_group *g, bool waits);
/* Fails the group, and reports it to the other ranks. */
void hy_group_fail(struct hy_group *g, const struct hy_err *err);
/* Prints a warning, and sends it to the driver. */
void hy_group_warn(struct hy_group *g, const char *text);
/* The error of the communicator, or `otherwise` if it has none. */
const struct hy_err *hy_group_comm_error(struct hy_group *g, const char *otherwise);
/* During the execution of an order: warns about the rank that delays it. */
void hy_group_on_wait(void *group);

/* ---- progress.c ---- */
void *hy_group_progress(void *group);
/* Makes progress in place of the group's thread until the request is done, for a limited time. Returns at once if
 * another thread makes progress already. */
void hy_group_progress_inline(struct hy_group *g, int64_t ticket);
void hy_group_wake(struct hy_group *g);

/* ---- perform.c ---- */
/*
 * Executes an order; `w` NULL: this rank has joined and contributes nothing. 0 and *ret_result; -EINVAL: the request is
 * invalid on all ranks, and the group continues; other errors end the group, since the other ranks have executed the
 * order or wait for this one.
 */
int hy_group_perform(struct hy_group *g, struct work *w, const Hy__Ask *ask, const Hy__Run *run, int64_t *ret_result,
                     struct hy_err *err);
bool hy_group_add_set(struct hy_group *g, uint32_t number, const int64_t *members, size_t count, struct hy_err *err);

#endif
