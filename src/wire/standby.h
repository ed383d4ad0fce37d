/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standby: how an agent that has outlived its run is handed to the next run of the same client.
 *
 * The agent binds a datagram socket in the user's runtime directory, whose name says for which client it waits, with
 * what in its fork server, and which process it is. The next driver with that client and key sends one message with two
 * descriptors: its log, and the lock that agents of a run hold. From then on the agent is as one that it has started.
 * Nothing here blocks.
 */
#ifndef HY_WIRE_STANDBY_H
#define HY_WIRE_STANDBY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "hopyard.pb-c.h"

/* An agent on standby. */
struct hy_standby {
    const char *path; /* of its socket */
    pid_t client;     /* whose next run it waits for */
    pid_t agent;
    uint64_t key;     /* a hash of the client's mark and the key of what it has imported */
};

uint64_t hy_standby_key(const char *client, const char *warm_key);
/* Calls back for each that lives. 0 or -Exxx. */
int hy_standby_each(void (*each)(void *arg, const struct hy_standby *s), void *arg);

/* ---- the agent ---- */

/* A bound socket, and its path to free; or -Exxx. */
int hy_standby_open(const char *client, const char *warm_key, char **ret_path);
/*
 * Takes a message. 1: `ret` is to be freed by hy__handover__free_unpacked, and the descriptors are the caller's.
 * 0: it is asked to end. -EAGAIN: there is none; -Exxx: what came makes no sense.
 */
int hy_standby_receive(int socket, Hy__Handover **ret, int fds[2]);

/* ---- the next driver, and `hopyard gc` ---- */

/*
 * Hands the agent over that waits for a run of this client and key; others of the client are asked to end, since what
 * they have imported is not what it has now. A pidfd of the agent, or -Exxx (-ENOENT: there is none).
 */
int hy_standby_take(const char *client, const char *warm_key, const Hy__Handover *order, const int fds[2]);
/* Asks it to end. 0 or -Exxx. */
int hy_standby_end(const struct hy_standby *s);

#endif
