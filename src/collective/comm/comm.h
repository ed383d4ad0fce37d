/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator: what MPI would call one. It puts the two levels together,
 * shared memory within an agent and TCP between agents, and knows sets of ranks.
 *
 * All calls on it come from one thread, block, and come in the same order on all
 * members of a set: group.h sees to that. Allreduce between hosts goes in lanes:
 * as many slices as the smallest host has members, each reduced within the
 * host, then between the ranks that hold the same slice elsewhere, then shared
 * within the host.
 *
 * An error is the end of the communicator; the sentence names the rank if one
 * is to blame. HY_ADASUM is done here (adasum.c) with the exchanges of both levels.
 */
#ifndef HY_COLLECTIVE_COMM_H
#define HY_COLLECTIVE_COMM_H

#include "base/buf.h"
#include "collective/mesh/mesh.h"
#include "collective/shm/shm.h"
#include "collective/numbers/types.h"

struct hy_comm;
struct hy_set;

struct hy_comm_member {
    unsigned host;             /* any number: members with the same one share memory */
    const char *bell;
    struct hy_mesh_peer tcp;
};

struct hy_comm_spec {
    unsigned rank, size;
    const struct hy_comm_member *members; /* by rank; a host's ranks in their order are its local ranks */
    int shm_fd;                           /* of hy_shm_reserve(); stays the caller's; -1: alone on this host */
    int listen_fd;                        /* taken; -1: one host */
    uint8_t key[HY_MESH_KEY_SIZE];
    struct hy_waiter waiter;              /* taken: its bell is closed with the communicator, its watch_fd is not */
};

/* What is taken stays the caller's if it fails. */
int hy_comm_open(const struct hy_comm_spec *spec, struct hy_comm **ret, struct hy_err *err);
void hy_comm_close(struct hy_comm *c);
/* What went wrong; valid as long as the communicator. */
const struct hy_err *hy_comm_error(const struct hy_comm *c);

/* The rank that the call under way waits for, in waiter.check; -1: it is not known. */
int hy_comm_awaited(const struct hy_comm *c);

unsigned hy_comm_rank(const struct hy_comm *c);
unsigned hy_comm_size(const struct hy_comm *c);
unsigned hy_comm_local_rank(const struct hy_comm *c);
unsigned hy_comm_local_size(const struct hy_comm *c);
unsigned hy_comm_cross_rank(const struct hy_comm *c); /* which host, among those that have our local rank */
unsigned hy_comm_cross_size(const struct hy_comm *c);
bool hy_comm_is_homogeneous(const struct hy_comm *c); /* as many ranks on each host */

/* Bytes between rank 0 and all others: what is told lies in a buffer until it has gone. */
int hy_comm_send(struct hy_comm *c, unsigned rank, const void *bytes, size_t n);
/* Appends what has come from `rank` to `into`; moves what is to go. 0 or -Exxx. */
int hy_comm_receive(struct hy_comm *c, unsigned rank, struct hy_buf *into);
/* Returns when all that was told has left us: a rank that is to do something with us must not wait for the order to. */
int hy_comm_flush(struct hy_comm *c);
/* That rank has left in order: nothing is heard from it or told to it any more, and its end is no failure. */
void hy_comm_drop_rank(struct hy_comm *c, unsigned rank);
/* Sleeps until there may be something to hear, `fd` is readable (-1: none), or timeout_ms have gone. */
int hy_comm_sleep(struct hy_comm *c, int fd, int timeout_ms);

/*
 * The same in parts, for a thread that lets others use the communicator while it sleeps. It lies down (1: there is
 * something to hear), begins a nap, polls its fds for HY_CHECK_MS at most, ends the nap, gets up. One that does not
 * want to be woken by what others say (`hears`) need not lie down. Others who come
 * meanwhile get up themselves and lie down again before they go, so that whoever sleeps is rung for.
 */
#define HY_COMM_POLL_FDS 6
struct hy_comm_poll {
    struct pollfd fds[HY_COMM_POLL_FDS];
    nfds_t count;
};
int hy_comm_arm_wakeup(struct hy_comm *c);
void hy_comm_disarm_wakeup(struct hy_comm *c);
void hy_comm_poll_begin(const struct hy_comm *c, int fd, bool hears, struct hy_comm_poll *nap);
int hy_comm_poll_end(struct hy_comm *c, const struct hy_comm_poll *nap);

/* `slot`: the same on all members, not in use. Members: ranks, ascending, we among them. */
int hy_set_open(struct hy_comm *c, unsigned slot, const unsigned *members, unsigned count, struct hy_set **ret,
                struct hy_err *err);
void hy_set_close(struct hy_set *s);
unsigned hy_set_size(const struct hy_set *s);
unsigned hy_set_index(const struct hy_set *s); /* ours */

/* See shm.h for what each does; indices and roots are those in the set. HY_AVERAGE divides by the set's size. */
int hy_set_allreduce(struct hy_set *s, const void *in, void *out, size_t count, enum hy_type type, enum hy_reduce op,
                     double pre, double post);
/* The same of several arrays. Only within a host (hy_set_is_on_one_host), and not for HY_ADASUM. */
int hy_set_allreduce_spans(struct hy_set *s, const struct hy_span *spans, size_t span_count, enum hy_type type,
                           enum hy_reduce op, double pre, double post);
bool hy_set_is_on_one_host(const struct hy_set *s);
/* Several tensors as one, for HY_ADASUM, which is a matter of whole tensors: counts[i] elements each, one behind the other. */
int hy_set_adasum(struct hy_set *s, void *buf, const size_t *counts, size_t tensor_count, enum hy_type type, double pre,
                  double post);
int hy_set_reducescatter(struct hy_set *s, const void *in, void *out, const size_t *counts, enum hy_type type,
                         enum hy_reduce op, double pre, double post);
int hy_set_broadcast(struct hy_set *s, void *bytes, size_t n, unsigned root);
int hy_set_allgather(struct hy_set *s, const void *in, void *out, const size_t *sizes, const size_t *offsets);
int hy_set_alltoall(struct hy_set *s, const void *in, void *out, const size_t *matrix);
int hy_set_barrier(struct hy_set *s);

#endif
