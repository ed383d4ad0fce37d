/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of cores for trials, so that the runs of one user on one machine do not start more trials at a time than it
 * has cores.
 *
 * All agents of the user open one file in the runtime directory. A core is a byte of it that its holder has locked; the
 * lock is released when the agent ends, however. One more byte is the queue: the first waiter locks it, and no other
 * agent takes cores meanwhile. So runs take turns, and several cores can be taken at once.
 */
#ifndef HY_AGENT_CORE_LEASE_H
#define HY_AGENT_CORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct hy_cores;      /* opaque: one per agent */
struct hy_core_lease; /* opaque */

struct hy_cores_spec {
    const char *path;   /* of the file */
    uint32_t count;     /* cores of the machine */
    uint32_t per_core;  /* trials per core, at least 1 */
    uint32_t gang;      /* trials that start together and share min(gang, count) cores; 0: each is for itself */
    const char *holder; /* the name shown to runs that wait: "run 3 in '/home/me/digits'" */
};

struct hy_core_events {
    /* It has waited for a moment and still waits, for this reason; at most once for each lease. */
    void (*on_held)(void *arg, const char *why);
    void (*on_ready)(void *arg);
};

/* NULL: out of memory, or errno says why the file cannot be used. */
struct hy_cores *hy_cores_new(uv_loop_t *loop, const struct hy_cores_spec *spec);
/* All leases must be gone, and the loop must turn once more. NULL is fine. */
void hy_cores_free(struct hy_cores *c);

/* 1: granted; 0: it waits, and one of the events follows from the loop; -ENOMEM. */
int hy_core_lease_new(struct hy_cores *c, const struct hy_core_events *events, void *arg, struct hy_core_lease **ret);
/* Also of one that waits. NULL is fine. */
void hy_core_lease_free(struct hy_core_lease *l);

#endif
