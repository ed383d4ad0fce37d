/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standby: hands an agent that has outlived its run over to the next run of the same client.
 *
 * The agent binds a datagram socket in the user's runtime directory. The socket's name contains the client, a key for
 * what the agent's fork server has imported, and the agent's process ID. The next driver with that client and key sends
 * one message with two descriptors: its log, and the lock that agents of a run hold. From then on the agent works like
 * one that the driver has started. Nothing here blocks.
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
    uint64_t key;     /* see hy_standby_key */
};

/* A hash of the client and of RunSpec.warm_key, which identifies the imports of the fork server. */
uint64_t hy_standby_key(const char *client, const char *warm_key);
/* Calls `each` for every live agent on standby. 0 or -Exxx. */
int hy_standby_each(void (*each)(void *arg, const struct hy_standby *s), void *arg);

/* ---- the agent ---- */

/* A bound socket, and its path for the caller to free; or -Exxx. */
int hy_standby_open(const char *client, const char *warm_key, char **ret_path);
/*
 * Receives a message. 1: the caller frees `ret` with hy__handover__free_unpacked and owns the descriptors.
 * 0: a request to exit. -EAGAIN: no message; -Exxx: an invalid one.
 */
int hy_standby_receive(int socket, Hy__Handover **ret, int fds[2]);

/* ---- the next driver, and `hopyard gc` ---- */

/*
 * Hands the order to the agent that waits for a run of this client and key. Asks the client's other agents to exit,
 * since their imports are outdated. A pidfd of the agent, or -Exxx (-ENOENT: there is none).
 */
int hy_standby_take(const char *client, const char *warm_key, const Hy__Handover *order, const int fds[2]);
/* Asks it to exit. 0 or -Exxx. */
int hy_standby_end(const struct hy_standby *s);

#endif
