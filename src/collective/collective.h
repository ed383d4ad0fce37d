/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective: the collective operations of a training's ranks.
 *
 * A group is the ranks of one run at one time (a generation, when it is elastic). Any thread may start a request and
 * wait for it; the group's thread executes it, or the waiting thread itself while that sleeps. Requests have names:
 * members of a process set that start a request of the same name mean the same operation. Rank 0 puts requests in
 * order (group/negotiate.h), so threads, and TensorFlow's executors, need not start them in the same order. A request
 * that can never complete fails instead of blocking: a mismatch of shape or type, a deadlock, a rank that has left.
 *
 * Directories; each depends only on those before it:
 *   numbers  element types, reduction of two buffers
 *   shm      ranks of one agent, through shared memory
 *   mesh     ranks of several agents, over TCP
 *   comm     both together, and sets of ranks
 *   group    requests and their order (negotiate.c), the thread (progress.c), the rendezvous of ranks through the
 *            agent (rendezvous.c) or, under mpirun and srun, through rank 0 (launcher.c, rank_server.c), a Chrome trace
 *
 * Outside a run (no HOPYARD_GROUP in the environment), and where no launcher has started several ranks, a group has
 * one member.
 */
#ifndef HY_COLLECTIVE_H
#define HY_COLLECTIVE_H

#include <stdbool.h>

#include "base/err.h"
#include "collective/mesh/addresses.h"
#include "collective/numbers/types.h"

#define HY_DIMS_MAX 32
#define HY_TENSORS_MAX 65536

struct hy_group;

enum hy_kind {
    HY_ALLREDUCE,
    HY_ALLGATHER,
    HY_BROADCAST,
    HY_ALLTOALL,
    HY_REDUCESCATTER,
    HY_BARRIER,
    HY_JOIN,
    HY_SET_ADD,
    HY_SET_REMOVE, /* started by hy_group_set_add and hy_group_set_remove only */
    HY_KINDS
};

struct hy_tensor {
    const void *in;             /* must last until the request is complete */
    void *out; /* allreduce and broadcast: as large as `in`, may be `in`; else NULL: see `allocate` */
    uint32_t dim_count;
    int64_t dims[HY_DIMS_MAX]; /* of `in` */
};

struct hy_request {
    enum hy_kind kind;
    const char *name; /* unique among pending requests; "tensor 'NAME'" in messages */
    uint32_t set; /* process set; 0: the world */
    enum hy_type type; /* of all tensors */
    enum hy_reduce op;
    double prescale, postscale; /* 1: none */
    uint32_t root; /* of a broadcast: a rank of the group */
    size_t tensor_count; /* several: a grouped request; 1 for alltoall */
    const struct hy_tensor *tensors; /* copied */
    const int64_t *splits; /* alltoall: rows for each member; NULL: equal shares */
    size_t split_count; /* one for each member */
    /*
     * Allocates output `tensor` (allgather, alltoall, reducescatter) as soon as its size is known, in the thread that
     * executes the request. The memory must last until the request is complete; NULL fails the request. For alltoall,
     * `tensor` 1 is the received splits, int32 [members].
     */
    void *(*allocate)(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes);
    void *arg;
    bool waits_next; /* the caller waits for it next: saves waking the group's thread */
};

/*
 * Joins the group of this run, as described by the environment; blocks until all ranks have joined. 0, or -Exxx with a
 * message: a rank died meanwhile, the agent is gone.
 */
int hy_group_join(struct hy_group **ret, struct hy_err *err);
/* The same; `give_up` is called about ten times a second while it waits. Returns -EINTR when that returns true. */
int hy_group_join_or(struct hy_group **ret, bool (*give_up)(void *arg), void *arg, struct hy_err *err);
/* Fails all pending requests, so that waiting threads return. The group exists until hy_group_leave. */
void hy_group_stop(struct hy_group *g);
/* Leaves in order, which the run does not take for a loss. No other thread may be in a call. NULL is fine. */
void hy_group_leave(struct hy_group *g);

unsigned hy_group_rank(const struct hy_group *g);
unsigned hy_group_size(const struct hy_group *g);
unsigned hy_group_local_rank(const struct hy_group *g);
unsigned hy_group_local_size(const struct hy_group *g);
unsigned hy_group_cross_rank(const struct hy_group *g);
unsigned hy_group_cross_size(const struct hy_group *g);
bool hy_group_is_homogeneous(const struct hy_group *g);
/* Elastic: ranks are to be added or removed, so a new group should be formed. */
bool hy_group_is_outdated(const struct hy_group *g);

/*
 * Starts a request: a ticket above 0, or -Exxx: -EINVAL (no such set, not a member, an invalid shape or op), -EEXIST
 * (a request of that name is pending), -ECONNABORTED (the group is broken). Never blocks for long.
 */
int64_t hy_group_start(struct hy_group *g, const struct hy_request *request, struct hy_err *err);

/*
 * Waits for a request and releases its ticket. 0 (HY_JOIN: the last rank that joined; HY_SET_ADD: the set's number), or
 *   -EBADMSG        members disagree on type, shape, op ... (FailedPrecondition)
 *   -EDEADLK        a member waits for another request (FailedPrecondition)
 *   -EINVAL         the request is invalid, on all members (InvalidArgument)
 *   -ECONNABORTED   the group is broken: a rank is lost (Horovod's internal error); the message names it
 *   -ENOMEM
 */
int64_t hy_group_wait(struct hy_group *g, int64_t ticket, struct hy_err *err);
/* Waits for at most timeout_ms. 1: complete, or no such ticket, so that hy_group_wait returns at once; 0: pending. */
int hy_group_await(struct hy_group *g, int64_t ticket, int timeout_ms);
/* The same without waiting. */
int hy_group_poll(struct hy_group *g, int64_t ticket);
/*
 * For a caller that polls between other work. Returns as hy_group_await, but also when any other request completes;
 * with timeout_ms 0 it only makes some progress itself. A rank whose threads poll counts as waiting after
 * HY_POLLS_WAIT_MS without a new request: until then its other work may start a request that other ranks wait for.
 */
#define HY_POLLS_WAIT_MS 10000
int hy_group_poll_for(struct hy_group *g, int64_t ticket, int timeout_ms);

/*
 * Adds a process set; all ranks of the group call it together, and it blocks. Returns its number, the same on all
 * ranks, or -Exxx.
 */
int64_t hy_group_set_add(struct hy_group *g, const unsigned *members, size_t count, struct hy_err *err);
int hy_group_set_remove(struct hy_group *g, uint32_t set, struct hy_err *err);
/* Writes up to `room` members; returns how many there are, or -ENOENT. */
int hy_group_set_members(struct hy_group *g, uint32_t set, unsigned *members, size_t room);

/* Writes every request from now on to a Chrome trace at `path`, which is replaced. -EALREADY: one is being written. */
int hy_group_timeline_start(struct hy_group *g, const char *path, bool mark_cycles, struct hy_err *err);
int hy_group_timeline_stop(struct hy_group *g, struct hy_err *err);

#endif
