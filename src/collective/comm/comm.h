/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator, as in MPI. It combines the two levels, shared memory within an agent and TCP between agents, and
 * provides sets of ranks.
 *
 * All calls block, come from one thread, and in the same order on all members of a set: the group ensures that.
 * Allreduce between hosts uses lanes: as many slices as the smallest host has members. Each slice is reduced within
 * the host, then between the ranks that hold it on the other hosts, then shared within the host.
 *
 * An error ends the communicator; the message names the rank that caused it, if any. HY_ADASUM is implemented here
 * (adasum.c) with exchanges on both levels.
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
    unsigned host;             /* any number; members with the same number share memory */
    const char *bell;
    struct hy_mesh_peer tcp;
};

struct hy_comm_spec {
    unsigned rank, size;
    const struct hy_comm_member *members; /* by rank; local ranks of a host are numbered in this order */
    int shm_fd;                           /* of hy_shm_reserve(); remains the caller's; -1: single rank of a host */
    int listen_fd;                        /* taken; -1: a single host */
    uint8_t key[HY_MESH_KEY_SIZE];
    struct hy_waiter waiter;              /* taken; its bell is closed with the communicator, its watch_fd is not */
};

/* On failure everything remains the caller's. */
int hy_comm_open(const struct hy_comm_spec *spec, struct hy_comm **ret, struct hy_err *err);
void hy_comm_close(struct hy_comm *c);
/* The error; valid as long as the communicator. */
const struct hy_err *hy_comm_error(const struct hy_comm *c);

/* For waiter.check: the rank for which the current call waits; -1: unknown. */
int hy_comm_awaited(const struct hy_comm *c);

unsigned hy_comm_rank(const struct hy_comm *c);
unsigned hy_comm_size(const struct hy_comm *c);
unsigned hy_comm_local_rank(const struct hy_comm *c);
unsigned hy_comm_local_size(const struct hy_comm *c);
unsigned hy_comm_cross_rank(const struct hy_comm *c); /* index of the host among those that have this local rank */
unsigned hy_comm_cross_size(const struct hy_comm *c);
bool hy_comm_is_homogeneous(const struct hy_comm *c); /* the same number of ranks on each host */

/* The control channel between rank 0 and each other rank. Sending never blocks: data is buffered until it is sent. */
int hy_comm_send(struct hy_comm *c, unsigned rank, const void *bytes, size_t n);
/* Appends the data received from `rank` to `into`, and sends buffered data. 0 or -Exxx. */
int hy_comm_receive(struct hy_comm *c, unsigned rank, struct hy_buf *into);
/* Blocks until all buffered data is sent. Before this rank blocks in a collective, its order must have been sent to
 * the other members. */
int hy_comm_flush(struct hy_comm *c);
/* The rank has left in order: its channel is not used any more, and its exit is not a failure. */
void hy_comm_drop_rank(struct hy_comm *c, unsigned rank);
/* Sleeps until there may be data to receive, `fd` is readable (-1: none), or timeout_ms have passed. */
int hy_comm_sleep(struct hy_comm *c, int fd, int timeout_ms);

/*
 * The same in parts, for a thread that lets others use the communicator while it sleeps: arm_wakeup (1: there is data
 * to receive, do not sleep), poll_begin, poll() for at most HY_CHECK_MS, poll_end, disarm_wakeup. A thread that ignores
 * data from peers (`peers` false) need not arm the wakeup. A thread that uses the communicator meanwhile disarms the
 * wakeup first and arms it again at the end, so that the sleeping thread is woken.
 */
#define HY_COMM_POLL_FDS 6
struct hy_comm_poll {
    struct pollfd fds[HY_COMM_POLL_FDS];
    nfds_t count;
};
int hy_comm_arm_wakeup(struct hy_comm *c);
void hy_comm_disarm_wakeup(struct hy_comm *c);
void hy_comm_poll_begin(const struct hy_comm *c, int fd, bool peers, struct hy_comm_poll *poll);
int hy_comm_poll_end(struct hy_comm *c, const struct hy_comm_poll *poll);

/* `slot`: the same on all members, not in use. Members: ranks, ascending, including this one. */
int hy_set_open(struct hy_comm *c, unsigned slot, const unsigned *members, unsigned count, struct hy_set **ret,
                struct hy_err *err);
void hy_set_close(struct hy_set *s);
unsigned hy_set_size(const struct hy_set *s);
unsigned hy_set_index(const struct hy_set *s); /* of this rank */

/* As in shm.h; indices and roots are those in the set. HY_AVERAGE divides by the size of the set. */
int hy_set_allreduce(struct hy_set *s, const void *in, void *out, size_t count, enum hy_type type, enum hy_reduce op,
                     double pre, double post);
/* The same of several arrays. Only within a host (hy_set_is_on_one_host), and not for HY_ADASUM. */
int hy_set_allreduce_spans(struct hy_set *s, const struct hy_span *spans, size_t span_count, enum hy_type type,
                           enum hy_reduce op, double pre, double post);
bool hy_set_is_on_one_host(const struct hy_set *s);
/* Adasum of several tensors at once: counts[i] elements each, contiguous. Its dot products are per tensor. */
int hy_set_adasum(struct hy_set *s, void *buf, const size_t *counts, size_t tensor_count, enum hy_type type, double pre,
                  double post);
int hy_set_reducescatter(struct hy_set *s, const void *in, void *out, const size_t *counts, enum hy_type type,
                         enum hy_reduce op, double pre, double post);
int hy_set_broadcast(struct hy_set *s, void *bytes, size_t n, unsigned root);
int hy_set_allgather(struct hy_set *s, const void *in, void *out, const size_t *sizes, const size_t *offsets);
int hy_set_alltoall(struct hy_set *s, const void *in, void *out, const size_t *matrix);
int hy_set_barrier(struct hy_set *s);

#endif
