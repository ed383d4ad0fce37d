/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is there, by way of the agent: a connection to its socket, which stays
 * open as long as the group and over which it says who has died. For ranks that
 * mpirun or srun has started, rank 0 is that agent (rank_server.h).
 */
#ifndef HY_COLLECTIVE_RENDEZVOUS_H
#define HY_COLLECTIVE_RENDEZVOUS_H

#include <stdbool.h>

#include "collective/comm/comm.h"

struct hy_rendezvous;

/*
 * Says that we are there, waits for all others, and opens the communicator. *ret is NULL where there is no run
 * (no HOPYARD_GROUP) and no launcher: then the communicator is of one. -EINTR: `give_up` (NULL: never) has said so.
 */
int hy_rendezvous(struct hy_rendezvous **ret, struct hy_comm **ret_comm, bool (*give_up)(void *arg), void *arg,
                  struct hy_err *err);
void hy_rendezvous_free(struct hy_rendezvous *r); /* NULL is fine, here and below */

bool hy_rendezvous_is_outdated(const struct hy_rendezvous *r); /* from any thread */
/* For people; a note that cannot be delivered is lost. */
void hy_rendezvous_note(struct hy_rendezvous *r, const char *text);
/* `tick` is called now and then while the communicator waits, by the thread that does. */
void hy_rendezvous_on_wait(struct hy_rendezvous *r, void (*tick)(void *arg), void *arg);
/* From any thread: all waits of the communicator end, within a moment. */
void hy_rendezvous_cancel(struct hy_rendezvous *r);
/* We cannot go on: whoever waits for us is told why. Nothing is said if that is the agent's own news. */
void hy_rendezvous_fail(struct hy_rendezvous *r, const char *why);
/* We need a rank that has left: it is to blame if this process fails now. Not by two threads at once. */
void hy_rendezvous_report_missed(struct hy_rendezvous *r, unsigned rank);
/* We go, and are not to be missed. 0 when the agent has taken it, or -Exxx. */
int hy_rendezvous_leave(struct hy_rendezvous *r);

#endif
