/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective: what ranks of a training do together.
 *
 * A group is the ranks of one run at one time (a generation, when it is
 * elastic). Any thread may start a request and wait for it; a thread of the
 * group's own does the work, or who waits while that sleeps. Requests have names: the same request is what all
 * members of its process set have started under the same name. Rank 0 puts
 * them in order (negotiate.h), so threads, and TensorFlow's executors, need not
 * agree on one. What can never happen is an error at once, not a stall:
 * another shape or type, a rank that waits for something else, or has left.
 *
 * Directories; each depends only on those before it:
 *   numbers  element types, reduction of two buffers
 *   shm      ranks of one agent, through shared memory
 *   mesh     ranks of several agents, over TCP
 *   comm     both together, and sets of ranks
 *   group    requests and their order (negotiate.c), the thread, how ranks find each other by way of
 *            the agent (rendezvous.c) or of mpirun and srun (launcher.c, rank_server.c), a Chrome trace
 *
 * Outside of a run (no HOPYARD_GROUP in the environment), and where no launcher
 * has started several ranks, a group is of one.
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
    HY_ALLREDUCE, HY_ALLGATHER, HY_BROADCAST, HY_ALLTOALL, HY_REDUCESCATTER, HY_BARRIER, HY_JOIN,
    HY_SET_ADD, HY_SET_REMOVE, /* the group's own */
    HY_KINDS
};

struct hy_tensor {
    const void *in;             /* stays the caller's until the request is over */
    void *out;                  /* allreduce and broadcast: as large as `in`, may be `in`; else NULL: see `allocate` */
    uint32_t dim_count;
    int64_t dims[HY_DIMS_MAX];  /* of `in` */
};

struct hy_request {
    enum hy_kind kind;
    const char *name;           /* unique among those that are not over; "tensor 'NAME'" in sentences */
    uint32_t set;               /* process set; 0: the world */
    enum hy_type type;          /* of all tensors */
    enum hy_reduce op;
    double prescale, postscale; /* 1: none */
    uint32_t root;              /* of a broadcast: a rank of the group */
    size_t tensor_count;        /* several: they go together (grouped); 1 for alltoall */
    const struct hy_tensor *tensors; /* copied */
    const int64_t *splits;      /* alltoall: rows for each member; NULL: all the same */
    size_t split_count;         /* how many: one for each member */
    /*
     * Called by whichever thread does the work when the size of output `tensor` is known (allgather, alltoall, reducescatter):
     * returns the memory, which must last until the request is over; NULL: there is none, and the request fails.
     * For alltoall `tensor` 1 is the received splits, int32 [members].
     */
    void *(*allocate)(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes);
    void *arg;
    bool waits_next;            /* the caller waits for it at once: so nobody else is woken for it, for a moment */
};

/*
 * Joins the group of this run, as its environment says; blocks until all are there. 0, or -Exxx and a sentence:
 * a rank that died meanwhile, the agent gone.
 */
int hy_group_join(struct hy_group **ret, struct hy_err *err);
/* The same; `give_up` is called some ten times a second while it waits. When it says so, the answer is -EINTR. */
int hy_group_join_or(struct hy_group **ret, bool (*give_up)(void *arg), void *arg, struct hy_err *err);
/* Ends its work: what is not over fails, and whoever waits returns. The group is there until it is left. */
void hy_group_stop(struct hy_group *g);
/* Leaves, so that the run does not miss us. Nobody may be in another call. NULL is fine. */
void hy_group_leave(struct hy_group *g);

unsigned hy_group_rank(const struct hy_group *g);
unsigned hy_group_size(const struct hy_group *g);
unsigned hy_group_local_rank(const struct hy_group *g);
unsigned hy_group_local_size(const struct hy_group *g);
unsigned hy_group_cross_rank(const struct hy_group *g);
unsigned hy_group_cross_size(const struct hy_group *g);
bool hy_group_is_homogeneous(const struct hy_group *g);
/* More ranks wait to be taken in, or some are to go: time for a new group (elastic). */
bool hy_group_is_outdated(const struct hy_group *g);

/*
 * Starts a request: a ticket above 0, or -Exxx: -EINVAL (no such set, not a member, a bad shape or op), -EEXIST
 * (a request of that name is not over), -ECONNABORTED (the group is broken). Never blocks for long.
 */
int64_t hy_group_start(struct hy_group *g, const struct hy_request *request, struct hy_err *err);

/*
 * Waits for it and forgets the ticket. 0 (HY_JOIN: the last rank that joined; HY_SET_ADD: the set's number), or
 *   -EBADMSG        members disagree: another type, shape, op ... (FailedPrecondition)
 *   -EDEADLK        a member waits for something else (FailedPrecondition)
 *   -EINVAL         what all agree on is not possible (InvalidArgument)
 *   -ECONNABORTED   the group is broken: a rank is lost (Horovod's internal error); the sentence names it
 *   -ENOMEM
 */
int64_t hy_group_wait(struct hy_group *g, int64_t ticket, struct hy_err *err);
/* Waits for at most so long. 1: it is over, or there is no such request: wait returns at once. 0: it is not. */
int hy_group_await(struct hy_group *g, int64_t ticket, int timeout_ms);
/* The same without waiting. */
int hy_group_poll(struct hy_group *g, int64_t ticket);
/*
 * For a caller that has other work and looks again and again. Returns as hy_group_await, but also when any other request
 * is over; with timeout_ms 0 it only makes some progress itself. A rank whose threads poll counts as one that waits
 * after HY_POLLS_WAIT_MS in which nothing was asked for: until then its other work may start what others wait for.
 */
#define HY_POLLS_WAIT_MS 10000
int hy_group_poll_for(struct hy_group *g, int64_t ticket, int timeout_ms);

/*
 * A process set, by all ranks of the group together (blocks): its number, or -Exxx. The numbers of sets and their
 * members are the same everywhere.
 */
int64_t hy_group_set_add(struct hy_group *g, const unsigned *members, size_t count, struct hy_err *err);
int hy_group_set_remove(struct hy_group *g, uint32_t set, struct hy_err *err);
/* Fills up to `room`; how many members there are, or -ENOENT. */
int hy_group_set_members(struct hy_group *g, uint32_t set, unsigned *members, size_t room);

/* Every request from now on into a Chrome trace at `path` (which is replaced). -EALREADY: there is one. */
int hy_group_timeline_start(struct hy_group *g, const char *path, bool mark_cycles, struct hy_err *err);
int hy_group_timeline_stop(struct hy_group *g, struct hy_err *err);

#endif
