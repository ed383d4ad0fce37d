/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous of ranks through the agent: a connection to its socket, which stays open as long as the group, and on
 * which the agent reports lost ranks. For ranks started by mpirun or srun, rank 0 takes the place of the agent
 * (rank_server.h).
 */
#ifndef HY_COLLECTIVE_RENDEZVOUS_H
#define HY_COLLECTIVE_RENDEZVOUS_H

#include <stdbool.h>

#include "collective/comm/comm.h"

struct hy_rendezvous;

/*
 * Joins the group, waits for all other ranks, and opens the communicator. Outside a run (no HOPYARD_GROUP) and without
 * a launcher, *ret is NULL and the communicator has one rank. -EINTR when `give_up` (NULL: never) returns true.
 */
int hy_rendezvous(struct hy_rendezvous **ret, struct hy_comm **ret_comm, bool (*give_up)(void *arg), void *arg,
                  struct hy_err *err);
void hy_rendezvous_free(struct hy_rendezvous *r); /* NULL is fine, here and below */

bool hy_rendezvous_is_outdated(const struct hy_rendezvous *r); /* from any thread */
/* A note for the user; it is lost if it cannot be sent. */
void hy_rendezvous_note(struct hy_rendezvous *r, const char *text);
/* `tick` is called regularly while the communicator waits, in the waiting thread. */
void hy_rendezvous_on_wait(struct hy_rendezvous *r, void (*tick)(void *arg), void *arg);
/* From any thread: all waits of the communicator fail soon. */
void hy_rendezvous_cancel(struct hy_rendezvous *r);
/* This rank cannot continue: the agent reports `why` to the others, unless it has reported the failure itself. */
void hy_rendezvous_fail(struct hy_rendezvous *r, const char *why);
/* This rank needs a rank that has left, which is the cause if this process fails now. Not from two threads at once. */
void hy_rendezvous_report_missed(struct hy_rendezvous *r, unsigned rank);
/* Leaves in order. 0 when the agent has acknowledged it, or -Exxx. */
int hy_rendezvous_leave(struct hy_rendezvous *r);

#endif
